#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "analyze/stats/bootstrap.h"
#include "analyze/stats/isotonic.h"
#include "analyze/stats/local_linear.h"

namespace tailspan::analyze::stats {
namespace {

double Sum(const std::vector<Weighted>& fit, const std::vector<double>& y) {
  double sum = 0;
  for (const Weighted& w : fit) sum += w.weight * y[w.index];
  return sum;
}

TEST(FindQuantile, IsTheInvertedDistribution) {
  const std::vector<double> ones(1000, 1.0);
  EXPECT_EQ(FindQuantile(ones, 1000, 0.99).index, 989u);  // the 990th: ten lie beyond
  EXPECT_EQ(FindQuantile(ones, 1000, 0.99).mass_above, 10);
  EXPECT_EQ(FindQuantile(ones, 1000, 0.5).index, 499u);
  const std::vector<double> five(5, 1.0);
  EXPECT_EQ(FindQuantile(five, 5, 0.5).index, 2u);
  EXPECT_EQ(FindQuantile(five, 5, 0.9).index, 4u);
  // A weight of 3 counts as three requests; one of 0 never is the quantile.
  EXPECT_EQ(FindQuantile(std::vector<double>{1, 3, 0, 1}, 5, 0.5).index, 1u);
  EXPECT_EQ(FindQuantile(std::vector<double>{1, 1, 1, 0}, 3, 0.9).index, 2u);
}

TEST(FitAround, ReproducesItsPointAndSplitsItExactly) {
  std::mt19937_64 rng(3);
  std::lognormal_distribution<double> draw(17, 1);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> a, b, total;
    for (int i = 0; i < 300; ++i) total.push_back(draw(rng) + draw(rng));
    std::sort(total.begin(), total.end());
    for (const double t : total) {
      a.push_back(t * std::uniform_real_distribution<double>(0, 1)(rng));
      b.push_back(t - a.back());
    }
    const std::vector<double> counts(total.size(), 1.0);
    for (const double p : {0.5, 0.9, 0.95, 0.99}) {
      std::vector<Weighted> fit;
      const QuantileAt at = FindQuantile(counts, 300, p);
      const double x0 = total[at.index];
      FitAround(total, counts, at.index, HalfWidth(300, 1, p), x0, &fit);
      EXPECT_NEAR(Sum(fit, total), x0, x0 * 1e-9);
      EXPECT_NEAR(Sum(fit, a) + Sum(fit, b), x0, x0 * 1e-9);
      EXPECT_NEAR(Sum(fit, std::vector<double>(300, 1.0)), 1, 1e-9);
    }
  }
}

TEST(FitAround, IsTheKernelMeanOnASymmetricWindowByHand) {
  // x = 0..6 around 3 with half-width 3: kernel 1, 2/3, 1/3; the window is symmetric, so the slope adds nothing.
  const std::vector<double> x{0, 1, 2, 3, 4, 5, 6}, y{9, 3, 6, 3, 9, 6, 9}, counts(7, 1.0);
  std::vector<Weighted> fit;
  FitAround(x, counts, 3, 3, 3, &fit);
  EXPECT_NEAR(Sum(fit, y), (3 + (6 + 9) * 2.0 / 3 + (3 + 6) / 3.0) / 3, 1e-12);
  ASSERT_EQ(fit.size(), 5u);
}

TEST(FitAround, TiesAndTinyWindowsStillSum) {
  std::vector<Weighted> fit;
  const std::vector<double> tied(10, 7.0), counts(10, 1.0);
  FitAround(tied, counts, 4, 3, 7, &fit);
  EXPECT_NEAR(Sum(fit, tied), 7, 1e-12);
  const std::vector<double> one{5.0};
  FitAround(one, std::vector<double>{1.0}, 0, 3, 5, &fit);
  EXPECT_NEAR(Sum(fit, one), 5, 1e-12);
  FitAround(std::vector<double>{1, 2, 3}, std::vector<double>{0, 0, 0}, 1, 3, 2, &fit);  // an empty replicate
  ASSERT_EQ(fit.size(), 1u);
  EXPECT_EQ(fit[0].index, 1u);
}

TEST(FitShortfall, TakesPartOfTheRequestAtTheBoundary) {
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, counts(12, 1.0);
  std::vector<Weighted> fit;
  const QuantileAt at = FindQuantile(counts, 12, 0.9);  // 1.2 requests are the worst tenth
  FitShortfall(counts, 12, 0.9, at, &fit);
  EXPECT_NEAR(Sum(fit, x), (12 + 0.2 * 11) / 1.2, 1e-9);
}

TEST(Isotonic, PoolsViolatorsAndTies) {
  const std::vector<double> fit = IsotonicFit(std::vector<double>{3, 1, 2, 4, 4}, std::vector<double>{2, 1, 3, 5, 9});
  EXPECT_EQ(fit, (std::vector<double>{2.5, 1, 2.5, 7, 7}));
  EXPECT_NEAR(RankCorrelation(std::vector<double>{1, 2, 3, 4}, std::vector<double>{10, 20, 40, 30}), 0.8, 1e-12);
  EXPECT_EQ(RankCorrelation(std::vector<double>{1, 2}, std::vector<double>{5, 5}), 0);
}

TEST(Dependence, IndependentSeriesGetBlocksOfOneAndPersistentOnesLong) {
  std::mt19937_64 rng(5);
  std::normal_distribution<double> normal;
  int blocked = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<double> independent;
    for (int i = 0; i < 1000; ++i) independent.push_back(normal(rng));
    blocked += TestDependence(independent, 2.3).block_length > 1;
  }
  EXPECT_LE(blocked, 12);  // level 5 %: expected 5, and 12 has a probability of .3 %
  std::vector<double> persistent{0};
  for (int i = 1; i < 5000; ++i) persistent.push_back(0.9 * persistent.back() + normal(rng));
  const Dependence dependence = TestDependence(persistent, 4);
  EXPECT_LT(dependence.p_value, 1e-6);
  EXPECT_NEAR(dependence.time, 19, 8);  // (1 + rho) / (1 - rho)
  EXPECT_GE(dependence.block_length, 30u);
  EXPECT_LE(dependence.block_length, 250u);
}

TEST(Dependence, ManyEventsAreCountedToo) {
  // A tenth of 10,000: about 999 pairs are expected by chance, a count whose lower tail begins at exp(-999).
  std::vector<double> together(10'000), apart(10'000);
  std::mt19937_64 rng(7);
  for (size_t i = 0; i < together.size(); ++i) {
    together[i] = i % 1000 < 100 ? 1 : 0;
    apart[i] = rng() % 10 == 0 ? 1 : 0;
  }
  EXPECT_LT(ClusterPValue(together, kLagsTested), 1e-6);
  EXPECT_GT(ClusterPValue(apart, kLagsTested), 1e-3);
}

TEST(BlockBootstrap, DrawsAsManyAsThereAre) {
  for (const size_t block : {1u, 7u, 50u}) {
    BlockBootstrap bootstrap(100, block, 9);
    std::vector<uint32_t> counts;
    std::vector<double> mean(100, 0.0);
    for (int r = 0; r < 4000; ++r) {
      bootstrap.Draw(&counts);
      ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), 0u), 100u);
      for (size_t i = 0; i < 100; ++i) mean[i] += counts[i] / 4000.0;
    }
    for (const double m : mean) EXPECT_NEAR(m, 1, 0.35) << "circular: the edges are drawn as often as the middle";
  }
}

TEST(PercentileInterval, TakesTheEnds) {
  std::vector<double> replicates(400);
  std::iota(replicates.begin(), replicates.end(), 0.0);
  const Interval interval = PercentileInterval(&replicates);
  EXPECT_EQ(interval.low, 10);
  EXPECT_EQ(interval.high, 389);
}

}  // namespace
}  // namespace tailspan::analyze::stats
