// What the loop rings of Python processes told. Times are CLOCK_MONOTONIC of the row's host.
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
const Table<model::LoopStep>& StepTable() {
  static const auto table = [] {
    Table<model::LoopStep> t("loop_step", "One run of one handle of an event loop, or one job of an executor.",
                             {"ready_mono_ns", "end_mono_ns"});
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(start_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("tid", "thread", TAILSPAN_FIELD(tid));
    t.Number("step_id", "unique in its process, consecutive per thread", TAILSPAN_FIELD(step_id));
    t.Optional("waker_step_id",
               "the step that made it ready; 0xFFFF << 48 | tid for code outside any step; NULL the poll, or unknown",
               TAILSPAN_FIELD(waker_step_id), 0);
    t.SpanIdOf("waker_span_id", "the span current in the waker at that instant; NULL none",
               TAILSPAN_FIELD(waker_span_id));
    t.Optional("task", "identity of its task while that lives; NULL no task's", TAILSPAN_FIELD(task), 0);
    t.Enum("kind", "how it came to run", TAILSPAN_FIELD(kind), StepKindEnum());
    t.Number("site", "the code that made it ready: index in table loop_site", TAILSPAN_FIELD(site));
    t.Optional("fd", "file descriptor of I/O steps; NULL none", TAILSPAN_FIELD(fd), -1);
    t.SpanIdOf("span_id", "the thread's span from start to end, but for the changes within; NULL none",
               TAILSPAN_FIELD(span_id));
    t.SpanIdOf("outer_span_id", "the thread's span again from end on; NULL none", TAILSPAN_FIELD(outer_span_id));
    t.Number("ready_mono_ns", "when it became ready", TAILSPAN_FIELD(ready_mono_ns));
    t.Number("start_mono_ns", "when it began to run", TAILSPAN_FIELD(start_mono_ns));
    t.Number("end_mono_ns", "when it ended", TAILSPAN_FIELD(end_mono_ns));
    return t;
  }();
  return table;
}

const Table<model::LoopSite>& SiteTable() {
  static const auto table = [] {
    Table<model::LoopSite> t("loop_site", "Names of the code that makes steps ready.");
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), [](const model::LoopSite&) { return INT64_MAX; });
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("site", "index within the process", TAILSPAN_FIELD(index));
    t.Text("name", "file.py:qualname", TAILSPAN_FIELD(name));
    return t;
  }();
  return table;
}

const Table<model::SpanChange>& SpanChangeTable() {
  static const auto table = [] {
    Table<model::SpanChange> t("span_change", "From at_mono_ns on, span_id is the current span of the thread.",
                               {"at_mono_ns", "at_mono_ns"});
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(at_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("tid", "thread", TAILSPAN_FIELD(tid));
    t.Number("at_mono_ns", "when", TAILSPAN_FIELD(at_mono_ns));
    t.Optional("step_id", "the step in which it happened; NULL outside any", TAILSPAN_FIELD(step_id), 0);
    t.SpanIdOf("span_id", "the span from now on; NULL none", TAILSPAN_FIELD(span_id));
    t.SpanIdOf("previous_id", "the span before; NULL none", TAILSPAN_FIELD(previous_id));
    t.Enum("kind", "why it changed", TAILSPAN_FIELD(kind), SpanChangeEnum());
    return t;
  }();
  return table;
}

const Table<model::LoopPoll>& PollTable() {
  static const auto table = [] {
    Table<model::LoopPoll> t("loop_poll", "An event loop waiting in its poll.", {"enter_mono_ns", "resume_mono_ns"});
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(enter_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("tid", "thread", TAILSPAN_FIELD(tid));
    t.Number("enter_mono_ns", "entered", TAILSPAN_FIELD(enter_mono_ns));
    t.Number("return_mono_ns", "returned; the interpreter lock is not held yet", TAILSPAN_FIELD(return_mono_ns));
    t.Number("resume_mono_ns", "the interpreter lock is held again", TAILSPAN_FIELD(resume_mono_ns));
    t.Number("ready_count", "descriptors that were ready", TAILSPAN_FIELD(ready_count));
    return t;
  }();
  return table;
}

const Table<model::LoopHole>& HoleTable() {
  static const auto table = [] {
    Table<model::LoopHole> t("loop_hole", "Loop records of one thread that were lost between two moments.");
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(after_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("tid", "thread", TAILSPAN_FIELD(tid));
    t.Optional("after_mono_ns", "end of the last record before; NULL none was read", TAILSPAN_FIELD(after_mono_ns), 0);
    t.Optional("before_mono_ns", "end of the first record after; NULL none yet", TAILSPAN_FIELD(before_mono_ns), 0);
    t.Number("record_count", "how many were lost", TAILSPAN_FIELD(record_count));
    return t;
  }();
  return table;
}

const Table<model::GcPause>& GcPauseTable() {
  static const auto table = [] {
    Table<model::GcPause> t("gc_pause", "A garbage collection of the interpreter.", {"start_mono_ns", "end_mono_ns"});
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(start_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("tid", "thread", TAILSPAN_FIELD(tid));
    t.Number("start_mono_ns", "start", TAILSPAN_FIELD(start_mono_ns));
    t.Number("end_mono_ns", "end", TAILSPAN_FIELD(end_mono_ns));
    t.Number("generation", "generation", TAILSPAN_FIELD(generation));
    t.Optional("step_id", "the step in which it happened; NULL outside any", TAILSPAN_FIELD(step_id), 0);
    t.SpanIdOf("span_id", "current span; NULL none", TAILSPAN_FIELD(span_id));
    return t;
  }();
  return table;
}

}  // namespace tailspan::store::duckdb
