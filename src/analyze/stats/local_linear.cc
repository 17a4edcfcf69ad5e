#include "analyze/stats/local_linear.h"

#include <algorithm>

namespace tailspan::analyze::stats {

QuantileAt FindQuantile(std::span<const double> counts, double counts_sum, double p) {
  const double beyond = (1 - p) * counts_sum * (1 + 1e-9);  // 0.01 * 1000 must count as 10
  QuantileAt at{counts.size() - 1, 0};
  while (at.index > 0 && at.mass_above + counts[at.index] <= beyond) at.mass_above += counts[at.index--];
  return at;
}

double HalfWidth(double counts_sum, double mean_weight, double p) {
  return std::max(kHalfWidthShare * counts_sum * (1 - p), kHalfWidthMin * mean_weight);
}

void FitAround(std::span<const double> x, std::span<const double> counts, size_t center, double half_width, double x0,
               std::vector<Weighted>* out) {
  out->clear();
  double sum = 0, sum_x = 0;
  const auto add = [&](size_t i, double distance) {
    const double w = counts[i] * (1 - distance / half_width);
    if (w <= 0) return;
    out->push_back({static_cast<uint32_t>(i), w});
    sum += w;
    sum_x += w * (x[i] - x0);
  };
  add(center, 0);
  double edge = counts[center] / 2;
  for (size_t i = center; i-- > 0 && edge < half_width; edge += counts[i]) add(i, edge + counts[i] / 2);
  edge = counts[center] / 2;
  for (size_t i = center + 1; i < x.size() && edge < half_width; edge += counts[i], ++i) add(i, edge + counts[i] / 2);
  if (sum <= 0) {  // no weight at the center: the one request there
    out->assign(1, {static_cast<uint32_t>(center), 1});
    return;
  }
  const double mean = sum_x / sum;  // of x - x0
  double spread = 0;
  for (const Weighted& w : *out) {
    const double d = x[w.index] - x0 - mean;
    spread += w.weight * d * d;
  }
  const bool flat = spread <= sum * 1e-12 * std::max(1.0, x0 * x0);
  for (Weighted& w : *out) {
    const double d = x[w.index] - x0 - mean;
    w.weight *= flat ? 1 / sum : 1 / sum - d * mean / spread;
  }
}

void FitShortfall(std::span<const double> counts, double counts_sum, double p, QuantileAt at,
                  std::vector<Weighted>* out) {
  out->clear();
  const double mass = (1 - p) * counts_sum;
  double sum = 0;
  for (size_t i = at.index + 1; i < counts.size(); ++i) {
    if (counts[i] <= 0) continue;
    out->push_back({static_cast<uint32_t>(i), counts[i]});
    sum += counts[i];
  }
  const double part = mass - at.mass_above;
  if (part > mass * 1e-9 || sum <= 0) {
    const double take = part > 0 ? part : 1;
    out->push_back({static_cast<uint32_t>(at.index), take});
    sum += take;
  }
  for (Weighted& w : *out) w.weight /= sum;
}

}  // namespace tailspan::analyze::stats
