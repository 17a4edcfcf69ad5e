// The two passes of the analysis.
//
// Pass 1, BuildLedgers: spans and intervals -> pieces. Pure; the result is stored.
// Pass 2, Explain (explain.h): stored pieces of a population -> the answer. Never rereads spans.
#pragma once

#include <vector>

#include "base/loss.h"
#include "model/batch.h"
#include "model/ledger.h"

namespace tailspan::analyze {

struct LedgerOptions {
  int follow_depth_max = 8;  // how many hops a wait is followed
  size_t spans_per_trace_max = 100'000;
  int span_depth_max = 512;  // deeper spans are joined to their ancestor at this depth
  // Pieces of a trace, and of all traces together (the larger of the two), before equal neighbours are joined: where
  // requests all wait for each other there are as many pieces as pairs of them. Time beyond is unexplained
  // (ledger_cut).
  size_t pieces_per_trace_max = 200'000;
  size_t pieces_max = 4'000'000, pieces_per_record_max = 4;
};

// One ledger a trace root; traces without a complete root are left out and counted in `loss`. Deterministic. Records
// that contradict each other are counted and leave time unexplained; no record makes it abort, or costs more than n log
// n.
std::vector<model::TraceLedger> BuildLedgers(const model::RecordBatch& batch, const LedgerOptions& options,
                                             base::LossCounters* loss);

}  // namespace tailspan::analyze
