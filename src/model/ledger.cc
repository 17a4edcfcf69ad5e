#include "model/ledger.h"

#include <fmt/format.h>

#include "base/result.h"

namespace tailspan::model {

const char* BlameKindName(BlameKind kind) {
  switch (kind) {
    case BlameKind::kNone:
      return "none";
    case BlameKind::kSelf:
      return "self";
    case BlameKind::kSpan:
      return "span";
    case BlameKind::kThread:
      return "thread";
    case BlameKind::kProcess:
      return "process";
    case BlameKind::kPeer:
      return "peer";
    case BlameKind::kFile:
      return "file";
    case BlameKind::kCgroup:
      return "cgroup";
    case BlameKind::kDevice:
      return "device";
    case BlameKind::kTimer:
      return "timer";
  }
  return "none";
}

std::string BlameText(const Blame& blame) {
  switch (blame.kind) {
    case BlameKind::kNone:
      return "no one known";
    case BlameKind::kSelf:
      return "itself";
    case BlameKind::kTimer:
      return "a timer";
    case BlameKind::kSpan:
      return fmt::format("`{}`", blame.name);
    case BlameKind::kThread:
    case BlameKind::kPeer:
      // "thread pool", "unknown peer": the kind is said already.
      if (blame.name.find(BlameKindName(blame.kind)) != std::string::npos) return blame.name;
      [[fallthrough]];
    default:
      return fmt::format("{} {}", BlameKindName(blame.kind), blame.name);
  }
}

const char* JoinName(Join join) {
  switch (join) {
    case Join::kThreadContext:
      return "thread_context";
    case Join::kThreadId:
      return "thread_id";
    case Join::kOnlyOpenSpan:
      return "only_open_span";
    case Join::kConnection:
      return "connection";
    case Join::kOverlap:
      return "overlap";
    case Join::kNone:
      return "none";
  }
  return "none";
}

double JoinConfidence(Join join) {
  switch (join) {
    case Join::kThreadContext:
      return 1;
    case Join::kThreadId:
    case Join::kConnection:
      return 0.9;
    case Join::kOverlap:
      return 0.7;
    case Join::kOnlyOpenSpan:
      return 0.6;
    case Join::kNone:
      return 0;
  }
  return 0;
}

std::string CheckLaw(const TraceLedger& ledger) {
  int64_t at_ns = 0;
  for (size_t i = 0; i < ledger.pieces.size(); ++i) {
    const LedgerPiece& piece = ledger.pieces[i];
    if (piece.start_ns != at_ns) return fmt::format("piece {} starts at {}, not at {}", i, piece.start_ns, at_ns);
    if (piece.end_ns <= piece.start_ns) return fmt::format("piece {} is empty or runs backwards", i);
    if (piece.path >= ledger.paths.size()) return fmt::format("piece {} has no span path", i);
    at_ns = piece.end_ns;
  }
  if (at_ns != ledger.duration_ns) return fmt::format("pieces end at {}, the root at {}", at_ns, ledger.duration_ns);
  return {};
}

}  // namespace tailspan::model
