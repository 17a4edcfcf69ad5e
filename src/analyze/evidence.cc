#include "analyze/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "analyze/patterns.h"
#include "base/text.h"

namespace tailspan::analyze {
namespace {

using base::DurationText;
using base::PercentText;

constexpr double kConfidentMin = 0.8;  // below: how the blame is known speaks against it
constexpr double kSummedNote = 0.1;    // of the line's time
constexpr double kEvidenceNote = 0.1;  // of the line's time; rarer evidence says nothing about the line
constexpr double kJoinNote = 0.1;      // joined to its span by something weaker than thread context

std::string Largest(const std::map<std::string, double>& by_ns) {
  const auto at =
      std::max_element(by_ns.begin(), by_ns.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return at == by_ns.end() ? "" : at->first;
}

void EvidenceFor(const PieceFacts& facts, const Judgement& judgement, const OrdinaryContention& contention,
                 const model::Explanation& e, const std::string& wait, model::Finding* f) {
  f->evidence_for.push_back(fmt::format("`{}` {}: {} of the P{:g} request against {} of {}", f->span, wait,
                                        DurationText(f->tail_ns), e.quantile * 100, DurationText(f->typical_ns),
                                        ReferenceText(e.reference)));
  f->evidence_for.push_back(fmt::format("large in {} of the {} requests beyond P{:g}, in {} of the others",
                                        judgement.hit, e.requests_beyond, e.quantile * 100,
                                        PercentText(judgement.others_hit)));
  if (!f->blame.how.empty()) {
    f->evidence_for.push_back(fmt::format("blame known by: {} (confidence {:.2f})", f->blame.how, f->blame.confidence));
  }
  if (facts.pieces > 0) {
    f->evidence_for.push_back(fmt::format(
        "longest single piece {}, {:.1f} pieces a request", DurationText(static_cast<double>(facts.longest_ns)),
        static_cast<double>(facts.pieces) / std::max<double>(1, static_cast<double>(facts.requests.size()))));
  }
  if (const std::string most = Largest(facts.evidence_ns); !most.empty()) {
    const double share = facts.evidence_ns.at(most) / facts.ns;
    if (share >= kEvidenceNote) {
      f->evidence_for.push_back(fmt::format("in {} of it, meanwhile: {}", PercentText(share), most));
    }
  }
  if (model::IsContention(f->cause) && contention.known() && !judgement.ordinary) {
    f->evidence_for.push_back(
        fmt::format("load alone would make {} of it: a replay of the same arrivals without rare long steps",
                    DurationText(judgement.replayed.tail_ns)));
  }
}

void EvidenceAgainst(const PieceFacts& facts, const Judgement& judgement, const OrdinaryContention& contention,
                     const model::Explanation& e, model::Finding* f) {
  auto& against = f->evidence_against;
  if (judgement.uncertain) {
    against.push_back(fmt::format("its share may be as low as {} (rule: {})",
                                  PercentText(std::max(f->group_share_ci95.low, f->group_shortfall_ci95.low)),
                                  PercentText(kShareMin)));
  }
  if (judgement.small) {
    against.push_back(fmt::format("its excess of {} is below {}", DurationText(f->group_excess_ns),
                                  DurationText(ExcessFloorNs(e.typical_ns))));
  }
  if (model::IsContention(f->cause)) {
    if (!contention.known()) {
      against.push_back("the replay could not be run, so ordinary queueing cannot be told apart");
    } else if (judgement.ordinary) {
      against.push_back(fmt::format(
          "ordinary queueing: load alone would make {} of it, by a replay of the same arrivals without rare long steps",
          DurationText(judgement.replayed.tail_ns)));
    }
  }
  if (judgement.ordinary && !model::IsContention(f->cause)) {
    against.push_back("ordinary spread: every request has this step, and it varies as much by itself");
  }
  if (judgement.backlog) {
    against.push_back("made of many ordinary steps of other requests, not of few long ones: a backlog, not its cause");
  }
  if (judgement.grows_with_size) {
    against.push_back(
        fmt::format("goes with the request's own size (rank correlation {:.2f}): larger requests take "
                    "longer, which is no fault by itself",
                    judgement.size_correlation));
  }
  if (judgement.hit < kHitMin) {
    against.push_back(fmt::format("only {} of the requests beyond P{:g} show it", judgement.hit, e.quantile * 100));
  }
  if (!f->blame.how.empty() && f->blame.confidence < kConfidentMin) {
    against.push_back(fmt::format("the blame is a guess: confidence {:.2f}", f->blame.confidence));
  }
  if (facts.ns > 0 && facts.summed_ns > kSummedNote * facts.ns) {
    against.push_back(
        fmt::format("{} of it is known only as sums over small windows", PercentText(facts.summed_ns / facts.ns)));
  }
  for (const auto& [join, ns] : facts.join_ns) {
    if (join == model::Join::kNone || model::JoinConfidence(join) >= kConfidentMin || ns <= kJoinNote * facts.ns) {
      continue;
    }
    against.push_back(fmt::format("{} of it was joined to its span without thread context, by {} (confidence {:.2f})",
                                  PercentText(ns / facts.ns), model::JoinName(join), model::JoinConfidence(join)));
  }
}

}  // namespace

const char* ReferenceText(const std::string& reference) {
  if (reference == "slo") return "a typical request stretched or shrunk to the target";
  return reference == "baseline" ? "the baseline's typical request" : "the typical request";
}

std::string PhaseOf(const std::string& span) {
  static constexpr std::pair<const char*, const char*> kPhases[] = {
      {"load_model", "model load"},
      {"model_load", "model load"},
      {"tokeniz", "tokenize"},
      {"embed", "embed"},
      {"retriev", "retrieve"},
      {"vectorstore", "retrieve"},
      {"search", "retrieve"},
      {"query", "retrieve"},
      {"rerank", "retrieve"},
      {"prefill", "prefill"},
      {"decode", "decode"},
      {"generate", "decode"},
      {"chat", "decode"},
      {"llm", "decode"},
      {"tool", "tool"},
      {"serializ", "serialize"},
      {"pickle", "serialize"},
      {"parser", "serialize"},
  };
  std::string lower = span;
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  for (const auto& [word, phase] : kPhases) {
    if (lower.find(word) != std::string::npos) return phase;
  }
  return "";
}

std::vector<PieceFacts> CollectPieceFacts(const Population& population, const Attribution& answer) {
  std::vector<PieceFacts> facts(answer.lines.size());
  std::unordered_map<std::string, size_t> line_of;
  for (size_t k = 0; k < answer.lines.size(); ++k) {
    const Component& c = population.components[answer.lines[k].id];
    line_of[ComponentKey(population.paths[c.path], c.cause, c.blame_kind, c.blame_name)] = k;
  }
  size_t first = answer.tail_at.index;
  for (const stats::Weighted& w : answer.tail_fit) first = std::min<size_t>(first, w.index);
  for (size_t i = first; i < population.size(); ++i) {
    const model::TraceLedger& ledger = *population.requests[i];
    std::vector<double> own(facts.size(), 0.0);
    for (const model::LedgerPiece& piece : ledger.pieces) {
      const auto at =
          line_of.find(ComponentKey(ledger.paths[piece.path], piece.cause, piece.blame.kind, piece.blame.name));
      if (at == line_of.end()) continue;
      PieceFacts& f = facts[at->second];
      const int64_t length_ns = piece.end_ns - piece.start_ns;
      const auto ns = static_cast<double>(length_ns);
      own[at->second] += ns;
      f.ns += ns;
      f.summed_ns += piece.summed ? ns : 0;
      f.confidence_ns += ns * piece.blame.confidence;
      f.longest_ns = std::max(f.longest_ns, length_ns);
      ++f.pieces;
      if (!piece.blame.how.empty()) f.how_ns[piece.blame.how] += ns;
      if (!piece.blame.detail.empty()) f.detail_ns[piece.blame.detail] += ns;
      if (!piece.evidence.empty()) f.evidence_ns[piece.evidence] += ns;
      f.join_ns[piece.join] += ns;
      if (IsDiskCause(piece.cause)) f.disk_waits.push_back({ledger.start_unix_ns, piece.start_ns, piece.end_ns});
    }
    for (size_t k = 0; k < own.size(); ++k) {
      if (own[k] > 0) facts[k].requests.emplace_back(own[k], &ledger);
    }
  }
  return facts;
}

void FillEvidence(const PieceFacts& facts, const Judgement& judgement, const OrdinaryContention& contention,
                  const model::Explanation& explanation, const DiskWaits* disk, model::Finding* finding) {
  finding->blame.how = Largest(facts.how_ns);
  finding->blame.detail = Largest(facts.detail_ns);
  if (facts.detail_ns.size() > 1) finding->blame.detail += fmt::format(" and {} more", facts.detail_ns.size() - 1);
  finding->blame.confidence = facts.ns > 0 ? facts.confidence_ns / facts.ns : 0;
  finding->phase = PhaseOf(finding->span);
  finding->tail_requests_hit = static_cast<int64_t>(judgement.hit);
  finding->other_requests_hit = judgement.others_hit;
  finding->grows_with_size = judgement.grows_with_size;

  auto requests = facts.requests;
  std::stable_sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  auto& exemplars = finding->exemplars;
  for (size_t i = 0; i < requests.size() && exemplars.size() < kExemplarsMax; ++i) {
    const model::TraceId& id = requests[i].second->trace_id;
    if (exemplars.empty()) finding->first_exemplar_root = requests[i].second->root_id;
    if (std::find(exemplars.begin(), exemplars.end(), id) == exemplars.end()) exemplars.push_back(id);
  }

  const Pattern& pattern = PatternFor(finding->cause, finding->blame.kind);
  const auto with_party = [&](const char* text) { return WithParty(text, finding->cause, finding->blame); };
  const std::string wait = with_party(pattern.wait), missing = with_party(pattern.missing);
  finding->pattern = pattern.id;
  finding->fix = with_party(pattern.fix);
  EvidenceFor(facts, judgement, contention, explanation, wait, finding);
  if (disk && !facts.disk_waits.empty()) {
    if (std::string text = disk->Describe(facts.disk_waits, finding->cause); !text.empty()) {
      finding->evidence_for.push_back(std::move(text));
    }
  }
  EvidenceAgainst(facts, judgement, contention, explanation, finding);
  if (!missing.empty()) finding->missing.push_back(missing);
  if (finding->blame.kind == model::BlameKind::kNone && finding->cause != model::Cause::kUnexplained) {
    finding->missing.push_back("who is to blame: nothing was recorded");
  }
}

}  // namespace tailspan::analyze
