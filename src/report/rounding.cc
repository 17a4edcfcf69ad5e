#include "report/rounding.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tailspan::report {

std::vector<int64_t> RoundToTotal(const std::vector<double>& parts, int64_t total) {
  std::vector<int64_t> out;
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t left = total;
  for (const double part : parts) {
    out.push_back(static_cast<int64_t>(std::floor(part)));
    left -= out.back();
  }
  if (out.empty()) return out;
  const auto remainder = [&](size_t i) { return parts[i] - std::floor(parts[i]); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return remainder(a) > remainder(b); });
  for (size_t i = 0; i < order.size() && left > 0; ++i, --left) ++out[order[i]];
  out.back() += left;
  return out;
}

}  // namespace tailspan::report
