// How much of the tail each component is: at the quantile, and beyond it, against the typical request.
//
// Every column (a component, or a group of components) gets its part of the typical latency, of the tail quantile and
// of the expected shortfall, with shares of the excess and intervals from one block bootstrap. Parts of all components
// add up to the latency they explain, up to floating point.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "analyze/population.h"
#include "analyze/stats/bootstrap.h"
#include "analyze/stats/local_linear.h"

namespace tailspan::analyze {

inline constexpr double kTypicalQuantile = 0.5;
inline constexpr double kListedShareMin = 0.01;  // smaller lines are summed up as `rest`
inline constexpr size_t kLinesMax = 48;          // the largest ones, then those that their groups need and vice versa
inline constexpr size_t kGroupsMax = 32;

// What the tail is compared with, when it is not this population's own typical request.
struct Reference {
  bool fixed = false;
  double total_ns = 0;
  std::unordered_map<std::string, double> parts_ns;  // by ComponentKey
};

struct Column {
  uint32_t id = 0;  // of the component or the group
  double typical_ns = 0, tail_ns = 0, shortfall_ns = 0;
  double share_of_excess = 0, share_of_shortfall = 0;
  stats::Interval share_ci, shortfall_ci;

  double excess_ns() const { return tail_ns - typical_ns; }
  double shortfall_excess_ns() const { return shortfall_ns - typical_ns; }
};

struct Attribution {
  double quantile = 0.99;
  stats::QuantileAt tail_at;
  double typical_ns = 0, tail_ns = 0, shortfall_ns = 0;
  stats::Interval tail_ci_ns;
  std::vector<Column> lines;   // listed components; of each listed group at least the largest one
  std::vector<Column> groups;  // all that a listed component is of
  Column rest;                 // all components that are not listed
  std::vector<stats::Weighted> typical_fit, tail_fit, shortfall_fit;
  stats::Dependence dependence;
};

// Sum of weight * column over the fit's requests, for every component.
std::vector<double> ComponentParts(const Population& population, const std::vector<stats::Weighted>& fit);

// REQUIRES: at least two requests. `excess` may be zero or negative; shares are then 0.
Attribution Attribute(const Population& population, double quantile, const Reference& reference, uint64_t seed);

}  // namespace tailspan::analyze
