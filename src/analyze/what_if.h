// What the tail quantile would be if one group of lines took no more than it does in a typical request.
//
// Each request's ledger is replayed with the group's pieces cut to the group's typical time. A ledger is one critical
// path: work that ran beside it and would then end last is not in it, and other requests' waits do not get shorter, so
// the figure says what this request's own structure gives, no more.
#pragma once

#include <string>

#include "analyze/attribution.h"
#include "analyze/population.h"

namespace tailspan::analyze {

inline constexpr const char* kWhatIfHow =
    "each request's ledger replayed with this capped at its typical time; effects on other requests and on work beside "
    "the critical path are left out";

struct WhatIf {
  double tail_ns = 0;
  stats::Interval ci_ns;
};

// REQUIRES: the population that `answer` is about, and one of its groups' columns.
WhatIf WithoutGroup(const Population& population, const Attribution& answer, const Column& group, uint64_t seed);

}  // namespace tailspan::analyze
