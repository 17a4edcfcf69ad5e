// Maps five dialects of span attributes (OTel GenAI, its older names with LangSmith's and vLLM's, OpenInference,
// OpenLLMetry, LangSmith runs) onto the names of the first, and fills the typed fields of model::Span from them.
//
// Where several names give one concept the first row of the table wins and the others are left out. Prompts and answers
// are kept as length and hash only: `gen_ai.input.messages.length`, `.sha256`, and the same for `output`.
// Stateless but for the counters; used from one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/loss.h"
#include "collect/limits.h"
#include "collect/raw_span.h"
#include "model/span.h"

namespace tailspan::collect {

class Normaliser {
 public:
  Normaliser(const Limits& limits, bool keep_content, base::LossCounters& loss);

  // Everything but ids, source and uuid, which the decoder has set in `span`.
  void Apply(const RawResource& resource, RawSpan&& raw, model::Span* span);

 private:
  struct Content;

  void Times(const RawSpan& raw, model::Span* span);
  void AddAttribute(std::string key, Value value, Content* content, model::Span* span);
  void Typed(std::string_view name, const Value& value, model::Span* span);
  void AddContent(const Content& content, model::Span* span);
  void AddEvents(std::vector<RawEvent>&& events, model::Span* span);
  void DecideType(model::Span* span);

  Limits limits_;
  bool keep_content_;
  base::LossCounters& loss_;
};

// Normalised names that several parts use.
inline constexpr char kOperationName[] = "gen_ai.operation.name";
inline constexpr char kProviderName[] = "gen_ai.provider.name";
inline constexpr char kRequestModel[] = "gen_ai.request.model";
inline constexpr char kResponseModel[] = "gen_ai.response.model";
inline constexpr char kInputTokens[] = "gen_ai.usage.input_tokens";
inline constexpr char kOutputTokens[] = "gen_ai.usage.output_tokens";
inline constexpr char kCacheReadTokens[] = "gen_ai.usage.cache_read.input_tokens";
inline constexpr char kReasoningTokens[] = "gen_ai.usage.reasoning.output_tokens";
inline constexpr char kConversationId[] = "gen_ai.conversation.id";
inline constexpr char kInputMessages[] = "gen_ai.input.messages";
inline constexpr char kOutputMessages[] = "gen_ai.output.messages";
inline constexpr char kRunType[] = "langchain.run_type";
inline constexpr char kSerialized[] = "langchain.serialized";
inline constexpr char kTtftNs[] = "tailspan.ttft_ns";
inline constexpr char kTokensStreamed[] = "tailspan.streamed_tokens";
inline constexpr char kRetrySleptNs[] = "tailspan.retry_slept_ns";
inline constexpr char kRetries[] = "tailspan.retries";

// What a kind of any dialect means; kOther for an unknown word.
model::SpanType TypeOfKind(std::string_view kind);

}  // namespace tailspan::collect
