#include "collect/otlp/otlp.h"

#include <gtest/gtest.h>

#include <protozero/pbf_writer.hpp>

#include "base/clock.h"
#include "collect/otlp/golden.h"
#include "collect/text.h"

namespace tailspan::collect::otlp {
namespace {

using base::Loss;

struct TestSpan {
  std::string trace_id = std::string(15, '\0') + "\x01";
  std::string span_id = std::string(7, '\0') + "\x02";
  std::string parent_id;
  std::string name = "work";
  uint64_t start_unix_ns = 1'700'000'000'000'000'000;
  uint64_t end_unix_ns = 1'700'000'001'000'000'000;
  std::string attribute = "v";
};

std::string Body(const std::vector<TestSpan>& spans) {
  std::string scope;
  protozero::pbf_writer scope_writer(scope);
  for (const TestSpan& span : spans) {
    protozero::pbf_writer writer(scope_writer, 2);
    writer.add_bytes(1, span.trace_id);
    writer.add_bytes(2, span.span_id);
    if (!span.parent_id.empty()) writer.add_bytes(4, span.parent_id);
    writer.add_string(5, span.name);
    writer.add_fixed64(7, span.start_unix_ns);
    writer.add_fixed64(8, span.end_unix_ns);
    protozero::pbf_writer attribute(writer, 9);
    attribute.add_string(1, "a");
    protozero::pbf_writer value(attribute, 2);
    value.add_string(1, span.attribute);
  }
  std::string group;
  protozero::pbf_writer(group).add_message(2, scope);
  std::string body;
  protozero::pbf_writer(body).add_message(1, group);
  return body;
}

std::string Attribute(const model::Span& span, std::string_view key) {
  for (const auto& [name, value] : span.attributes) {
    if (name == key) return value;
  }
  return "(none)";
}

class OtlpTest : public testing::Test {
 protected:
  base::LossCounters loss_;
  Limits limits_;
  Decoder decoder_{limits_, false, loss_};
};

void ExpectGolden(const Decoded& decoded) {
  ASSERT_EQ(decoded.spans.size(), 1u);
  EXPECT_EQ(decoded.rejected, 0);
  const model::Span& span = decoded.spans[0];
  EXPECT_EQ(ToHex(span.trace_id), "0102030405060708090a0b0c0d0e0f10");
  EXPECT_EQ(model::ToHex(span.span_id), "1112131415161718");
  EXPECT_EQ(model::ToHex(span.parent_id), "2122232425262728");
  EXPECT_EQ(span.name, "chat m");
  EXPECT_EQ(span.service, "shop");
  EXPECT_EQ(span.source, "otlp");
  EXPECT_EQ(span.pid, 4711);
  EXPECT_EQ(span.otel_kind, 3);
  EXPECT_EQ(span.type, model::SpanType::kLlm);
  EXPECT_EQ(span.status, model::SpanStatus::kError);
  EXPECT_EQ(span.status_message, "boom");
  EXPECT_EQ(span.start_unix_ns, 1'700'000'000'000'000'001);
  EXPECT_EQ(span.end_unix_ns, 1'700'000'000'500'000'001);
  EXPECT_EQ(span.input_tokens, 12);
  EXPECT_EQ(span.output_tokens, 34);
  EXPECT_FALSE(span.time_suspect);
  EXPECT_EQ(Attribute(span, "flag"), "true");
  EXPECT_EQ(Attribute(span, "temperature"), "0.5");
  EXPECT_EQ(Attribute(span, "list"), R"(["a",-2])");
  EXPECT_EQ(Attribute(span, "map"), R"({"k":1.5})");
  EXPECT_EQ(Attribute(span, "blob"), "AP8=");
  ASSERT_EQ(span.events.size(), 1u);
  EXPECT_EQ(span.events[0].name, "exception");
  EXPECT_EQ(span.events[0].time_unix_ns, 1'700'000'000'100'000'001);
  ASSERT_EQ(span.events[0].attributes.size(), 1u);
  EXPECT_EQ(span.events[0].attributes[0].second, "ValueError");
}

TEST_F(OtlpTest, ReadsTheProtobufOfAnotherLibrary) {
  std::string body;
  ASSERT_TRUE(DecodeHex(kGoldenHex, &body));
  auto decoded = decoder_.Protobuf(body);
  ASSERT_TRUE(decoded.ok());
  ExpectGolden(*decoded);
}

TEST_F(OtlpTest, ReadsTheJsonOfAnotherLibrary) {
  auto decoded = decoder_.Json(kGoldenJson);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  ExpectGolden(*decoded);
}

TEST_F(OtlpTest, ReadsJsonAsTheProtocolWritesIt) {
  auto decoded = decoder_.Json(
      R"({"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090A0B0C0D0E0F10",
          "spanId":"1112131415161718","parentSpanId":"","name":"n","kind":2,"startTimeUnixNano":1700000000000000001,
          "endTimeUnixNano":"1700000000000000002","attributes":[{"key":"i","value":{"intValue":7}}],"unknown":[{}],
          "status":{"code":1}}]}]}]})");
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->spans.size(), 1u);
  const model::Span& span = decoded->spans[0];
  EXPECT_EQ(ToHex(span.trace_id), "0102030405060708090a0b0c0d0e0f10");
  EXPECT_EQ(span.parent_id, 0u);
  EXPECT_EQ(span.type, model::SpanType::kServer);
  EXPECT_EQ(span.status, model::SpanStatus::kOk);
  EXPECT_EQ(span.end_unix_ns - span.start_unix_ns, 1);
  EXPECT_EQ(Attribute(span, "i"), "7");
}

TEST_F(OtlpTest, EveryCutOfABodyIsAnErrorOrWhole) {
  std::string body = Body({{}, {}});
  for (size_t size = 1; size < body.size(); ++size) {
    EXPECT_FALSE(decoder_.Protobuf(std::string_view(body).substr(0, size)).ok()) << size;
  }
  EXPECT_EQ(decoder_.Protobuf(body)->spans.size(), 2u);
}

TEST_F(OtlpTest, IdsOfTheWrongLengthRejectTheirSpanAlone) {
  TestSpan good, short_trace, long_span, zero, odd_parent;
  short_trace.trace_id.pop_back();
  long_span.span_id += "x";
  zero.span_id = std::string(8, '\0');
  odd_parent.parent_id = "abc";
  auto decoded = decoder_.Protobuf(Body({short_trace, good, long_span, zero, odd_parent}));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->spans.size(), 1u);
  EXPECT_EQ(decoded->rejected, 4);
  EXPECT_EQ(loss_.Get(Loss::kSpanRejected), 4u);
  auto json = decoder_.Json(
      R"({"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz","spanId":"1112131415161718"},
          {"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"??hthis!"},
          {"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"1112131415161718","name":"kept"}]}]}]})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->rejected, 2);
  ASSERT_EQ(json->spans.size(), 1u);
  EXPECT_EQ(json->spans[0].name, "kept");
}

TEST_F(OtlpTest, OddTimesAreKeptAndMarked) {
  constexpr uint64_t kDayNs = 86'400'000'000'000;
  TestSpan backwards, future, soon;
  backwards.end_unix_ns = backwards.start_unix_ns - 1;
  future.start_unix_ns = static_cast<uint64_t>(base::UnixNowNs()) + kDayNs + 60'000'000'000;
  future.end_unix_ns = future.start_unix_ns + 1;
  soon.start_unix_ns = static_cast<uint64_t>(base::UnixNowNs()) + kDayNs / 2;
  soon.end_unix_ns = soon.start_unix_ns + 1;
  TestSpan endless = soon;
  endless.end_unix_ns = UINT64_MAX;
  auto decoded = decoder_.Protobuf(Body({backwards, future, soon, endless}));
  ASSERT_EQ(decoded->spans.size(), 4u);
  EXPECT_TRUE(decoded->spans[0].time_suspect);
  EXPECT_TRUE(decoded->spans[1].time_suspect);
  EXPECT_FALSE(decoded->spans[2].time_suspect);
  EXPECT_TRUE(decoded->spans[3].time_suspect);
  EXPECT_EQ(loss_.Get(Loss::kSpanTimeInvalid), 3u);
}

TEST_F(OtlpTest, TextThatIsNotUtf8IsMended) {
  TestSpan span;
  span.name = "caf\xe9";
  span.attribute = "\xff\xfe";
  auto decoded = decoder_.Protobuf(Body({span}));
  EXPECT_EQ(decoded->spans[0].name, "caf\xEF\xBF\xBD");
  EXPECT_EQ(Attribute(decoded->spans[0], "a"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(loss_.Get(Loss::kTextNotUtf8), 2u);
  auto json = decoder_.Json(
      "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"0102030405060708090a0b0c0d0e0f10\","
      "\"spanId\":\"1112131415161718\",\"name\":\"caf\xe9 \\ud800\"}]}]}]}");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->spans[0].name, "caf\xEF\xBF\xBD \xEF\xBF\xBD");
  EXPECT_EQ(loss_.Get(Loss::kTextNotUtf8), 3u);
}

TEST_F(OtlpTest, LongTextIsCutAtACharacter) {
  TestSpan span;
  span.attribute = std::string(limits_.attribute_bytes - 1, 'x') + "\xC3\xA9";  // the last character crosses the limit
  auto decoded = decoder_.Protobuf(Body({span}));
  EXPECT_EQ(Attribute(decoded->spans[0], "a"), std::string(limits_.attribute_bytes - 1, 'x'));
  EXPECT_EQ(loss_.Get(Loss::kAttributeCut), 1u);
}

TEST_F(OtlpTest, HundredThousandSpansOfOneTraceFiveThousandDeepAndACircle) {
  std::vector<TestSpan> spans(100'000);
  for (size_t i = 0; i < spans.size(); ++i) {
    uint32_t id = static_cast<uint32_t>(i + 1);
    auto bytes = [](uint32_t n) {
      return std::string(4, '\0') + static_cast<char>(n >> 24) + static_cast<char>(n >> 16 & 255) +
             static_cast<char>(n >> 8 & 255) + static_cast<char>(n & 255);
    };
    spans[i].span_id = bytes(id);
    spans[i].parent_id = bytes(i == 0 ? 5000 : i < 5000 ? id - 1 : 1);  // a circle of 5,000
  }
  auto decoded = decoder_.Protobuf(Body(spans));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->spans.size(), spans.size());
  EXPECT_EQ(decoded->spans[0].parent_id, 5000u);
}

TEST_F(OtlpTest, NestingIsBounded) {
  std::string value;  // an array in an array in ... far deeper than the limit
  protozero::pbf_writer(value).add_string(1, "x");
  for (int i = 0; i < 2000; ++i) {
    std::string array, outer;
    protozero::pbf_writer(array).add_message(1, value);
    protozero::pbf_writer(outer).add_message(5, array);
    value = outer;
  }
  std::string key_value, span, scope, group, body;
  protozero::pbf_writer writer(key_value);
  writer.add_string(1, "deep");
  writer.add_message(2, value);
  protozero::pbf_writer span_writer(span);
  span_writer.add_bytes(1, TestSpan().trace_id);
  span_writer.add_bytes(2, TestSpan().span_id);
  span_writer.add_message(9, key_value);
  protozero::pbf_writer(scope).add_message(2, span);
  protozero::pbf_writer(group).add_message(2, scope);
  protozero::pbf_writer(body).add_message(1, group);
  auto decoded = decoder_.Protobuf(body);
  ASSERT_TRUE(decoded.ok());
  std::string text = Attribute(decoded->spans[0], "deep");
  EXPECT_EQ(text, std::string(static_cast<size_t>(limits_.value_depth), '[') + "null" +
                      std::string(static_cast<size_t>(limits_.value_depth), ']'));
}

// A body of a few MB that would take a hundred times as much: empty attributes, empty events, spans without end.
TEST_F(OtlpTest, WhatABodyTakesInMemoryIsBounded) {
  std::string empties, span, scope, group, body;
  for (int i = 0; i < 1'000'000; ++i) empties += std::string("\x4a\x00", 2);  // attributes without a key
  for (int i = 0; i < 1'000'000; ++i) empties += std::string("\x5a\x00", 2);  // events
  protozero::pbf_writer writer(span);
  writer.add_bytes(1, TestSpan().trace_id);
  writer.add_bytes(2, TestSpan().span_id);
  span += empties;
  protozero::pbf_writer(scope).add_message(2, span);
  protozero::pbf_writer(group).add_message(2, scope);
  protozero::pbf_writer(body).add_message(1, group);
  auto decoded = decoder_.Protobuf(body);
  ASSERT_TRUE(decoded.ok());
  EXPECT_LE(decoded->spans[0].attributes.size(), limits_.attributes);
  EXPECT_EQ(decoded->spans[0].events.size(), limits_.events);
  EXPECT_GE(loss_.Get(Loss::kAttributeCut), 1'990'000u);

  limits_.decoded_bytes = 100'000;
  Decoder small(limits_, false, loss_);
  auto refused = small.Protobuf(Body(std::vector<TestSpan>(1'000)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, base::Code::kResourceExhausted);
  limits_.json_bytes = 100;
  Decoder short_json(limits_, false, loss_);
  EXPECT_EQ(short_json.Json(std::string(101, ' ')).error().code, base::Code::kResourceExhausted);
}

TEST_F(OtlpTest, JsonThatIsNoRequestIsAnError) {
  EXPECT_FALSE(decoder_.Json("").ok());
  EXPECT_FALSE(decoder_.Json("[1]").ok());
  EXPECT_FALSE(decoder_.Json(R"({"resourceSpans":[)").ok());
  EXPECT_EQ(decoder_.Json("{}")->spans.size(), 0u);
  EXPECT_EQ(decoder_.Json(R"({"resourceSpans":{"scopeSpans":7}})")->spans.size(), 0u);
}

TEST(OtlpAnswer, FollowsTheProtocol) {
  EXPECT_EQ(AnswerProtobuf(0), "");
  EXPECT_EQ(AnswerJson(0), "{}");
  std::string partial;
  ASSERT_TRUE(DecodeHex(kGoldenPartialHex, &partial));
  EXPECT_EQ(AnswerProtobuf(2), partial);
  EXPECT_EQ(AnswerJson(2),
            R"({"partialSuccess":{"rejectedSpans":"2","errorMessage":"2 spans had ids of the wrong length"}})");
  EXPECT_EQ(ErrorJson(400, "no"), R"({"code":3,"message":"no"})");
  EXPECT_EQ(ErrorProtobuf(413, "no"), std::string("\x08\x08\x12\x02no"));
}

}  // namespace
}  // namespace tailspan::collect::otlp
