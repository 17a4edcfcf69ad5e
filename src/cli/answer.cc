#include "cli/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "analyze/analyze.h"
#include "analyze/cpu_book.h"
#include "base/log.h"
#include "report/json.h"
#include "report/text.h"
#include "report/trace.h"
#include "store/duckdb/duckdb_store.h"

namespace tailspan::cli {
namespace {

using base::Code;
using base::Error;
using base::Result;

struct Loaded {
  model::RecordingInfo info;
  std::vector<model::TraceLedger> ledgers;
  model::CpuBook cpu_book;
  std::vector<model::BlockRequest> block_requests;
  base::ClockMap clock;
  std::vector<model::Span> unfinished;  // roots whose end never came
  int64_t from_unix_ns = 0, to_unix_ns = 0;
};

// Reads a recording and makes its ledgers. They are stored back where the file can be written, for other readers.
Result<Loaded> Load(const std::string& file, const store::TimeWindow& window) {
  auto opened = store::duckdb::Open(file, store::duckdb::Access::kReadWrite);
  bool writable = opened.ok();
  if (!writable && opened.error().code == Code::kPermission)
    opened = store::duckdb::Open(file, store::duckdb::Access::kReadOnly);
  if (!opened.ok()) return std::move(opened).error();
  store::Store& store = **opened;
  Loaded out;
  auto info = store.ReadInfo();
  if (!info.ok()) return std::move(info).error().WithContext(file);
  out.info = std::move(*info);
  auto batch = store.ReadBatch(window);
  if (!batch.ok()) return std::move(batch).error().WithContext(file);
  base::LossCounters loss;
  out.ledgers = analyze::BuildLedgers(*batch, {}, &loss);
  out.cpu_book = analyze::CompareCpuBooks(batch->intervals);
  out.block_requests = std::move(batch->block_requests);
  out.clock = base::ClockMap(batch->clock_pairs);
  for (const auto& [name, count] : loss.NonZero()) out.info.loss[name] += count;
  for (model::Span& span : batch->spans) {
    if (!span.complete && span.parent_id == 0) out.unfinished.push_back(std::move(span));
  }
  out.from_unix_ns = out.info.start_unix_ns;
  out.to_unix_ns = out.info.end_unix_ns;
  if (writable) {
    base::Status put = store.PutLedgers(out.ledgers);
    if (put.ok()) put = store.Flush();
    if (!put.ok()) base::LogWarning("the ledgers are not stored: {}", put.error().message);
  }
  return out;
}

Result<Answer> ExplainTrace(const AnswerOptions& options, const Loaded& loaded) {
  auto id = model::TraceIdFromText(options.trace);
  if (!id) return Error{Code::kInvalidArgument, options.trace + ": a trace id has 32 hex digits"};
  for (const model::TraceLedger& ledger : loaded.ledgers) {
    if (ledger.trace_id != *id) continue;
    if (options.format == "json") return Answer{report::RenderTraceJson(ledger) + "\n", false};
    return Answer{report::RenderTraceText(ledger, {options.colour, 100}), false};
  }
  for (const model::Span& root : loaded.unfinished) {
    if (root.trace_id != *id) continue;
    return Error{Code::kNotFound, fmt::format("{}: trace {} has no ledger: its root `{}` began and its end never came",
                                              options.file, options.trace, root.name)};
  }
  return Error{Code::kNotFound, fmt::format("{}: no trace {} with a complete root", options.file, options.trace)};
}

int64_t UnfinishedOf(const std::string& operation, const Loaded& loaded) {
  return std::count_if(loaded.unfinished.begin(), loaded.unfinished.end(),
                       [&](const model::Span& root) { return operation.empty() || root.name == operation; });
}

}  // namespace

Result<Answer> Explain(const AnswerOptions& options) {
  auto loaded = Load(options.file, options.window);
  if (!loaded.ok()) return std::move(loaded).error();
  if (!options.trace.empty()) return ExplainTrace(options, *loaded);

  analyze::ExplainOptions explain = options.explain;
  Loaded baseline;
  if (!options.baseline_file.empty()) {
    auto earlier = Load(options.baseline_file, {});
    if (!earlier.ok()) {
      base::Error error = std::move(earlier).error().WithContext("--baseline");
      bool no_recording = error.code == Code::kNotFound || error.code == Code::kDataLoss;
      if (no_recording) error.code = Code::kInvalidArgument;  // the question was wrong, not its recording
      return error;
    }
    baseline = std::move(*earlier);
    explain.baseline = &baseline.ledgers;
  }
  if (auto cpus = loaded->info.manifest.find("cpus"); cpus != loaded->info.manifest.end()) {
    explain.cpus = std::atoi(cpus->second.c_str());
  }
  const analyze::DiskWaits disk(loaded->block_requests, loaded->clock);
  explain.disk = &disk;
  auto explanation = analyze::Explain(loaded->ledgers, explain);
  if (!explanation.ok()) {
    Error error = std::move(explanation).error();
    if (int64_t unfinished = UnfinishedOf(explain.operation, *loaded);
        error.code == Code::kNotFound && unfinished > 0) {
      error.message += fmt::format("; {} began and their end never came", unfinished);
    }
    return std::move(error).WithContext(options.file);
  }
  explanation->unfinished = UnfinishedOf(explanation->operation, *loaded);
  if (explanation->unfinished > 0) {
    explanation->notes.push_back(
        fmt::format("{} more requests began and their end never came: they are in no figure, "
                    "and a request that never ends is a slow one",
                    explanation->unfinished));
  }
  explanation->file = options.file;
  explanation->from_unix_ns = std::max(loaded->from_unix_ns, options.window.from_unix_ns);
  explanation->to_unix_ns = std::min(loaded->to_unix_ns, options.window.to_unix_ns);
  explanation->loss = loaded->info.loss;
  explanation->cpu_book = loaded->cpu_book;
  if (std::abs(loaded->cpu_book.difference()) > analyze::kCpuBookDifferenceMax) {
    explanation->notes.push_back(fmt::format(
        "WARNING: the measured on-CPU time and the scheduler's own book differ by {:.1f} % ({:.0f} % at most): on_cpu "
        "and what stands beside it are doubtful",
        loaded->cpu_book.difference() * 100, analyze::kCpuBookDifferenceMax * 100));
  }
  explanation->capabilities = loaded->info.capabilities;
  explanation->manifest = loaded->info.manifest;
  explanation->manifest["tailspan"] = loaded->info.tailspan_version;
  bool insufficient = explanation->verdict == model::Verdict::kInsufficient;
  std::string text = options.format == "json" ? report::RenderJson(*explanation) + "\n"
                                              : report::RenderText(*explanation, {options.colour, 100});
  return Answer{std::move(text), insufficient};
}

}  // namespace tailspan::cli
