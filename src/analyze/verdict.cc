#include "analyze/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analyze/stats/isotonic.h"

namespace tailspan::analyze {
namespace {

double PartAt(const std::vector<stats::Weighted>& fit, const std::vector<double>& values) {
  double sum = 0;
  for (const stats::Weighted& w : fit) sum += w.weight * values[w.index];
  return sum;
}

// Whether most of the group's excess is what a monotone fit on the request's own size gives.
void JudgeSize(const Population& population, const Attribution& answer, const std::vector<double>& values,
               Judgement* out) {
  std::vector<double> sizes;
  size_t known = 0;
  for (const model::TraceLedger* ledger : population.requests) {
    sizes.push_back(ledger->size);
    known += ledger->size >= 0;
  }
  if (known < population.size()) return;  // a size that only some requests have would compare kinds of requests
  out->size_correlation = stats::RankCorrelation(sizes, values);
  if (out->size_correlation < kSizeCorrelationMin) return;
  const std::vector<double> fit = stats::IsotonicFit(sizes, values);
  const auto grows = [&](const std::vector<stats::Weighted>& at) {
    const double excess = PartAt(at, values) - PartAt(answer.typical_fit, values);
    return excess > 0 && PartAt(at, fit) - PartAt(answer.typical_fit, fit) >= kSizeShareMin * excess;
  };
  out->grows_with_size = grows(answer.tail_fit) || grows(answer.shortfall_fit);
}

}  // namespace

std::string VerdictRule() {
  return fmt::format(
      "fault: lines of one cause and one blamed party whose share of the excess at the quantile, or beyond it, is >= "
      "{:.0f} % at the lower end of its 95 % interval, with an excess >= max({:.0f} ms, {:.0f} % of the typical "
      "latency) "
      "in >= {} of the requests beyond the quantile; for run_queue, event_loop, queue, gil and lock the excess must "
      "also "
      "be that much more than {:.0f} times what a replay of the same arrivals gives with each step's demand capped at "
      "its P{:.0f}; excess that goes with the request's own size is no fault. insufficient: < {} requests, or > {:.0f} "
      "% "
      "of the tail unexplained (> {:.0f} % where no fault is found). healthy: otherwise. See docs/verdict.md",
      kShareMin * 100, kExcessMinNs / 1e6, kExcessMinTypical * 100, kHitMin, kReplayFactor, kDemandCapQuantile * 100,
      kRequestsMin, kUnexplainedMax * 100, kUnexplainedHealthyMax * 100);
}

double ExcessFloorNs(double typical_ns) { return std::max(kExcessMinNs, kExcessMinTypical * typical_ns); }

std::vector<double> GroupValues(const Population& population, uint32_t group) {
  std::vector<double> values(population.size(), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    for (const Cell& cell : population.Row(i)) {
      if (population.components[cell.component].group == group) values[i] += cell.ns;
    }
  }
  return values;
}

OrdinaryContention MeasureContention(const Population& population, const std::vector<model::TraceLedger>& ledgers,
                                     const Replay& replay, double quantile) {
  OrdinaryContention out;
  if (!replay.complete || population.size() == 0) return out;
  std::vector<uint32_t> order(population.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto replayed = [&](uint32_t i) -> const ReplayedRequest& {
    return replay.requests[static_cast<size_t>(population.requests[i] - ledgers.data())];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return replayed(a).total_ns < replayed(b).total_ns; });
  std::vector<double> total, contention, weights;
  for (const uint32_t i : order) {
    total.push_back(replayed(i).total_ns);
    contention.push_back(replayed(i).contention_ns());
    weights.push_back(population.weights[i]);
  }
  std::vector<stats::Weighted> fit;
  const auto at = [&](double p) {
    const stats::QuantileAt found = stats::FindQuantile(weights, population.weight_sum, p);
    const double half_width = stats::HalfWidth(population.weight_sum, population.mean_weight(), p);
    stats::FitAround(total, weights, found.index, half_width, total[found.index], &fit);
    return PartAt(fit, contention);
  };
  const double typical = at(kTypicalQuantile);
  out.known = true;
  out.tail_excess_ns = std::max(0.0, at(quantile) - typical);
  stats::FitShortfall(weights, population.weight_sum, quantile,
                      stats::FindQuantile(weights, population.weight_sum, quantile), &fit);
  out.shortfall_excess_ns = std::max(0.0, PartAt(fit, contention) - typical);
  return out;
}

Judgement JudgeGroup(const Population& population, const Attribution& answer, const Column& group,
                     const OrdinaryContention& contention) {
  Judgement out;
  const model::Cause cause = population.groups[group.id].cause;
  const double floor_ns = ExcessFloorNs(answer.typical_ns);
  const std::vector<double> values = GroupValues(population, group.id);
  const double large_ns = group.typical_ns + floor_ns / 2;
  size_t others = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < large_ns) continue;
    i >= answer.tail_at.index ? ++out.hit : ++others;
  }
  out.others_hit = answer.tail_at.index ? static_cast<double>(others) / static_cast<double>(answer.tail_at.index) : 0;
  JudgeSize(population, answer, values, &out);

  const bool share_tail = group.share_ci.low >= kShareMin, share_beyond = group.shortfall_ci.low >= kShareMin;
  const bool large_tail = group.excess_ns() >= floor_ns, large_beyond = group.shortfall_excess_ns() >= floor_ns;
  const bool contended = model::IsContention(cause);
  const bool more_tail =
      !contended || (contention.known && group.excess_ns() - kReplayFactor * contention.tail_excess_ns >= floor_ns);
  const bool more_beyond =
      !contended ||
      (contention.known && group.shortfall_excess_ns() - kReplayFactor * contention.shortfall_excess_ns >= floor_ns);
  out.uncertain = !share_tail && !share_beyond;
  out.small = !large_tail && !large_beyond;
  out.ordinary = contended && !more_tail && !more_beyond;
  out.fault = ((share_tail && large_tail && more_tail) || (share_beyond && large_beyond && more_beyond)) &&
              out.hit >= kHitMin && !out.grows_with_size && cause != model::Cause::kUnexplained;
  return out;
}

}  // namespace tailspan::analyze
