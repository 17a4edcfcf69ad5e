// The verdict rule. Its constants are explained in docs/verdict.md and printed with every answer; they were set on
// services that are not used to score them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyze/attribution.h"
#include "analyze/population.h"
#include "analyze/replay.h"

namespace tailspan::analyze {

inline constexpr size_t kRequestsMin = 200;         // below: insufficient
inline constexpr size_t kBeyondMin = 5;             // requests beyond the quantile for it to be chosen
inline constexpr size_t kBeyondNote = 40;           // below: a note
inline constexpr double kShareMin = 0.25;           // lower bound of the share
inline constexpr double kExcessMinNs = 20e6;        // a fault's excess is at least this
inline constexpr double kExcessMinTypical = 0.5;    // and at least this part of the typical latency
inline constexpr size_t kHitMin = 5;                // requests beyond the quantile that a fault must have hit
inline constexpr double kReplayFactor = 2.0;        // contention beyond this multiple of the replay's is not ordinary
inline constexpr double kSizeCorrelationMin = 0.3;  // Spearman's, between size and the line
inline constexpr double kSizeShareMin = 0.5;        // of the line's excess that a monotone fit on size gives
inline constexpr double kUnexplainedMax = 0.5;      // of the tail: insufficient, whatever else is found
inline constexpr double kUnexplainedHealthyMax = 0.2;  // of the tail: too much to call it healthy

std::string VerdictRule();

// What ordinary contention makes of this operation's tail, by the replay.
struct OrdinaryContention {
  bool known = false;
  double tail_excess_ns = 0;       // of all contention waits together, at the quantile
  double shortfall_excess_ns = 0;  // and beyond it
};
// `replay` is over all `ledgers`; `population` points into them.
OrdinaryContention MeasureContention(const Population& population, const std::vector<model::TraceLedger>& ledgers,
                                     const Replay& replay, double quantile);

// One column of a population, request by request.
std::vector<double> GroupValues(const Population& population, uint32_t group);

struct Judgement {
  bool fault = false;
  bool uncertain = false;  // the share's lower bound is too low
  bool small = false;      // the excess is
  bool ordinary = false;   // a contention cause, and the replay makes as much
  bool grows_with_size = false;
  size_t hit = 0;         // requests beyond the quantile in which it is large
  double others_hit = 0;  // share of the remaining requests
  double size_correlation = 0;
};

double ExcessFloorNs(double typical_ns);

Judgement JudgeGroup(const Population& population, const Attribution& answer, const Column& group,
                     const OrdinaryContention& contention);

}  // namespace tailspan::analyze
