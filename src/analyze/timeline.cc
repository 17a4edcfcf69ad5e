#include "analyze/timeline.h"

#include <algorithm>
#include <map>

namespace tailspan::analyze {
namespace {

using model::Cause;
using model::LoopStep;
using model::SpanChange;
using model::SpanChangeKind;
using model::SpanId;
using model::StepKind;
using model::ThreadInterval;
using model::WaitClass;

uint64_t PackThread(ThreadKey key) {
  return static_cast<uint64_t>(static_cast<uint32_t>(key.pid)) << 32 | static_cast<uint32_t>(key.tid);
}

// Between two slices of one wait for the GIL a thread runs for a few microseconds; longer, and it had the GIL
// meanwhile.
bool GilGoesOn(const ThreadInterval& a, const ThreadInterval& b) {
  constexpr int64_t kLookMaxNs = 100'000;
  return a.wait_class == WaitClass::kGil && b.wait_class == WaitClass::kGil &&
         b.window_start_mono_ns == a.wait_end_mono_ns && b.on_cpu_ns < kLookMaxNs &&
         a.wait_end_mono_ns > a.wait_start_mono_ns;
}

// Lays the sums of a window out inside its overlap with [from, to), in proportion. Only lengths are known, so every
// slice of a window with more than one part is marked summed.
void AddWindow(const ThreadInterval& interval, int64_t from_ns, int64_t to_ns, std::vector<Slice>* out) {
  int64_t window = interval.wait_start_mono_ns - interval.window_start_mono_ns;
  int64_t overlap = to_ns - from_ns;
  if (overlap <= 0 || window <= 0) return;
  struct Part {
    Slice::Kind kind;
    Cause cause;
    int64_t ns;
  };
  std::vector<Part> parts;
  int64_t known = 0;
  auto add = [&](Slice::Kind kind, Cause cause, int64_t ns) {
    ns = std::min(ns, window - known);
    if (ns <= 0) return;
    parts.push_back({kind, cause, ns});
    known += ns;
  };
  add(Slice::Kind::kOnCpu, Cause::kOnCpu, interval.on_cpu_ns);
  for (size_t k = 0; k < interval.short_ns.size(); ++k) {
    auto wait_class = static_cast<WaitClass>(k);
    Slice::Kind kind = wait_class == WaitClass::kRunQueue ? Slice::Kind::kRunnable : Slice::Kind::kBlocked;
    add(kind, model::CauseOfClass(wait_class), interval.short_ns[k]);
  }
  if (known < window) parts.push_back({Slice::Kind::kUnknown, Cause::kUnexplained, window - known});
  bool summed = parts.size() > 1;
  int64_t at_ns = from_ns, used = 0;
  for (const Part& part : parts) {
    used += part.ns;
    // Cumulative rounding: the last part always ends at to_ns exactly.
    auto share = static_cast<long double>(used) / static_cast<long double>(window);
    int64_t end_ns = used == window ? to_ns : from_ns + static_cast<int64_t>(share * static_cast<long double>(overlap));
    if (end_ns > at_ns) out->push_back({part.kind, at_ns, end_ns, &interval, part.cause, summed});
    at_ns = std::max(at_ns, end_ns);
  }
}

void AddWait(const ThreadInterval& interval, int64_t from_ns, int64_t to_ns, std::vector<Slice>* out) {
  int64_t wake = interval.wake_mono_ns ? interval.wake_mono_ns : interval.wait_end_mono_ns;
  wake = std::clamp(wake, interval.wait_start_mono_ns, interval.wait_end_mono_ns);
  auto add = [&](Slice::Kind kind, Cause cause, int64_t a, int64_t b) {
    a = std::max(a, from_ns);
    b = std::min(b, to_ns);
    if (b > a) out->push_back({kind, a, b, &interval, cause, false});
  };
  add(Slice::Kind::kBlocked, interval.cause, interval.wait_start_mono_ns, wake);
  add(Slice::Kind::kRunnable, interval.throttled ? Cause::kCpuThrottled : Cause::kRunQueue, wake,
      interval.wait_end_mono_ns);
}

// A record that is part of an episode of waiting for the GIL: `from` a slice before it, or `into` one after it.
void AddGilEpisode(const ThreadInterval& interval, bool from, bool into, int64_t begin, int64_t end,
                   std::vector<Slice>* out) {
  auto add_gil = [&](int64_t a, int64_t b) {
    if (b > a) out->push_back({Slice::Kind::kBlocked, a, b, &interval, Cause::kGil, false});
  };
  int64_t window_end = std::clamp(interval.wait_start_mono_ns, begin, end);
  if (from) {
    add_gil(begin, window_end);
  } else if (window_end > begin) {
    AddWindow(interval, begin, window_end, out);
  }
  if (into) {
    add_gil(window_end, end);
  } else {
    AddWait(interval, window_end, end, out);
  }
}

// By start, overlapping ones joined.
std::vector<RingHole> Disjoint(std::vector<RingHole> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const RingHole& a, const RingHole& b) { return a.start_ns < b.start_ns; });
  std::vector<RingHole> out;
  for (const RingHole& range : ranges) {
    if (range.end_ns <= range.start_ns) continue;
    if (out.empty() || range.start_ns >= out.back().end_ns) {
      out.push_back(range);
      continue;
    }
    out.back().end_ns = std::max(out.back().end_ns, range.end_ns);
    out.back().record_count += range.record_count;
  }
  return out;
}

}  // namespace

Timeline::Timeline(const model::RecordBatch& batch, base::LossCounters* loss) : batch_(batch) {
  for (const model::ProcessInfo& process : batch.processes) processes_[process.key.pid] = &process;
  for (const model::LoopSite& site : batch.sites) sites_[PackThread({site.pid, site.index})] = &site.name;
  IndexKernel();
  IndexSteps();
  LinkSteps();
  IndexMarks();
  IndexPolls();
  IndexHoles();
  IndexGc();
  if (loss && contradictions_) loss->Add(base::Loss::kLoopRecordContradicts, contradictions_);
}

int Timeline::ThreadOf(ThreadKey key) {
  auto [it, fresh] = thread_index_.try_emplace(PackThread(key), static_cast<int>(threads_.size()));
  if (fresh) threads_.emplace_back().key = key;
  return it->second;
}

void Timeline::IndexKernel() {
  for (const ThreadInterval& interval : batch_.intervals) {
    threads_[static_cast<size_t>(ThreadOf({interval.pid, interval.tid}))].intervals.push_back(&interval);
  }
  for (ThreadLine& line : threads_) {
    std::sort(line.intervals.begin(), line.intervals.end(), [](const ThreadInterval* a, const ThreadInterval* b) {
      return std::pair(a->window_start_mono_ns, a->wait_end_mono_ns) <
             std::pair(b->window_start_mono_ns, b->wait_end_mono_ns);
    });
    line.gil_goes_on.assign(line.intervals.size(), false);
    for (size_t i = 0; i + 1 < line.intervals.size(); ++i) {
      line.gil_goes_on[i] = GilGoesOn(*line.intervals[i], *line.intervals[i + 1]);
    }
    for (size_t i = 0; i < line.intervals.size(); ++i) {
      const WaitClass wait_class = line.intervals[i]->wait_class;
      bool slept = wait_class == WaitClass::kPoll || wait_class == WaitClass::kSocketRecv;
      line.last_sleep.push_back(slept ? static_cast<int>(i) : i ? line.last_sleep[i - 1] : -1);
    }
  }
  for (const model::ProcessEvent& event : batch_.process_events) {
    if (event.kind != model::ProcessEventKind::kThread && event.kind != model::ProcessEventKind::kFork) continue;
    ThreadLine& line = threads_[static_cast<size_t>(ThreadOf({event.pid, event.tid}))];
    line.born_ns = event.at_mono_ns;
    line.parent = {event.parent_pid, event.parent_tid};
  }
}

void Timeline::IndexSteps() {
  StepOrder order = OrderSteps(batch_.steps);
  mended_ = std::move(order.mended);
  disputes_ = std::move(order.disputes);
  contradictions_ += order.contradictions;
  steps_.reserve(order.steps.size());
  step_ids_.reserve(order.steps.size());
  for (const LoopStep* record : order.steps) {
    auto index = static_cast<int>(steps_.size());
    steps_.push_back({record, ThreadOf({record->pid, record->tid}), -1, -1, record->span_id});
    step_ids_.emplace_back(record->pid, record->step_id, index);
    ThreadLine& line = threads_[static_cast<size_t>(steps_.back().thread)];
    line.steps.push_back(index);
    line.has_ring = true;
  }
  std::sort(step_ids_.begin(), step_ids_.end());
}

// To the step that made it ready and to the task's step before. Both began before it and the latter had ended: what
// says otherwise is not believed.
void Timeline::LinkSteps() {
  std::map<std::pair<int32_t, uint64_t>, int> last_of_task;
  for (size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    const LoopStep& record = *step.record;
    if (record.waker_step_id && !model::PlainThreadOf(record.waker_step_id)) {
      step.waker = StepAmong(i, record.pid, record.waker_step_id);
      bool is_later = step.waker < 0 && StepAmong(steps_.size(), record.pid, record.waker_step_id) >= 0;
      contradictions_ += is_later;
    }
    if (record.task == 0) continue;
    auto [it, fresh] = last_of_task.try_emplace({record.pid, record.task}, static_cast<int>(i));
    if (fresh) continue;
    if (record.kind != StepKind::kNewTask) {
      bool had_ended = steps_[static_cast<size_t>(it->second)].record->end_mono_ns <= record.start_mono_ns;
      if (had_ended) step.previous = it->second;
      contradictions_ += !had_ended;
    }
    it->second = static_cast<int>(i);
  }
}

// Steps and span changes make the marks where a ring exists; elsewhere the span that the kernel read at its switches.
void Timeline::IndexMarks() {
  std::vector<std::pair<int, const SpanChange*>> by_thread;
  by_thread.reserve(batch_.span_changes.size());
  for (const SpanChange& change : batch_.span_changes) {
    by_thread.emplace_back(ThreadOf({change.pid, change.tid}), &change);
    threads_[static_cast<size_t>(by_thread.back().first)].has_ring = true;
  }
  std::stable_sort(by_thread.begin(), by_thread.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->at_mono_ns) < std::pair(b.first, b.second->at_mono_ns);
  });
  std::vector<const SpanChange*> changes;
  changes.reserve(by_thread.size());
  for (const auto& [thread, change] : by_thread) changes.push_back(change);
  size_t at = 0;
  for (size_t i = 0; i < threads_.size(); ++i) {
    ThreadLine& line = threads_[i];
    if (line.has_ring) {
      size_t after = at;
      while (after < by_thread.size() && by_thread[after].first == static_cast<int>(i)) ++after;
      MarkRing(static_cast<int>(i), std::span(changes).subspan(at, after - at));
      at = after;
      continue;
    }
    for (const ThreadInterval* interval : line.intervals) {
      int64_t at_ns = std::max(interval->window_start_mono_ns, interval->span_since_mono_ns);
      if (!line.marks.empty() && line.marks.back().span_id == interval->span_id) continue;
      if (line.marks.empty() && interval->span_id == 0) continue;
      line.marks.push_back({at_ns, interval->span_id, -1});
    }
  }
}

// One thread's marks: at one instant ends of steps, then starts, then changes. A step without length has none.
void Timeline::MarkRing(int thread, std::span<const SpanChange* const> changes) {
  ThreadLine& line = threads_[static_cast<size_t>(thread)];
  line.marks.reserve(2 * line.steps.size() + changes.size());
  std::vector<int> open;  // the steps that run, the innermost last
  auto running = [&] { return open.empty() ? -1 : open.back(); };
  auto close_until = [&](int64_t at_ns) {
    while (!open.empty()) {
      Step& step = steps_[static_cast<size_t>(open.back())];
      if (step.record->end_mono_ns > at_ns) return;
      step.span_at_end = line.marks.back().span_id;
      open.pop_back();
      line.marks.push_back({step.record->end_mono_ns, step.record->outer_span_id, running()});
    }
  };
  auto next = line.steps.begin();
  auto pass_until = [&](int64_t at_ns) {
    for (; next != line.steps.end(); ++next) {
      const LoopStep& record = *step(*next).record;
      if (record.start_mono_ns > at_ns) break;
      if (record.end_mono_ns == record.start_mono_ns) continue;
      close_until(record.start_mono_ns);
      open.push_back(*next);
      line.marks.push_back({record.start_mono_ns, record.span_id, *next});
    }
    close_until(at_ns);
  };
  std::vector<size_t> disputed;  // marks
  for (const SpanChange* change : changes) {
    pass_until(change->at_mono_ns);
    bool contradicts = Contradicts(*change, thread);
    if (contradicts) disputed.push_back(line.marks.size());
    line.marks.push_back({change->at_mono_ns, contradicts ? 0 : change->span_id, running()});
  }
  pass_until(INT64_MAX);
  contradictions_ += disputed.size();
  for (size_t mark : disputed) {  // nobody's, until the next mark
    if (mark + 1 == line.marks.size()) continue;
    disputes_.push_back({line.key.pid, line.key.tid, line.marks[mark].at_ns, line.marks[mark + 1].at_ns});
  }
}

// It says that it happened in a step which is another thread's or had not begun. One that has ended is none: what a
// worker thread does until its next job still counts as its last one's.
bool Timeline::Contradicts(const SpanChange& change, int thread) const {
  if (change.step_id == 0) return false;
  auto later = std::upper_bound(steps_.begin(), steps_.end(), change.at_mono_ns,
                                [](int64_t value, const Step& s) { return value < s.record->start_mono_ns; });
  int claimed = StepAmong(static_cast<size_t>(later - steps_.begin()), change.pid, change.step_id);
  if (claimed >= 0) return step(claimed).thread != thread;
  return StepAmong(steps_.size(), change.pid, change.step_id) >= 0;
}

// A poll that ends before it began, that overlaps another, or that a step begins or ends in but not both, is dropped.
void Timeline::IndexPolls() {
  for (const model::LoopPoll& poll : batch_.polls) {
    if (poll.enter_mono_ns > poll.return_mono_ns || poll.return_mono_ns > poll.resume_mono_ns) {
      ++contradictions_;
      continue;
    }
    threads_[static_cast<size_t>(ThreadOf({poll.pid, poll.tid}))].polls.push_back(&poll);
  }
  for (size_t i = 0; i < threads_.size(); ++i) {
    ThreadLine& line = threads_[i];
    std::sort(line.polls.begin(), line.polls.end(), [](const model::LoopPoll* a, const model::LoopPoll* b) {
      return std::pair(a->enter_mono_ns, a->resume_mono_ns) < std::pair(b->enter_mono_ns, b->resume_mono_ns);
    });
    int64_t resumed_ns = INT64_MIN;
    contradictions_ += std::erase_if(line.polls, [&](const model::LoopPoll* poll) {
      bool overlaps = poll->enter_mono_ns < resumed_ns;
      bool has_length = poll->resume_mono_ns > poll->enter_mono_ns;
      auto thread = static_cast<int>(i);
      bool crosses =
          has_length && StepBefore(thread, poll->enter_mono_ns + 1) != StepBefore(thread, poll->resume_mono_ns);
      if (overlaps || crosses) return true;
      resumed_ns = poll->resume_mono_ns;
      return false;
    });
  }
}

// Records come in the order of their ends, so a hole lies between the ends of two records. What steps and polls cover
// of it is known all the same: nothing but changes of the span within them can be missing there.
void Timeline::IndexHoles() {
  for (const model::LoopHole& hole : batch_.loop_holes) {
    ThreadLine& line = threads_[static_cast<size_t>(ThreadOf({hole.pid, hole.tid}))];
    int64_t before_ns = hole.before_mono_ns ? hole.before_mono_ns : INT64_MAX;
    line.holes.push_back({std::max(hole.after_mono_ns, line.born_ns), before_ns, hole.record_count});
  }
  for (ThreadLine& line : threads_) {
    if (line.holes.empty()) continue;
    std::vector<RingHole> covers;  // steps and polls, made disjoint
    for (int index : line.steps) {
      const LoopStep& record = *step(index).record;
      covers.push_back({record.start_mono_ns, record.end_mono_ns, 0});
    }
    for (const model::LoopPoll* poll : line.polls) covers.push_back({poll->enter_mono_ns, poll->resume_mono_ns, 0});
    line.holes = Disjoint(std::move(line.holes));
    covers = Disjoint(std::move(covers));
    std::vector<RingHole> bare;
    for (const RingHole& hole : line.holes) {
      size_t first = bare.size();
      CutBackward(covers, hole.start_ns, hole.end_ns, [&](int64_t from_ns, int64_t to_ns, const RingHole* cover) {
        if (!cover) bare.push_back({from_ns, to_ns, hole.record_count});
      });
      std::reverse(bare.begin() + static_cast<std::ptrdiff_t>(first), bare.end());
    }
    line.holes = std::move(bare);
  }
  for (const Dispute& dispute : disputes_) {
    ThreadLine& line = threads_[static_cast<size_t>(ThreadOf({dispute.pid, dispute.tid}))];
    line.holes.push_back({dispute.start_ns, dispute.end_ns, 0});
  }
  if (disputes_.empty()) return;
  for (ThreadLine& line : threads_) line.holes = Disjoint(std::move(line.holes));
}

void Timeline::IndexGc() {
  for (const model::GcPause& pause : batch_.gc_pauses) {
    int thread = ThreadOf({pause.pid, pause.tid});
    threads_[static_cast<size_t>(thread)].gc.push_back({pause.start_mono_ns, pause.end_mono_ns, pause.generation});
  }
  for (ThreadLine& line : threads_) {
    std::sort(line.gc.begin(), line.gc.end(),
              [](const GcStretch& a, const GcStretch& b) { return a.start_ns < b.start_ns; });
    int64_t last_start_ns = INT64_MIN, end_ns = INT64_MIN;
    std::erase_if(line.gc, [&](GcStretch& pause) {
      // Callbacks of collections nest; the outer one then tells the inner one's start.
      bool crosses = pause.start_ns < end_ns && pause.end_ns > end_ns && pause.start_ns > last_start_ns;
      contradictions_ += crosses || pause.end_ns < pause.start_ns;
      last_start_ns = pause.start_ns;
      pause.start_ns = std::max(pause.start_ns, end_ns);
      end_ns = std::max(end_ns, pause.end_ns);
      return pause.end_ns <= pause.start_ns;
    });
  }
}

void Timeline::SetMarks(int thread, std::vector<SpanMark> marks, model::Join join) {
  ThreadLine& line = threads_[static_cast<size_t>(thread)];
  line.marks = std::move(marks);
  line.join = join;
}

int Timeline::FindThread(ThreadKey key) const {
  auto it = thread_index_.find(PackThread(key));
  return it == thread_index_.end() ? -1 : it->second;
}

int Timeline::StepAmong(size_t before, int32_t pid, uint64_t step_id) const {
  auto it = std::lower_bound(step_ids_.begin(), step_ids_.end(), std::tuple(pid, step_id, static_cast<int>(before)));
  if (it == step_ids_.begin()) return -1;
  const auto& [its_pid, its_id, index] = *--it;
  return its_pid == pid && its_id == step_id ? index : -1;
}

int64_t Timeline::WindowBack(int thread, int64_t at_ns, size_t records) const {
  if (thread < 0) return INT64_MIN;
  const auto& list = this->thread(thread).intervals;
  auto it = std::lower_bound(list.begin(), list.end(), at_ns, [](const ThreadInterval* interval, int64_t value) {
    return interval->window_start_mono_ns < value;
  });
  auto index = static_cast<size_t>(it - list.begin());
  return index < records ? INT64_MIN : list[index - records]->window_start_mono_ns;
}

const SpanMark* Timeline::MarkAt(int thread, int64_t at_ns) const {
  if (thread < 0) return nullptr;
  const auto& marks = this->thread(thread).marks;
  auto it = std::upper_bound(marks.begin(), marks.end(), at_ns,
                             [](int64_t value, const SpanMark& mark) { return value < mark.at_ns; });
  return it == marks.begin() ? nullptr : &*(it - 1);
}

SpanId Timeline::SpanAt(int thread, int64_t at_ns) const {
  const SpanMark* mark = MarkAt(thread, at_ns);
  return mark ? mark->span_id : 0;
}

int Timeline::StepBefore(int thread, int64_t at_ns) const {
  const SpanMark* mark = MarkAt(thread, at_ns - 1);
  return mark ? mark->step : -1;
}

std::vector<Slice> Timeline::Slices(int thread, int64_t from_ns, int64_t to_ns) const {
  std::vector<Slice> out;
  if (to_ns <= from_ns) return out;
  int64_t at_ns = from_ns;
  auto unknown_until = [&](int64_t until_ns) {
    if (until_ns > at_ns) out.push_back({Slice::Kind::kUnknown, at_ns, until_ns, nullptr, Cause::kUnexplained, false});
    at_ns = std::max(at_ns, until_ns);
  };
  if (thread >= 0) {
    const auto& list = this->thread(thread).intervals;
    auto it = std::upper_bound(list.begin(), list.end(), from_ns, [](int64_t value, const ThreadInterval* interval) {
      return value < interval->window_start_mono_ns;
    });
    if (it != list.begin()) --it;
    for (; it != list.end() && (*it)->window_start_mono_ns < to_ns; ++it) {
      const ThreadInterval& interval = **it;
      int64_t begin = std::max(interval.window_start_mono_ns, at_ns);
      int64_t end = std::min(interval.wait_end_mono_ns, to_ns);
      if (end <= begin) continue;
      unknown_until(begin);
      auto index = static_cast<size_t>(it - list.begin());
      bool from_gil = index > 0 && this->thread(thread).gil_goes_on[index - 1];
      bool into_gil = this->thread(thread).gil_goes_on[index];
      if (from_gil || into_gil) {
        AddGilEpisode(interval, from_gil, into_gil, begin, end, &out);
        at_ns = end;
        continue;
      }
      int64_t window_end = std::min(interval.wait_start_mono_ns, end);
      if (window_end > begin) AddWindow(interval, begin, window_end, &out);
      AddWait(interval, std::max(begin, interval.wait_start_mono_ns), end, &out);
      at_ns = end;
    }
  }
  unknown_until(to_ns);
  return out;
}

const std::vector<RingHole>& Timeline::Holes(int thread) const {
  static const std::vector<RingHole> kNone;
  return thread < 0 ? kNone : this->thread(thread).holes;
}

bool Timeline::HasHole(int thread, int64_t from_ns, int64_t to_ns) const {
  const std::vector<RingHole>& holes = Holes(thread);
  auto it = std::lower_bound(holes.begin(), holes.end(), to_ns,
                             [](const RingHole& hole, int64_t value) { return hole.start_ns < value; });
  return it != holes.begin() && (it - 1)->end_ns > from_ns;
}

const ThreadInterval* Timeline::SleepEndedIn(int thread, int64_t from_ns, int64_t to_ns) const {
  const ThreadLine& line = this->thread(thread);
  auto it = std::upper_bound(
      line.intervals.begin(), line.intervals.end(), to_ns,
      [](int64_t value, const ThreadInterval* interval) { return value < interval->window_start_mono_ns; });
  auto before = static_cast<int>(it - line.intervals.begin()) - 1;
  while (before >= 0 && (before = line.last_sleep[static_cast<size_t>(before)]) >= 0) {
    const ThreadInterval& interval = *line.intervals[static_cast<size_t>(before)];
    if (interval.wait_end_mono_ns <= from_ns) return nullptr;
    if (interval.wake_mono_ns > from_ns && interval.wake_mono_ns <= to_ns) return &interval;
    --before;
  }
  return nullptr;
}

const model::ProcessInfo* Timeline::Process(int32_t pid) const {
  auto it = processes_.find(pid);
  return it == processes_.end() ? nullptr : it->second;
}

const std::string& Timeline::SiteName(int32_t pid, uint16_t index) const {
  static const std::string kNone;
  auto it = sites_.find(PackThread({pid, index}));
  return it == sites_.end() ? kNone : *it->second;
}

}  // namespace tailspan::analyze
