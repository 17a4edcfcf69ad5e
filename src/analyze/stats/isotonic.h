// How much of a component goes with the request's own size.
#pragma once

#include <span>
#include <vector>

namespace tailspan::analyze::stats {

// Monotone least-squares fit of y on x (pool adjacent violators; equal x share one value). Returns the fit at each x.
std::vector<double> IsotonicFit(std::span<const double> x, std::span<const double> y);

// Spearman's rank correlation, ties by mean rank; 0 when one side does not vary.
double RankCorrelation(std::span<const double> x, std::span<const double> y);

}  // namespace tailspan::analyze::stats
