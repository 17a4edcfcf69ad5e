#include "analyze/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "analyze/stats/isotonic.h"

namespace tailspan::analyze {
namespace {

double PartAt(const std::vector<stats::Weighted>& fit, const std::vector<double>& values) {
  double sum = 0;
  for (const stats::Weighted& w : fit) sum += w.weight * values[w.index];
  return sum;
}

WaitKind KindOf(model::Cause cause) {
  switch (cause) {
    case model::Cause::kGil:
      return WaitKind::kGil;
    case model::Cause::kEventLoop:
      return WaitKind::kLoop;
    case model::Cause::kQueue:
      return WaitKind::kExecutor;
    case model::Cause::kLock:
      return WaitKind::kLock;
    default:
      return WaitKind::kCpu;
  }
}

// How far the ordinary requests' values lie apart, for a line that every request has; 0 where the typical request has
// little of it, so that a fault that hits a third of all requests does not pass for spread.
double OrdinarySpreadNs(const Population& population, const std::vector<double>& values) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return values[a] < values[b]; });
  std::vector<double> weights;
  for (const uint32_t i : order) weights.push_back(population.weights[i]);
  const auto at = [&](double p) { return values[order[stats::FindQuantile(weights, population.weight_sum, p).index]]; };
  const double middle = at(0.5), spread = at(kSpreadQuantile) - middle;
  return spread <= 2 * middle ? spread : 0;
}

// The part of a group's time beyond the quantile that lies in long holds by one other party.
double LongHoldsShare(const Population& population, const Attribution& answer, model::Cause cause,
                      const model::Blame& blame, double long_ns) {
  double all_ns = 0, held_ns = 0;
  for (size_t i = answer.tail_at.index + 1; i < population.size(); ++i) {
    std::map<std::tuple<uint64_t, uint64_t, model::SpanId, size_t>, double> holds;
    const auto& pieces = population.requests[i]->pieces;
    for (size_t k = 0; k < pieces.size(); ++k) {
      const model::Blame& b = pieces[k].blame;
      if (pieces[k].cause != cause || b.kind != blame.kind || b.name != blame.name) continue;
      const bool exact = b.trace_id || b.span_id;
      holds[{b.trace_id.hi, b.trace_id.lo, b.span_id, exact ? 0 : k + 1}] +=
          static_cast<double>(pieces[k].end_ns - pieces[k].start_ns);
    }
    for (const auto& [who, ns] : holds) {
      all_ns += ns;
      if (ns >= long_ns) held_ns += ns;
    }
  }
  return all_ns > 0 ? held_ns / all_ns : 0;
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
  std::string rule = fmt::format(
      "fault: lines of one cause and one blamed party whose share of the excess at the quantile, or beyond it, is >= "
      "{:.0f} % at the lower end of its 95 % interval, with an excess >= max({:.0f} ms, {:.0f} % of the typical "
      "latency), "
      "in >= {} of the requests beyond the quantile. ",
      kShareMin * 100, kExcessMinNs / 1e6, kExcessMinTypical * 100, kHitMin);
  rule += fmt::format(
      "run_queue, event_loop, queue, gil and lock: that much more than a replay of the same arrivals, with each step's "
      "demand capped at its P{:.0f}, gives for all of them, and than {:.0f} times what it gives for this one. Other "
      "causes: >= {:.0f} times the line's own P{:.0f} minus "
      "P50, where every request has it. Excess that goes with the request's own size is no fault. ",
      kDemandCapQuantile * 100, kReplayFactor, kSpreadFactor, kSpreadQuantile * 100);
  rule += fmt::format(
      "insufficient: < {} requests, or > {:.0f} % of the tail unexplained (> {:.0f} % without a fault), or a "
      "line of >= {:.0f} % that fails by its interval alone. healthy: otherwise. See docs/verdict.md",
      kRequestsMin, kUnexplainedMax * 100, kUnexplainedHealthyMax * 100, kShareSeen * 100);
  return rule;
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

OrdinaryContention::OrdinaryContention(const Population& population, const std::vector<model::TraceLedger>& ledgers,
                                       Replay replay, double quantile)
    : replay_(std::move(replay)) {
  if (!replay_.complete || population.size() == 0) return;
  known_ = true;
  std::vector<std::pair<size_t, double>> requests;  // index into the replay, weight
  for (size_t i = 0; i < population.size(); ++i) {
    requests.emplace_back(static_cast<size_t>(population.requests[i] - ledgers.data()), population.weights[i]);
  }
  std::stable_sort(requests.begin(), requests.end(), [&](const auto& a, const auto& b) {
    return replay_.requests[a.first].total_ns < replay_.requests[b.first].total_ns;
  });
  std::vector<double> total, weights;
  for (const auto& [index, weight] : requests) {
    order_.push_back(index);
    total.push_back(replay_.requests[index].total_ns);
    weights.push_back(weight);
  }
  const auto fit = [&](double p, std::vector<stats::Weighted>* out) {
    const stats::QuantileAt found = stats::FindQuantile(weights, population.weight_sum, p);
    const double half_width = stats::HalfWidth(population.weight_sum, population.mean_weight(), p);
    stats::FitAround(total, weights, found.index, half_width, total[found.index], out);
    return found;
  };
  fit(kTypicalQuantile, &typical_);
  stats::FitShortfall(weights, population.weight_sum, quantile, fit(quantile, &tail_), &shortfall_);
}

template <typename Matches>
OrdinaryContention::Excess OrdinaryContention::Measure(const Matches& matches) const {
  if (!known_) return {};
  const auto part = [&](const std::vector<stats::Weighted>& fit) {
    double sum = 0;
    for (const stats::Weighted& w : fit) {
      for (const ReplayedWait& wait : replay_.requests[order_[w.index]].waits) {
        if (matches(wait)) sum += w.weight * wait.ns;
      }
    }
    return sum;
  };
  const double typical = part(typical_);
  return {std::max(0.0, part(tail_) - typical), std::max(0.0, part(shortfall_) - typical)};
}

OrdinaryContention::Excess OrdinaryContention::All() const {
  return Measure([](const ReplayedWait&) { return true; });
}

OrdinaryContention::Excess OrdinaryContention::Of(model::Cause cause, const model::Blame& blame) const {
  const WaitKind kind = KindOf(cause);
  const auto name = std::find(replay_.names.begin(), replay_.names.end(), blame.name);
  if (blame.kind != model::BlameKind::kSpan || name == replay_.names.end()) {
    return Measure([&](const ReplayedWait& wait) { return wait.kind == kind; });
  }
  const auto index = static_cast<uint16_t>(name - replay_.names.begin());
  return Measure([&](const ReplayedWait& wait) { return wait.kind == kind && wait.name == index; });
}

model::Blame GroupBlame(const Population& population, uint32_t group) {
  const Component& first = population.components[population.groups[group].components.front()];
  model::Blame blame;
  blame.kind = first.blame_kind;
  blame.name = first.blame_name;
  return blame;
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
    i > answer.tail_at.index ? ++out.hit : ++others;
  }
  out.others_hit = static_cast<double>(others) / static_cast<double>(answer.tail_at.index + 1);

  const bool share_tail = group.share_ci.low >= kShareMin, share_beyond = group.shortfall_ci.low >= kShareMin;
  const bool large_tail = group.excess_ns() >= floor_ns, large_beyond = group.shortfall_excess_ns() >= floor_ns;
  if (large_tail || large_beyond) JudgeSize(population, answer, values, &out);  // no small line can be a fault
  const bool contended = model::IsContention(cause);
  out.backlog =
      cause == model::Cause::kEventLoop &&
      LongHoldsShare(population, answer, cause, GroupBlame(population, group.id), floor_ns / 2) < kLongHoldsMin;
  OrdinaryContention::Excess all;
  if (contended) {
    out.replayed = contention.Of(cause, GroupBlame(population, group.id));
    all = contention.All();
  }
  const double spread_ns = contended ? 0 : OrdinarySpreadNs(population, values);
  const auto more = [&](double excess_ns, double replayed_ns, double all_ns) {
    if (!contended) return excess_ns >= kSpreadFactor * spread_ns;
    return contention.known() && excess_ns - std::max(kReplayFactor * replayed_ns, all_ns) >= floor_ns;
  };
  const bool more_tail = more(group.excess_ns(), out.replayed.tail_ns, all.tail_ns);
  const bool more_beyond = more(group.shortfall_excess_ns(), out.replayed.shortfall_ns, all.shortfall_ns);
  out.uncertain = !share_tail && !share_beyond;
  out.small = !large_tail && !large_beyond;
  out.ordinary = !more_tail && !more_beyond;
  const bool share_seen = group.share_of_excess >= kShareSeen || group.share_of_shortfall >= kShareSeen;
  out.suspect = out.uncertain && share_seen && !out.small && !out.ordinary && !out.backlog && !out.grows_with_size &&
                cause != model::Cause::kUnexplained;
  out.fault = ((share_tail && large_tail && more_tail) || (share_beyond && large_beyond && more_beyond)) &&
              out.hit >= kHitMin && !out.backlog && !out.grows_with_size && cause != model::Cause::kUnexplained;
  return out;
}

}  // namespace tailspan::analyze
