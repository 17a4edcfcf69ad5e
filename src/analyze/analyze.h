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
};

// One ledger a trace root; traces without a complete root are left out and counted in `loss`. Deterministic.
std::vector<model::TraceLedger> BuildLedgers(const model::RecordBatch& batch, const LedgerOptions& options,
                                             base::LossCounters* loss);

}  // namespace tailspan::analyze
