#include "collect/langsmith/run_table.h"

#include <utility>

#include "collect/text.h"

namespace tailspan::collect::langsmith {
namespace {

using base::Loss;
using model::Uuid;

constexpr int64_t kMillisecondNs = 1'000'000;

void AddContent(const char* name, const Run::Content& content, std::vector<Attribute>* out) {
  if (!content.known) return;
  if (!content.text.empty()) {
    out->emplace_back(name, Value::Json(content.text));  // the normaliser adds length and hash
    return;
  }
  out->emplace_back(std::string(name) + ".length", Value::Int(static_cast<int64_t>(content.bytes)));
  out->emplace_back(std::string(name) + ".sha256", Value::Text(content.hash));
}

void AddText(const char* name, std::string&& text, std::vector<Attribute>* out) {
  if (!text.empty()) out->emplace_back(name, Value::Text(std::move(text)));
}

void AddCount(const char* name, int64_t count, std::vector<Attribute>* out) {
  if (count >= 0) out->emplace_back(name, Value::Int(count));
}

std::vector<Attribute> AttributesOf(Run&& run) {
  std::vector<Attribute> out;
  // A chain hands its model's message on, tokens included: only the model's own run counts them.
  bool counts_tokens = run.run_type.empty() || run.run_type == "llm" || run.run_type == "embedding";
  if (counts_tokens) {
    AddCount(kInputTokens, run.tokens.input, &out);
    AddCount(kOutputTokens, run.tokens.output, &out);
    AddCount(kCacheReadTokens, run.tokens.cache_read, &out);
    AddCount(kReasoningTokens, run.tokens.reasoning, &out);
    AddText(kRequestModel, std::move(run.request_model), &out);
    AddText(kResponseModel, std::move(run.response_model), &out);
    AddText(kProviderName, std::move(run.provider), &out);
    AddText("gen_ai.response.finish_reasons", std::move(run.finish_reason), &out);
  }
  AddText("langsmith.span.kind", std::move(run.run_type), &out);
  AddText(kSerialized, std::move(run.serialized), &out);
  AddText("langsmith.span.tags", std::move(run.tags), &out);
  AddContent(kInputMessages, run.inputs, &out);
  AddContent(kOutputMessages, run.outputs, &out);
  if (run.streamed_tokens > 0) out.emplace_back(kTokensStreamed, Value::Int(run.streamed_tokens));
  int64_t ttft_ns = run.first_token_unix_ns - run.start_unix_ns;
  bool inside = run.first_token_unix_ns != 0 && ttft_ns >= 0 &&
                (run.end_unix_ns == 0 || run.first_token_unix_ns <= run.end_unix_ns + kMillisecondNs);
  if (inside) out.emplace_back(kTtftNs, Value::Int(ttft_ns));
  if (run.retries > 0) {
    out.emplace_back(kRetries, Value::Int(run.retries));
    out.emplace_back(kRetrySleptNs, Value::Int(run.retry_slept_ns));
  }
  for (Attribute& attribute : run.metadata) out.push_back(std::move(attribute));
  return out;
}

}  // namespace

RunTable::RunTable(const Limits& limits, bool keep_content, base::LossCounters& loss)
    : limits_(limits), loss_(loss), normaliser_(limits, keep_content, loss) {}

void RunTable::Apply(Run&& run, int64_t now_mono_ns) {
  Uuid id = run.id;
  if (finished_.count(id) != 0) {
    loss_.Add(Loss::kSpanRepeated);
    return;
  }
  touched_.push_back(id);
  auto found = open_.find(id);
  if (found == open_.end()) {
    ages_.push_back(id);
    open_.emplace(id, Entry{std::move(run), now_mono_ns, std::prev(ages_.end())});
    return;
  }
  Run& known = found->second.run;
  if (run.posted && !known.posted) {
    // The patch came first: what it says is newer than the post.
    std::swap(known, run);
  }
  known.Merge(std::move(run));
}

bool RunTable::Ready(const Entry& entry, int64_t now_mono_ns) const {
  if (entry.run.end_unix_ns == 0 || entry.run.start_unix_ns == 0) return false;
  return entry.run.posted || now_mono_ns - entry.since_mono_ns >= limits_.patch_wait_ns;
}

void RunTable::TakeReady(int64_t now_mono_ns, std::vector<model::Span>* spans) {
  for (Uuid id : std::exchange(touched_, {})) {
    auto found = open_.find(id);
    if (found != open_.end() && Ready(found->second, now_mono_ns)) GiveOut(id, spans);
  }
  while (open_.size() > limits_.open_runs) GiveOut(ages_.front(), spans);
}

void RunTable::Sweep(int64_t now_mono_ns, std::vector<model::Span>* spans) {
  for (auto it = ages_.begin(); it != ages_.end();) {
    Uuid id = *it++;
    const Entry& entry = open_.at(id);
    int64_t age_ns = now_mono_ns - entry.since_mono_ns;
    if (age_ns < limits_.patch_wait_ns) break;  // the oldest come first
    if (age_ns >= limits_.open_run_age_ns || Ready(entry, now_mono_ns)) GiveOut(id, spans);
  }
}

void RunTable::Flush(std::vector<model::Span>* spans) {
  while (!ages_.empty()) GiveOut(ages_.front(), spans);
  touched_.clear();
}

Uuid RunTable::TraceOf(const Run& run) const {
  if (run.trace_id) return run.trace_id;
  if (!run.parent_id) return run.id;
  auto open = open_.find(run.parent_id);
  if (open != open_.end() && open->second.run.trace_id) return open->second.run.trace_id;
  auto finished = finished_.find(run.parent_id);
  return finished != finished_.end() ? finished->second : run.parent_id;
}

void RunTable::Remember(Uuid id, Uuid trace_id) {
  if (!finished_.emplace(id, trace_id).second) return;
  finished_order_.push_back(id);
  while (finished_order_.size() > limits_.finished_runs) {
    finished_.erase(finished_order_.front());
    finished_order_.pop_front();
  }
}

void RunTable::GiveOut(Uuid id, std::vector<model::Span>* spans) {
  auto found = open_.find(id);
  Run run = std::move(found->second.run);
  Uuid trace_id = TraceOf(run);
  ages_.erase(found->second.age);
  open_.erase(found);
  Remember(id, trace_id);
  if (run.start_unix_ns == 0) {  // nothing but loose fields: no span can be made of it
    loss_.Add(Loss::kSpanRejected);
    return;
  }
  ToSpan(std::move(run), trace_id, spans);
}

void RunTable::ToSpan(Run&& run, Uuid trace_id, std::vector<model::Span>* spans) {
  model::Span span;
  span.trace_id = trace_id;
  span.uuid = run.id;
  span.parent_uuid = run.parent_id;
  span.span_id = model::SpanIdOfRun(run.id);
  span.parent_id = model::SpanIdOfRun(run.parent_id);
  if (span.span_id == 0) {
    loss_.Add(Loss::kSpanRejected);
    return;
  }
  span.source = "langsmith";
  if (run.end_in_ms) run.start_unix_ns -= run.start_unix_ns % kMillisecondNs;
  span.complete = run.end_unix_ns != 0;
  if (!span.complete) loss_.Add(Loss::kSpanIncomplete);
  RawSpan raw;
  raw.name = std::move(run.name);
  raw.start_unix_ns = static_cast<uint64_t>(run.start_unix_ns);
  raw.end_unix_ns = static_cast<uint64_t>(span.complete ? run.end_unix_ns : run.start_unix_ns);
  raw.status_code = run.has_error ? 2 : span.complete ? 1 : 0;
  raw.status_message = std::move(run.error);
  RawResource resource;
  resource.attributes.emplace_back("service.name", Value::Text(std::move(run.project)));
  raw.attributes = AttributesOf(std::move(run));
  normaliser_.Apply(resource, std::move(raw), &span);
  spans->push_back(std::move(span));
}

}  // namespace tailspan::collect::langsmith
