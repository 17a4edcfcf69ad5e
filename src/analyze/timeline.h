// An index over a recording's kernel and loop records: what each thread was doing at each moment, and for which span.
//
// Built once a recording; immutable afterwards but for SetMarks, so that ledgers of many traces can be built from it.
// Everything refers to the batch by pointer: the batch must outlive the timeline. Times are CLOCK_MONOTONIC ns.
//
// Programs write their own loop records, so these may say what cannot be. What contradicts is put in order or dropped
// here, and counted; whoever reads the timeline may rely on it: a thread's steps lie apart or the one within the other,
// a step's waker and the step before it stand before it in steps(), marks tell the step that ran.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "analyze/loop_order.h"
#include "base/loss.h"
#include "model/batch.h"
#include "model/ledger.h"

namespace tailspan::analyze {

struct ThreadKey {
  int32_t pid = 0, tid = 0;
  auto operator<=>(const ThreadKey&) const = default;
};

// From at_ns until the next mark, span_id is the thread's current span (0 none) and step the step it is in (-1 none).
struct SpanMark {
  int64_t at_ns = 0;
  model::SpanId span_id = 0;
  int step = -1;
};

// A stretch of a thread in which records of its loop ring were lost and no other record tells what it did, or about
// which its records contradict each other.
struct RingHole {
  int64_t start_ns = 0, end_ns = 0;
  uint64_t record_count = 0;  // that were lost; 0: they contradict each other
};

// Python's garbage collector ran in a thread.
struct GcStretch {
  int64_t start_ns = 0, end_ns = 0;
  int32_t generation = 0;
};

// Calls f(from, to, range) for the parts of [from, to), the latest first, cut at `ranges` (disjoint, by start); the
// range is null outside them.
template <class Range, class Function>
void CutBackward(const std::vector<Range>& ranges, int64_t from_ns, int64_t to_ns, Function f) {
  auto it = std::lower_bound(ranges.begin(), ranges.end(), to_ns,
                             [](const Range& range, int64_t value) { return range.start_ns < value; });
  while (to_ns > from_ns) {
    const Range* range = it == ranges.begin() ? nullptr : &*--it;
    if (!range || range->end_ns <= from_ns) return f(from_ns, to_ns, static_cast<const Range*>(nullptr));
    if (range->end_ns < to_ns) f(range->end_ns, to_ns, static_cast<const Range*>(nullptr));
    int64_t start_ns = std::max(range->start_ns, from_ns), end_ns = std::min(range->end_ns, to_ns);
    if (end_ns > start_ns) f(start_ns, end_ns, range);
    to_ns = start_ns;
  }
}

struct ThreadLine {
  ThreadKey key;
  std::vector<const model::ThreadInterval*> intervals;  // by window start
  // Parallel to intervals: the wait for the GIL goes on into the next record. CPython waits in slices of 5 ms; between
  // two of them the thread only looks and sleeps again, so the whole episode is one wait.
  std::vector<bool> gil_goes_on;
  // Parallel to intervals: the index of the last one up to it that slept in a poll or a socket; -1 none.
  std::vector<int> last_sleep;
  std::vector<int> steps;                          // indices into Timeline::steps(), by start
  std::vector<SpanMark> marks;                     // by at_ns
  model::Join join = model::Join::kThreadContext;  // how the marks are known
  std::vector<const model::LoopPoll*> polls;       // by enter
  std::vector<RingHole> holes;                     // disjoint, by start
  std::vector<GcStretch> gc;                       // disjoint, by start
  int64_t born_ns = 0;                             // 0: before the recording
  ThreadKey parent;                                // who created it; {0,0} unknown
  bool has_ring = false;
};

struct Step {
  const model::LoopStep* record = nullptr;
  int thread = -1;    // index into Timeline::threads()
  int previous = -1;  // the same task's step before this one; -1 for a task's first, for jobs and for bare callbacks
  int waker = -1;     // the step that made it ready; -1 none, a plain thread, or not recorded
  model::SpanId span_at_end = 0;  // what a task had when it was suspended
};

// One stretch of a thread by the kernel's book. Slices of a range cover it without gap.
struct Slice {
  enum class Kind : uint8_t { kOnCpu, kBlocked, kRunnable, kUnknown };
  Kind kind = Kind::kUnknown;
  int64_t start_ns = 0, end_ns = 0;
  const model::ThreadInterval* interval = nullptr;  // null when unknown
  model::Cause cause = model::Cause::kUnexplained;
  bool summed = false;  // lies somewhere inside the interval's window; only its length is exact
};

class Timeline {
 public:
  // Contradicting records are counted in `loss` when there is one.
  explicit Timeline(const model::RecordBatch& batch, base::LossCounters* loss = nullptr);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  const model::RecordBatch& batch() const { return batch_; }
  const std::vector<ThreadLine>& threads() const { return threads_; }
  const std::vector<Step>& steps() const { return steps_; }
  const ThreadLine& thread(int index) const { return threads_[static_cast<size_t>(index)]; }
  const Step& step(int index) const { return steps_[static_cast<size_t>(index)]; }

  // For a thread that published no span: marks by at_ns, and how they are known. Before anything else looks at it.
  void SetMarks(int thread, std::vector<SpanMark> marks, model::Join join);

  int FindThread(ThreadKey key) const;  // -1 when unknown
  // The thread's mark in force at `at_ns` (the last with mark.at_ns <= at_ns); null before the first.
  const SpanMark* MarkAt(int thread, int64_t at_ns) const;
  model::SpanId SpanAt(int thread, int64_t at_ns) const;
  // The step running on the thread just before `at_ns`, the innermost; -1 none.
  int StepBefore(int thread, int64_t at_ns) const;
  // What the kernel saw of the thread over [from, to), in order, without gap. kUnknown where no record tells.
  std::vector<Slice> Slices(int thread, int64_t from_ns, int64_t to_ns) const;
  // The same slices, the latest first, until f(slice) is false: costs what f looks at, not the whole stretch.
  template <class Function>
  void SlicesBackward(int thread, int64_t from_ns, int64_t to_ns, Function f) const {
    constexpr size_t kRecordsAtOnceMax = 256;
    for (size_t records = 1; to_ns > from_ns; records = std::min(2 * records, kRecordsAtOnceMax)) {
      const int64_t cut_ns = std::max(from_ns, WindowBack(thread, to_ns, records));
      const std::vector<Slice> slices = Slices(thread, cut_ns, to_ns);
      for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) {
        if (!f(*slice)) return;
      }
      to_ns = cut_ns;
    }
  }
  const std::vector<RingHole>& Holes(int thread) const;  // none for -1
  // Whether loop records of [from, to) were lost.
  bool HasHole(int thread, int64_t from_ns, int64_t to_ns) const;
  // The thread's last sleep that ended in (from, to], null when it did not sleep.
  const model::ThreadInterval* SleepEndedIn(int thread, int64_t from_ns, int64_t to_ns) const;
  const model::ProcessInfo* Process(int32_t pid) const;
  const std::string& SiteName(int32_t pid, uint16_t index) const;

 private:
  int ThreadOf(ThreadKey key);
  // The latest of the first `before` steps that has this id, -1 none. An id may come back after an exec.
  int StepAmong(size_t before, int32_t pid, uint64_t step_id) const;
  // Start of the window of the thread's `records`-th record before `at_ns`; INT64_MIN when it has fewer.
  int64_t WindowBack(int thread, int64_t at_ns, size_t records) const;
  void IndexKernel();
  void IndexSteps();
  void LinkSteps();
  void IndexMarks();
  void MarkRing(int thread, std::span<const model::SpanChange* const> changes);
  bool Contradicts(const model::SpanChange& change, int thread) const;
  void IndexPolls();
  void IndexHoles();
  void IndexGc();

  const model::RecordBatch& batch_;
  std::vector<ThreadLine> threads_;
  std::vector<Step> steps_;
  std::vector<std::tuple<int32_t, uint64_t, int>> step_ids_;  // pid, id, index into steps_; in order
  std::deque<model::LoopStep> mended_;                        // records that were put in order
  std::vector<Dispute> disputes_;
  uint64_t contradictions_ = 0;
  std::unordered_map<uint64_t, int, model::ForeignNumberHash> thread_index_;
  std::unordered_map<int32_t, const model::ProcessInfo*> processes_;
  std::unordered_map<uint64_t, const std::string*> sites_;
};

}  // namespace tailspan::analyze
