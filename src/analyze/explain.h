// Pass 2: from the stored ledgers of one operation to the answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyze/disk_waits.h"
#include "base/result.h"
#include "model/explanation.h"
#include "model/ledger.h"

namespace tailspan::analyze {

struct ExplainOptions {
  // Empty: of those with enough requests for a verdict the one with the largest summed excess, else of all.
  std::string operation;
  int64_t unfinished = 0;  // requests of the operation asked for that began and have no end: no ledger holds them
  double quantile = 0;     // 0: the highest of .99, .95, .90 with at least 5 requests beyond it
  double slo_ms = 0;       // 0: none; else excess is the tail beyond this target
  const std::vector<model::TraceLedger>* baseline = nullptr;  // an earlier recording's ledgers of the operation
  const DiskWaits* disk = nullptr;                            // the recording's block requests, for evidence
  int cpus = 0;       // of the recorded host, for the replay; 0: not known, 2 are taken
  uint64_t seed = 1;  // of the bootstrap: the same input gives the same answer
};

// `ledgers` are all operations' (from the store). The caller fills file, window, loss, capabilities and manifest.
// kNotFound when the operation does not occur among others; where there is no request at all, or none of it has ended,
// the verdict is `insufficient`.
base::Result<model::Explanation> Explain(const std::vector<model::TraceLedger>& ledgers, const ExplainOptions& options);

}  // namespace tailspan::analyze
