#include "cli/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "analyze/analyze.h"
#include "analyze/cpu_book.h"
#include "analyze/run_lookup.h"
#include "base/log.h"
#include "base/loss.h"
#include "base/text.h"
#include "report/json.h"
#include "report/text.h"
#include "report/trace.h"
#include "store/duckdb/duckdb_store.h"

namespace tailspan::cli {
namespace {

using base::Code;
using base::Error;
using base::Result;

constexpr size_t kRootsTold = 5;

// What --trace asks for.
struct TraceQuestion {
  model::Uuid id;  // of a trace, or of a LangSmith trace or run
  std::optional<model::SpanId> root;
};

struct Loaded {
  model::RecordingInfo info;
  std::vector<model::TraceLedger> ledgers;
  model::CpuBook cpu_book;
  std::vector<model::BlockRequest> block_requests;
  base::ClockMap clock;
  std::vector<model::Span> unfinished;  // roots whose end never came
  size_t spans = 0;                     // received
  size_t requests_outside = 0;          // ended, but did not begin in the window
  analyze::RunLookup run;               // of the id asked for, where no trace has it
  int64_t from_unix_ns = 0, to_unix_ns = 0;
};

// Reads a recording and makes its ledgers. They are stored back where the file can be written, for other readers. All
// of it is read and the window is of the requests: one that began in it may end after it, and spans that began in it
// may belong to a request that did not.
Result<Loaded> Load(const std::string& file, const store::TimeWindow& window,
                    const std::optional<TraceQuestion>& question = {}) {
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
  out.spans = batch->spans.size();
  const auto is_asked_for = [&](const model::TraceLedger& ledger) { return ledger.trace_id == question->id; };
  if (question && std::none_of(out.ledgers.begin(), out.ledgers.end(), is_asked_for)) {
    out.run = analyze::FindRun(*batch, {}, question->id);
  }
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
  out.requests_outside = std::erase_if(out.ledgers, outside);
  std::erase_if(out.unfinished, outside);
  return out;
}

Result<TraceQuestion> ParseTrace(const std::string& text) {
  const size_t slash = text.find('/');
  const auto id = model::TraceIdFromText(text.substr(0, slash));
  TraceQuestion question;
  if (slash != std::string::npos) question.root = model::SpanIdFromText(text.substr(slash + 1));
  if (!id || (slash != std::string::npos && !question.root)) {
    return Error{Code::kInvalidArgument,
                 text +
                     ": the id of a trace, or of a LangSmith trace or run, has 32 hex digits, with or without dashes "
                     "(a root in it: ID/ROOT, 16)"};
  }
  question.id = *id;
  return question;
}

template <typename T>
bool Holds(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// What is known about an id that no ledger was found for.
Error NoLedger(const AnswerOptions& options, const TraceQuestion& question, const Loaded& loaded) {
  for (const model::Span& span : loaded.unfinished) {
    if (span.trace_id != question.id && !Holds(loaded.run.recorded_in, span.trace_id)) continue;
    if (question.root && span.span_id != *question.root) continue;
    return {Code::kNotFound, fmt::format("{}: trace {} has no ledger: its root `{}` began and its end never came",
                                         options.file, options.trace, span.name)};
  }
  const bool ambiguous = loaded.info.loss.contains(base::Describe(base::Loss::kTraceTwinAmbiguous).name);
  if (!loaded.run.recorded_in.empty() && loaded.run.requests.empty() && ambiguous) {
    return {Code::kNotFound,
            fmt::format("{}: {} has no ledger: it was recorded, but may be one of LangSmith's traces that could not be "
                        "told from OpenTelemetry's of the same time; look there for its request",
                        options.file, options.trace)};
  }
  return {Code::kNotFound, fmt::format("{}: no trace {} with a complete root{}", options.file, options.trace,
                                       loaded.requests_outside > 0 ? " in this window" : "")};
}

// A trace has several requests where its caller made several, or where a connection's context leaked.
Result<Answer> ExplainTrace(const AnswerOptions& options, const TraceQuestion& question, const Loaded& loaded) {
  std::vector<const model::TraceLedger*> found;
  for (const model::TraceLedger& ledger : loaded.ledgers) {
    const analyze::RequestKey key{ledger.trace_id, ledger.root_id};
    if (ledger.trace_id != question.id && !Holds(loaded.run.requests, key)) continue;
    if (!question.root || ledger.root_id == *question.root) found.push_back(&ledger);
  }
  if (found.empty()) return NoLedger(options, question, loaded);
  std::stable_sort(found.begin(), found.end(), [](const model::TraceLedger* a, const model::TraceLedger* b) {
    return a->duration_ns > b->duration_ns;
  });
  const model::TraceLedger& shown = *found.front();
  if (shown.trace_id != question.id) {
    base::LogInfo("{} is LangSmith's: its request is trace {}", options.trace, model::ToHex(shown.trace_id));
  }
  if (found.size() > 1) {
    std::string others;
    for (size_t i = 1; i < std::min(found.size(), kRootsTold + 1); ++i) {
      others +=
          fmt::format("{}{}/{} ({})", i > 1 ? ", " : "", model::ToHex(found[i]->trace_id),
                      model::ToHex(found[i]->root_id), base::DurationText(static_cast<double>(found[i]->duration_ns)));
    }
    if (found.size() > kRootsTold + 1) others += fmt::format(" and {} more", found.size() - kRootsTold - 1);
    base::LogWarning("trace {} has {} requests; this is the longest, others by --trace: {}", options.trace,
                     found.size(), others);
  }
  if (options.format == "json") return Answer{report::RenderTraceJson(shown) + "\n", false};
  return Answer{report::RenderTraceText(shown, options.style), false};
}

int64_t UnfinishedOf(const std::string& operation, const Loaded& loaded) {
  return std::count_if(loaded.unfinished.begin(), loaded.unfinished.end(),
                       [&](const model::Span& root) { return operation.empty() || root.name == operation; });
}

// Why there is nothing to explain, and what to look at.
void SayWhatIsMissing(const Loaded& loaded, model::Explanation* e) {
  const std::string of = e->operation.empty() ? "" : " of " + e->operation;
  if (loaded.spans == 0) {
    e->verdict_reason = "no spans were received: there is no request to explain";
    e->notes.push_back(
        "is the command traced, and is its exporter on? OpenTelemetry's must send by HTTP to "
        "OTEL_EXPORTER_OTLP_ENDPOINT, LangSmith's needs LANGSMITH_TRACING and sends to LANGSMITH_ENDPOINT; `run` sets "
        "these for its command, and an endpoint that the program names itself wins over them");
    e->notes.push_back("`tailspan doctor` says what works on this host");
  } else if (e->unfinished > 0) {
    e->verdict_reason = fmt::format("no request{} has ended: {} began and their end never came", of, e->unfinished);
    e->notes.push_back(
        "a span is sent, or sent again, when it ends: was the command killed before its last were sent?");
  } else if (loaded.requests_outside > 0) {
    e->verdict_reason = fmt::format("no request{} that has ended began in this window; the recording has {} outside it",
                                    of, loaded.requests_outside);
  } else {
    e->verdict_reason = fmt::format(
        "no request{} has ended: {} spans were received, but no root with an end and "
        "possible times",
        of, loaded.spans);
  }
}

}  // namespace

Result<Answer> Explain(const AnswerOptions& options) {
  std::optional<TraceQuestion> question;
  if (!options.trace.empty()) {
    auto parsed = ParseTrace(options.trace);
    if (!parsed.ok()) return std::move(parsed).error();
    question = *parsed;
  }
  auto loaded = Load(options.file, options.window, question);
  if (!loaded.ok()) return std::move(loaded).error();
  if (question) return ExplainTrace(options, *question, *loaded);

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
  if (!explain.operation.empty()) explain.unfinished = UnfinishedOf(explain.operation, *loaded);
  auto explanation = analyze::Explain(loaded->ledgers, explain);
  if (!explanation.ok()) {
    Error error = std::move(explanation).error();
    if (error.code == Code::kNotFound && loaded->requests_outside > 0) error.message += " (between --from and --to)";
    return std::move(error).WithContext(options.file);
  }
  explanation->unfinished = UnfinishedOf(explanation->operation, *loaded);
  if (explanation->requests == 0 && explanation->errors == 0) {
    SayWhatIsMissing(*loaded, &*explanation);
  } else if (explanation->unfinished > 0) {
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
                                              : report::RenderText(*explanation, options.style);
  return Answer{std::move(text), insufficient};
}

}  // namespace tailspan::cli
