#include "analyze/stats/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tailspan::analyze::stats {
namespace {

constexpr double kPoissonMeanMax = 500;  // beyond, a Poisson count is normal, and exp(-mean) soon is 0

// Upper tail of chi-square with an even number of degrees: exp(-x/2) * sum (x/2)^k / k!.
double ChiSquareUpperTail(double x, int degrees) {
  double term = std::exp(-x / 2), sum = term;
  for (int k = 1; k < degrees / 2; ++k) sum += term *= x / 2 / k;
  return std::min(1.0, sum);
}

std::vector<double> Centered(std::span<const double> series) {
  const double mean = std::accumulate(series.begin(), series.end(), 0.0) / static_cast<double>(series.size());
  std::vector<double> out(series.begin(), series.end());
  for (double& v : out) v -= mean;
  return out;
}

double Product(const std::vector<double>& centered, size_t lag) {
  double sum = 0;
  for (size_t i = lag; i < centered.size(); ++i) sum += centered[i] * centered[i - lag];
  return sum;
}

std::vector<double> Ranks(std::span<const double> values) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

}  // namespace

double LjungBoxPValue(std::span<const double> series, int lags) {
  const std::vector<double> c = Centered(series);
  const double variance = Product(c, 0), n = static_cast<double>(series.size());
  if (variance <= 0 || n <= lags + 1) return 1;
  double q = 0;
  for (int lag = 1; lag <= lags; ++lag) {
    const double r = Product(c, static_cast<size_t>(lag)) / variance;
    q += r * r / (n - lag);
  }
  return ChiSquareUpperTail(n * (n + 2) * q, lags);
}

double ClusterPValue(std::span<const double> events, int lags) {
  double count = 0, pairs = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    count += events[i];
    for (size_t lag = 1; lag <= static_cast<size_t>(lags) && lag <= i; ++lag) pairs += events[i] * events[i - lag];
  }
  const double mean = count * (count - 1) * lags / static_cast<double>(events.size());
  if (mean <= 0) return 1;
  if (mean > kPoissonMeanMax) return std::erfc((pairs - 0.5 - mean) / std::sqrt(2 * mean)) / 2;
  double term = std::exp(-mean), below = 0;  // of a Poisson count below `pairs`
  for (double k = 0; k < pairs; ++k) {
    below += term;
    term *= mean / (k + 1);
  }
  return std::max(0.0, 1 - below);
}

double AutocorrelationTime(std::span<const double> series) {
  const std::vector<double> c = Centered(series);
  const double variance = Product(c, 0);
  const size_t lag_max = std::min<size_t>(series.size() / 4, 2000);
  if (variance <= 0) return 1;
  double time = -1;
  for (size_t lag = 0; lag + 1 < lag_max; lag += 2) {
    const double pair = (Product(c, lag) + Product(c, lag + 1)) / variance;
    if (pair <= 0) break;
    time += 2 * pair;
  }
  return std::max(1.0, time);
}

Dependence TestDependence(std::span<const double> values, double threshold) {
  Dependence out;
  const size_t n = values.size();
  if (n < 50) return out;
  const std::vector<double> ranks = Ranks(values);
  std::vector<double> beyond(n);
  for (size_t i = 0; i < n; ++i) beyond[i] = values[i] >= threshold ? 1 : 0;
  out.p_value = std::min(1.0, 2 * std::min(LjungBoxPValue(ranks, kLagsTested), ClusterPValue(beyond, kLagsTested)));
  if (out.p_value >= kDependenceLevel) return out;
  out.time = std::max(AutocorrelationTime(ranks), AutocorrelationTime(beyond));
  // The length that minimises the mean squared error of the variance of a mean under AR(1) (Carlstein 1986), with the
  // coefficient that has this autocorrelation time.
  const double rho = std::clamp((out.time - 1) / (out.time + 1), 0.05, 0.99);
  const double length = std::cbrt(1.5 * static_cast<double>(n)) * std::pow(2 * rho / (1 - rho * rho), 2.0 / 3);
  out.block_length = std::clamp<size_t>(static_cast<size_t>(std::ceil(length)), 2, std::max<size_t>(2, n / kBlocksMin));
  return out;
}

void BlockBootstrap::Draw(std::vector<uint32_t>* counts) {
  counts->assign(n_, 0);
  const auto below = [&](size_t bound) {  // multiply-shift, the same on every platform; n is below 2^32
    return static_cast<size_t>(((rng_() >> 32) * bound) >> 32);
  };
  if (block_ <= 1) {
    for (size_t i = 0; i < n_; ++i) ++(*counts)[below(n_)];
    return;
  }
  steps_.assign(n_ + 1, 0);
  for (size_t drawn = 0; drawn < n_; drawn += block_) {
    const size_t length = std::min(block_, n_ - drawn), from = below(n_), to = from + length;
    ++steps_[from];
    --steps_[std::min(to, n_)];
    if (to > n_) {
      ++steps_[0];
      --steps_[to - n_];
    }
  }
  int32_t open = 0;
  for (size_t i = 0; i < n_; ++i) (*counts)[i] = static_cast<uint32_t>(open += steps_[i]);
}

Interval PercentileInterval(std::vector<double>* replicates, double level) {
  if (replicates->empty()) return {};
  std::sort(replicates->begin(), replicates->end());
  const double last = static_cast<double>(replicates->size() - 1);
  const auto at = [&](double p) { return (*replicates)[static_cast<size_t>(std::lround(p * last))]; };
  return {at(level / 2), at(1 - level / 2)};
}

}  // namespace tailspan::analyze::stats
