// The part of PathWalker that turns stretches of threads into pieces with a cause and a blame.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "analyze/path_walker.h"

namespace tailspan::analyze {
namespace {

using base::Loss;
using model::Blame;
using model::BlameKind;
using model::Cause;
using model::LoopStep;
using model::SpanId;
using model::TargetKind;
using model::ThreadInterval;
using model::WakerKind;

template <size_t N>
std::string Text(const std::array<char, N>& chars) {
  return std::string(chars.data(), strnlen(chars.data(), N));
}

std::string CollectorText(const GcStretch& gc) {
  return fmt::format("Python's garbage collector, generation {}", gc.generation);
}

}  // namespace

void PathWalker::Emit(int64_t from_ns, int64_t to_ns, int node, Cause cause, Blame blame, bool summed,
                      std::string evidence) {
  EmitAs(join_, from_ns, to_ns, node, cause, std::move(blame), summed, std::move(evidence));
}

void PathWalker::EmitAs(model::Join join, int64_t from_ns, int64_t to_ns, int node, Cause cause, Blame blame,
                        bool summed, std::string evidence) {
  if (!draft_.Wants(from_ns, to_ns)) return;
  // The weakest link counts.
  if (model::JoinConfidence(join_) < model::JoinConfidence(join)) join = join_;
  bool by_overlap = !by_overlap_.empty() && by_overlap_[static_cast<size_t>(node)];
  if (by_overlap && model::JoinConfidence(model::Join::kOverlap) < model::JoinConfidence(join)) {
    join = model::Join::kOverlap;
  }
  if (cause == Cause::kUnexplained) join = model::Join::kNone;
  blame.confidence = std::min(blame.confidence, model::JoinConfidence(join));
  draft_.Add({from_ns, to_ns, node, cause, std::move(blame), summed, join, std::move(evidence)});
}

void PathWalker::EmitInferred(int thread, int64_t from_ns, int64_t to_ns, int node, Cause cause, const Blame& blame,
                              bool summed, const std::string& evidence) {
  CutBackward(timeline_.Holes(thread), from_ns, to_ns, [&](int64_t from, int64_t to, const RingHole* hole) {
    hole ? EmitRingHole(*hole, from, to, node) : Emit(from, to, node, cause, blame, summed, evidence);
  });
}

void PathWalker::EmitRingHole(const RingHole& hole, int64_t from_ns, int64_t to_ns, int node) {
  if (!draft_.Wants(from_ns, to_ns)) return;
  if (hole.record_count == 0) {
    Emit(from_ns, to_ns, node, Cause::kUnexplained, {}, false, "records that contradict each other");
    return;
  }
  index_.loss->Add(Loss::kLedgerHole);
  Emit(from_ns, to_ns, node, Cause::kUnexplained, {}, false,
       fmt::format("{} record{} of the loop lost here", hole.record_count, hole.record_count == 1 ? "" : "s"));
}

// A slice of a thread that works for this trace. In a hole of the thread's loop records only the span that the kernel
// read at its switches tells whom it worked for.
void PathWalker::EmitSlice(const Slice& slice, int thread, int node) {
  CutBackward(timeline_.Holes(thread), slice.start_ns, slice.end_ns,
              [&](int64_t from_ns, int64_t to_ns, const RingHole* hole) {
                Slice part = slice;
                part.start_ns = from_ns;
                part.end_ns = to_ns;
                if (!hole || (slice.interval && IsOurs(slice.interval->span_id))) {
                  EmitKnownSlice(part, thread, node);
                } else {
                  EmitRingHole(*hole, from_ns, to_ns, OpenNode(node, to_ns - 1));
                }
              });
}

void PathWalker::EmitSlices(int thread, int64_t from_ns, int64_t to_ns, int node) {
  timeline_.SlicesBackward(thread, from_ns, to_ns, [&](const Slice& slice) {
    EmitSlice(slice, thread, node);
    return !draft_.done();
  });
}

// A slice outside holes, cut where the thread's current span changed.
void PathWalker::EmitKnownSlice(const Slice& slice, int thread, int node) {
  int64_t end_ns = slice.end_ns;
  while (end_ns > slice.start_ns && !draft_.done()) {
    const SpanMark* mark = timeline_.MarkAt(thread, end_ns - 1);
    int64_t start_ns = mark ? std::max(mark->at_ns, slice.start_ns) : slice.start_ns;
    int part_node = NodeAt(thread, end_ns - 1, node);
    Slice part = slice;
    part.start_ns = start_ns;
    part.end_ns = end_ns;
    switch (slice.kind) {
      case Slice::Kind::kOnCpu:
        EmitOnCpu(part, thread, part_node);
        break;
      case Slice::Kind::kRunnable:
        Emit(start_ns, end_ns, part_node, slice.cause, BlameOccupant(*slice.interval), slice.summed);
        break;
      case Slice::Kind::kUnknown: {
        bool has_book = !timeline_.thread(thread).intervals.empty();
        if (has_book) index_.loss->Add(Loss::kLedgerHole);
        Emit(start_ns, end_ns, part_node, Cause::kUnexplained, {}, false,
             has_book ? "no kernel record of this time" : "kernel probes off");
        break;
      }
      case Slice::Kind::kBlocked:
        if (slice.cause == Cause::kGil) {
          EmitGil(part, thread, part_node);
        } else if ((slice.cause == Cause::kNetRecv || slice.cause == Cause::kNetSend) && !slice.summed &&
                   slice.interval->target.kind == TargetKind::kSocket) {
          const model::WaitTarget& target = slice.interval->target;
          EmitSocketWait(-1, slice.interval, {target.local, target.remote, target.inode}, start_ns, end_ns, part_node,
                         slice.cause);
        } else if (slice.cause == Cause::kLock && !slice.summed && HelperEnded(*slice.interval)) {
          // The walk came back into a wait that this trace's own helper ended: the helper had not begun yet.
          Emit(start_ns, end_ns, part_node, Cause::kQueue,
               {BlameKind::kThread, "helper not begun", {}, "waker's later span", 0.5, {}, 0});
        } else {
          Emit(start_ns, end_ns, part_node, slice.cause, BlameWait(slice), slice.summed);
        }
        break;
    }
    end_ns = start_ns;
  }
}

// What ran was the span's own work, or the garbage collection that it set off.
void PathWalker::EmitOnCpu(const Slice& slice, int thread, int node) {
  const ThreadLine& line = timeline_.thread(thread);
  CutBackward(line.gc, slice.start_ns, slice.end_ns, [&](int64_t from_ns, int64_t to_ns, const GcStretch* gc) {
    if (gc) {
      Emit(from_ns, to_ns, node, Cause::kGc, BlameCollector(*gc, thread), slice.summed);
    } else {
      Emit(from_ns, to_ns, node, Cause::kOnCpu, {BlameKind::kSelf, "self", {}, "scheduler's book", 1, {}, 0},
           slice.summed);
    }
  });
}

void PathWalker::EmitGil(const Slice& slice, int thread, int node) {
  std::vector<GilShare> holds = index_.gil.Holders(thread, slice.start_ns, slice.end_ns);
  for (auto hold = holds.rbegin(); hold != holds.rend(); ++hold) {
    if (hold->thread == thread) {
      Emit(hold->start_ns, hold->end_ns, node, Cause::kRunQueue,
           {BlameKind::kSelf, "self", {}, "let go, not yet running", 0.7, {}, 0}, slice.summed);
      continue;
    }
    if (hold->thread < 0) {
      Emit(hold->start_ns, hold->end_ns, node, Cause::kGil, {}, slice.summed);
      continue;
    }
    const char* how = hold->known ? "gil release timeline" : "gil holder by time";
    double confidence = slice.summed ? 0.6 : hold->known ? 0.97 : 0.75;
    int64_t middle_ns = hold->start_ns + (hold->end_ns - hold->start_ns) / 2;
    Blame blame = BlameThread(hold->thread, middle_ns, how, confidence);
    CutBackward(timeline_.thread(hold->thread).gc, hold->start_ns, hold->end_ns,
                [&](int64_t from_ns, int64_t to_ns, const GcStretch* gc) {
                  Emit(from_ns, to_ns, node, Cause::kGil, blame, slice.summed, gc ? CollectorText(*gc) : "");
                });
  }
}

// [from, to): a handle was ready and the loop thread had not run it. The thread's own gil, run_queue ... keep their
// name; the rest is event_loop, blamed on the step that ran.
void PathWalker::EmitLoopBusy(int thread, int64_t from_ns, int64_t to_ns, int node) {
  from_ns = std::max(from_ns, lo_ns_);
  if (to_ns <= from_ns) return;
  timeline_.SlicesBackward(thread, from_ns, to_ns, [&](const Slice& slice) {
    EmitLoopSlice(slice, thread, node);
    return !draft_.done();
  });
}

void PathWalker::EmitLoopSlice(const Slice& slice, int thread, int node) {
  const ThreadLine& line = timeline_.thread(thread);
  if (slice.kind == Slice::Kind::kUnknown && !line.intervals.empty()) {
    index_.loss->Add(Loss::kLedgerHole);
    return Emit(slice.start_ns, slice.end_ns, node, Cause::kUnexplained, {}, false,
                "no kernel record of the loop's thread");
  }
  if (slice.kind == Slice::Kind::kRunnable) {
    return Emit(slice.start_ns, slice.end_ns, node, slice.cause, BlameOccupant(*slice.interval), slice.summed);
  }
  if (slice.kind == Slice::Kind::kBlocked && slice.cause == Cause::kGil) return EmitGil(slice, thread, node);
  if (slice.kind == Slice::Kind::kBlocked && slice.cause == Cause::kStopped) {
    return Emit(slice.start_ns, slice.end_ns, node, slice.cause, BlameWait(slice), slice.summed);
  }
  double confidence = slice.kind == Slice::Kind::kUnknown ? 0.5 : 0.95;
  std::string evidence =
      slice.kind == Slice::Kind::kBlocked ? fmt::format("the loop was in {}", model::CauseName(slice.cause)) : "";
  for (int64_t end_ns = slice.end_ns; end_ns > slice.start_ns && !draft_.done();) {
    const SpanMark* mark = timeline_.MarkAt(thread, end_ns - 1);  // it begins before end_ns: each turn passes it
    int64_t start_ns = mark ? std::max(mark->at_ns, slice.start_ns) : slice.start_ns;
    bool has_span = mark && mark->step >= 0 && mark->span_id != 0;
    Blame blame = has_span ? BlameThread(thread, end_ns - 1, "loop step that ran", confidence)
                           : Blame{BlameKind::kThread,
                                   "event loop",
                                   fmt::format("thread {}", line.key.tid),
                                   "the loop's own work",
                                   confidence,
                                   {},
                                   0};
    CutBackward(line.gc, start_ns, end_ns, [&](int64_t from, int64_t to, const GcStretch* gc) {
      bool collects = gc && slice.kind != Slice::Kind::kBlocked;
      EmitInferred(thread, from, to, node, Cause::kEventLoop,
                   collects && !has_span ? BlameCollector(*gc, thread) : blame, slice.summed,
                   collects ? CollectorText(*gc) : evidence);
    });
    end_ns = start_ns;
  }
}

// [from, to): a job waited in a pool's queue; `thread` is the worker that took it in the end.
void PathWalker::EmitPoolQueue(int thread, int64_t from_ns, int64_t to_ns, int node) {
  from_ns = std::max(from_ns, lo_ns_);
  timeline_.SlicesBackward(thread, from_ns, to_ns, [&](const Slice& slice) {
    EmitPoolSlice(slice, thread, node);
    return !draft_.done();
  });
}

void PathWalker::EmitPoolSlice(const Slice& slice, int thread, int node) {
  for (int64_t end_ns = slice.end_ns; end_ns > slice.start_ns && !draft_.done();) {
    const SpanMark* mark = timeline_.MarkAt(thread, end_ns - 1);
    const bool has_job = mark && mark->step >= 0;
    Slice part = slice;
    part.end_ns = end_ns;
    if (has_job) {
      part.start_ns = std::max(slice.start_ns, timeline_.step(mark->step).record->start_mono_ns);
    } else if (mark) {
      part.start_ns = std::max(slice.start_ns, mark->at_ns);
    }
    if (has_job) {
      EmitInferred(thread, part.start_ns, end_ns, node, Cause::kQueue,
                   BlameThread(thread, end_ns - 1, "job that the worker ran", 0.9), slice.summed);
    } else if (slice.kind == Slice::Kind::kBlocked && slice.cause == Cause::kGil) {
      // The worker had no job: waking up, taking the GIL, getting a CPU.
      EmitGil(part, thread, node);
    } else if (slice.kind == Slice::Kind::kRunnable) {
      Emit(part.start_ns, end_ns, node, slice.cause, BlameOccupant(*slice.interval), slice.summed);
    } else {
      EmitInferred(thread, part.start_ns, end_ns, node, Cause::kQueue,
                   {BlameKind::kThread,
                    "thread pool",
                    fmt::format("thread {}", timeline_.thread(thread).key.tid),
                    "worker taking up the job",
                    0.8,
                    {},
                    0},
                   slice.summed);
    }
    end_ns = part.start_ns;
  }
}

// The running part of a callback that passes news on, booked on the span that waits for it.
void PathWalker::EmitRunningOf(int step, int64_t from_ns, int64_t to_ns, int node) {
  const int thread = timeline_.step(step).thread;
  timeline_.SlicesBackward(thread, std::max(from_ns, lo_ns_), to_ns, [&](const Slice& slice) {
    CutBackward(timeline_.Holes(thread), slice.start_ns, slice.end_ns,
                [&](int64_t start_ns, int64_t end_ns, const RingHole* hole) {
                  Slice part = slice;
                  part.start_ns = start_ns;
                  part.end_ns = end_ns;
                  hole ? EmitRingHole(*hole, start_ns, end_ns, node) : EmitPassingSlice(part, thread, node);
                });
    return !draft_.done();
  });
}

void PathWalker::EmitPassingSlice(const Slice& slice, int thread, int node) {
  switch (slice.kind) {
    case Slice::Kind::kOnCpu:
      EmitOnCpu(slice, thread, node);
      break;
    case Slice::Kind::kRunnable:
      Emit(slice.start_ns, slice.end_ns, node, slice.cause, BlameOccupant(*slice.interval), slice.summed);
      break;
    case Slice::Kind::kBlocked:
      if (slice.cause == Cause::kGil) {
        EmitGil(slice, thread, node);
      } else {
        Emit(slice.start_ns, slice.end_ns, node, slice.cause, BlameWait(slice), slice.summed);
      }
      break;
    case Slice::Kind::kUnknown:
      Emit(slice.start_ns, slice.end_ns, node, Cause::kUnexplained, {}, false, "no kernel record of the loop's thread");
      break;
  }
}

bool PathWalker::HelperEnded(const ThreadInterval& wait) const {
  if (wait.waker.kind != WakerKind::kThread) return false;
  return IsOurs(wait.waker.span_id) || JustServedUs(timeline_.FindThread({wait.waker.pid, wait.waker.tid}),
                                                    wait.wait_start_mono_ns, wait.wake_mono_ns);
}

// The node of this trace whose span was current on the thread, `fallback` when it was none of this trace's.
int PathWalker::NodeAt(int thread, int64_t at_ns, int fallback) const {
  SpanId span = timeline_.SpanAt(thread, at_ns);
  if (span == 0) return OpenNode(fallback, at_ns);
  auto it = index_.spans.find(span);
  if (it == index_.spans.end() || it->second.trace != trace_index_) return OpenNode(fallback, at_ns);
  return OpenNode(it->second.node, at_ns);
}

// The nearest span up the tree that was open then: an overrunning child is clipped.
int PathWalker::OpenNode(int node, int64_t at_ns) const {
  // Application clocks are stamped a moment apart from ours.
  constexpr int64_t kSlackNs = 200'000;
  while (node > 0) {
    const SpanNode& n = trace_.nodes[static_cast<size_t>(node)];
    if (at_ns >= n.start_mono_ns - kSlackNs && at_ns <= n.end_mono_ns + kSlackNs) break;
    node = n.parent;
  }
  return std::max(node, 0);
}

Blame PathWalker::BlameSpan(SpanId span, int thread, const char* how, double confidence) const {
  auto it = index_.spans.find(span);
  if (it == index_.spans.end()) {
    Blame blame{BlameKind::kThread, "thread without a span", {}, how, confidence * 0.9, {}, 0};
    if (thread >= 0) {
      const ThreadLine& line = timeline_.thread(thread);
      if (const model::ProcessInfo* process = timeline_.Process(line.key.pid)) blame.name = process->comm;
      blame.detail = fmt::format("thread {}", line.key.tid);
    }
    return blame;
  }
  const Trace& trace = index_.traces[static_cast<size_t>(it->second.trace)];
  const model::Span& blamed = *trace.nodes[static_cast<size_t>(it->second.node)].span;
  bool same = it->second.trace == trace_index_;
  std::string detail = thread >= 0 ? fmt::format("thread {}, ", timeline_.thread(thread).key.tid) : "";
  detail += same ? "the same request" : "another request of " + trace.root().span->name;
  return {BlameKind::kSpan, blamed.name, std::move(detail), how, confidence, trace.id, span};
}

Blame PathWalker::BlameThread(int thread, int64_t at_ns, const char* how, double confidence) const {
  return BlameSpan(timeline_.SpanAt(thread, at_ns), thread, how, confidence);
}

Blame PathWalker::BlameCollector(const GcStretch& gc, int thread) const {
  return {BlameKind::kThread,
          "garbage collector",
          fmt::format("generation {}, thread {}", gc.generation, timeline_.thread(thread).key.tid),
          "the interpreter's gc callbacks",
          0.95,
          {},
          0};
}

Blame PathWalker::BlameOccupant(const ThreadInterval& interval) const {
  if (interval.throttled) return {BlameKind::kCgroup, "cpu quota", {}, "throttled flag at switch-out", 0.95, {}, 0};
  const model::CpuOccupant& who = interval.occupants[0];
  if (who.tid == 0 && who.ns == 0) return {};
  std::string name = Text(who.comm);
  if (who.pid == interval.pid) name += " (same process)";
  return {
      BlameKind::kProcess, std::move(name), fmt::format("pid {} thread {}", who.pid, who.tid), "cpu slot", 0.95, {}, 0};
}

Blame PathWalker::BlameWait(const Slice& slice) const {
  if (!slice.interval || slice.summed) return {};
  const ThreadInterval& interval = *slice.interval;
  const model::WaitTarget& target = interval.target;
  const model::Waker& waker = interval.waker;
  switch (slice.cause) {
    case Cause::kPageFault:
    case Cause::kDiskRead:
    case Cause::kDiskWrite:
      if (target.kind == TargetKind::kFile) {
        return {BlameKind::kFile, Text(target.name), fmt::format("inode {}", target.inode), "wait's file", 0.95, {}, 0};
      }
      return slice.cause == Cause::kPageFault
                 ? Blame{BlameKind::kDevice, "memory", {}, "fault without a file", 0.5, {}, 0}
                 : Blame{};
    case Cause::kSleep:
      return {BlameKind::kTimer, "timer", {}, "sleeping syscall", 1, {}, 0};
    case Cause::kNetConnect:
    case Cause::kNetRecv:
    case Cause::kNetSend:
    case Cause::kDns:
      if (target.remote.family) {
        Connection connection{target.local, target.remote, target.inode};
        return {BlameKind::kPeer,
                index_.network.PeerName(connection, slice.end_ns),
                model::ToText(target.remote),
                "socket",
                0.95,
                {},
                0};
      }
      break;
    default:
      break;
  }
  if (waker.kind != WakerKind::kThread) return {};
  if (slice.cause == Cause::kLock) {
    int thread = timeline_.FindThread({waker.pid, waker.tid});
    SpanId span = thread >= 0 ? timeline_.SpanAt(thread, slice.end_ns) : 0;
    return BlameSpan(span ? span : waker.span_id, thread, "thread that released it", 0.9);
  }
  return {BlameKind::kProcess,
          Text(waker.comm),
          fmt::format("pid {} thread {}", waker.pid, waker.tid),
          "waker",
          0.85,
          {},
          0};
}

}  // namespace tailspan::analyze
