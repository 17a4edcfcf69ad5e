// Parts of a whole as integers that still add up to it.
#pragma once

#include <cstdint>
#include <vector>

namespace tailspan::report {

// Rounds so that the sum is exactly `total` (largest remainder; ties go to the earlier part). The parts must add up to
// `total` but for rounding; any larger difference is laid on the last part.
std::vector<int64_t> RoundToTotal(const std::vector<double>& parts, int64_t total);

}  // namespace tailspan::report
