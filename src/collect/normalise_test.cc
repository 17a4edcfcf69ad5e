#include "collect/normalise.h"

#include <gtest/gtest.h>

#include <map>

namespace tailspan::collect {
namespace {

using base::Loss;
using model::SpanType;

class NormaliseTest : public testing::Test {
 protected:
  model::Span Run(std::vector<Attribute> attributes, bool keep_content = false) {
    Normaliser normaliser(limits_, keep_content, loss_);
    RawSpan raw;
    raw.name = "n";
    raw.start_unix_ns = 1'700'000'000'000'000'000;
    raw.end_unix_ns = raw.start_unix_ns + 2'000'000'000;
    raw.attributes = std::move(attributes);
    model::Span span;
    normaliser.Apply({}, std::move(raw), &span);
    got_.clear();
    for (auto& [key, value] : span.attributes) {
      EXPECT_EQ(got_.count(key), 0u) << key << " twice";
      got_[key] = value;
    }
    return span;
  }
  static Attribute Text(std::string key, std::string value) { return {std::move(key), Value::Text(std::move(value))}; }
  static Attribute Int(std::string key, int64_t value) { return {std::move(key), Value::Int(value)}; }

  Limits limits_;
  base::LossCounters loss_;
  std::map<std::string, std::string> got_;
};

TEST_F(NormaliseTest, FiveDialectsOfOneModelCall) {
  const std::vector<std::vector<Attribute>> dialects = {
      {Text("gen_ai.operation.name", "chat"), Text("gen_ai.provider.name", "openai"), Text("gen_ai.request.model", "m"),
       Text("gen_ai.response.model", "m-1"), Int("gen_ai.usage.input_tokens", 7), Int("gen_ai.usage.output_tokens", 9),
       Int("gen_ai.usage.cache_read.input_tokens", 3), Int("gen_ai.usage.reasoning.output_tokens", 2),
       Text("gen_ai.conversation.id", "c")},
      {Text("langsmith.span.kind", "llm"), Text("gen_ai.system", "openai"), Text("gen_ai.request.model", "m"),
       Text("gen_ai.response.model", "m-1"), Int("gen_ai.usage.prompt_tokens", 7),
       Int("gen_ai.usage.completion_tokens", 9), Int("gen_ai.usage.cache_read_input_tokens", 3),
       Int("gen_ai.usage.reasoning_tokens", 2), Text("langsmith.metadata.thread_id", "c")},
      {Text("openinference.span.kind", "LLM"), Text("llm.provider", "openai"), Text("llm.model_name", "m"),
       Text("llm.response.model_name", "m-1"), Int("llm.token_count.prompt", 7), Int("llm.token_count.completion", 9),
       Int("llm.token_count.prompt_details.cache_read", 3), Int("llm.token_count.completion_details.reasoning", 2),
       Text("session.id", "c")},
      {Text("llm.request.type", "chat"), Text("gen_ai.system", "openai"), Text("gen_ai.request.model", "m"),
       Text("gen_ai.response.model", "m-1"), Text("gen_ai.usage.prompt_tokens", "7"),
       Int("gen_ai.usage.completion_tokens", 9), Int("gen_ai.usage.cache_read_input_tokens", 3),
       Int("gen_ai.usage.reasoning_tokens", 2), Text("traceloop.association.properties.session_id", "c")},
  };
  for (size_t i = 0; i < dialects.size(); ++i) {
    SCOPED_TRACE(i);
    model::Span span = Run(dialects[i]);
    EXPECT_EQ(span.type, SpanType::kLlm);
    EXPECT_EQ(span.model, "m-1");
    EXPECT_EQ(span.input_tokens, 7);
    EXPECT_EQ(span.output_tokens, 9);
    EXPECT_EQ(got_["gen_ai.operation.name"], "chat");
    EXPECT_EQ(got_["gen_ai.provider.name"], "openai");
    EXPECT_EQ(got_["gen_ai.request.model"], "m");
    EXPECT_EQ(got_["gen_ai.usage.input_tokens"], "7");
    EXPECT_EQ(got_["gen_ai.usage.cache_read.input_tokens"], "3");
    EXPECT_EQ(got_["gen_ai.usage.reasoning.output_tokens"], "2");
    EXPECT_EQ(got_["gen_ai.conversation.id"], "c");
  }
}

TEST_F(NormaliseTest, TheConventionsNameWinsInAnyOrder) {
  Run({Int("llm.token_count.prompt", 1), Int("gen_ai.usage.input_tokens", 2), Int("gen_ai.usage.prompt_tokens", 3)});
  EXPECT_EQ(got_["gen_ai.usage.input_tokens"], "2");
}

TEST_F(NormaliseTest, LangsmithsKindOutranksItsOperationName) {
  model::Span span = Run({Text("gen_ai.operation.name", "embeddings"), Text("langsmith.span.kind", "retriever")});
  EXPECT_EQ(span.type, SpanType::kRetriever);
  EXPECT_EQ(got_["gen_ai.operation.name"], "retrieval");
  EXPECT_EQ(got_["langchain.run_type"], "retriever");
}

TEST_F(NormaliseTest, KindsOfEveryDialect) {
  EXPECT_EQ(TypeOfKind("RETRIEVER"), SpanType::kRetriever);
  EXPECT_EQ(TypeOfKind("invoke_agent"), SpanType::kAgent);
  EXPECT_EQ(TypeOfKind("workflow"), SpanType::kChain);
  EXPECT_EQ(TypeOfKind("RERANKER"), SpanType::kReranker);
  EXPECT_EQ(TypeOfKind("execute_tool"), SpanType::kTool);
  EXPECT_EQ(TypeOfKind("embedding"), SpanType::kEmbedding);
}

TEST_F(NormaliseTest, AnUnknownKindIsKeptAndCounted) {
  model::Span span = Run({Text("langsmith.span.kind", "teleporter")});
  EXPECT_EQ(span.type, SpanType::kOther);
  EXPECT_EQ(got_["langchain.run_type"], "teleporter");
  EXPECT_EQ(loss_.Get(Loss::kRunTypeUnknown), 1u);
}

TEST_F(NormaliseTest, ContentLeavesLengthAndHash) {
  Run({Text("input.value", "abc"), Text("llm.input_messages.0.message.content", "abc"),
       Text("llm.output_messages.0.message.content", "ab"), Text("llm.output_messages.1.message.content", "c"),
       Text("gen_ai.prompt.0.content", "abc")});
  EXPECT_EQ(got_["gen_ai.input.messages.length"], "3");
  EXPECT_EQ(got_["gen_ai.input.messages.sha256"], "ba7816bf8f01cfea");  // of "abc", FIPS 180
  EXPECT_EQ(got_["gen_ai.output.messages.length"], "3");
  EXPECT_EQ(got_["gen_ai.output.messages.sha256"], "ba7816bf8f01cfea");
  for (const auto& [key, value] : got_) EXPECT_EQ(value.find("abc"), std::string::npos) << key;
}

TEST_F(NormaliseTest, ContentIsKeptOnRequest) {
  Run({Text("traceloop.entity.input", "abc")}, true);
  EXPECT_EQ(got_["gen_ai.input.messages"], "abc");
  EXPECT_EQ(got_["gen_ai.input.messages.length"], "3");
}

TEST_F(NormaliseTest, TimeToFirstTokenMustFitItsSpan) {
  Run({{"gen_ai.response.time_to_first_chunk", Value::Double(0.25)}});
  EXPECT_EQ(got_["tailspan.ttft_ns"], "250000000");
  Run({{"gen_ai.latency.time_to_first_token", Value::Double(250000000)}});  // nanoseconds
  EXPECT_EQ(got_["tailspan.ttft_ns"], "250000000");
  Run({{"gen_ai.latency.time_to_first_token", Value::Double(3e9)}});  // more than the span in either unit
  EXPECT_EQ(got_.count("tailspan.ttft_ns"), 0u);
}

TEST_F(NormaliseTest, ThreadAndProcess) {
  model::Span span = Run({Int("thread.id", 140'000'000'000'000), Int("process.pid", 77)});
  EXPECT_EQ(span.thread_id, 140'000'000'000'000u);
  EXPECT_EQ(span.pid, 77);
}

TEST_F(NormaliseTest, TooManyAttributesAreLeftOutAndCounted) {
  std::vector<Attribute> many;
  for (size_t i = 0; i < limits_.attributes + 5; ++i) many.push_back(Int("k" + std::to_string(i), 1));
  EXPECT_EQ(Run(std::move(many)).attributes.size(), limits_.attributes);
  EXPECT_EQ(loss_.Get(Loss::kAttributeCut), 5u);
}

}  // namespace
}  // namespace tailspan::collect
