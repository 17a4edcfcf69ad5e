#include "analyze/stats/isotonic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace tailspan::analyze::stats {
namespace {

std::vector<uint32_t> OrderBy(std::span<const double> x) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return x[a] < x[b]; });
  return order;
}

std::vector<double> MeanRanks(std::span<const double> x) {
  const std::vector<uint32_t> order = OrderBy(x);
  std::vector<double> ranks(x.size());
  for (size_t i = 0; i < order.size();) {
    size_t j = i;
    while (j < order.size() && x[order[j]] == x[order[i]]) ++j;
    const double mean = static_cast<double>(i + j - 1) / 2;
    for (; i < j; ++i) ranks[order[i]] = mean;
  }
  return ranks;
}

}  // namespace

std::vector<double> IsotonicFit(std::span<const double> x, std::span<const double> y) {
  struct Block {
    double sum, weight;
    size_t end;
  };
  const std::vector<uint32_t> order = OrderBy(x);
  std::vector<Block> blocks;
  for (size_t i = 0; i < order.size();) {
    Block block{0, 0, i};
    for (const double at = x[order[i]]; block.end < order.size() && x[order[block.end]] == at; ++block.end) {
      block.sum += y[order[block.end]];
      block.weight += 1;
    }
    i = block.end;
    while (!blocks.empty() && blocks.back().sum * block.weight >= block.sum * blocks.back().weight) {
      block.sum += blocks.back().sum;
      block.weight += blocks.back().weight;
      blocks.pop_back();
    }
    blocks.push_back(block);
  }
  std::vector<double> fit(x.size());
  size_t i = 0;
  for (const Block& block : blocks) {
    for (; i < block.end; ++i) fit[order[i]] = block.sum / block.weight;
  }
  return fit;
}

double RankCorrelation(std::span<const double> x, std::span<const double> y) {
  const std::vector<double> a = MeanRanks(x), b = MeanRanks(y);
  const double mean = (static_cast<double>(a.size()) - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace tailspan::analyze::stats
