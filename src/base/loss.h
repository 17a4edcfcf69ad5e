// The declared catalogue of everything that tailspan can drop, cut or fail to know, with a severity and a remedy.
//
// Each entry is one line in the table below; a counter is bumped where the loss happens, and every report prints the
// nonzero ones. Counting is lock-free and safe from any thread; counters live as long as the process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tailspan::base {

enum class Severity {
  kInfo,      // by design, e.g. a span that was sent twice
  kDataLoss,  // the answer lacks something that happened
  kBadInput,  // a client sent something that could not be used
};

// X(id, name, severity, remedy)
#define TAILSPAN_LOSSES(X)                                                                                            \
  X(RingBufferFull, "ring_buffer_full", kDataLoss, "give a larger --ring-buffer or a higher --threshold")             \
  X(KernelDropOnPurpose, "kernel_drop_on_purpose", kDataLoss, "a test option dropped these records")                  \
  X(KernelThreadUnfollowed, "kernel_thread_unfollowed", kDataLoss,                                                    \
    "a thread could not be taken in; see tailspan doctor")                                                            \
  X(KernelRecordHole, "kernel_record_hole", kDataLoss,                                                                \
    "records were lost between kernel and tailspan; see ring_buffer_full")                                            \
  X(KernelMapFull, "kernel_map_full", kDataLoss, "too many followed processes or sockets for the probe's tables")     \
  X(KernelFlowForgotten, "kernel_flow_forgotten", kDataLoss,                                                          \
    "more connections than the probe's table holds; readiness and retransmissions of those used least are not told")  \
  X(KernelContextUnreadable, "kernel_context_unreadable", kDataLoss, "a thread's span record could not be read")      \
  X(LoopRingOverwritten, "loop_ring_overwritten", kDataLoss, "the loop ring was lapped; tailspan had too little CPU") \
  X(LoopRingTorn, "loop_ring_torn", kDataLoss, "a loop record was being written while it was read")                   \
  X(LoopRingDropOnPurpose, "loop_ring_drop_on_purpose", kDataLoss, "a test option dropped these loop records")        \
  X(LoopRingSlotsFull, "loop_ring_slots_full", kDataLoss, "more Python threads than slots in the loop ring")          \
  X(LoopRingSitesFull, "loop_ring_sites_full", kInfo,                                                                 \
    "a process has more call sites than the loop ring has room for; later ones are not named")                        \
  X(LoopRingBad, "loop_ring_bad", kBadInput, "a process offered a ring or record that is not valid")                  \
  X(SpanRejected, "span_rejected", kBadInput, "spans with ids of the wrong length or no id")                          \
  X(SpanRepeated, "span_repeated", kInfo, "the same span arrived again; the newest was kept")                         \
  X(SpanIdCollision, "span_id_collision", kInfo, "two spans of one trace share an id; both were kept by UUID")        \
  X(SpanTimeInvalid, "span_time_invalid", kBadInput,                                                                  \
    "end before start, or a time far from now; the span was kept and marked")                                         \
  X(SpanIncomplete, "span_incomplete", kDataLoss,                                                                     \
    "a span started and its end never came: it has no duration and takes no time in a ledger")                        \
  X(SpanParentMissing, "span_parent_missing", kInfo, "a parent never came; the span hangs under its root")            \
  X(SpanContextLeaked, "span_context_leaked", kInfo,                                                                  \
    "a server span hung under a request that had ended (a kept-alive connection's context); it is a root of its own") \
  X(SpanParentCycle, "span_parent_cycle", kBadInput, "parents form a circle; it was cut")                             \
  X(TraceTooLarge, "trace_too_large", kDataLoss, "a trace has more spans than the limit; the rest was left out")      \
  X(TraceTooDeep, "trace_too_deep", kInfo, "a trace is nested deeper than the limit; deeper spans were joined to it") \
  X(AttributeCut, "attribute_cut", kInfo, "an attribute was longer than the limit")                                   \
  X(TextNotUtf8, "text_not_utf8", kBadInput, "text was not UTF-8; bad bytes were replaced")                           \
  X(BodyTooLarge, "body_too_large", kBadInput, "a request body was over the limit; raise it or send smaller batches") \
  X(BodyInvalid, "body_invalid", kBadInput, "a request body could not be decoded")                                    \
  X(RunTypeUnknown, "run_type_unknown", kInfo, "a run type that is not known was stored as it came")                  \
  X(SignalNotStored, "signal_not_stored", kInfo, "metrics or logs were received; this version stores traces")         \
  X(ShedUnderLoad, "shed_under_load", kDataLoss, "spans came faster than they could be stored")                       \
  X(RecordsShed, "records_shed", kDataLoss, "kernel and loop records came faster than they could be stored")          \
  X(StoreWriteFailed, "store_write_failed", kDataLoss, "the recording could not be written; is the disk full?")       \
  X(LedgerHole, "ledger_hole", kDataLoss, "time on a critical path lies in a hole of lost records")                   \
  X(PathDepthCut, "path_depth_cut", kInfo, "a wait was followed to the depth limit")                                  \
  X(PathCycleCut, "path_cycle_cut", kInfo, "a wait led back to itself; it was cut")                                   \
  X(LoopRecordContradicts, "loop_record_contradicts", kBadInput,                                                      \
    "records of a loop ring that cannot all be true; what they contradict each other about is unexplained")           \
  X(LedgerCut, "ledger_cut", kDataLoss,                                                                               \
    "requests with more pieces than the limit; the rest of their time is unexplained")                                \
  X(LedgerGap, "ledger_gap", kDataLoss,                                                                               \
    "time that the way back through a request left out is unexplained; please report it")                             \
  X(LedgerLawBroken, "ledger_law_broken", kDataLoss,                                                                  \
    "the pieces of a request did not add up: all its time is unexplained; please report it")                          \
  X(TraceUnfinished, "trace_unfinished", kDataLoss,                                                                   \
    "a request began and its end never came; it is in no figure, and may have been a slow one")                       \
  X(RequestTooSlow, "request_too_slow", kBadInput,                                                                    \
    "a request was still coming when its connection or memory was needed for others; it was closed")                  \
  X(SpanTwin, "span_twin", kInfo, "LangSmith and OpenTelemetry both recorded a run; it is one span")                  \
  X(TraceTwinAmbiguous, "trace_twin_ambiguous", kInfo,                                                                \
    "a LangSmith trace could not be told from OpenTelemetry's traces of the same requests; it was left out")

enum class Loss {
#define X(id, name, severity, remedy) k##id,
  TAILSPAN_LOSSES(X)
#undef X
      kCount,
};

struct LossInfo {
  const char* name;
  Severity severity;
  const char* remedy;
};

const LossInfo& Describe(Loss loss);
std::optional<Loss> LossByName(std::string_view name);

// A set of counters. One global set counts for the process; components that are tested alone take their own.
class LossCounters {
 public:
  void Add(Loss loss, uint64_t n = 1) { counts_[static_cast<size_t>(loss)].fetch_add(n, std::memory_order_relaxed); }
  void Set(Loss loss, uint64_t n) { counts_[static_cast<size_t>(loss)].store(n, std::memory_order_relaxed); }
  uint64_t Get(Loss loss) const { return counts_[static_cast<size_t>(loss)].load(std::memory_order_relaxed); }
  std::map<std::string, uint64_t> NonZero() const;  // by name

  static LossCounters& Global();

 private:
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Loss::kCount)> counts_{};
};

}  // namespace tailspan::base
