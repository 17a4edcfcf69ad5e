// Simulates one service and prints what is asked for: the answer as text or JSON, one trace, or the requests by
// components as CSV (for check_with_scipy.py). Usage: analyze_dump text|json|trace|trace-json|csv CASE SEED [QUANTILE]
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "analyze/attribution.h"
#include "analyze/explain.h"
#include "analyze/population.h"
#include "report/json.h"
#include "report/text.h"
#include "report/trace.h"
#include "synthetic.h"

namespace {

using namespace tailspan;

synthetic::Service ServiceOf(const std::string& name) {
  synthetic::Service service;
  if (name == "pause") service.pause_share = 0.05;
  if (name == "gil") service.holds_per_second = 0.25;
  if (name == "gil-rare") service.holds_per_second = 0.1;
  if (name == "block") service.block_share = 0.01;
  if (name == "size") service.size_ms_per_unit = 10;
  if (name == "dark") service.unexplained_share = 0.8;
  return service;
}

// Header: component keys; then one line a request in arrival order: start, total, one column a component.
void PrintCsv(const std::vector<model::TraceLedger>& ledgers) {
  const analyze::Population p = analyze::BuildPopulation(ledgers, "POST /ask", false);
  fmt::print("start,total");
  for (const analyze::Component& c : p.components) {
    fmt::print(",{}/{}/{}", p.paths[c.path].back(), model::CauseName(c.cause), c.blame_name);
  }
  fmt::print("\n");
  for (const uint32_t i : p.arrivals) {
    std::vector<double> row(p.components.size(), 0.0);
    for (const analyze::Cell& cell : p.Row(i)) row[cell.component] = cell.ns;
    fmt::print("{},{:.0f}", p.requests[i]->start_unix_ns, p.total_ns[i]);
    for (const double ns : row) fmt::print(",{:.0f}", ns);
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string what = argv[1];
  synthetic::Service service = ServiceOf(argv[2]);
  service.seed = static_cast<uint64_t>(std::atoll(argv[3]));
  const auto ledgers = synthetic::Simulate(service);
  if (what == "csv") {
    PrintCsv(ledgers);
    return 0;
  }
  if (what == "trace" || what == "trace-json") {
    const auto& ledger = ledgers[ledgers.size() / 2];
    fmt::print("{}\n", what == "trace" ? report::RenderTraceText(ledger) : report::RenderTraceJson(ledger));
    return 0;
  }
  const double quantile = argc > 4 ? std::atof(argv[4]) : 0;
  analyze::ExplainOptions options;
  options.operation = "POST /ask";
  options.quantile = quantile;
  const auto answer = analyze::Explain(ledgers, options);
  if (!answer.ok()) {
    fmt::print(stderr, "{}\n", answer.error().message);
    return 1;
  }
  fmt::print("{}\n", what == "json" ? report::RenderJson(*answer) : report::RenderText(*answer));
}
