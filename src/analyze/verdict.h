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

inline constexpr size_t kRequestsMin = 200;       // below: insufficient
inline constexpr size_t kBeyondMin = 5;           // requests beyond the quantile for it to be chosen
inline constexpr size_t kBeyondNote = 40;         // below: a note
inline constexpr double kShareMin = 0.25;         // lower bound of the share
inline constexpr double kShareSeen = 0.5;         // estimated; large enough not to be called healthy
inline constexpr double kExcessMinNs = 20e6;      // a fault's excess is at least this
inline constexpr double kExcessMinTypical = 0.5;  // and at least this part of the typical latency
inline constexpr size_t kHitMin = 5;              // requests beyond the quantile that a fault must have hit
inline constexpr double kReplayFactor = 3.0;      // contention beyond this multiple of the replay's is not ordinary
// A blocked loop shows as few long holds, the backlog behind some other fault as many ordinary ones. So at least this
// part of an event_loop line must lie in holds (one step of one other request) of at least half the excess' floor.
inline constexpr double kLongHoldsMin = 0.5;
// A step that every request takes (net_recv, on_cpu) varies by itself: lognormal with sigma .5 and exponential lines
// have an excess at P99 of about this multiple of (P80 - P50).
inline constexpr double kSpreadFactor = 4.0;
inline constexpr double kSpreadQuantile = 0.8;
inline constexpr double kSizeCorrelationMin = 0.3;     // Spearman's, between size and the line
inline constexpr double kSizeShareMin = 0.5;           // of the line's excess that a monotone fit on size gives
inline constexpr double kUnexplainedMax = 0.5;         // of the tail: insufficient, whatever else is found
inline constexpr double kUnexplainedHealthyMax = 0.2;  // of the tail: too much to call it healthy

std::string VerdictRule();

// What ordinary contention makes of an operation's tail, by the replay: the same estimators on the replayed requests.
class OrdinaryContention {
 public:
  struct Excess {
    double tail_ns = 0;       // at the quantile
    double shortfall_ns = 0;  // beyond it
  };

  OrdinaryContention() = default;  // not known
  // `replay` is over all `ledgers`; `population` points into them.
  OrdinaryContention(const Population& population, const std::vector<model::TraceLedger>& ledgers, Replay replay,
                     double quantile);

  bool known() const { return known_; }
  Excess All() const;  // of all waits together
  // Of the waits that a group of this cause and blamed party holds. Where the replay has no such party (a process, a
  // thread), of all waits of that cause.
  Excess Of(model::Cause cause, const model::Blame& blame) const;

 private:
  template <typename Matches>
  Excess Measure(const Matches& matches) const;

  bool known_ = false;
  Replay replay_;
  std::vector<size_t> order_;  // the population's requests in the replay, by rising duration
  std::vector<stats::Weighted> typical_, tail_, shortfall_;
};

// One column of a population, request by request.
std::vector<double> GroupValues(const Population& population, uint32_t group);

struct Judgement {
  bool fault = false;
  bool suspect = false;    // would be a fault but for the interval: too few independent events
  bool uncertain = false;  // the share's lower bound is too low
  bool small = false;      // the excess is
  bool ordinary = false;   // a contention cause, and the replay makes as much; or the spread of a step that all take
  bool grows_with_size = false;
  bool backlog = false;   // event_loop, and made of ordinary holds
  size_t hit = 0;         // requests beyond the quantile in which it is large
  double others_hit = 0;  // share of the remaining requests
  double size_correlation = 0;
  OrdinaryContention::Excess replayed;  // of a contention group
};

double ExcessFloorNs(double typical_ns);

Judgement JudgeGroup(const Population& population, const Attribution& answer, const Column& group,
                     const OrdinaryContention& contention);

model::Blame GroupBlame(const Population& population, uint32_t group);

}  // namespace tailspan::analyze
