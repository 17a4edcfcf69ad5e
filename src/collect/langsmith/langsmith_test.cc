#include "collect/langsmith/langsmith.h"

#include <gtest/gtest.h>

#include "collect/langsmith/run_time.h"

namespace tailspan::collect::langsmith {
namespace {

using base::Loss;
using model::Span;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int32_t kSenderPid = 4711;
// 2026-11-30T18:01:05Z by `date -u -d ... +%s`.
constexpr int64_t kT0UnixNs = 1'796'061'665 * kSecondNs;

const char kRoot[] = "01a22db0-786f-7370-98d1-a5dd2698d506";
const char kChild[] = "01a22db0-788b-723d-a3d6-a53a0bc0588f";

TEST(RunTime, ReadsWhatClientsWrite) {
  EXPECT_EQ(UnixNsFromIso("2026-11-30T18:01:05.123456+00:00"), kT0UnixNs + 123'456'000);
  EXPECT_EQ(UnixNsFromIso("2026-11-30T18:01:05.123456"), kT0UnixNs + 123'456'000);
  EXPECT_EQ(UnixNsFromIso("2026-11-30T18:01:05Z"), kT0UnixNs);
  EXPECT_EQ(UnixNsFromIso("2026-11-30T19:31:05+01:30"), kT0UnixNs);
  EXPECT_EQ(UnixNsFromIso("2026-11-30 13:01:05.5-0500"), kT0UnixNs + 500'000'000);
  EXPECT_EQ(UnixNsFromIso("1970-01-01T00:00:01Z"), kSecondNs);
  EXPECT_EQ(UnixNsFromIso("2000-02-29T00:00:00Z"), 951'782'400 * kSecondNs);
  for (const char* bad : {"", "now", "2026-13-01T00:00:00Z", "2026-11-30T25:00:00Z", "9999-01-01T00:00:00Z",
                          "2026-11-30", "2026-11-30T18:01:05+0x:00"}) {
    EXPECT_EQ(UnixNsFromIso(bad), 0) << bad;
  }
}

TEST(RunTime, TellsTheUnitsOfNumbersApart) {
  base::LossCounters loss;
  JsonParser parser({}, loss);
  auto read = [&](const char* text, bool* whole_ms) { return UnixNsFromJson(*parser.Parse(text), whole_ms); };
  bool whole_ms = false;
  EXPECT_EQ(read("1796061665", &whole_ms), kT0UnixNs);
  EXPECT_FALSE(whole_ms);
  EXPECT_EQ(read("1796061665123", &whole_ms), kT0UnixNs + 123'000'000);
  EXPECT_TRUE(whole_ms);
  EXPECT_EQ(read("1796061665123456", nullptr), kT0UnixNs + 123'456'000);
  whole_ms = false;
  EXPECT_NEAR(static_cast<double>(read("1796061665123.5", &whole_ms) - kT0UnixNs), 123'500'000, 512);
  EXPECT_FALSE(whole_ms) << "a clock that tells more";
  EXPECT_EQ(read("1796061665123456789", nullptr), kT0UnixNs + 123'456'789);
  EXPECT_EQ(read("\"1796061665123\"", nullptr), kT0UnixNs + 123'000'000);
  EXPECT_EQ(read("-5", nullptr), 0);
  EXPECT_EQ(read("1e300", nullptr), 0);
  EXPECT_EQ(read("null", nullptr), 0);
}

TEST(RunTime, DottedOrderTellsParentRootAndStart) {
  DottedOrder order =
      ParseDottedOrder(std::string("20261130T180105000000Z") + kRoot + ".20261130T180105123456Z" + kChild);
  EXPECT_EQ(ToUuidText(order.root), kRoot);
  EXPECT_EQ(ToUuidText(order.parent), kRoot);
  EXPECT_EQ(ToUuidText(order.self), kChild);
  EXPECT_EQ(order.start_unix_ns, kT0UnixNs + 123'456'000);
  EXPECT_FALSE(ParseDottedOrder("x.y").self);
  EXPECT_FALSE(ParseDottedOrder(std::string(kRoot)).self);
}

class LangsmithTest : public testing::Test {
 protected:
  std::vector<Span> Send(const std::string& method, const std::string& path, const std::string& body, int want_status,
                         const std::string& type = "application/json") {
    std::vector<Span> spans;
    http::Request request{method, path, type, "", body};
    http::Response answer = api_.Handle(request, path, kSenderPid, now_mono_ns_, &spans);
    EXPECT_EQ(answer.status, want_status) << answer.body;
    return spans;
  }
  std::vector<Span> SendParts(const std::vector<std::pair<std::string, std::string>>& parts, int want_status = 202) {
    std::string body;
    for (const auto& [name, data] : parts) {
      body += "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + data + "\r\n";
    }
    return Send("POST", "/runs/multipart", body + "--b--\r\n", want_status, "multipart/form-data; boundary=b");
  }
  static std::string Object(const std::string& id, const std::string& more) {
    return R"({"id":")" + id + R"(","trace_id":")" + kRoot + "\"" + (more.empty() ? "" : "," + more) + "}";
  }
  static std::string Attribute(const Span& span, std::string_view key) {
    for (const auto& [name, value] : span.attributes) {
      if (name == key) return value;
    }
    return "(none)";
  }

  Limits limits_;
  base::LossCounters loss_;
  Api api_{limits_, false, "1", loss_};
  int64_t now_mono_ns_ = kSecondNs;
};

const char kStart[] =
    R"("name":"ask","run_type":"llm","start_time":"2026-11-30T18:01:05.000000","session_name":"shop")";
const char kEnd[] = R"("end_time":"2026-11-30T18:01:07.500000Z")";

TEST_F(LangsmithTest, InfoHasAllThatPythonIndexes) {
  std::vector<Span> spans;
  http::Response answer = api_.Handle({"GET", "/info", "", "", ""}, "/info", 0, 0, &spans);
  EXPECT_EQ(answer.status, 200);
  for (const char* key :
       {"use_multipart_endpoint", "size_limit", "size_limit_bytes", "scale_up_nthreads_limit", "scale_up_qsize_trigger",
        "scale_down_nempty_trigger", "zstd_compression_enabled", "gzip_body_enabled"}) {
    EXPECT_NE(answer.body.find("\"" + std::string(key) + "\":"), std::string::npos) << key;
  }
}

TEST_F(LangsmithTest, PostAndPatchOfOneBodyMakeOneSpan) {
  std::string id = kRoot;
  auto spans = SendParts({
      {"post." + id, Object(kRoot, kStart)},
      {"post." + id + ".inputs", R"({"question":"why?"})"},
      {"post." + id + ".extra",
       R"({"metadata":{"ls_provider":"openai","ls_model_name":"m","thread_id":"t","LANGSMITH_X":1}})"},
      {"post." + id + ".serialized",
       R"({"lc":1,"type":"constructor","id":["a","B"],"name":"B","kwargs":{"template":"T"}})"},
      {"patch." + id, Object(kRoot, kEnd)},
      {"patch." + id + ".outputs",
       R"({"generations":[[{"message":{"kwargs":{"usage_metadata":{"input_tokens":5,"output_tokens":8,
           "input_token_details":{"cache_read":2}},"response_metadata":{"model_name":"m-1","finish_reason":"stop"}}}}]]})"},
      {"patch." + id + ".events",
       R"([{"name":"start","time":"2026-11-30T18:01:05Z"},
           {"name":"retry","time":"2026-11-30T18:01:05.1Z","kwargs":{"slept":0.25,"attempt":1}},
           {"name":"new_token","time":"2026-11-30T18:01:05.750000+00:00"},
           {"name":"new_token","time":"2026-11-30T18:01:06Z"},{"name":"end","time":"2026-11-30T18:01:07.5Z"}])"},
      {"attachment." + id + ".file", "\x01\x02"},
      {"feedback." + id, "{}"},
  });
  ASSERT_EQ(spans.size(), 1u);
  const Span& span = spans[0];
  EXPECT_EQ(ToUuidText(span.uuid), kRoot);
  EXPECT_EQ(ToHex(span.trace_id), "01a22db0786f737098d1a5dd2698d506");
  EXPECT_EQ(model::ToHex(span.span_id), "98d1a5dd2698d506");  // the last 8 bytes
  EXPECT_EQ(span.parent_id, 0u);
  EXPECT_EQ(span.name, "ask");
  EXPECT_EQ(span.service, "shop");
  EXPECT_EQ(span.source, "langsmith");
  EXPECT_EQ(span.type, model::SpanType::kLlm);
  EXPECT_EQ(span.status, model::SpanStatus::kOk);
  EXPECT_TRUE(span.complete);
  EXPECT_EQ(span.start_unix_ns, kT0UnixNs);
  EXPECT_EQ(span.end_unix_ns, kT0UnixNs + 2'500'000'000);
  EXPECT_EQ(span.input_tokens, 5);
  EXPECT_EQ(span.output_tokens, 8);
  EXPECT_EQ(span.model, "m-1");
  EXPECT_EQ(Attribute(span, "langchain.run_type"), "llm");
  EXPECT_EQ(Attribute(span, "langchain.serialized"), R"({"lc":1,"type":"constructor","id":["a","B"],"name":"B"})");
  EXPECT_EQ(Attribute(span, "gen_ai.provider.name"), "openai");
  EXPECT_EQ(Attribute(span, "gen_ai.request.model"), "m");
  EXPECT_EQ(Attribute(span, "gen_ai.conversation.id"), "t");
  EXPECT_EQ(Attribute(span, "gen_ai.usage.cache_read.input_tokens"), "2");
  EXPECT_EQ(Attribute(span, "gen_ai.response.finish_reasons"), "stop");
  EXPECT_EQ(Attribute(span, "gen_ai.input.messages.length"), "19");
  EXPECT_EQ(Attribute(span, "gen_ai.input.messages"), "(none)");
  EXPECT_EQ(Attribute(span, "langsmith.metadata.LANGSMITH_X"), "(none)");
  EXPECT_EQ(Attribute(span, "tailspan.ttft_ns"), "750000000");
  EXPECT_EQ(Attribute(span, "tailspan.streamed_tokens"), "2");
  EXPECT_EQ(Attribute(span, "tailspan.retries"), "1");
  EXPECT_EQ(Attribute(span, "tailspan.retry_slept_ns"), "250000000");
  EXPECT_EQ(loss_.NonZero().size(), 0u);
}

TEST_F(LangsmithTest, APatchMayComeBeforeItsPost) {
  EXPECT_TRUE(Send("PATCH", std::string("/runs/") + kRoot,
                   R"({"end_time":1796061667500,"start_time":"2026-11-30T18:01:05Z","name":"renamed"})", 200)
                  .empty());
  auto spans = Send("POST", "/runs", Object(kRoot, std::string(kStart) + R"(,"inputs":{"a":1})"), 201);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].name, "renamed");  // the patch is newer
  EXPECT_EQ(spans[0].type, model::SpanType::kLlm);
  EXPECT_EQ(Attribute(spans[0], "gen_ai.input.messages.length"), "7");
}

TEST_F(LangsmithTest, APostThatNeverComesIsNotWaitedForLongerThanTheLimit) {
  Send("PATCH", std::string("/runs/") + kRoot, Object(kRoot, std::string(kStart) + "," + kEnd), 200);
  std::vector<Span> spans;
  api_.Sweep(now_mono_ns_ + limits_.patch_wait_ns - 1, &spans);
  EXPECT_TRUE(spans.empty());
  api_.Sweep(now_mono_ns_ + limits_.patch_wait_ns, &spans);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_TRUE(spans[0].complete);
}

TEST_F(LangsmithTest, ARunWithoutEndIsGivenOutIncomplete) {
  Send("POST", "/runs", Object(kRoot, kStart), 201);
  std::vector<Span> spans;
  api_.Sweep(now_mono_ns_ + limits_.patch_wait_ns, &spans);
  EXPECT_TRUE(spans.empty());
  api_.Flush(&spans);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_FALSE(spans[0].complete);
  EXPECT_EQ(spans[0].end_unix_ns, 0);  // none is invented
  EXPECT_FALSE(spans[0].time_suspect);
}

TEST_F(LangsmithTest, ARunOfTwoHoursHasItsEnd) {
  Send("POST", "/runs", Object(kRoot, kStart), 201);
  std::vector<Span> spans;
  now_mono_ns_ += 2 * 3600 * kSecondNs;
  api_.TakeOpen(now_mono_ns_, &spans);
  api_.Sweep(now_mono_ns_, &spans);
  spans = Send("PATCH", std::string("/runs/") + kRoot, R"({"end_time":"2026-11-30T20:01:05Z"})", 200);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].end_unix_ns, kT0UnixNs + 2 * 3600 * kSecondNs);
  EXPECT_EQ(loss_.NonZero().size(), 0u);
}

TEST_F(LangsmithTest, AnOpenRunIsGivenOutAndLaterReplacedByTheWhole) {
  Send("POST", "/runs", Object(kRoot, std::string(kStart) + R"(,"inputs":{"a":1})"), 201);
  std::vector<Span> spans;
  api_.TakeOpen(now_mono_ns_ + limits_.open_save_ns - 1, &spans);
  EXPECT_TRUE(spans.empty());
  api_.TakeOpen(now_mono_ns_ + limits_.open_save_ns, &spans);
  ASSERT_EQ(spans.size(), 1u);
  Span open = spans[0];
  EXPECT_FALSE(open.complete);
  EXPECT_EQ(open.end_unix_ns, 0);
  EXPECT_EQ(open.start_unix_ns, kT0UnixNs);
  EXPECT_EQ(open.pid, kSenderPid);
  EXPECT_EQ(Attribute(open, "gen_ai.input.messages.length"), "7");
  spans.clear();
  api_.TakeOpen(now_mono_ns_ + 10 * limits_.open_save_ns, &spans);
  EXPECT_TRUE(spans.empty()) << "nothing new has come";
  spans = Send("PATCH", std::string("/runs/") + kRoot, R"({"end_time":"2026-11-30T18:01:07.5Z"})", 200);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_TRUE(spans[0].complete);
  EXPECT_EQ(spans[0].trace_id, open.trace_id);
  EXPECT_EQ(spans[0].span_id, open.span_id);
  EXPECT_EQ(spans[0].uuid, open.uuid);
  EXPECT_EQ(loss_.NonZero().size(), 0u);
}

TEST_F(LangsmithTest, ARunThatEndsSoonIsGivenOutOnce) {
  Send("POST", "/runs", Object(kRoot, kStart), 201);
  EXPECT_EQ(Send("PATCH", std::string("/runs/") + kRoot, R"({"end_time":1796061667500})", 200).size(), 1u);
  std::vector<Span> spans;
  api_.TakeOpen(now_mono_ns_ + kSecondNs, &spans);
  api_.Flush(&spans);
  EXPECT_TRUE(spans.empty());
}

TEST_F(LangsmithTest, WhatComesOfAnOpenRunIsGivenOutAgain) {
  Send("POST", "/runs", Object(kRoot, kStart), 201);
  std::vector<Span> spans;
  api_.TakeOpen(now_mono_ns_ + limits_.open_save_ns, &spans);
  EXPECT_TRUE(Send("PATCH", std::string("/runs/") + kRoot, R"({"inputs":{"a":1}})", 200).empty());
  spans.clear();
  api_.TakeOpen(now_mono_ns_ + limits_.open_save_ns, &spans);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(Attribute(spans[0], "gen_ai.input.messages.length"), "7");
  spans.clear();
  api_.Flush(&spans);  // it never ends, and all of it is out
  EXPECT_TRUE(spans.empty());
}

TEST_F(LangsmithTest, AnEndThatWaitsForItsPostIsGivenOutToo) {
  Send("PATCH", std::string("/runs/") + kRoot, Object(kRoot, std::string(kStart) + "," + kEnd), 200);
  std::vector<Span> spans;
  api_.TakeOpen(now_mono_ns_ + limits_.open_save_ns, &spans);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_TRUE(spans[0].complete);
}

TEST_F(LangsmithTest, AllVersionsOfARunHaveOneTrace) {
  // A child that does not name its trace, of a parent that comes too late to tell it.
  Send("POST", "/runs", std::string(R"({"id":")") + kChild + R"(","parent_run_id":")" + kRoot + R"(",)" + kStart + "}",
       201);
  std::vector<Span> spans;
  api_.TakeOpen(now_mono_ns_ + limits_.open_save_ns, &spans);
  ASSERT_EQ(spans.size(), 1u);
  auto trace = spans[0].trace_id;
  Send("POST", "/runs",
       std::string(R"({"id":")") + kRoot + R"(","trace_id":"01a22db0-0000-7000-8000-000000000001",)" + kStart + "}",
       201);
  spans = Send("PATCH", std::string("/runs/") + kChild, R"({"end_time":1796061667500})", 200);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].trace_id, trace);
}

TEST_F(LangsmithTest, BatchAndDottedOrder) {
  std::string order = std::string("20261130T180105000000Z") + kRoot + ".20261130T180105123456Z" + kChild;
  std::string child = std::string(R"({"id":")") + kChild + R"(","dotted_order":")" + order +
                      R"(","name":"find","run_type":"retriever"})";
  auto spans = Send("POST", "/runs/batch",
                    R"({"post":[)" + child + R"(],"patch":[{"id":")" + kChild +
                        R"(","end_time":"2026-11-30T18:01:06Z","error":"ValueError('x')Traceback ..."}]})",
                    202, "");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(ToHex(spans[0].trace_id), "01a22db0786f737098d1a5dd2698d506");
  EXPECT_EQ(model::ToHex(spans[0].parent_id), "98d1a5dd2698d506");
  EXPECT_EQ(ToUuidText(spans[0].parent_uuid), kRoot);
  EXPECT_EQ(spans[0].start_unix_ns, kT0UnixNs + 123'456'000);
  EXPECT_EQ(spans[0].type, model::SpanType::kRetriever);
  EXPECT_EQ(spans[0].status, model::SpanStatus::kError);
}

TEST_F(LangsmithTest, CancellationIsNotAnError) {
  auto spans = Send("POST", "/runs",
                    Object(kRoot, std::string(kStart) + "," + kEnd + R"(,"error":"CancelledError()Traceback")"), 201);
  EXPECT_EQ(spans[0].status, model::SpanStatus::kCancelled);
}

TEST_F(LangsmithTest, JavascriptMicrosecondsAreNoTime) {
  auto spans =
      Send("POST", "/runs", Object(kRoot, R"("name":"n","run_type":"chain","start_time":"2026-11-30T18:01:05.123007Z",
                                     "end_time":1796061665123)"),
           201);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].start_unix_ns, kT0UnixNs + 123'000'000);
  EXPECT_EQ(spans[0].end_unix_ns, spans[0].start_unix_ns);
  EXPECT_FALSE(spans[0].time_suspect);
}

TEST_F(LangsmithTest, OnlyTheModelsOwnRunCountsTokens) {
  const char outputs[] =
      R"("outputs":{"output":{"lc":1,"kwargs":{"usage_metadata":{"input_tokens":5,"output_tokens":8}}}})";
  auto chain = Send(
      "POST", "/runs",
      Object(kRoot, std::string(R"("name":"c","run_type":"chain","start_time":1796061665,)") + kEnd + "," + outputs),
      201);
  EXPECT_EQ(chain[0].input_tokens, -1);
  auto model = Send("POST", "/runs", Object(kChild, std::string(kStart) + "," + kEnd + "," + outputs), 201);
  EXPECT_EQ(model[0].input_tokens, 5);
  EXPECT_EQ(model[0].output_tokens, 8);
}

TEST_F(LangsmithTest, TokensWhereOlderModelsPutThem) {
  auto spans = Send("POST", "/runs",
                    Object(kRoot, std::string(kStart) + "," + kEnd +
                                      R"(,"outputs":{"generations":[[{"text":"x"}]],"llm_output":{"model_name":"old",
                                         "token_usage":{"prompt_tokens":3,"completion_tokens":4}}})"),
                    201);
  EXPECT_EQ(spans[0].input_tokens, 3);
  EXPECT_EQ(spans[0].output_tokens, 4);
  EXPECT_EQ(spans[0].model, "old");
}

TEST_F(LangsmithTest, ARepeatedRunIsCountedOnce) {
  std::string run = Object(kRoot, std::string(kStart) + "," + kEnd);
  EXPECT_EQ(Send("POST", "/runs", run, 201).size(), 1u);
  EXPECT_EQ(Send("POST", "/runs", run, 201).size(), 0u);
  EXPECT_EQ(loss_.Get(Loss::kSpanRepeated), 1u);
}

TEST_F(LangsmithTest, DamagedPartsLeaveTheRest) {
  std::string id = kRoot;
  auto spans = SendParts(
      {{"post." + id, Object(kRoot, std::string(kStart) + "," + kEnd)},
       {"post." + id + ".outputs", "{\"cut"},
       {"post.not-a-uuid", "{}"},
       {"post." + std::string(kChild), "[]"},
       {"nonsense", "{}"},
       {"post." + id + ".inputs", "{\"name\":\"caf\xe9\",\"n\":NaN,\"big\":123456789012345678901234567890}"}});
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(Attribute(spans[0], "gen_ai.input.messages.length"), "60");
  EXPECT_EQ(loss_.Get(Loss::kBodyInvalid), 4u);
  EXPECT_EQ(loss_.Get(Loss::kSpanRejected), 1u);
  EXPECT_EQ(loss_.Get(Loss::kTextNotUtf8), 1u);
}

TEST_F(LangsmithTest, ACutMultipartBodyKeepsItsWholeParts) {
  std::string body = std::string("--b\r\nContent-Disposition: form-data; name=\"post.") + kRoot + "\"\r\n\r\n" +
                     Object(kRoot, std::string(kStart) + "," + kEnd) + "\r\n--b\r\nContent-Disp";
  auto spans = Send("POST", "/runs/multipart", body, 400, "multipart/form-data; boundary=b");
  EXPECT_EQ(spans.size(), 1u);
  EXPECT_EQ(loss_.Get(Loss::kBodyInvalid), 1u);
}

TEST_F(LangsmithTest, WrongRequestsAreToldSo) {
  Send("POST", "/runs/multipart", "{}", 415);
  Send("POST", "/runs", "x", 415, "text/plain");
  Send("POST", "/runs", "{", 400);
  Send("POST", "/runs", "[]", 400);
  Send("PATCH", "/runs/17", "{}", 400);
  Send("GET", "/runs/17", "", 404, "");
  Send("POST", "/info", "", 405);
}

TEST_F(LangsmithTest, AnUnknownRunTypeIsKeptAndCounted) {
  auto spans =
      Send("POST", "/runs",
           Object(kRoot, std::string(R"("name":"x","run_type":"oracle","start_time":1796061665,)") + kEnd), 201);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(Attribute(spans[0], "langchain.run_type"), "oracle");
  EXPECT_EQ(loss_.Get(Loss::kRunTypeUnknown), 1u);
}

TEST(RunTableLimit, TheOldestGoesFirst) {
  Limits limits;
  limits.open_runs = 2;
  base::LossCounters loss;
  RunTable table(limits, false, loss);
  std::vector<Span> spans;
  for (uint64_t i = 1; i <= 3; ++i) {
    langsmith::Run run;
    run.id = {i, i};
    run.name = std::to_string(i);
    run.start_unix_ns = kT0UnixNs;
    run.posted = true;
    table.Apply(std::move(run), static_cast<int64_t>(i));
    table.TakeReady(static_cast<int64_t>(i), &spans);
  }
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].name, "1");
  EXPECT_FALSE(spans[0].complete);
  EXPECT_EQ(table.open(), 2u);
}

TEST(RunTableLimit, BytesAreBoundedToo) {
  Limits limits;
  limits.open_run_bytes = 300'000;
  base::LossCounters loss;
  RunTable table(limits, false, loss);
  std::vector<Span> spans;
  for (uint64_t i = 1; i <= 10; ++i) {
    for (int patch = 0; patch < 3; ++patch) {
      langsmith::Run run;
      run.id = {i, i};
      run.start_unix_ns = kT0UnixNs;
      run.posted = true;
      run.serialized = std::string(100'000, 'x');
      table.Apply(std::move(run), 1);
      table.TakeReady(1, &spans);
      EXPECT_LE(table.open_bytes(), limits.open_run_bytes);
    }
  }
  EXPECT_EQ(table.open(), 2u);
  EXPECT_EQ(spans.size(), 8u);
  table.Flush(&spans);
  EXPECT_EQ(table.open_bytes(), 0u);
}

}  // namespace
}  // namespace tailspan::collect::langsmith
