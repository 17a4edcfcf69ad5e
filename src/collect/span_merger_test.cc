#include "collect/span_merger.h"

#include <gtest/gtest.h>

#include <chrono>

namespace tailspan::collect {
namespace {

using base::Loss;
using model::Span;
using model::Uuid;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kT0UnixNs = 1'796'061'665'000'000'000;
constexpr Uuid kTrace{1, 2};

Span LangsmithRun(Uuid id, const std::string& name, int64_t start_ms, int64_t end_ms) {
  Span span;
  span.trace_id = kTrace;
  span.uuid = id;
  span.span_id = model::SpanIdOfRun(id);
  span.name = name;
  span.source = "langsmith";
  span.start_unix_ns = kT0UnixNs + start_ms * kMs;
  span.end_unix_ns = kT0UnixNs + end_ms * kMs;
  return span;
}

Span Twin(const Span& run, model::SpanId id) {
  Span span = run;
  span.source = "langsmith-otel";
  span.span_id = id;
  span.uuid = {};
  span.start_unix_ns += 256;  // a double of seconds is no finer
  span.attributes = {{"extra", "1"}};
  span.pid = 42;
  return span;
}

class SpanMergerTest : public testing::Test {
 protected:
  void Runs(std::vector<Span> runs) { merger_.AddRuns(std::move(runs), now_mono_ns_, &ready_); }
  void Spans(std::vector<Span> spans) { merger_.AddSpans(std::move(spans), now_mono_ns_, &ready_); }
  std::vector<Span> Take() { return std::exchange(ready_, {}); }
  void Pass(int64_t ns) {
    now_mono_ns_ += ns;
    merger_.TakeReady(now_mono_ns_, &ready_);
  }

  Limits limits_;
  base::LossCounters loss_;
  SpanMerger merger_{limits_, loss_};
  std::vector<Span> ready_;
  int64_t now_mono_ns_ = 1;
};

TEST_F(SpanMergerTest, WithoutLangsmithNothingWaits) {
  Spans({Twin(LangsmithRun({7, 8}, "a", 0, 5), 99)});
  EXPECT_EQ(Take().size(), 1u);
}

TEST_F(SpanMergerTest, ALaterTwinEnlargesItsRun) {
  merger_.SeenLangsmith();
  Span run = LangsmithRun({7, 8}, "a", 0, 5);
  Runs({run});
  EXPECT_EQ(Take().size(), 1u);
  Spans({Twin(run, 99)});
  auto again = Take();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].uuid, run.uuid);
  EXPECT_EQ(again[0].span_id, run.span_id);
  EXPECT_EQ(again[0].pid, 42);
  EXPECT_EQ(again[0].attributes.size(), 1u);
  EXPECT_EQ(loss_.Get(Loss::kSpanRepeated), 1u);
  Pass(limits_.twin_wait_ns);
  EXPECT_TRUE(Take().empty());
}

TEST_F(SpanMergerTest, AnEarlierTwinWaitsForItsRun) {
  merger_.SeenLangsmith();
  Span run = LangsmithRun({7, 8}, "a", 0, 5);
  Spans({Twin(run, 99)});
  EXPECT_TRUE(Take().empty());
  Runs({run});
  EXPECT_EQ(Take().size(), 1u);
  Pass(limits_.twin_wait_ns);
  EXPECT_EQ(Take().size(), 1u);  // the run once more, enlarged
  EXPECT_EQ(loss_.Get(Loss::kSpanRepeated), 1u);
}

TEST_F(SpanMergerTest, TheUuidAttributeDecides) {
  merger_.SeenLangsmith();
  Span run = LangsmithRun({7, 8}, "a", 0, 5);
  Runs({run});
  Take();
  Span twin = Twin(run, 99);
  twin.uuid = run.uuid;
  twin.name = "another name";
  twin.start_unix_ns += 50 * kMs;
  Spans({twin});
  EXPECT_EQ(loss_.Get(Loss::kSpanRepeated), 1u);
  Span stranger = Twin(run, 100);
  stranger.uuid = {7, 9};  // the same first half, another run
  Spans({stranger});
  EXPECT_EQ(loss_.Get(Loss::kSpanRepeated), 1u);
}

TEST_F(SpanMergerTest, EqualRunsArePairedOneToOneAndNothingIsMerged) {
  merger_.SeenLangsmith();
  Span a = LangsmithRun({7, 8}, "a", 0, 5);
  Span b = LangsmithRun({7, 9}, "a", 0, 5);
  Runs({a, b});
  Take();
  Spans({Twin(a, 99), Twin(b, 98), Twin(b, 97)});
  EXPECT_EQ(loss_.Get(Loss::kSpanRepeated), 2u);
  EXPECT_EQ(loss_.Get(Loss::kSpanIdCollision), 1u);
  auto again = Take();
  ASSERT_EQ(again.size(), 1u);  // the second had one candidate left
  Pass(limits_.twin_wait_ns);
  EXPECT_EQ(Take().size(), 1u);  // the third is no twin of anything
}

TEST_F(SpanMergerTest, ChildrenHangUnderTheRunAndNotItsTwin) {
  merger_.SeenLangsmith();
  Span run = LangsmithRun({7, 8}, "a", 0, 50);
  Runs({run});
  Span child = LangsmithRun({}, "GET", 10, 20);
  child.source = "otlp";
  child.span_id = 55;
  child.parent_id = 99;
  Span twin_child = child;
  twin_child.parent_id = 7;  // the first half of the run's UUID
  Spans({child, twin_child, Twin(run, 99)});
  Take();
  Pass(limits_.twin_wait_ns);
  auto spans = Take();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].parent_id, run.span_id);
  EXPECT_EQ(spans[1].parent_id, run.span_id);
}

TEST_F(SpanMergerTest, OfRunsThatShareAFirstHalfTheInnermostIsTheParent) {
  merger_.SeenLangsmith();
  Span outer = LangsmithRun({7, 8}, "outer", 0, 50);
  Span inner = LangsmithRun({7, 9}, "inner", 0, 30);
  Span other = LangsmithRun({7, 10}, "other", 30, 50);
  Runs({outer, inner, other});
  Span child = LangsmithRun({}, "GET", 10, 20);
  child.source = "otlp";
  child.span_id = 55;
  child.parent_id = 7;
  Spans({child});
  Take();
  Pass(limits_.twin_wait_ns);
  auto spans = Take();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].parent_id, inner.span_id);
  EXPECT_EQ(loss_.Get(Loss::kSpanIdCollision), 1u);
}

TEST_F(SpanMergerTest, ATwinsGiftOutlivesTheOpenRun) {
  merger_.SeenLangsmith();
  Span run = LangsmithRun({7, 8}, "a", 0, 5);
  Span open = run;
  open.complete = false;
  open.end_unix_ns = 0;
  Runs({open});
  Take();
  Spans({Twin(run, 99)});
  auto enlarged = Take();
  ASSERT_EQ(enlarged.size(), 1u);
  EXPECT_FALSE(enlarged[0].complete);
  Runs({run});  // its patch comes last
  auto last = Take();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_TRUE(last[0].complete);
  EXPECT_EQ(last[0].end_unix_ns, run.end_unix_ns);
  EXPECT_EQ(last[0].pid, 42);
  EXPECT_EQ(last[0].attributes.size(), 1u);
}

TEST_F(SpanMergerTest, ATwinInAnotherTraceIsHandedOn) {
  merger_.SeenLangsmith();
  Span run = LangsmithRun({7, 8}, "a", 0, 5);
  Runs({run});
  Take();
  Span twin = Twin(run, 99);
  twin.trace_id = {3, 4};
  Spans({twin});
  Pass(limits_.twin_wait_ns);
  auto spans = Take();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].span_id, 99u);
}

TEST_F(SpanMergerTest, AnyNumberOfRunsMayHaveOneNameAndStart) {
  // Seconds with a search among the equal ones for each, a moment without.
  merger_.SeenLangsmith();
  auto began = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < 100'000; ++i) {
    Span run = LangsmithRun({7, 8 + i}, "a", 0, 5);
    Runs({run});
    if (i % 4 == 0) Spans({Twin(run, 1 + i)});
    Take();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(SpanMergerTest, MemoryIsBounded) {
  limits_.remembered_runs = 3;
  limits_.held_spans = 2;
  SpanMerger merger(limits_, loss_);
  merger.SeenLangsmith();
  std::vector<Span> ready;
  for (uint64_t i = 0; i < 10; ++i) merger.AddRuns({LangsmithRun({7, 8 + i}, "a", 0, 5)}, 1, &ready);
  ready.clear();
  std::vector<Span> spans;
  for (uint64_t i = 0; i < 10; ++i) {
    Span span = LangsmithRun({}, "b", 0, 1);
    span.source = "otlp";
    span.span_id = i + 1;
    spans.push_back(span);
  }
  merger.AddSpans(std::move(spans), 1, &ready);
  EXPECT_EQ(ready.size(), 8u);
  merger.Flush(&ready);
  EXPECT_EQ(ready.size(), 10u);
}

}  // namespace
}  // namespace tailspan::collect
