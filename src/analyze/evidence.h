// What speaks for a finding, what against it, and which signal would settle it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analyze/attribution.h"
#include "analyze/disk_waits.h"
#include "analyze/population.h"
#include "analyze/verdict.h"
#include "model/explanation.h"

namespace tailspan::analyze {

inline constexpr size_t kExemplarsMax = 3;

// What the tail requests' pieces say about one component.
struct PieceFacts {
  double ns = 0, summed_ns = 0, confidence_ns = 0;
  int64_t pieces = 0;
  int64_t longest_ns = 0;
  std::map<std::string, double> how_ns, detail_ns, evidence_ns;
  std::map<model::Join, double> join_ns;
  std::vector<DiskWait> disk_waits;                                    // for the causes that wait for a disk
  std::vector<std::pair<double, const model::TraceLedger*>> requests;  // ns of this component, the request
};

// For each of the answer's lines, over the requests at and beyond the tail quantile.
std::vector<PieceFacts> CollectPieceFacts(const Population& population, const Attribution& answer);

// Sets blame (with detail, how, confidence), exemplars, pattern, fix and the three lists of evidence. `disk` may be
// null.
void FillEvidence(const PieceFacts& facts, const Judgement& judgement, const OrdinaryContention& contention,
                  const model::Explanation& explanation, const DiskWaits* disk, model::Finding* finding);

// The request that the tail is compared with, in words, by Explanation::reference.
const char* ReferenceText(const std::string& reference);

// The AI phase that a span's name speaks of; empty when none.
std::string PhaseOf(const std::string& span);

}  // namespace tailspan::analyze
