// Builds small recordings by hand for tests: one process, times in microseconds from zero.
#pragma once

#include <map>
#include <string>

#include "base/loss.h"
#include "model/batch.h"

namespace tailspan::analyze {

// The counters that must stay zero while records do not contradict each other; empty when they do.
inline std::map<std::string, uint64_t> Contradictions(const base::LossCounters& loss) {
  std::map<std::string, uint64_t> out = loss.NonZero();
  std::erase_if(out, [](const auto& counter) {
    return counter.first != "loop_record_contradicts" && counter.first != "ledger_gap" &&
           counter.first != "ledger_law_broken" && counter.first != "ledger_cut";
  });
  return out;
}

class RecordingBuilder {
 public:
  static constexpr int32_t kPid = 100;

  model::RecordBatch batch;

  RecordingBuilder& Span(uint64_t id, uint64_t parent, const char* name, int64_t start_us, int64_t end_us,
                         uint64_t trace = 1) {
    model::Span span;
    span.trace_id = {0, trace};
    span.span_id = id;
    span.parent_id = parent;
    span.name = name;
    span.start_unix_ns = start_us * 1000;
    span.end_unix_ns = end_us * 1000;
    batch.spans.push_back(span);
    return *this;
  }

  // A thread ran without a switch.
  RecordingBuilder& Cpu(int32_t tid, int64_t start_us, int64_t end_us) {
    batch.intervals.push_back(Window(tid, start_us, end_us));
    return *this;
  }

  // A wait that follows what the thread ran before (from the end of its last record).
  model::ThreadInterval& Wait(int32_t tid, int64_t ran_from_us, int64_t start_us, int64_t wake_us, int64_t end_us,
                              model::WaitClass wait_class, model::Cause cause) {
    model::ThreadInterval interval = Window(tid, ran_from_us, start_us);
    interval.wake_mono_ns = wake_us * 1000;
    interval.wait_end_mono_ns = end_us * 1000;
    interval.wait_class = wait_class;
    interval.cause = cause;
    batch.intervals.push_back(interval);
    return batch.intervals.back();
  }

  // One run of a handle. waker 0: the poll.
  RecordingBuilder& Step(uint64_t id, uint64_t waker, uint64_t task, model::StepKind kind, uint64_t span,
                         int64_t ready_us, int64_t start_us, int64_t end_us, int32_t tid = kPid) {
    model::LoopStep step;
    step.pid = kPid;
    step.tid = tid;
    step.step_id = id;
    step.waker_step_id = waker;
    step.task = task;
    step.kind = kind;
    step.span_id = span;
    step.ready_mono_ns = ready_us * 1000;
    step.start_mono_ns = start_us * 1000;
    step.end_mono_ns = end_us * 1000;
    batch.steps.push_back(step);
    return *this;
  }

  RecordingBuilder& Change(int64_t at_us, uint64_t span, uint64_t previous, uint64_t step, int32_t tid = kPid) {
    batch.span_changes.push_back({kPid, tid, at_us * 1000, step, span, previous, model::SpanChangeKind::kEnter});
    return *this;
  }

  RecordingBuilder& Site(uint16_t index, const char* name) {
    batch.sites.push_back({kPid, index, name});
    return *this;
  }

  RecordingBuilder& Gc(int64_t start_us, int64_t end_us, int32_t generation, int32_t tid = kPid) {
    batch.gc_pauses.push_back({kPid, tid, start_us * 1000, end_us * 1000, generation, 0, 0});
    return *this;
  }

  // Loop records were lost between the ends of two others.
  RecordingBuilder& Hole(int64_t after_us, int64_t before_us, uint64_t records, int32_t tid = kPid) {
    batch.loop_holes.push_back({kPid, tid, after_us * 1000, before_us * 1000, records});
    return *this;
  }

 private:
  static model::ThreadInterval Window(int32_t tid, int64_t start_us, int64_t end_us) {
    model::ThreadInterval interval;
    interval.pid = kPid;
    interval.tid = tid;
    interval.window_start_mono_ns = start_us * 1000;
    interval.wait_start_mono_ns = interval.wait_end_mono_ns = end_us * 1000;
    interval.on_cpu_ns = (end_us - start_us) * 1000;
    return interval;
  }
};

}  // namespace tailspan::analyze
