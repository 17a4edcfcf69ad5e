// Times Explain on a large population. Usage: analyze_explain_bench [TRACES [PIECES]]; checks the sums first.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

#include "analyze/attribution.h"
#include "analyze/explain.h"
#include "analyze/population.h"
#include "analyze/replay.h"

namespace {

using namespace tailspan;
using Clock = std::chrono::steady_clock;

// Ten spans, on the loop, twenty kinds of pieces each: 200 components.
std::vector<model::TraceLedger> Make(size_t traces, size_t pieces) {
  std::mt19937_64 rng(1);
  std::vector<model::TraceLedger> out(traces);
  std::lognormal_distribution<double> length(11.5, 1);  // about 0.1 ms
  static constexpr model::Cause kCauses[] = {model::Cause::kOnCpu,   model::Cause::kEventLoop, model::Cause::kOnCpu,
                                             model::Cause::kNetRecv, model::Cause::kGil,       model::Cause::kRunQueue};
  for (size_t i = 0; i < traces; ++i) {
    model::TraceLedger& ledger = out[i];
    ledger.trace_id = {1, i};
    ledger.operation = "POST /ask";
    ledger.start_unix_ns = static_cast<int64_t>(i) * 10'000'000;
    ledger.size = static_cast<double>(rng() % 1000);
    for (int s = 0; s < 10; ++s) ledger.paths.push_back({"POST /ask", fmt::format("span {}", s)});
    for (size_t k = 0; k < pieces; ++k) {
      model::LedgerPiece piece;
      piece.start_ns = ledger.duration_ns;
      piece.end_ns = ledger.duration_ns += 1000 + static_cast<int64_t>(length(rng));
      piece.path = static_cast<uint32_t>(k * 10 / pieces);
      piece.cause = kCauses[rng() % 6];
      piece.blame.kind = piece.cause == model::Cause::kOnCpu ? model::BlameKind::kSelf : model::BlameKind::kSpan;
      if (piece.cause != model::Cause::kOnCpu) piece.blame.name = fmt::format("span {}", rng() % 5);
      piece.blame.how = "made up";
      ledger.pieces.push_back(std::move(piece));
    }
  }
  return out;
}

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

int main(int argc, char** argv) {
  const size_t traces = argc > 1 ? static_cast<size_t>(std::atoll(argv[1])) : 20'000;
  const size_t pieces = argc > 2 ? static_cast<size_t>(std::atoll(argv[2])) : 60;
  const auto ledgers = Make(traces, pieces);
  auto start = Clock::now();
  const auto answer = analyze::Explain(ledgers, {});
  const double whole = Since(start);
  double tail = answer->rest.tail_ns;
  for (const auto& f : answer->findings) tail += f.tail_ns;
  if (std::abs(tail - answer->tail_ns) > 1) return 1;

  start = Clock::now();
  const analyze::Population population = analyze::BuildPopulation(ledgers, "POST /ask", false);
  const double build = Since(start);
  start = Clock::now();
  (void)analyze::Attribute(population, 0.99, {}, 1);
  const double attribute = Since(start);
  start = Clock::now();
  const bool complete = analyze::ReplayArrivals(ledgers, {}).complete;
  fmt::print(
      "{} traces x {} pieces, {} components, {} lines: explain {:.2f} s (population {:.2f}, attribution {:.2f}, "
      "replay {:.2f}{})\n",
      traces, pieces, population.components.size(), answer->findings.size(), whole, build, attribute, Since(start),
      complete ? "" : ", not complete");
}
