// The pieces of one trace while they are found, from the root's end back to its start, and the ledger's law.
//
// The law holds by construction: a piece is clipped to the time that is not told yet, time left out before it becomes
// unexplained, and Take() leaves none. Not thread-safe; one object a trace. Times are CLOCK_MONOTONIC ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/loss.h"
#include "model/ledger.h"

namespace tailspan::analyze {

struct DraftPiece {
  int64_t start_ns = 0, end_ns = 0;
  int node = 0;  // index into Trace::nodes
  model::Cause cause = model::Cause::kUnexplained;
  model::Blame blame;
  bool summed = false;
  model::Join join = model::Join::kThreadContext;
  std::string evidence;
};

class DraftLedger {
 public:
  // Of [start, end); takes at most `pieces_max` pieces, and then one more for all the rest.
  DraftLedger(int64_t start_ns, int64_t end_ns, size_t pieces_max)
      : start_ns_(start_ns), frontier_ns_(end_ns), pieces_max_(pieces_max) {}

  // Whether anything of [from, to) is still to be told.
  bool Wants(int64_t from_ns, int64_t to_ns) const {
    return !done() && from_ns < frontier_ns_ && to_ns > start_ns_ && from_ns < to_ns;
  }
  void Add(DraftPiece piece);
  // All the time that is not told yet, as one unexplained piece; the evidence says why.
  void Close(const char* evidence);
  bool done() const { return frontier_ns_ <= start_ns_; }
  bool cut() const { return cut_; }      // it came to the limit
  size_t gaps() const { return gaps_; }  // how often time was left out
  size_t size() const { return pieces_.size(); }

  // In order of time, covering [start, end) without gap or overlap. Once.
  std::vector<DraftPiece> Take();

 private:
  void CloseGap(int64_t from_ns, int node);

  int64_t start_ns_, frontier_ns_;  // told so far: [frontier, end)
  size_t pieces_max_, gaps_ = 0;
  bool cut_ = false;
  std::vector<DraftPiece> pieces_;  // the latest first
};

// A ledger that breaks its law is a fault of this program, and no reason to give no answer: it is made one unexplained
// piece of the root's whole length that says what was broken, and counted.
void HoldToLaw(model::TraceLedger* ledger, base::LossCounters* loss);

}  // namespace tailspan::analyze
