#include "analyze/timeline.h"

#include <algorithm>

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

uint64_t PackStep(int32_t pid, uint64_t step_id) {
  return step_id ^ static_cast<uint64_t>(static_cast<uint32_t>(pid)) * 0x9E3779B97F4A7C15ull;
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

Timeline::Timeline(const model::RecordBatch& batch) : batch_(batch) {
  for (const model::ProcessInfo& process : batch.processes) processes_[process.key.pid] = &process;
  for (const model::LoopSite& site : batch.sites) sites_[PackThread({site.pid, site.index})] = &site.name;
  IndexKernel();
  IndexSteps();
  IndexMarks();
  IndexHoles();
  IndexGc();
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
      return a->window_start_mono_ns < b->window_start_mono_ns;
    });
    line.gil_goes_on.assign(line.intervals.size(), false);
    for (size_t i = 0; i + 1 < line.intervals.size(); ++i) {
      line.gil_goes_on[i] = GilGoesOn(*line.intervals[i], *line.intervals[i + 1]);
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
  steps_.reserve(batch_.steps.size());
  for (const LoopStep& record : batch_.steps) steps_.push_back({&record, ThreadOf({record.pid, record.tid}), -1});
  std::sort(steps_.begin(), steps_.end(),
            [](const Step& a, const Step& b) { return a.record->start_mono_ns < b.record->start_mono_ns; });
  step_index_.reserve(steps_.size());
  std::unordered_map<uint64_t, int> last_of_task;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const LoopStep& record = *steps_[i].record;
    step_index_[PackStep(record.pid, record.step_id)] = static_cast<int>(i);
    ThreadLine& line = threads_[static_cast<size_t>(steps_[i].thread)];
    line.steps.push_back(static_cast<int>(i));
    line.has_ring = true;
    if (record.task == 0) continue;
    auto [it, fresh] = last_of_task.try_emplace(PackStep(record.pid, record.task), static_cast<int>(i));
    if (!fresh) {
      if (record.kind != StepKind::kNewTask) steps_[i].previous = it->second;
      it->second = static_cast<int>(i);
    }
  }
  for (const model::LoopPoll& poll : batch_.polls) {
    threads_[static_cast<size_t>(ThreadOf({poll.pid, poll.tid}))].polls.push_back(&poll);
  }
  for (ThreadLine& line : threads_) {
    std::sort(line.polls.begin(), line.polls.end(),
              [](const model::LoopPoll* a, const model::LoopPoll* b) { return a->enter_mono_ns < b->enter_mono_ns; });
  }
}

// Steps and span changes make the marks where a ring exists; elsewhere the span that the kernel read at its switches.
void Timeline::IndexMarks() {
  struct Event {
    int64_t at_ns;
    int order;  // at one instant: ends of steps, then starts, then changes
    SpanMark mark;
  };
  std::unordered_map<int, std::vector<Event>> events;
  for (const SpanChange& change : batch_.span_changes) {
    int thread = ThreadOf({change.pid, change.tid});
    threads_[static_cast<size_t>(thread)].has_ring = true;
    int step = change.step_id ? FindStep(change.pid, change.step_id) : -1;
    events[thread].push_back({change.at_mono_ns, 2, {change.at_mono_ns, change.span_id, step}});
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    const LoopStep& record = *steps_[i].record;
    auto& list = events[steps_[i].thread];
    list.push_back({record.start_mono_ns, 1, {record.start_mono_ns, record.span_id, static_cast<int>(i)}});
    list.push_back({record.end_mono_ns, 0, {record.end_mono_ns, record.outer_span_id, -1}});
  }
  for (auto& [thread, list] : events) {
    std::stable_sort(list.begin(), list.end(), [](const Event& a, const Event& b) {
      return std::pair(a.at_ns, a.order) < std::pair(b.at_ns, b.order);
    });
    auto& marks = threads_[static_cast<size_t>(thread)].marks;
    marks.reserve(list.size());
    for (const Event& event : list) marks.push_back(event.mark);
  }
  for (ThreadLine& line : threads_) {
    if (line.has_ring) continue;
    for (const ThreadInterval* interval : line.intervals) {
      int64_t at_ns = std::max(interval->window_start_mono_ns, interval->span_since_mono_ns);
      if (!line.marks.empty() && line.marks.back().span_id == interval->span_id) continue;
      if (line.marks.empty() && interval->span_id == 0) continue;
      line.marks.push_back({at_ns, interval->span_id, -1});
    }
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
}

void Timeline::IndexGc() {
  for (const model::GcPause& pause : batch_.gc_pauses) {
    int thread = ThreadOf({pause.pid, pause.tid});
    threads_[static_cast<size_t>(thread)].gc.push_back({pause.start_mono_ns, pause.end_mono_ns, pause.generation});
  }
  for (ThreadLine& line : threads_) {
    std::sort(line.gc.begin(), line.gc.end(),
              [](const GcStretch& a, const GcStretch& b) { return a.start_ns < b.start_ns; });
    int64_t end_ns = INT64_MIN;
    std::erase_if(line.gc, [&](GcStretch& pause) {
      pause.start_ns = std::max(pause.start_ns, end_ns);  // a collection does not nest; a ring may say anything
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

int Timeline::FindStep(int32_t pid, uint64_t step_id) const {
  auto it = step_index_.find(PackStep(pid, step_id));
  return it == step_index_.end() ? -1 : it->second;
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
  if (thread < 0) return -1;
  const auto& list = this->thread(thread).steps;
  auto it = std::lower_bound(list.begin(), list.end(), at_ns,
                             [&](int step, int64_t value) { return this->step(step).record->start_mono_ns < value; });
  if (it == list.begin()) return -1;
  int candidate = *(it - 1);
  return step(candidate).record->end_mono_ns >= at_ns ? candidate : -1;
}

SpanId Timeline::SpanAtEnd(int step_index) const {
  const Step& s = step(step_index);
  const auto& marks = thread(s.thread).marks;
  // The last mark that belongs to this step and stands before its end mark.
  auto it = std::upper_bound(marks.begin(), marks.end(), s.record->end_mono_ns,
                             [](int64_t value, const SpanMark& mark) { return value < mark.at_ns; });
  while (it != marks.begin()) {
    --it;
    if (it->at_ns < s.record->start_mono_ns) break;
    if (it->step == step_index && it->at_ns < s.record->end_mono_ns) return it->span_id;
  }
  return s.record->span_id;
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
  bool found = false;
  CutBackward(Holes(thread), from_ns, to_ns, [&](int64_t, int64_t, const RingHole* hole) { found |= hole != nullptr; });
  return found;
}

const ThreadInterval* Timeline::SleepEndedIn(int thread, int64_t from_ns, int64_t to_ns) const {
  const auto& list = this->thread(thread).intervals;
  auto it = std::upper_bound(list.begin(), list.end(), to_ns, [](int64_t value, const ThreadInterval* interval) {
    return value < interval->window_start_mono_ns;
  });
  while (it != list.begin()) {
    const ThreadInterval& interval = **--it;
    if (interval.wait_end_mono_ns <= from_ns) return nullptr;
    bool slept = interval.wait_class == WaitClass::kPoll || interval.wait_class == WaitClass::kSocketRecv;
    if (slept && interval.wake_mono_ns > from_ns && interval.wake_mono_ns <= to_ns) return &interval;
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
