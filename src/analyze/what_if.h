// What the tail quantile would be if one group of lines took no more than it does in the request that the tail is
// compared with: a typical one, one that just meets the target, or the baseline's typical one.
//
// Each request's ledger is replayed with the group's pieces cut to the group's time in that request. A ledger is one
// critical path: work that ran beside it and would then end last is not in it, and other requests' waits do not get
// shorter, so the figure says what this request's own structure gives, no more.
#pragma once

#include <string>

#include "analyze/attribution.h"
#include "analyze/population.h"

namespace tailspan::analyze {

// How the figure was made, by Explanation::reference.
std::string WhatIfHow(const std::string& reference);

struct WhatIf {
  double tail_ns = 0;
  stats::Interval ci_ns;
};

// REQUIRES: the population that `answer` is about, and one of its groups' columns.
WhatIf WithoutGroup(const Population& population, const Attribution& answer, const Column& group, uint64_t seed);

}  // namespace tailspan::analyze
