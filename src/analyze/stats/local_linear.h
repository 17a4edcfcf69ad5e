// Local-linear regression at a quantile, as a list of weights.
//
// For a sample sorted by its total x, the fit of any component y of x at x0 is sum(weight_i * y_i): the weights depend
// on x alone. They sum to one and reproduce x itself (sum(weight_i * x_i) = x0), so components that partition x have
// fits that partition x0. Kernel: triangular in ranks. Reference: Fan & Gijbels, Local Polynomial Modelling, 1996.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tailspan::analyze::stats {

inline constexpr double kHalfWidthShare = 0.3;  // of the ranks beyond the quantile: half-width 0.3 * n * (1 - p)
inline constexpr double kHalfWidthMin = 3;      // ranks; fewer leave one request to speak for the tail

struct Weighted {
  uint32_t index = 0;
  double weight = 0;
};

// Position of a quantile in an ascending sample with a weight (or resampling count) for each value: the smallest value
// whose cumulated weight reaches p of the sum ("inverted CDF", Hyndman & Fan's type 1).
struct QuantileAt {
  size_t index = 0;
  double mass_above = 0;  // summed weight of what stands behind index
};
QuantileAt FindQuantile(std::span<const double> counts, double counts_sum, double p);

// Half-width in units of weight.
double HalfWidth(double counts_sum, double mean_weight, double p);

// Weights of the fit at x0 in a window around `center`. Where all x in the window are the same, or only one request is
// in it, the fit is the plain kernel mean; it then reproduces x0 only if x0 is that value.
void FitAround(std::span<const double> x, std::span<const double> counts, size_t center, double half_width, double x0,
               std::vector<Weighted>* out);

// Weights of the expected shortfall, the mean of the worst (1 - p) of the weight, with the request that straddles the
// boundary taken in part (Acerbi & Tasche 2002), so that its parts are the Euler allocation.
void FitShortfall(std::span<const double> counts, double counts_sum, double p, QuantileAt at,
                  std::vector<Weighted>* out);

}  // namespace tailspan::analyze::stats
