#include "analyze/draft_ledger.h"

#include <algorithm>
#include <utility>

namespace tailspan::analyze {

void DraftLedger::Add(DraftPiece piece) {
  if (!Wants(piece.start_ns, piece.end_ns)) return;
  if (pieces_.size() >= pieces_max_) {
    cut_ = true;
    return Close("more pieces than a ledger may have");
  }
  piece.start_ns = std::max(piece.start_ns, start_ns_);
  piece.end_ns = std::min(piece.end_ns, frontier_ns_);
  if (piece.end_ns < frontier_ns_) ++gaps_;
  CloseGap(piece.end_ns, piece.node);
  frontier_ns_ = piece.start_ns;
  pieces_.push_back(std::move(piece));
}

void DraftLedger::CloseGap(int64_t from_ns, int node) {
  if (from_ns >= frontier_ns_) return;
  pieces_.push_back({from_ns,
                     frontier_ns_,
                     node,
                     model::Cause::kUnexplained,
                     {},
                     false,
                     model::Join::kNone,
                     "left out on the way back through the request"});
  frontier_ns_ = from_ns;
}

void DraftLedger::Close(const char* evidence) {
  if (done()) return;
  CloseGap(start_ns_, 0);
  pieces_.back().evidence = evidence;
}

std::vector<DraftPiece> DraftLedger::Take() {
  if (!done()) ++gaps_;
  CloseGap(start_ns_, 0);
  std::reverse(pieces_.begin(), pieces_.end());
  return std::move(pieces_);
}

void HoldToLaw(model::TraceLedger* ledger, base::LossCounters* loss) {
  const std::string broken = model::CheckLaw(*ledger);
  if (broken.empty()) return;
  loss->Add(base::Loss::kLedgerLawBroken);
  ledger->pieces.clear();
  if (ledger->paths.empty()) ledger->paths.push_back({ledger->operation});
  if (ledger->duration_ns <= 0) return;
  model::LedgerPiece whole;
  whole.end_ns = ledger->duration_ns;
  whole.span_id = ledger->root_id;
  whole.evidence = "the pieces found do not add up: " + broken;
  ledger->pieces.push_back(std::move(whole));
}

}  // namespace tailspan::analyze
