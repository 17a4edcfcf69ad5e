// The part of PathWalker that explains waits on sockets, and goes on into followed peers.
#include <fmt/format.h>

#include <algorithm>

#include "analyze/path_walker.h"

namespace tailspan::analyze {

using model::Blame;
using model::BlameKind;
using model::Cause;
using model::ThreadInterval;
using model::WakerKind;

namespace {

std::string Told(const Repair& repair, const Connection& connection) {
  uint32_t count = repair.segments_ours + repair.segments_theirs;
  const char* sender = repair.segments_theirs == 0 ? "us" : repair.segments_ours == 0 ? "the peer" : "both";
  return fmt::format("{} retransmission{} on {} > {}, sent by {}", count, count == 1 ? "" : "s",
                     model::ToText(connection.local), model::ToText(connection.remote), sender);
}

}  // namespace

void PathWalker::EmitSocketWait(int loop_thread, const ThreadInterval* sleep, const Connection& connection,
                                int64_t from_ns, int64_t to_ns, int node, Cause cause) {
  from_ns = std::max(from_ns, lo_ns_);
  if (to_ns <= from_ns) return;
  Blame peer{BlameKind::kPeer,
             index_.network.PeerName(connection, to_ns),
             model::ToText(connection.remote),
             "socket",
             0.95,
             {},
             0};
  if (!connection.known()) peer = {BlameKind::kPeer, "unknown peer", {}, "descriptor", 0.4, {}, 0};
  if (cause != Cause::kNetRecv || !connection.known()) {
    EmitInferred(loop_thread, from_ns, to_ns, node, cause, peer);
    return;
  }
  std::vector<Repair> repairs = index_.network.RepairsIn(connection, from_ns, to_ns);
  int64_t ready_ns = index_.network.ReadyAt(connection, repairs.empty() ? from_ns : repairs.back().last_mono_ns, to_ns);
  // After the data had arrived the loop was busy elsewhere, or on its way out of its poll.
  int64_t arrived_ns = ready_ns && loop_thread >= 0 ? ready_ns : to_ns;
  EmitLoopBusy(loop_thread, arrived_ns, to_ns, node);
  // A followed peer's thread that woke us by its answer: the wait goes on into what that thread did.
  if (!sleep && loop_thread >= 0) sleep = timeline_.SleepEndedIn(loop_thread, from_ns, to_ns);
  int32_t peer_pid = index_.network.PeerPid(connection, to_ns);
  int answering = -1;
  if (sleep && peer_pid && sleep->waker.pid == peer_pid && sleep->waker.kind == WakerKind::kThread)
    answering = timeline_.FindThread({sleep->waker.pid, sleep->waker.tid});
  int64_t end_ns = arrived_ns;
  if (answering >= 0) {
    int64_t sent_ns = std::clamp(sleep->wake_mono_ns, from_ns, arrived_ns);
    if (!repairs.empty()) sent_ns = std::max(sent_ns, std::min(repairs.back().end_ns, arrived_ns));
    EmitInferred(loop_thread, sent_ns, arrived_ns, node, cause, peer);
    end_ns = sent_ns;
  }
  auto emit_peers = [&](int64_t start_ns, int64_t stop_ns) {
    if (answering >= 0) {
      CutBackward(timeline_.Holes(loop_thread), start_ns, stop_ns, [&](int64_t from, int64_t to, const RingHole* hole) {
        hole ? EmitRingHole(*hole, from, to, node) : EmitPeer(answering, from, to, node, peer, 1);
      });
    } else {
      EmitInferred(loop_thread, start_ns, stop_ns, node, cause, peer);
    }
  };
  Blame lossy = peer;
  lossy.how = "tcp_retransmit_skb on this connection";
  for (auto repair = repairs.rbegin(); repair != repairs.rend(); ++repair) {
    repair->end_ns = std::min(repair->end_ns, end_ns);
    if (repair->end_ns <= repair->start_ns) continue;
    emit_peers(repair->end_ns, end_ns);
    EmitInferred(loop_thread, repair->start_ns, repair->end_ns, node, Cause::kRetransmit, lossy, false,
                 Told(*repair, connection));
    end_ns = repair->start_ns;
  }
  emit_peers(from_ns, end_ns);
}

// What a thread of a followed peer did while we waited for its answer, booked on the span that waits. Its waits for
// another of its threads go on there; where it waited for the network itself (our request on its way, a peer of its
// own), and where nothing is recorded, it is the peer's: net_recv.
void PathWalker::EmitPeer(int thread, int64_t from_ns, int64_t to_ns, int node, const Blame& peer, int depth) {
  timeline_.SlicesBackward(thread, from_ns, to_ns, [&](const Slice& slice) {
    EmitPeerSlice(slice, thread, node, peer, depth);
    return !draft_.done();
  });
}

void PathWalker::EmitPeerSlice(const Slice& slice, int thread, int node, const Blame& peer, int depth) {
  const ThreadKey key = timeline_.thread(thread).key;
  if (slice.kind == Slice::Kind::kRunnable) {
    return EmitAs(model::Join::kConnection, slice.start_ns, slice.end_ns, node, slice.cause,
                  BlameOccupant(*slice.interval), slice.summed, "in the peer " + peer.name);
  }
  if (slice.kind == Slice::Kind::kOnCpu) {
    return EmitAs(model::Join::kConnection, slice.start_ns, slice.end_ns, node, Cause::kOnCpu,
                  {BlameKind::kProcess,
                   peer.name,
                   fmt::format("pid {} thread {}", key.pid, key.tid),
                   "thread that answered",
                   0.9,
                   {},
                   0},
                  slice.summed);
  }
  const bool is_blocked = slice.kind == Slice::Kind::kBlocked;
  const bool by_thread = is_blocked && !slice.summed && slice.interval->waker.kind == WakerKind::kThread &&
                         slice.end_ns == slice.interval->wake_mono_ns;
  if (by_thread && slice.cause == Cause::kLock && slice.interval->waker.pid == key.pid) {
    int next = timeline_.FindThread({slice.interval->waker.pid, slice.interval->waker.tid});
    if (next >= 0 && next != thread && depth < index_.options.follow_depth_max) {
      return EmitPeer(next, slice.start_ns, slice.end_ns, node, peer, depth + 1);
    }
  }
  bool of_its_own = is_blocked && (slice.cause == Cause::kPageFault || slice.cause == Cause::kDiskRead ||
                                   slice.cause == Cause::kDiskWrite || slice.cause == Cause::kStopped ||
                                   slice.cause == Cause::kSleep);
  if (of_its_own) {
    EmitAs(model::Join::kConnection, slice.start_ns, slice.end_ns, node, slice.cause, BlameWait(slice), slice.summed,
           "in the peer " + peer.name);
  } else {
    Emit(slice.start_ns, slice.end_ns, node, Cause::kNetRecv, peer);
  }
}

}  // namespace tailspan::analyze
