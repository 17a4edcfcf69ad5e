// The ledger of one trace: pieces that cover [0, duration_ns) of its root without gap or overlap. Its law is checked by
// CheckLaw and by every test: the pieces' durations add up to the root's duration to the nanosecond.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/cause.h"
#include "model/ids.h"

namespace tailspan::model {

enum class BlameKind : uint8_t { kNone, kSelf, kSpan, kThread, kProcess, kPeer, kFile, kCgroup, kDevice, kTimer };
const char* BlameKindName(BlameKind kind);

struct Blame {
  BlameKind kind = BlameKind::kNone;
  std::string name;    // the part that is the same from request to request: span name, process name, peer, file
  std::string detail;  // the exact one: thread, pid, trace of the other request
  std::string how;     // how it is known, e.g. "gil release timeline"
  double confidence = 0;
  TraceId trace_id;  // the other request, when the blamed one is a span
  SpanId span_id = 0;
};

// The party in a sentence: "`chunk`", "process chroma", "itself", "a timer", "no one known".
std::string BlameText(const Blame& blame);

// How a piece was joined to its span.
enum class Join : uint8_t {
  kThreadContext,  // the thread published the span
  kThreadId,       // the span says its thread
  kOnlyOpenSpan,   // no other request was open in the process
  kConnection,     // another process's thread, which answered on the connection that the span waits at
  kOverlap,        // the span's own parent never came; it hangs under the request that was open around it
  kNone            // not joined: unexplained
};
const char* JoinName(Join join);
// How far such a join can be trusted, 0 to 1. A piece's blame is known no better than this.
double JoinConfidence(Join join);

struct LedgerPiece {
  int64_t start_ns = 0;  // from the root's start
  int64_t end_ns = 0;
  SpanId span_id = 0;
  uint32_t path = 0;  // index into TraceLedger::paths
  Cause cause = Cause::kUnexplained;
  Blame blame;
  bool summed = false;  // the kernel gave only a sum for a small window that holds this piece
  Join join = Join::kNone;
  std::string evidence;  // what the blamed one was doing, when the wait ends here
};

struct TraceLedger {
  TraceId trace_id;
  SpanId root_id = 0;
  std::string operation;  // the root's name
  int64_t start_unix_ns = 0;
  int64_t duration_ns = 0;
  bool failed = false;  // error or cancelled: a population of its own
  double weight = 1;    // inverse sampling probability
  int32_t revision = 0;
  double size = -1;  // the request's own size (tokens, else bytes, else documents); -1 unknown
  std::vector<std::vector<std::string>> paths;  // span names from the root down
  std::vector<LedgerPiece> pieces;
};

// Empty when the law holds, else what breaks it.
std::string CheckLaw(const TraceLedger& ledger);

}  // namespace tailspan::model
