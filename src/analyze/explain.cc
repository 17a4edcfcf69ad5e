#include "analyze/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analyze/attribution.h"
#include "analyze/evidence.h"
#include "analyze/patterns.h"
#include "analyze/population.h"
#include "analyze/replay.h"
#include "analyze/verdict.h"
#include "analyze/what_if.h"
#include "base/text.h"

namespace tailspan::analyze {
namespace {

using base::DurationText;
using base::PercentText;
using model::Explanation;
using model::Finding;
using model::TraceLedger;

constexpr int kCpusUnknown = 2;
constexpr size_t kWhatIfMax = 3;       // groups that get a figure, faults first
constexpr size_t kRequestsUsable = 5;  // below, not even an estimate is made
constexpr size_t kOperationsTold = 5;  // to who asks for one that does not occur

model::Range ToRange(const stats::Interval& interval) { return {interval.low, interval.high}; }

std::vector<model::OperationSummary> SummariseOperations(const std::vector<TraceLedger>& ledgers) {
  std::map<std::string, std::vector<double>> durations;
  for (const TraceLedger& ledger : ledgers) {
    auto& of = durations[ledger.operation];
    if (!ledger.failed && ledger.duration_ns > 0) of.push_back(static_cast<double>(ledger.duration_ns));
  }
  std::vector<model::OperationSummary> out;
  for (auto& [operation, values] : durations) {
    model::OperationSummary summary;
    summary.operation = operation;
    summary.requests = static_cast<int64_t>(values.size());
    summary.enough_requests = values.size() >= kRequestsMin;
    if (!values.empty()) {
      const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
      std::nth_element(values.begin(), middle, values.end());
      const double typical_ns = *middle;
      for (const double ns : values) summary.excess_total_ns += std::max(0.0, ns - typical_ns);
    }
    out.push_back(std::move(summary));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::pair(a.excess_total_ns, a.requests) > std::pair(b.excess_total_ns, b.requests);
  });
  return out;
}

// A few very slow requests of another operation must not hide the one that a verdict can be given about.
std::string ChooseOperation(const std::vector<model::OperationSummary>& by_excess) {
  if (by_excess.empty()) return "";
  const auto enough = std::find_if(by_excess.begin(), by_excess.end(),
                                   [](const model::OperationSummary& o) { return o.enough_requests; });
  return enough == by_excess.end() ? by_excess.front().operation : enough->operation;
}

// Says which operations are later in sum than the one that was chosen, and why they were passed over.
void NotePassedOver(Explanation* out) {
  std::string names;
  size_t told = 0, left = 0;
  for (const model::OperationSummary& o : out->operations) {  // by falling excess
    if (o.operation == out->operation || o.enough_requests) break;
    if (told == kOperationsTold) {
      ++left;
      continue;
    }
    names += fmt::format("{}`{}` ({} requests, {} late in sum)", told++ ? ", " : "", o.operation, o.requests,
                         DurationText(o.excess_total_ns));
  }
  if (told == 0) return;
  if (left) names += fmt::format(" and {} more", left);
  out->notes.push_back(
      fmt::format("later in sum, but with too few requests for a verdict: {}; see --operation", names));
}

double ChooseQuantile(size_t requests) {
  for (const double p : {0.99, 0.95, 0.90}) {
    if (std::floor(static_cast<double>(requests) * (1 - p) + 1e-9) >= static_cast<double>(kBeyondMin)) return p;
  }
  return 0.90;
}

// The typical request of another recording, or a request that just meets the target.
Reference MakeReference(const Population& population, const ExplainOptions& options, Explanation* out) {
  Reference reference;
  const Population* source = &population;
  Population baseline;
  if (options.baseline) {
    baseline = BuildPopulation(*options.baseline, out->operation, false);
    if (baseline.size() < kRequestsUsable) {
      out->notes.push_back(
          fmt::format("the baseline has {} requests of this operation: compared with the typical request instead",
                      baseline.size()));
      return reference;
    }
    source = &baseline;
    out->reference = "baseline";
  } else if (options.slo_ms > 0) {
    out->reference = "slo";
  } else {
    return reference;
  }
  const double half_width = stats::HalfWidth(source->weight_sum, source->mean_weight(), kTypicalQuantile);
  const stats::QuantileAt median = stats::FindQuantile(source->weights, source->weight_sum, kTypicalQuantile);
  std::vector<stats::Weighted> fit;
  stats::FitAround(source->total_ns, source->weights, median.index, half_width, source->total_ns[median.index], &fit);
  reference.fixed = true;
  reference.total_ns = source->total_ns[median.index];
  double scale = 1;
  if (!options.baseline) {  // the typical request's parts, stretched or shrunk to the target
    scale = options.slo_ms * 1e6 / reference.total_ns;
    reference.total_ns = options.slo_ms * 1e6;
  }
  const std::vector<double> parts = ComponentParts(*source, fit);
  for (size_t c = 0; c < parts.size(); ++c) {
    const Component& component = source->components[c];
    reference.parts_ns[ComponentKey(source->paths[component.path], component.cause, component.blame_kind,
                                    component.blame_name)] = parts[c] * scale;
  }
  return reference;
}

// Shares of the nanoseconds of the requests at and beyond the quantile.
void DescribeTail(const Population& population, size_t first, Explanation* out) {
  double all = 0, unexplained = 0, unblamed = 0, summed = 0;
  std::map<std::string, double> join;
  for (const model::Join way : {model::Join::kThreadContext, model::Join::kThreadId, model::Join::kOnlyOpenSpan,
                                model::Join::kConnection, model::Join::kOverlap}) {
    join[model::JoinName(way)] = 0;
  }
  for (size_t i = first; i < population.size(); ++i) {
    for (const model::LedgerPiece& piece : population.requests[i]->pieces) {
      const double ns = static_cast<double>(piece.end_ns - piece.start_ns) * population.weights[i];
      all += ns;
      if (piece.cause == model::Cause::kUnexplained) {
        unexplained += ns;
      } else if (piece.blame.kind == model::BlameKind::kNone && piece.cause != model::Cause::kOnCpu) {
        unblamed += ns;
      }
      if (piece.summed) summed += ns;
      if (piece.join != model::Join::kNone) join[model::JoinName(piece.join)] += ns;
    }
  }
  if (all <= 0) return;
  out->unexplained_share = unexplained / all;
  out->unblamed_share = unblamed / all;
  out->summed_share = summed / all;
  out->explained_share_of_tail = 1 - unexplained / all;
  for (auto& [way, ns] : join) ns /= all;
  out->join = std::move(join);
}

Finding ToFinding(const Population& population, const Column& line) {
  const Component& component = population.components[line.id];
  Finding f;
  f.cause = component.cause;
  f.span_path = population.paths[component.path];
  f.span = f.span_path.empty() ? population.operation : f.span_path.back();
  f.blame.kind = component.blame_kind;
  f.blame.name = component.blame_name;
  f.typical_ns = line.typical_ns;
  f.tail_ns = line.tail_ns;
  f.excess_ns = line.excess_ns();
  f.shortfall_ns = line.shortfall_ns;
  f.share_of_excess = line.share_of_excess;
  f.share_ci95 = ToRange(line.share_ci);
  f.share_of_shortfall = line.share_of_shortfall;
  f.shortfall_ci95 = ToRange(line.shortfall_ci);
  return f;
}

struct RankedGroup {
  const Column* column = nullptr;
  Judgement judgement;
  std::vector<size_t> lines;  // into Attribution::lines, largest excess first
};

// Groups in the order of the answer: faults first, then by share. Every listed line's group is listed.
std::vector<RankedGroup> RankGroups(const Population& population, const Attribution& answer,
                                    const OrdinaryContention& contention) {
  std::vector<RankedGroup> ranked;
  std::map<uint32_t, size_t> by_group;
  for (const Column& column : answer.groups) {
    by_group[column.id] = ranked.size();
    ranked.push_back({&column, JudgeGroup(population, answer, column, contention), {}});
  }
  for (size_t k = 0; k < answer.lines.size(); ++k) {
    ranked[by_group.at(population.components[answer.lines[k].id].group)].lines.push_back(k);
  }
  const auto size = [](const RankedGroup& g) {
    return std::max(g.column->share_of_excess, g.column->share_of_shortfall);
  };
  std::stable_sort(ranked.begin(), ranked.end(), [&](const RankedGroup& a, const RankedGroup& b) {
    return std::pair(a.judgement.fault, size(a)) > std::pair(b.judgement.fault, size(b));
  });
  for (RankedGroup& g : ranked) {
    std::stable_sort(g.lines.begin(), g.lines.end(), [&](size_t a, size_t b) {
      return std::max(answer.lines[a].excess_ns(), answer.lines[a].shortfall_excess_ns()) >
             std::max(answer.lines[b].excess_ns(), answer.lines[b].shortfall_excess_ns());
    });
  }
  return ranked;
}

void FillFindings(const Population& population, const Attribution& answer, const OrdinaryContention& contention,
                  const ExplainOptions& options, Explanation* out) {
  const std::vector<RankedGroup> ranked = RankGroups(population, answer, contention);
  const std::vector<PieceFacts> facts = CollectPieceFacts(population, answer);
  size_t groups_done = 0;
  for (const RankedGroup& g : ranked) {
    const int group_rank = static_cast<int>(out->findings.size()) + 1;
    for (const size_t k : g.lines) {
      Finding f = ToFinding(population, answer.lines[k]);
      f.rank = static_cast<int>(out->findings.size()) + 1;
      f.group_rank = group_rank;
      f.group_lines = static_cast<int>(g.lines.size());
      f.group_excess_ns = g.column->excess_ns();
      f.group_share_of_excess = g.column->share_of_excess;
      f.group_share_ci95 = ToRange(g.column->share_ci);
      f.group_share_of_shortfall = g.column->share_of_shortfall;
      f.group_shortfall_ci95 = ToRange(g.column->shortfall_ci);
      f.is_fault = g.judgement.fault && f.rank == group_rank;
      f.is_suspect = g.judgement.suspect && f.rank == group_rank;
      FillEvidence(facts[k], g.judgement, contention, *out, options.disk, &f);
      if (f.rank == group_rank && groups_done < kWhatIfMax) {
        const WhatIf what_if = WithoutGroup(population, answer, *g.column, options.seed);
        f.has_what_if = true;
        f.what_if_tail_ns = what_if.tail_ns;
        f.what_if_ci95_ns = ToRange(what_if.ci_ns);
        f.what_if_how = WhatIfHow(out->reference);
      }
      out->findings.push_back(std::move(f));
    }
    ++groups_done;
  }
  out->rest.span = "rest";
  out->rest.typical_ns = answer.rest.typical_ns;
  out->rest.tail_ns = answer.rest.tail_ns;
  out->rest.excess_ns = answer.rest.excess_ns();
  out->rest.shortfall_ns = answer.rest.shortfall_ns;
  out->rest.share_of_excess = answer.rest.share_of_excess;
  out->rest.share_of_shortfall = answer.rest.share_of_shortfall;
}

// A trace may be several requests: a caller's, or a connection's whose context leaked.
void NameRoots(const std::vector<TraceLedger>& ledgers, std::vector<Finding>* findings) {
  std::map<model::TraceId, int> requests;
  for (const Finding& f : *findings) {
    if (!f.exemplars.empty()) requests[f.exemplars.front()] = 0;
  }
  for (const TraceLedger& ledger : ledgers) {
    if (const auto at = requests.find(ledger.trace_id); at != requests.end()) ++at->second;
  }
  for (Finding& f : *findings) f.names_root = !f.exemplars.empty() && requests[f.exemplars.front()] > 1;
}

std::string FaultReason(const Explanation& e, const Finding& f) {
  const std::string wait = WithParty(PatternFor(f.cause, f.blame.kind).wait, f.cause, f.blame);
  std::string text =
      fmt::format("{}: `{}` {}, {} of what P{:g} has over {} ({} to {})", model::CauseName(f.cause), f.span, wait,
                  PercentText(f.group_share_of_excess), e.quantile * 100, ReferenceText(e.reference),
                  PercentText(f.group_share_ci95.low), PercentText(f.group_share_ci95.high));
  if (f.group_share_of_shortfall > f.group_share_of_excess + 0.1) {
    text += fmt::format(" and {} of what lies beyond it", PercentText(f.group_share_of_shortfall));
  }
  return text;
}

void Decide(Explanation* out) {
  int faults = 0;
  for (const Finding& f : out->findings) faults += f.is_fault;
  const auto insufficient = [&](std::string reason) {
    out->verdict = model::Verdict::kInsufficient;
    out->verdict_reason = std::move(reason);
  };
  if (out->requests == 0 && out->errors == 0) {
    return insufficient(fmt::format("no request{} has ended; {} are needed for a verdict",
                                    out->operation.empty() ? "" : " of " + out->operation, kRequestsMin));
  }
  if (out->requests < static_cast<int64_t>(kRequestsMin)) {
    const std::string failed = out->errors > 0 ? fmt::format(" and {} that failed", out->errors) : "";
    return insufficient(fmt::format("{} requests of {}{}; {} are needed for a verdict", out->requests, out->operation,
                                    failed, kRequestsMin));
  }
  const double unexplained_max = faults ? kUnexplainedMax : kUnexplainedHealthyMax;
  if (out->unexplained_share > unexplained_max) {
    return insufficient(
        fmt::format("{:.0f} % of the tail's time is unexplained ({:.0f} % is the most for this verdict)",
                    out->unexplained_share * 100, unexplained_max * 100));
  }
  if (faults) {
    out->verdict = model::Verdict::kFault;
    out->verdict_reason = FaultReason(*out, out->findings.front());
    if (faults > 1) out->verdict_reason += fmt::format("; {} faults in all", faults);
    return;
  }
  for (const Finding& f : out->findings) {
    if (!f.is_suspect) continue;
    const bool at_quantile = f.group_share_of_excess >= f.group_share_of_shortfall;
    const double share = at_quantile ? f.group_share_of_excess : f.group_share_of_shortfall;
    const model::Range& range = at_quantile ? f.group_share_ci95 : f.group_shortfall_ci95;
    return insufficient(fmt::format(
        "{} (`{}`, {}) is large, {} of the excess {} P{:g}, but rests on too few separate events: {} to "
        "{}; record longer",
        model::CauseName(f.cause), f.span, model::BlameText(f.blame), PercentText(share), at_quantile ? "at" : "beyond",
        out->quantile * 100, PercentText(range.low), PercentText(range.high)));
  }
  out->verdict = model::Verdict::kHealthy;
  if (out->reference != "typical" && out->excess_ns <= 0) {
    out->verdict_reason = fmt::format(
        "P{:g} is {}, no more than {} {}", out->quantile * 100, DurationText(out->tail_ns),
        out->reference == "slo" ? "the target of" : "the baseline's typical", DurationText(out->typical_ns));
    return;
  }
  out->verdict_reason = "no cause is both large and larger than chance and ordinary queueing explain";
  if (!out->findings.empty() && out->findings.front().grows_with_size) {
    out->verdict_reason += fmt::format("; `{}` grows with the request's own size", out->findings.front().span);
  }
}

void AddNotes(const ExplainOptions& options, const Population& failed, const Attribution& answer, Explanation* out) {
  if (out->requests_beyond < static_cast<int64_t>(kBeyondNote)) {
    out->notes.push_back(fmt::format("only {} requests lie beyond P{:g}: intervals are rough below {}",
                                     out->requests_beyond, out->quantile * 100, kBeyondNote));
  }
  if (out->reference == "typical") {
    out->notes.push_back(
        "the excess is tail minus typical request: what slows every request alike is invisible without --slo or "
        "--baseline");
  }
  if (out->reference == "baseline") out->notes.push_back("the baseline's own uncertainty is not in the intervals");
  if (failed.size() > 0) {
    out->notes.push_back(fmt::format("{} failed or cancelled requests are not in these figures; their median took {}",
                                     failed.size(), DurationText(failed.total_ns[(failed.size() - 1) / 2])));
  }
  if (answer.dependence.block_length > 1) {
    out->notes.push_back(fmt::format("slow requests come together (p = {:.2g}): intervals from blocks of {} requests",
                                     answer.dependence.p_value, answer.dependence.block_length));
  }
  if (!out->replayed)
    out->notes.push_back("the replay of contention could not be run: no contention cause can be a fault");
  if (options.cpus <= 0 && out->replayed) {
    out->notes.push_back(fmt::format("the number of CPUs is not known: the replay took {}", kCpusUnknown));
  }
}

}  // namespace

base::Result<Explanation> Explain(const std::vector<TraceLedger>& ledgers, const ExplainOptions& options) {
  Explanation out;
  out.operations = SummariseOperations(ledgers);
  out.operation = options.operation.empty() ? ChooseOperation(out.operations) : options.operation;
  const Population population = BuildPopulation(ledgers, out.operation, false);
  const Population failed = BuildPopulation(ledgers, out.operation, true);
  if (population.size() == 0 && failed.size() == 0 && !ledgers.empty() && options.unfinished == 0) {
    std::string known;
    for (size_t i = 0; i < std::min(kOperationsTold, out.operations.size()); ++i) {
      known += fmt::format("{}\"{}\"", i ? ", " : "", out.operations[i].operation);
    }
    return base::Error{base::Code::kNotFound, fmt::format("no operation \"{}\" in this recording; of {}: {}",
                                                          out.operation, out.operations.size(), known)};
  }
  if (options.quantile < 0 || options.quantile >= 1) {
    return base::Error{base::Code::kInvalidArgument, "the quantile must lie between 0 and 1"};
  }
  out.requests = static_cast<int64_t>(population.size());
  out.errors = static_cast<int64_t>(failed.size());
  out.quantile = options.quantile > 0 ? options.quantile : ChooseQuantile(population.size());
  out.typical_quantile = kTypicalQuantile;
  out.verdict_rule = VerdictRule();
  if (options.operation.empty()) NotePassedOver(&out);
  if (population.size() < kRequestsUsable) {
    out.rest.span = "rest";
    Decide(&out);
    return out;
  }

  const Reference reference = MakeReference(population, options, &out);
  const Attribution answer = Attribute(population, out.quantile, reference, options.seed);
  out.typical_ns = answer.typical_ns;
  out.tail_ns = answer.tail_ns;
  out.excess_ns = answer.tail_ns - answer.typical_ns;
  out.tail_ci95_ns = ToRange(answer.tail_ci_ns);
  out.shortfall_ns = answer.shortfall_ns;
  out.requests_beyond = static_cast<int64_t>(population.size() - answer.tail_at.index - 1);
  out.block_length = static_cast<int64_t>(answer.dependence.block_length);
  DescribeTail(population, answer.tail_at.index, &out);

  Replay replay = ReplayArrivals(ledgers, {.cpus = options.cpus > 0 ? options.cpus : kCpusUnknown});
  const OrdinaryContention contention(population, ledgers, std::move(replay), out.quantile);
  out.replayed = contention.known();
  out.replay_contention_ns = contention.All().tail_ns;
  FillFindings(population, answer, contention, options, &out);
  NameRoots(ledgers, &out.findings);
  Decide(&out);
  AddNotes(options, failed, answer, &out);
  return out;
}

}  // namespace tailspan::analyze
