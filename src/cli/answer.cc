#include "cli/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

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

// Reads a recording and makes its ledgers. They are stored back where the file can be written, for other readers. All
// of it is read and the window is of the requests: one that began in it may end after it, and spans that began in it
// may belong to a request that did not.
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
  auto batch = store.ReadBatch({});
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
  if (out.to_unix_ns == 0) {  // it was cut off: the last time that its recorder looked at the clocks
    out.to_unix_ns = out.from_unix_ns;
    for (const base::ClockPair& pair : batch->clock_pairs) out.to_unix_ns = std::max(out.to_unix_ns, pair.unix_ns);
  }
  if (writable) {
    base::Status put = store.PutLedgers(out.ledgers);
    if (put.ok()) put = store.Flush();
    if (!put.ok()) base::LogWarning("the ledgers are not stored: {}", put.error().message);
  }
  const auto outside = [&](const auto& request) {
    return request.start_unix_ns < window.from_unix_ns || request.start_unix_ns >= window.to_unix_ns;
  };
  std::erase_if(out.ledgers, outside);
  std::erase_if(out.unfinished, outside);
  return out;
}

// A trace has several requests where its caller made several, or where a connection's context leaked.
Result<Answer> ExplainTrace(const AnswerOptions& options, const Loaded& loaded) {
  const size_t slash = options.trace.find('/');
  const auto id = model::TraceIdFromText(options.trace.substr(0, slash));
  std::optional<model::SpanId> root;
  if (slash != std::string::npos) root = model::SpanIdFromText(options.trace.substr(slash + 1));
  if (!id || (slash != std::string::npos && !root)) {
    return Error{Code::kInvalidArgument, options.trace + ": a trace id has 32 hex digits (a root in it: ID/ROOT, 16)"};
  }
  const model::TraceLedger* found = nullptr;
  size_t requests = 0;
  for (const model::TraceLedger& ledger : loaded.ledgers) {
    if (ledger.trace_id != *id) continue;
    ++requests;
    if (root && ledger.root_id != *root) continue;
    if (!found || ledger.duration_ns > found->duration_ns) found = &ledger;
  }
  if (found) {
    if (requests > 1 && !root) {
      base::LogWarning("trace {} has {} requests; this is the longest, others by --trace TRACE/ROOT", options.trace,
                       requests);
    }
    if (options.format == "json") return Answer{report::RenderTraceJson(*found) + "\n", false};
    return Answer{report::RenderTraceText(*found, {options.colour, options.width}), false};
  }
  for (const model::Span& span : loaded.unfinished) {
    if (span.trace_id != *id || (root && span.span_id != *root)) continue;
    return Error{Code::kNotFound, fmt::format("{}: trace {} has no ledger: its root `{}` began and its end never came",
                                              options.file, options.trace, span.name)};
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
                                              : report::RenderText(*explanation, {options.colour, options.width});
  return Answer{std::move(text), insufficient};
}

}  // namespace tailspan::cli
