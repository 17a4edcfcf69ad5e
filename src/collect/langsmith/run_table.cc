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
    : limits_(limits),
      loss_(loss),
      normaliser_(limits, keep_content, loss),
      open_normaliser_(limits, keep_content, not_counted_) {}

void RunTable::Apply(Run&& run, int64_t now_mono_ns) {
  Uuid id = run.id;
  if (auto finished = finished_.find(id); finished != finished_.end()) {
    loss_.Add(finished->second.ended ? Loss::kSpanRepeated : Loss::kShedUnderLoad);
    return;
  }
  touched_.push_back(id);
  auto [found, is_new] = open_.try_emplace(id);
  Entry& entry = found->second;
  if (!entry.unsaved) unsaved_.emplace_back(id, now_mono_ns);
  entry.unsaved = true;
  if (is_new) {
    ages_.push_back(id);
    entry.run = std::move(run);
    entry.since_mono_ns = now_mono_ns;
    entry.age = std::prev(ages_.end());
    Grown(&entry);
    return;
  }
  Run& known = entry.run;
  if (run.posted && !known.posted) {
    // The patch came first: what it says is newer than the post.
    std::swap(known, run);
  }
  known.Merge(std::move(run));
  Grown(&entry);
}

void RunTable::Grown(Entry* entry) {
  open_bytes_ -= entry->bytes;
  entry->bytes = sizeof *entry + entry->run.ApproxBytes();
  open_bytes_ += entry->bytes;
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
  while (open_.size() > limits_.open_runs || open_bytes_ > limits_.open_run_bytes) GiveOut(ages_.front(), spans);
}

void RunTable::TakeOpen(int64_t now_mono_ns, std::vector<model::Span>* spans) {
  while (!unsaved_.empty() && now_mono_ns - unsaved_.front().second >= limits_.open_save_ns) {
    auto found = open_.find(unsaved_.front().first);
    unsaved_.pop_front();
    if (found == open_.end() || !found->second.unsaved) continue;
    Entry& entry = found->second;
    entry.unsaved = false;
    if (entry.run.start_unix_ns == 0) continue;  // no span can be made of it yet
    if (!entry.trace_id) entry.trace_id = TraceOf(entry.run);
    ToSpan(Run(entry.run), entry.trace_id, &open_normaliser_, spans);
  }
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
  unsaved_.clear();
}

Uuid RunTable::TraceOf(const Run& run) const {
  if (run.trace_id) return run.trace_id;
  if (!run.parent_id) return run.id;
  auto open = open_.find(run.parent_id);
  if (open != open_.end() && open->second.run.trace_id) return open->second.run.trace_id;
  auto finished = finished_.find(run.parent_id);
  return finished != finished_.end() ? finished->second.trace_id : run.parent_id;
}

void RunTable::Remember(Uuid id, Uuid trace_id, bool ended) {
  if (!finished_.emplace(id, Finished{trace_id, ended}).second) return;
  finished_order_.push_back(id);
  while (finished_order_.size() > limits_.finished_runs) {
    finished_.erase(finished_order_.front());
    finished_order_.pop_front();
  }
}

void RunTable::GiveOut(Uuid id, std::vector<model::Span>* spans) {
  auto found = open_.find(id);
  Run run = std::move(found->second.run);
  Uuid trace_id = found->second.trace_id ? found->second.trace_id : TraceOf(run);
  bool is_out = !found->second.unsaved && run.end_unix_ns == 0;  // as far as it will ever be known
  open_bytes_ -= found->second.bytes;
  ages_.erase(found->second.age);
  open_.erase(found);
  Remember(id, trace_id, run.end_unix_ns != 0);
  if (run.start_unix_ns == 0) {  // nothing but loose fields: no span can be made of it
    loss_.Add(Loss::kSpanRejected);
    return;
  }
  if (!is_out) ToSpan(std::move(run), trace_id, &normaliser_, spans);
}

void RunTable::ToSpan(Run&& run, Uuid trace_id, Normaliser* normaliser, std::vector<model::Span>* spans) {
  model::Span span;
  span.trace_id = trace_id;
  span.uuid = run.id;
  span.parent_uuid = run.parent_id;
  span.span_id = model::SpanIdOfRun(run.id);
  span.parent_id = model::SpanIdOfRun(run.parent_id);
  if (span.span_id == 0) {
    if (normaliser == &normaliser_) loss_.Add(Loss::kSpanRejected);
    return;
  }
  span.source = "langsmith";
  if (run.end_in_ms) run.start_unix_ns -= run.start_unix_ns % kMillisecondNs;
  span.complete = run.end_unix_ns != 0;
  RawSpan raw;
  raw.name = std::move(run.name);
  raw.start_unix_ns = static_cast<uint64_t>(run.start_unix_ns);
  raw.end_unix_ns = static_cast<uint64_t>(span.complete ? run.end_unix_ns : run.start_unix_ns);
  raw.status_code = run.has_error ? 2 : span.complete ? 1 : 0;
  raw.status_message = std::move(run.error);
  int32_t sender_pid = run.sender_pid;
  RawResource resource;
  resource.attributes.emplace_back("service.name", Value::Text(std::move(run.project)));
  raw.attributes = AttributesOf(std::move(run));
  normaliser->Apply(resource, std::move(raw), &span);
  if (!span.complete) span.end_unix_ns = 0;
  if (span.pid == 0) span.pid = sender_pid;
  spans->push_back(std::move(span));
}

}  // namespace tailspan::collect::langsmith
