#include "collect/normalise.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/clock.h"
#include "collect/attribute_table.h"
#include "collect/text.h"

namespace tailspan::collect {
namespace {

using base::Loss;
using model::SpanType;

constexpr int64_t kDayNs = 86'400'000'000'000;
constexpr int kNoRank = 1000;

const std::unordered_map<std::string_view, SpanType>& KindWords() {
  static const auto* const words = new std::unordered_map<std::string_view, SpanType>{
      {"llm", SpanType::kLlm},
      {"chat", SpanType::kLlm},
      {"completion", SpanType::kLlm},
      {"text_completion", SpanType::kLlm},
      {"generate_content", SpanType::kLlm},
      {"chat_model", SpanType::kLlm},
      {"retriever", SpanType::kRetriever},
      {"retrieval", SpanType::kRetriever},
      {"vector_db_retrieve", SpanType::kRetriever},
      {"embedding", SpanType::kEmbedding},
      {"embeddings", SpanType::kEmbedding},
      {"tool", SpanType::kTool},
      {"execute_tool", SpanType::kTool},
      {"execute_task", SpanType::kChain},
      {"function", SpanType::kTool},
      {"chain", SpanType::kChain},
      {"workflow", SpanType::kChain},
      {"task", SpanType::kChain},
      {"invoke_workflow", SpanType::kChain},
      {"agent", SpanType::kAgent},
      {"invoke_agent", SpanType::kAgent},
      {"create_agent", SpanType::kAgent},
      {"reranker", SpanType::kReranker},
      {"rerank", SpanType::kReranker},
      {"prompt", SpanType::kPrompt},
      {"parser", SpanType::kParser},
      {"evaluator", SpanType::kOther},
      {"guardrail", SpanType::kOther},
      {"unknown", SpanType::kOther},
  };
  return *words;
}

// OTel's word for a kind, where it has one.
std::string_view OperationOf(SpanType type) {
  switch (type) {
    case SpanType::kLlm:
      return "chat";
    case SpanType::kRetriever:
      return "retrieval";
    case SpanType::kEmbedding:
      return "embeddings";
    case SpanType::kTool:
      return "execute_tool";
    case SpanType::kAgent:
      return "invoke_agent";
    case SpanType::kReranker:
      return "rerank";
    case SpanType::kChain:
      return "chain";
    case SpanType::kPrompt:
      return "prompt";
    case SpanType::kParser:
      return "parser";
    default:
      return "";
  }
}

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// Of an error's text only the beginning is looked at: a traceback of another error may mention these too.
bool NamesCancellation(std::string_view text) {
  text = text.substr(0, 64);
  for (std::string_view word : {"CancelledError", "AbortError", "GeneratorExit"}) {
    if (text.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool IsEventContent(std::string_view event, std::string_view key) {
  Role role = RuleFor(key).role;
  if (role == Role::kInput || role == Role::kOutput) return true;
  if (!StartsWith(event, "gen_ai.")) return false;
  for (std::string_view name : {"content", "message", "body", "arguments", "tool_calls"}) {
    if (key == name) return true;
  }
  return StartsWith(key, "gen_ai.event.content") || StartsWith(key, "gen_ai.content");
}

}  // namespace

// What one span holds of prompts and answers, and the best kind seen. Several names may carry the same text: only those
// of the lowest rank are counted, numbered parts of one name are taken together.
struct Normaliser::Content {
  struct Side {
    int rank = kNoRank;
    std::string text;
    void Take(int other, const std::string& part) {
      if (other > rank) return;
      if (other < rank) text.clear();
      rank = other;
      text += part;
    }
  };
  Side input;
  Side output;
  int kind_rank = kNoRank;
  std::string kind;
  std::vector<std::pair<size_t, int>> ranks;  // index into the span's attributes, rank of the name it came under
};

SpanType TypeOfKind(std::string_view kind) {
  auto found = KindWords().find(Lower(kind));
  return found == KindWords().end() ? SpanType::kOther : found->second;
}

Normaliser::Normaliser(const Limits& limits, bool keep_content, base::LossCounters& loss)
    : limits_(limits), keep_content_(keep_content), loss_(loss) {}

void Normaliser::Apply(const RawResource& resource, RawSpan&& raw, model::Span* span) {
  Times(raw, span);
  span->name = Clean(std::move(raw.name), limits_.name_bytes, loss_);
  span->otel_kind = raw.kind >= 0 && raw.kind <= 5 ? raw.kind : 0;
  span->status = raw.status_code == 2   ? model::SpanStatus::kError
                 : raw.status_code == 1 ? model::SpanStatus::kOk
                                        : model::SpanStatus::kUnset;
  span->status_message = Clean(std::move(raw.status_message), limits_.attribute_bytes, loss_);
  for (const auto& [key, value] : resource.attributes) {
    if (key == "service.name") span->service = Clean(value.text, limits_.name_bytes, loss_);
    if (key == "process.pid" || key == "thread.id") Typed(key, value, span);
  }
  Content content;
  for (auto& [key, value] : raw.attributes) AddAttribute(std::move(key), std::move(value), &content, span);
  AddContent(content, span);
  AddEvents(std::move(raw.events), span);
  if (span->status == model::SpanStatus::kError && NamesCancellation(span->status_message)) {
    span->status = model::SpanStatus::kCancelled;
  }
  for (const auto& [key, text] : span->attributes) {
    bool better = key == kResponseModel || (key == kRequestModel && span->model.empty());
    if (better && text != "unknown") span->model = text;  // OpenLLMetry's word for a model that it cannot name
  }
  DecideType(span);
}

void Normaliser::Times(const RawSpan& raw, model::Span* span) {
  constexpr uint64_t kMax = INT64_MAX;
  span->start_unix_ns = static_cast<int64_t>(std::min(raw.start_unix_ns, kMax));
  span->end_unix_ns = static_cast<int64_t>(std::min(raw.end_unix_ns, kMax));
  int64_t latest_unix_ns = base::UnixNowNs() + kDayNs;
  bool far = span->start_unix_ns > latest_unix_ns || span->end_unix_ns > latest_unix_ns || span->start_unix_ns == 0;
  if (far || span->end_unix_ns < span->start_unix_ns) {
    span->time_suspect = true;
    loss_.Add(Loss::kSpanTimeInvalid);
  }
}

void Normaliser::AddAttribute(std::string key, Value value, Content* content, model::Span* span) {
  NameRule rule = RuleFor(key);
  switch (rule.role) {
    case Role::kPid:
    case Role::kThreadId:
      Typed(key, value, span);
      break;
    case Role::kKind:
      if (rule.rank < content->kind_rank) {
        content->kind_rank = rule.rank;
        content->kind = value.text;
      }
      if (rule.name == kOperationName) return;  // written at the end, from the kind that won
      break;
    case Role::kInput:
    case Role::kOutput:
      (rule.role == Role::kInput ? content->input : content->output).Take(rule.rank, value.text);
      return;
    case Role::kPlain:
      break;
  }
  if (!rule.name.empty()) {
    for (auto& [index, rank] : content->ranks) {
      auto& [old_key, old_text] = span->attributes[index];
      if (old_key != rule.name) continue;
      if (rule.rank < rank) {
        old_text = Clean(std::move(value.text), limits_.attribute_bytes, loss_);
        rank = rule.rank;
        Typed(rule.name, value, span);
      }
      return;
    }
  }
  if (span->attributes.size() >= limits_.attributes) {
    loss_.Add(Loss::kAttributeCut);
    return;
  }
  if (!rule.name.empty()) {
    content->ranks.emplace_back(span->attributes.size(), rule.rank);
    key = std::string(rule.name);
  }
  value.text = Clean(std::move(value.text), limits_.attribute_bytes, loss_);
  Typed(key, value, span);
  span->attributes.emplace_back(Clean(std::move(key), limits_.name_bytes, loss_), std::move(value.text));
}

// Fills the field of a Span that an attribute has, when its value makes sense.
void Normaliser::Typed(std::string_view name, const Value& value, model::Span* span) {
  int64_t number = value.integer;
  bool numeric = value.kind == Value::Kind::kInt || value.kind == Value::Kind::kDouble ||
                 (value.kind == Value::Kind::kText && ParseInt(value.text, &number));
  if (!numeric) return;
  if (name == kInputTokens && number >= 0) span->input_tokens = number;
  if (name == kOutputTokens && number >= 0) span->output_tokens = number;
  if (name == "process.pid" && number > 0 && number <= INT32_MAX) span->pid = static_cast<int32_t>(number);
  if (name == "thread.id" && number > 0) span->thread_id = static_cast<uint64_t>(number);
}

void Normaliser::AddContent(const Content& content, model::Span* span) {
  auto add = [&](const char* name, const Content::Side& side) {
    if (side.rank == kNoRank) return;
    span->attributes.emplace_back(std::string(name) + ".length", std::to_string(side.text.size()));
    span->attributes.emplace_back(std::string(name) + ".sha256", ShortHash(side.text));
    if (keep_content_) span->attributes.emplace_back(name, Clean(side.text, limits_.content_bytes, loss_));
  };
  add(kInputMessages, content.input);
  add(kOutputMessages, content.output);
  if (content.kind_rank == kNoRank) return;
  span->type = TypeOfKind(content.kind);
  bool known = KindWords().count(Lower(content.kind)) != 0;
  if (!known) loss_.Add(Loss::kRunTypeUnknown);
  std::string_view operation = OperationOf(span->type);
  // OTel's own word stays as it came: "text_completion" says more than "chat".
  bool as_it_came = content.kind_rank == 2 || operation.empty();
  span->attributes.emplace_back(kOperationName,
                                as_it_came ? Clean(content.kind, limits_.name_bytes, loss_) : std::string(operation));
}

void Normaliser::AddEvents(std::vector<RawEvent>&& events, model::Span* span) {
  for (RawEvent& raw : events) {
    if (span->events.size() >= limits_.events) {
      loss_.Add(Loss::kAttributeCut, events.size() - limits_.events);
      return;
    }
    model::SpanEvent event;
    event.time_unix_ns = raw.time_unix_ns;
    event.name = Clean(std::move(raw.name), limits_.name_bytes, loss_);
    for (auto& [key, value] : raw.attributes) {
      if (event.attributes.size() >= limits_.attributes) {
        loss_.Add(Loss::kAttributeCut);
        break;
      }
      if (!keep_content_ && IsEventContent(event.name, key)) {
        event.attributes.emplace_back(key + ".length", std::to_string(value.text.size()));
        continue;
      }
      if (key == "exception.type" && NamesCancellation(value.text) && span->status == model::SpanStatus::kError) {
        span->status = model::SpanStatus::kCancelled;
      }
      event.attributes.emplace_back(Clean(std::move(key), limits_.name_bytes, loss_),
                                    Clean(std::move(value.text), limits_.attribute_bytes, loss_));
    }
    span->events.push_back(std::move(event));
  }
}

void Normaliser::DecideType(model::Span* span) {
  int64_t duration_ns = span->end_unix_ns - span->start_unix_ns;
  bool has_ttft = false;
  double first_chunk = -1;
  for (const auto& [key, text] : span->attributes) {
    if (key == kTtftNs) has_ttft = true;
    if (key == "gen_ai.response.time_to_first_chunk") first_chunk = std::strtod(text.c_str(), nullptr);
  }
  // Seconds by the convention; one engine's newer release sends nanoseconds. What exceeds the span is neither.
  if (!has_ttft && first_chunk > 0 && std::isfinite(first_chunk) && duration_ns > 0) {
    double limit_ns = static_cast<double>(duration_ns);
    double ttft_ns = first_chunk * 1e9 <= limit_ns ? first_chunk * 1e9 : first_chunk <= limit_ns ? first_chunk : -1;
    if (ttft_ns > 0) span->attributes.emplace_back(kTtftNs, std::to_string(std::llround(ttft_ns)));
  }
  if (span->type != SpanType::kOther) return;
  if (span->otel_kind == 2) span->type = SpanType::kServer;
  if (span->otel_kind == 3) span->type = SpanType::kClient;
}

}  // namespace tailspan::collect
