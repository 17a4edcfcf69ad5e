// Circular block bootstrap in arrival order, as counts: how often each request occurs in a replicate.
//
// Requests that arrive together wait for the same things, so drawing them one by one makes intervals too narrow (AR(1)
// with rho .9: coverage .50-.74 instead of .95). Dependence is tested first; without any the blocks have length one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace tailspan::analyze::stats {

inline constexpr int kReplicates = 400;
inline constexpr int kLagsTested = 10;  // of the Ljung-Box test
inline constexpr double kDependenceLevel = 0.05;
inline constexpr size_t kBlocksMin = 20;  // a replicate is drawn from at least this many blocks

struct Dependence {
  double p_value = 1;  // smaller of Ljung-Box on ranks and the cluster test of the tail, times two
  double time = 1;     // integrated autocorrelation time, the larger of both series
  size_t block_length = 1;
};

// `values` in arrival order; `threshold` is the tail's quantile.
Dependence TestDependence(std::span<const double> values, double threshold);

// Integrated autocorrelation time by the initial positive sequence (Geyer 1992); 1 when independent.
double AutocorrelationTime(std::span<const double> series);
double LjungBoxPValue(std::span<const double> series, int lags);
// Of rare events (0 or 1): that so many pairs stand within `lags` of each other by chance, as a Poisson count. The
// Ljung-Box test of such a series rejects three times too often.
double ClusterPValue(std::span<const double> events, int lags);

class BlockBootstrap {
 public:
  BlockBootstrap(size_t n, size_t block_length, uint64_t seed) : n_(n), block_(block_length), rng_(seed) {}
  // counts[j]: how often the j-th arrival occurs; they sum to n.
  void Draw(std::vector<uint32_t>* counts);

 private:
  size_t n_, block_;
  std::mt19937_64 rng_;
  std::vector<int32_t> steps_;
};

// Percentile interval [level/2, 1 - level/2] of the replicates; sorts them.
struct Interval {
  double low = 0, high = 0;
};
Interval PercentileInterval(std::vector<double>* replicates, double level = 0.05);

}  // namespace tailspan::analyze::stats
