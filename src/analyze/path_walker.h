// The critical path of one trace, walked from the root's end back to its start.
//
// The walk stands at a moment of a carrier (a task's step on a loop thread, an executor job, or a plain thread). What
// ran there is cut by the kernel's book; where the carrier was suspended, the walk goes to whoever let it go on:
//   - another step or thread that works for this trace: the walk continues there (the critical path);
//   - a loop callback (a socket's reader, a timer, a chained future): passed through, down to the socket or timer;
//   - a step of another request, or a thread without a span: final; a lock or a queue, blamed on it.
// Between ready and running lies the loop thread's own state: its gil, run_queue ... pass through, the rest is
// event_loop, blamed on the step then running. Where no waking is known: the latest work of this trace before, with a
// gap unexplained.
//
// Termination: each move lowers the current time, to where a record begins or ends, or takes one of a bounded number of
// hops at one moment. Cost: linear in the steps and intervals on the path, and what it looks at becomes pieces, of
// which there is a limit. One object a trace; not thread-safe; the Timeline is shared.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "analyze/draft_ledger.h"
#include "analyze/gil_timeline.h"
#include "analyze/network.h"
#include "analyze/timeline.h"
#include "analyze/trace_assembly.h"
#include "model/ledger.h"

namespace tailspan::analyze {

// Where the traces' spans ran: for each trace the stretches in which one of its spans was current.
struct TraceStretch {
  int64_t start_ns = 0, end_ns = 0;
  int thread = -1;
  int step = -1;
  model::SpanId span_id = 0;
};

struct SpanRef {
  int trace = -1;
  int node = -1;
};

// What all walks of a recording share.
struct WalkIndex {
  const std::vector<Trace>& traces;
  const Timeline& timeline;
  const GilTimeline& gil;
  const Network& network;
  const LedgerOptions& options;
  base::LossCounters* loss;
  std::unordered_map<model::SpanId, SpanRef, model::ForeignNumberHash> spans;
  std::vector<std::vector<TraceStretch>> stretches;  // by trace; by start
  // By thread, parallel to its marks: since when its current spans have been of the same trace.
  std::vector<std::vector<int64_t>> same_trace_since_ns;

  // `stands_for`: ids that threads may have published for a span of another id (MergeTwins).
  void Fill(const std::unordered_map<model::SpanId, model::SpanId, model::ForeignNumberHash>& stands_for);
};

class PathWalker {
 public:
  // Finds at most `pieces_max` pieces; what is left of the trace is one more, unexplained.
  PathWalker(const WalkIndex& index, int trace, size_t pieces_max);

  // Pieces from the root's start to its end, in order, without gap. Once.
  std::vector<DraftPiece> Walk();

 private:
  struct Cursor {
    int64_t at_ns = 0;
    int thread = -1;
    int step = -1;
    int node = 0;  // whose time it is while no span of this trace is current
  };

  // Where the walk begins.
  bool IsSameCarrier(const TraceStretch& left, const TraceStretch& right) const;
  Cursor Start() const;
  // Moves: each returns where to go on.
  Cursor WalkRunning(Cursor at);
  Cursor WalkReady(const Cursor& at);
  Cursor ResolveWaker(Cursor at, int step, int origin, int64_t suspended_ns);
  Cursor ResolveExecutor(Cursor at, int step);
  Cursor FromElsewhere(const Cursor& at);
  void EmitAfterSpan(Cursor* at);
  // Spans alone: no record of a thread touches this trace.
  void WalkSpansOnly(int node, int64_t lo_ns, int64_t hi_ns);

  // Pieces.
  void Emit(int64_t from_ns, int64_t to_ns, int node, model::Cause cause, model::Blame blame, bool summed = false,
            std::string evidence = {});
  void EmitSlice(const Slice& slice, int thread, int node);
  void EmitSlices(int thread, int64_t from_ns, int64_t to_ns, int node);  // each
  void EmitKnownSlice(const Slice& slice, int thread, int node);
  // What follows from the order of the thread's loop records alone: not told where some of them were lost.
  void EmitInferred(int thread, int64_t from_ns, int64_t to_ns, int node, model::Cause cause, const model::Blame& blame,
                    bool summed = false, const std::string& evidence = {});
  void EmitRingHole(const RingHole& hole, int64_t from_ns, int64_t to_ns, int node);
  void EmitAs(model::Join join, int64_t from_ns, int64_t to_ns, int node, model::Cause cause, model::Blame blame,
              bool summed = false, std::string evidence = {});
  void EmitOnCpu(const Slice& slice, int thread, int node);
  void EmitGil(const Slice& slice, int thread, int node);
  void EmitLoopBusy(int thread, int64_t from_ns, int64_t to_ns, int node);
  void EmitLoopSlice(const Slice& slice, int thread, int node);
  // `loop_thread` is where the descriptor is polled, -1 when the waiting thread sleeps in the socket itself; then
  // `sleep` is that wait.
  void EmitSocketWait(int loop_thread, const model::ThreadInterval* sleep, const Connection& connection,
                      int64_t from_ns, int64_t to_ns, int node, model::Cause cause);
  void EmitPeer(int thread, int64_t from_ns, int64_t to_ns, int node, const model::Blame& peer, int depth);
  void EmitPeerSlice(const Slice& slice, int thread, int node, const model::Blame& peer, int depth);
  void EmitPoolQueue(int thread, int64_t from_ns, int64_t to_ns, int node);
  void EmitPoolSlice(const Slice& slice, int thread, int node);
  void EmitRunningOf(int step, int64_t from_ns, int64_t to_ns, int node);
  void EmitPassingSlice(const Slice& slice, int thread, int node);

  // Names.
  int NodeAt(int thread, int64_t at_ns, int fallback) const;
  int OpenNode(int node, int64_t at_ns) const;
  bool IsOurs(model::SpanId span) const;
  model::Blame BlameSpan(model::SpanId span, int thread, const char* how, double confidence) const;
  model::Blame BlameThread(int thread, int64_t at_ns, const char* how, double confidence) const;
  model::Blame BlameCollector(const GcStretch& gc, int thread) const;
  model::Blame BlameOccupant(const model::ThreadInterval& interval) const;
  model::Blame BlameWait(const Slice& slice) const;
  bool HelperEnded(const model::ThreadInterval& wait) const;  // a thread of this trace ended it
  bool JustServedUs(int thread, int64_t from_ns, int64_t at_ns) const;
  bool JumpTarget(const Slice& slice, int thread, Cursor* to) const;

  const WalkIndex& index_;
  const Timeline& timeline_;
  const Trace& trace_;
  int trace_index_;
  int64_t lo_ns_ = 0;
  model::Join join_ = model::Join::kThreadContext;  // of the carrier that the walk stands on
  std::vector<bool> by_overlap_;                    // by node: it or an ancestor was adopted; empty when none was
  DraftLedger draft_;
};

}  // namespace tailspan::analyze
