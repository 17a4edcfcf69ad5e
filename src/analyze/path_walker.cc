#include "analyze/path_walker.h"

#include <algorithm>
#include <cstdlib>

namespace tailspan::analyze {
namespace {

using base::Loss;
using model::Blame;
using model::BlameKind;
using model::Cause;
using model::LoopStep;
using model::SpanId;
using model::StepKind;

// Moves that may be made at one moment before the walk gives the moment up as a circle.
constexpr int kHopsAtOneMomentMax = 64;

bool IsIo(StepKind kind) { return kind == StepKind::kIoRead || kind == StepKind::kIoWrite; }

// What a task waited for when another request's step let it go on, told by the code that made it ready.
Cause CauseOfSite(const std::string& site) {
  bool queue = site.find("queues.py") != std::string::npos || site.find("Semaphore") != std::string::npos ||
               site.find("pool") != std::string::npos;
  return queue ? Cause::kQueue : Cause::kLock;
}

}  // namespace

void WalkIndex::Fill(const std::unordered_map<model::SpanId, model::SpanId, model::ForeignNumberHash>& stands_for) {
  stretches.resize(traces.size());
  for (size_t t = 0; t < traces.size(); ++t) {
    for (size_t n = 0; n < traces[t].nodes.size(); ++n) {
      spans.try_emplace(traces[t].nodes[n].span->span_id, SpanRef{static_cast<int>(t), static_cast<int>(n)});
    }
  }
  for (const auto& [published, kept] : stands_for) {
    if (auto found = spans.find(kept); found != spans.end()) spans.try_emplace(published, found->second);
  }
  same_trace_since_ns.resize(timeline.threads().size());
  for (size_t thread = 0; thread < timeline.threads().size(); ++thread) {
    const auto& marks = timeline.threads()[thread].marks;
    auto& since_ns = same_trace_since_ns[thread];
    since_ns.reserve(marks.size());
    int last_trace = -1;
    for (size_t i = 0; i < marks.size(); ++i) {
      auto it = marks[i].span_id == 0 ? spans.end() : spans.find(marks[i].span_id);
      int trace = it == spans.end() ? -1 : it->second.trace;
      since_ns.push_back(trace >= 0 && trace == last_trace ? since_ns.back() : marks[i].at_ns);
      last_trace = trace;
      if (trace < 0) continue;
      const auto& intervals = timeline.threads()[thread].intervals;
      int64_t open_end = intervals.empty() ? marks[i].at_ns : intervals.back()->wait_end_mono_ns;
      int64_t end = i + 1 < marks.size() ? marks[i + 1].at_ns : open_end;
      if (end <= marks[i].at_ns) continue;
      stretches[static_cast<size_t>(it->second.trace)].push_back(
          {marks[i].at_ns, end, static_cast<int>(thread), marks[i].step,
           traces[static_cast<size_t>(it->second.trace)].nodes[static_cast<size_t>(it->second.node)].span->span_id});
    }
  }
  for (auto& list : stretches) {
    std::sort(list.begin(), list.end(),
              [](const TraceStretch& a, const TraceStretch& b) { return a.start_ns < b.start_ns; });
  }
}

PathWalker::PathWalker(const WalkIndex& index, int trace, size_t pieces_max)
    : index_(index),
      timeline_(index.timeline),
      trace_(index.traces[static_cast<size_t>(trace)]),
      trace_index_(trace),
      lo_ns_(trace_.root().start_mono_ns),
      draft_(lo_ns_, trace_.root().end_mono_ns, pieces_max) {
  bool any = std::any_of(trace_.nodes.begin(), trace_.nodes.end(), [](const SpanNode& node) { return node.adopted; });
  if (!any) return;
  by_overlap_.resize(trace_.nodes.size());
  for (size_t i = 1; i < trace_.nodes.size(); ++i) {  // parents stand before their children
    by_overlap_[i] = trace_.nodes[i].adopted || by_overlap_[static_cast<size_t>(trace_.nodes[i].parent)];
  }
}

std::vector<DraftPiece> PathWalker::Walk() {
  if (index_.stretches[static_cast<size_t>(trace_index_)].empty()) {
    WalkSpansOnly(0, lo_ns_, trace_.root().end_mono_ns);
  } else {
    Cursor at = Start();
    int hops = 0;
    while (at.at_ns > lo_ns_ && !draft_.done()) {
      int64_t before_ns = at.at_ns;
      if (at.thread >= 0) join_ = timeline_.thread(at.thread).join;
      if (at.thread < 0) {
        at = FromElsewhere(at);
      } else if (at.step >= 0 && at.at_ns <= timeline_.step(at.step).record->start_mono_ns) {
        at = WalkReady(at);
      } else {
        at = WalkRunning(at);
      }
      at.at_ns = std::min(at.at_ns, before_ns);
      if (at.at_ns < before_ns) {
        hops = 0;
      } else if (++hops > kHopsAtOneMomentMax) {
        index_.loss->Add(Loss::kPathCycleCut);
        draft_.Close("the waits lead in a circle");
      }
    }
  }
  std::vector<DraftPiece> pieces = draft_.Take();
  if (draft_.cut()) index_.loss->Add(Loss::kLedgerCut);
  if (draft_.gaps()) index_.loss->Add(Loss::kLedgerGap, draft_.gaps());
  return pieces;
}

// Whether two stretches are the same task's, or the same thread's outside steps.
bool PathWalker::IsSameCarrier(const TraceStretch& left, const TraceStretch& right) const {
  if (left.thread != right.thread) return false;
  if (left.step < 0 || right.step < 0) return left.step == right.step;
  uint64_t task = timeline_.step(left.step).record->task;
  return left.step == right.step || (task != 0 && task == timeline_.step(right.step).record->task);
}

// The step or thread in which the root span was left: of the stretches in which it was current, the one that ends
// nearest to its end (a job sent off under the root's span may work on long after). Where it never was current, the
// last that worked for the trace before the root's end.
PathWalker::Cursor PathWalker::Start() const {
  int64_t end_ns = trace_.root().end_mono_ns;
  auto off_ns = [&](const TraceStretch& stretch) { return std::abs(stretch.end_ns - end_ns); };
  const TraceStretch* best = nullptr;
  bool best_is_root = false;
  for (const TraceStretch& stretch : index_.stretches[static_cast<size_t>(trace_index_)]) {
    if (stretch.start_ns >= end_ns) break;
    bool is_root = stretch.span_id == trace_.root().span->span_id;
    if (best && best_is_root != is_root) {
      if (best_is_root) continue;
    } else if (best && (is_root ? off_ns(stretch) > off_ns(*best) : stretch.end_ns < best->end_ns)) {
      continue;
    }
    best = &stretch;
    best_is_root = is_root;
  }
  Cursor at{end_ns, -1, -1, 0};
  if (!best) return at;
  // A root that is ended before it is left (FastAPI ends it when the answer is sent) need not be current again at its
  // end: what carried it goes on with a span below it.
  for (const TraceStretch& stretch : index_.stretches[static_cast<size_t>(trace_index_)]) {
    if (stretch.start_ns >= end_ns) break;
    if (best_is_root && stretch.end_ns > best->end_ns && IsSameCarrier(*best, stretch)) best = &stretch;
  }
  at.thread = best->thread;
  at.step = best->step;
  // The span's end is stamped a moment after it stopped being current; the step may even have ended.
  return at;
}

// Backward over what ran on the carrier, down to the step's start (or, on a plain thread, to where this trace's work
// began).
PathWalker::Cursor PathWalker::WalkRunning(Cursor at) {
  const ThreadLine& line = timeline_.thread(at.thread);
  int64_t floor_ns = lo_ns_;
  if (at.step >= 0) {
    const LoopStep& record = *timeline_.step(at.step).record;
    floor_ns = std::max(floor_ns, record.start_mono_ns);
    if (at.at_ns > record.end_mono_ns) {  // the root's end was stamped after the step: the thread's book goes on
      EmitSlices(at.thread, std::max(record.end_mono_ns, lo_ns_), at.at_ns, at.node);
      at.at_ns = std::max(record.end_mono_ns, lo_ns_);
      return at;
    }
  } else {
    // The contiguous stretch in which this thread worked for this trace.
    const SpanMark* mark = timeline_.MarkAt(at.thread, at.at_ns - 1);
    bool is_ours = mark && IsOurs(mark->span_id);
    bool is_guessed = line.join != model::Join::kThreadContext;
    if (is_guessed && !is_ours) return {at.at_ns, -1, -1, at.node};
    if (is_ours) {
      auto mark_index = static_cast<size_t>(mark - line.marks.data());
      floor_ns = std::max(floor_ns, index_.same_trace_since_ns[static_cast<size_t>(at.thread)][mark_index]);
    }
    if (line.born_ns > floor_ns && line.born_ns < at.at_ns) floor_ns = line.born_ns;
  }
  Cursor jump;
  bool jumps = false;
  timeline_.SlicesBackward(at.thread, floor_ns, at.at_ns, [&](const Slice& slice) {
    jumps = JumpTarget(slice, at.thread, &jump);
    if (jumps) {
      jump.node = NodeAt(at.thread, slice.end_ns, at.node);
      if (JustServedUs(jump.thread, slice.interval->wait_start_mono_ns, jump.at_ns)) EmitAfterSpan(&jump);
    } else {
      EmitSlice(slice, at.thread, at.node);
    }
    return !jumps && !draft_.done();
  });
  if (jumps) return jump;
  at.at_ns = floor_ns;
  at.node = NodeAt(at.thread, floor_ns, at.node);
  if (at.step >= 0 || floor_ns <= lo_ns_) return at;
  if (line.born_ns == floor_ns) {
    int parent = timeline_.FindThread(line.parent);
    if (parent >= 0) return {floor_ns, parent, timeline_.StepBefore(parent, floor_ns), at.node};
  }
  return {floor_ns, -1, -1, at.node};
}

// From a step's start back over ready-but-not-running, then to whoever made it ready.
PathWalker::Cursor PathWalker::WalkReady(const Cursor& at) {
  const Step& step = timeline_.step(at.step);
  const LoopStep& record = *step.record;
  int origin = step.previous;
  int64_t suspended_ns = origin >= 0 ? timeline_.step(origin).record->end_mono_ns : lo_ns_;
  // Another request's step before lost records is another task's, whose address was used again.
  if (origin >= 0 && !IsOurs(timeline_.step(origin).span_at_end) &&
      timeline_.HasHole(step.thread, suspended_ns, record.start_mono_ns)) {
    origin = -1;
    suspended_ns = lo_ns_;
  }
  int64_t ready_ns = std::clamp(record.ready_mono_ns ? record.ready_mono_ns : record.start_mono_ns,
                                std::min(suspended_ns, record.start_mono_ns), record.start_mono_ns);
  ready_ns = std::min(std::max(ready_ns, lo_ns_), at.at_ns);
  Cursor next = at;
  // While it waits a carrier's time is the span's that it had when it was suspended; a new task's, that it was made
  // with.
  auto label = index_.spans.find(origin >= 0 ? timeline_.step(origin).span_at_end : record.span_id);
  if (label != index_.spans.end() && label->second.trace == trace_index_) {
    next.node = OpenNode(label->second.node, origin >= 0 ? suspended_ns : record.start_mono_ns);
  }
  if (record.kind == StepKind::kExecutor) {
    EmitPoolQueue(at.thread, ready_ns, at.at_ns, next.node);
  } else {
    EmitLoopBusy(at.thread, ready_ns, at.at_ns, next.node);
  }
  next.at_ns = ready_ns;
  if (ready_ns <= lo_ns_) return next;
  return ResolveWaker(next, at.step, origin, suspended_ns);
}

// `at.at_ns` is when `step` became ready. Finds who made it so, going through callbacks that only pass the news on.
// [suspended, at) is explained here, or left to the carrier that the returned cursor stands on.
PathWalker::Cursor PathWalker::ResolveWaker(Cursor at, int step, int origin, int64_t suspended_ns) {
  int64_t floor_ns = std::max(suspended_ns, lo_ns_);
  auto back_to_origin = [&]() -> Cursor {
    if (origin < 0) return {std::min(at.at_ns, floor_ns), -1, -1, at.node};
    return {std::min(at.at_ns, floor_ns), timeline_.step(origin).thread, origin, at.node};
  };
  for (int depth = 0; depth < index_.options.follow_depth_max; ++depth) {
    const LoopStep& record = *timeline_.step(step).record;
    if (at.at_ns <= floor_ns) return back_to_origin();
    if (IsIo(record.kind)) {
      bool connect = timeline_.SiteName(record.pid, record.site).find("sock_connect") != std::string::npos;
      Cause cause = record.kind == StepKind::kIoRead ? Cause::kNetRecv : connect ? Cause::kNetConnect : Cause::kNetSend;
      Connection connection = index_.network.ConnectionOf(record.pid, record.fd, at.at_ns);
      EmitSocketWait(timeline_.step(step).thread, nullptr, connection, floor_ns, at.at_ns, at.node, cause);
      return back_to_origin();
    }
    if (record.kind == StepKind::kTimer) {
      EmitInferred(timeline_.step(step).thread, floor_ns, at.at_ns, at.node, Cause::kSleep,
                   {BlameKind::kTimer, "timer", {}, "loop timer", 1, {}, 0});
      return back_to_origin();
    }
    if (record.kind == StepKind::kExecutor) return ResolveExecutor(at, step);
    int waker = timeline_.step(step).waker;
    if (int32_t tid = model::PlainThreadOf(record.waker_step_id)) {
      // Code in no step: a plain thread that called into the loop.
      int thread = timeline_.FindThread({record.pid, tid});
      if (thread >= 0 && IsOurs(record.waker_span_id)) return {at.at_ns, thread, -1, at.node};
      if (origin < 0) return {at.at_ns, -1, -1, at.node};
      EmitInferred(timeline_.step(step).thread, floor_ns, at.at_ns, at.node, Cause::kLock,
                   BlameSpan(record.waker_span_id, thread, "thread that let it go on", 0.9));
      return back_to_origin();
    }
    if (waker < 0) {
      if (origin < 0) return {at.at_ns, -1, -1, at.node};
      Emit(floor_ns, at.at_ns, at.node, Cause::kUnexplained, {}, false, "no record of who let it go on");
      return back_to_origin();
    }
    const Step& w = timeline_.step(waker);
    int64_t when_ns =
        std::clamp(at.at_ns, w.record->start_mono_ns, std::max(w.record->end_mono_ns, w.record->start_mono_ns));
    if (when_ns < at.at_ns) {
      EmitLoopBusy(w.thread, std::max(when_ns, floor_ns), at.at_ns, at.node);
      at.at_ns = std::max(when_ns, floor_ns);
      if (at.at_ns <= floor_ns) return back_to_origin();
    }
    Cursor there{std::min(when_ns, at.at_ns), w.thread, waker, at.node};
    if (record.kind == StepKind::kNewTask) return there;
    SpanId span = record.waker_span_id ? record.waker_span_id : timeline_.SpanAt(w.thread, when_ns);
    if (w.record->kind == StepKind::kExecutor) {
      int submitter = w.waker;
      bool ours =
          IsOurs(span) || IsOurs(w.record->span_id) || (submitter >= 0 && submitter == origin) ||
          (submitter >= 0 && IsOurs(timeline_.SpanAt(timeline_.step(submitter).thread, w.record->ready_mono_ns)));
      if (ours) return there;
      EmitInferred(timeline_.step(step).thread, floor_ns, at.at_ns, at.node, Cause::kLock,
                   BlameSpan(span, w.thread, "job that let it go on", 0.9));
      return back_to_origin();
    }
    if (w.record->task != 0 && !IsIo(w.record->kind)) {
      if (IsOurs(span)) return there;
      if (span != 0) {
        EmitInferred(timeline_.step(step).thread, floor_ns, at.at_ns, at.node,
                     CauseOfSite(timeline_.SiteName(record.pid, record.site)),
                     BlameSpan(span, w.thread, "step that let it go on", 0.95));
        return back_to_origin();
      }
    }
    // A callback, or a task without a span: it passes the news on.
    EmitRunningOf(waker, std::max(w.record->start_mono_ns, floor_ns), at.at_ns, at.node);
    at.at_ns = std::min(at.at_ns, std::max(w.record->start_mono_ns, floor_ns));
    int64_t ready_ns = w.record->ready_mono_ns ? w.record->ready_mono_ns : w.record->start_mono_ns;
    ready_ns = std::clamp(ready_ns, std::min(floor_ns, at.at_ns), at.at_ns);
    EmitLoopBusy(w.thread, ready_ns, at.at_ns, at.node);
    at.at_ns = ready_ns;
    step = waker;
  }
  index_.loss->Add(Loss::kPathDepthCut);
  Emit(floor_ns, at.at_ns, at.node, Cause::kUnexplained, {}, false, "followed to the depth limit");
  at.at_ns = std::min(at.at_ns, floor_ns);
  return back_to_origin();
}

// A job is made ready by its submission, from a step or from a plain thread.
PathWalker::Cursor PathWalker::ResolveExecutor(Cursor at, int step) {
  const LoopStep& record = *timeline_.step(step).record;
  if (int32_t tid = model::PlainThreadOf(record.waker_step_id)) {
    int thread = timeline_.FindThread({record.pid, tid});
    return {at.at_ns, thread, -1, at.node};
  }
  int submitter = timeline_.step(step).waker;
  if (submitter < 0) return {at.at_ns, -1, -1, at.node};
  const Step& s = timeline_.step(submitter);
  if (s.record->end_mono_ns < at.at_ns) {
    Emit(std::max(s.record->end_mono_ns, lo_ns_), at.at_ns, at.node, Cause::kUnexplained, {});
  }
  return {std::min(at.at_ns, s.record->end_mono_ns), s.thread, submitter, at.node};
}

// No waking is known: go on with the latest work of this trace before this moment; the gap is unexplained.
PathWalker::Cursor PathWalker::FromElsewhere(const Cursor& at) {
  const auto& list = index_.stretches[static_cast<size_t>(trace_index_)];
  auto it = std::lower_bound(list.begin(), list.end(), at.at_ns,
                             [](const TraceStretch& stretch, int64_t value) { return stretch.start_ns < value; });
  const TraceStretch* best = nullptr;
  for (int looked = 0; it != list.begin() && looked < kHopsAtOneMomentMax; ++looked) {
    --it;
    if (!best || std::min(it->end_ns, at.at_ns) > std::min(best->end_ns, at.at_ns)) best = &*it;
  }
  if (!best || best->end_ns <= lo_ns_) {
    Emit(lo_ns_, at.at_ns, at.node, Cause::kUnexplained, {}, false, "no record of who let it go on");
    return {lo_ns_, -1, -1, at.node};
  }
  int64_t end_ns = std::min(best->end_ns, at.at_ns);
  Emit(end_ns, at.at_ns, at.node, Cause::kUnexplained, {}, false, "no record of who let it go on");
  return {end_ns, best->thread, best->step, at.node};
}

// The last-finishing child, from spans alone. An explicit stack: traces may be 5,000 deep.
void PathWalker::WalkSpansOnly(int node, int64_t lo_ns, int64_t hi_ns) {
  struct Frame {
    int node;
    int64_t lo_ns, hi_ns, at_ns;
    std::vector<int> children;  // by end, last first
    size_t next;
  };
  auto make = [&](int n, int64_t lo, int64_t hi) {
    Frame frame{n, lo, hi, hi, trace_.nodes[static_cast<size_t>(n)].children, 0};
    std::sort(frame.children.begin(), frame.children.end(), [&](int a, int b) {
      return trace_.nodes[static_cast<size_t>(a)].end_mono_ns > trace_.nodes[static_cast<size_t>(b)].end_mono_ns;
    });
    return frame;
  };
  std::vector<Frame> stack;
  stack.push_back(make(node, lo_ns, hi_ns));
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next < frame.children.size() && frame.at_ns > frame.lo_ns) {
      const SpanNode& child = trace_.nodes[static_cast<size_t>(frame.children[frame.next])];
      int child_node = frame.children[frame.next++];
      // Only what had ended can have let the parent go on; at the frame's own end an overrunning child is clipped.
      if (child.end_mono_ns > frame.at_ns && frame.at_ns != frame.hi_ns) continue;
      int64_t end_ns = std::min(child.end_mono_ns, frame.at_ns);
      int64_t start_ns = std::max(child.start_mono_ns, frame.lo_ns);
      if (end_ns <= start_ns) continue;
      Emit(end_ns, frame.at_ns, frame.node, Cause::kUnexplained, {}, false, "no record of this thread");
      frame.at_ns = start_ns;
      stack.push_back(make(child_node, start_ns, end_ns));
      continue;
    }
    Emit(frame.lo_ns, frame.at_ns, frame.node, Cause::kUnexplained, {}, false, "no record of this thread");
    stack.pop_back();
  }
}

bool PathWalker::IsOurs(SpanId span) const {
  if (span == 0) return false;
  auto it = index_.spans.find(span);
  return it != index_.spans.end() && it->second.trace == trace_index_;
}

// A span that is known by its times alone ends a moment before its thread lets the waiting one go on: the thread's last
// span was this trace's and ended in (from, at).
bool PathWalker::JustServedUs(int thread, int64_t from_ns, int64_t at_ns) const {
  if (thread < 0 || timeline_.thread(thread).join == model::Join::kThreadContext) return false;
  const SpanMark* mark = timeline_.MarkAt(thread, at_ns - 1);
  return mark && mark->span_id == 0 && mark->at_ns > from_ns && mark != timeline_.thread(thread).marks.data() &&
         IsOurs((mark - 1)->span_id);
}

// What the thread did between that span's end and now is the waiting span's.
void PathWalker::EmitAfterSpan(Cursor* at) {
  int64_t ended_ns = std::max(timeline_.MarkAt(at->thread, at->at_ns - 1)->at_ns, lo_ns_);
  EmitSlices(at->thread, ended_ns, at->at_ns, at->node);
  at->at_ns = std::min(at->at_ns, ended_ns);
}

// A wait inside running code that a thread working for this trace ended: the path goes on there.
bool PathWalker::JumpTarget(const Slice& slice, int thread, Cursor* to) const {
  if (slice.kind != Slice::Kind::kBlocked || !slice.interval || slice.summed) return false;
  const model::ThreadInterval& interval = *slice.interval;
  if (slice.cause != Cause::kLock && slice.cause != Cause::kIpc && slice.cause != Cause::kChildProcess) return false;
  if (interval.waker.kind != model::WakerKind::kThread || slice.end_ns != interval.wake_mono_ns) return false;
  int waker = timeline_.FindThread({interval.waker.pid, interval.waker.tid});
  if (waker < 0 || waker == thread) return false;
  int step = timeline_.StepBefore(waker, slice.end_ns);
  bool ours = IsOurs(timeline_.SpanAt(waker, slice.end_ns)) || IsOurs(interval.waker.span_id) ||
              JustServedUs(waker, interval.wait_start_mono_ns, slice.end_ns);
  if (!ours && step >= 0) {
    const LoopStep& record = *timeline_.step(step).record;
    int submitter = timeline_.step(step).waker;
    ours = record.kind == StepKind::kExecutor &&
           (IsOurs(record.span_id) ||
            (submitter >= 0 && IsOurs(timeline_.SpanAt(timeline_.step(submitter).thread, record.ready_mono_ns))));
  }
  if (!ours) return false;
  *to = {slice.end_ns, waker, step, 0};
  return true;
}

}  // namespace tailspan::analyze
