#include "analyze/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analyze/verdict.h"

namespace tailspan::analyze {

std::string WhatIfHow(const std::string& reference) {
  const char* cap = reference == "slo"        ? "its part of a typical request stretched or shrunk to the target"
                    : reference == "baseline" ? "its typical time in the baseline"
                                              : "its typical time";
  return fmt::format(
      "each request's ledger replayed with this capped at {}; effects on other requests and on work beside the "
      "critical path are left out",
      cap);
}

WhatIf WithoutGroup(const Population& population, const Attribution& answer, const Column& group, uint64_t seed) {
  const size_t n = population.size();
  const double cap_ns = std::max(0.0, group.typical_ns);
  std::vector<double> total = GroupValues(population, group.id);
  for (size_t i = 0; i < n; ++i) total[i] = population.total_ns[i] - std::max(0.0, total[i] - cap_ns);
  std::vector<uint32_t> order(n), rank(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return total[a] < total[b]; });
  for (uint32_t r = 0; r < n; ++r) rank[order[r]] = r;

  const auto quantile_of = [&](const std::vector<double>& counts) {
    const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
    return total[order[stats::FindQuantile(counts, sum, answer.quantile).index]];
  };
  WhatIf out;
  std::vector<double> counts(n);
  for (size_t i = 0; i < n; ++i) counts[rank[i]] = population.weights[i];
  out.tail_ns = quantile_of(counts);
  stats::BlockBootstrap bootstrap(n, answer.dependence.block_length, seed);
  std::vector<uint32_t> drawn;
  std::vector<double> tails;
  for (int r = 0; r < stats::kReplicates; ++r) {
    bootstrap.Draw(&drawn);
    for (size_t j = 0; j < n; ++j) {
      const uint32_t i = population.arrivals[j];
      counts[rank[i]] = drawn[j] * population.weights[i];
    }
    tails.push_back(quantile_of(counts));
  }
  out.ci_ns = stats::PercentileInterval(&tails);
  return out;
}

}  // namespace tailspan::analyze
