// Prints what the verdict rule says over many simulated services: false alarms on healthy ones, misses on faults.
// Usage: analyze_calibrate [SEEDS]. The figures stand in docs/verdict.md.
#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "analyze/explain.h"
#include "synthetic.h"

namespace {

using namespace tailspan;

struct Case {
  const char* name;
  synthetic::Service service;
  model::Verdict verdict;
  model::Cause cause = model::Cause::kUnexplained;
  const char* blame = "";
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  using synthetic::StepLaw;
  const auto healthy = model::Verdict::kHealthy, fault = model::Verdict::kFault;
  for (const double load : {0.3, 0.6, 0.85}) {
    cases.push_back({"healthy lognormal", {.load = load}, healthy});
    cases.push_back({"healthy exponential", {.load = load, .law = StepLaw::kExponential}, healthy});
    cases.push_back({"healthy bursts of 3", {.load = load, .burst = 3}, healthy});
    cases.push_back({"healthy long steps", {.load = load, .step_ms = 12, .peer_ms = 40}, healthy});
  }
  for (const double load : {0.3, 0.6}) {
    cases.push_back({"pause 5 %", {.load = load, .pause_share = 0.05}, fault, model::Cause::kPageFault, "index.faiss"});
    cases.push_back({"pause 3 %", {.load = load, .pause_share = 0.03}, fault, model::Cause::kPageFault, "index.faiss"});
    cases.push_back({"gil rare", {.load = load, .holds_per_second = 0.10}, fault, model::Cause::kGil, "chunk"});
    cases.push_back({"gil often", {.load = load, .holds_per_second = 0.25}, fault, model::Cause::kGil, "chunk"});
    cases.push_back({"gil short holds",
                     {.load = load, .holds_per_second = 0.4, .hold_ms = 120},
                     fault,
                     model::Cause::kGil,
                     "chunk"});
    cases.push_back(
        {"loop block 1 %", {.load = load, .block_share = 0.01}, fault, model::Cause::kEventLoop, "POST /ask"});
  }
  cases.push_back({"grows with size", {.load = 0.3, .size_ms_per_unit = 10}, healthy});
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  const int seeds = argc > 1 ? std::atoi(argv[1]) : 20;
  int wrong_total = 0;
  for (const Case& c : Cases()) {
    int right = 0, more_faults = 0;
    std::map<std::string, int> answers;
    double tail = 0, typical = 0, top = 0, replay = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
      synthetic::Service service = c.service;
      service.seed = static_cast<uint64_t>(seed);
      const auto ledgers = synthetic::Simulate(service);
      analyze::ExplainOptions options;
      options.operation = "POST /ask";
      const auto result = analyze::Explain(ledgers, options);
      const model::Explanation& e = result.value();
      const model::Finding& first = e.findings.front();
      const bool ok = e.verdict == c.verdict &&
                      (c.verdict != model::Verdict::kFault || (first.cause == c.cause && first.blame.name == c.blame));
      right += ok;
      for (const model::Finding& f : e.findings) {
        more_faults += c.verdict == model::Verdict::kFault && f.is_fault && f.cause != c.cause;
      }
      if (!ok)
        ++answers[fmt::format("{} {} {}", static_cast<int>(e.verdict), model::CauseName(first.cause),
                              first.blame.name)];
      tail += e.tail_ns / 1e6 / seeds;
      typical += e.typical_ns / 1e6 / seeds;
      top += first.group_excess_ns / 1e6 / seeds;
      replay += e.replay_contention_ns / 1e6 / seeds;
    }
    wrong_total += seeds - right;
    fmt::print(
        "{:<22} load {:.2f}  right {:>3}/{}  typical {:6.1f} tail {:6.1f} first {:6.1f} replay {:6.1f} ms  more {}",
        c.name, c.service.load, right, seeds, typical, tail, top, replay, more_faults);
    for (const auto& [answer, n] : answers) fmt::print("  [{} x{}]", answer, n);
    fmt::print("\n");
  }
  fmt::print("wrong: {}\n", wrong_total);
}
