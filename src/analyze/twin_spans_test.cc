#include "analyze/twin_spans.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "analyze/analyze.h"
#include "analyze/recording_builder.h"

namespace tailspan::analyze {
namespace {

using base::Loss;

constexpr uint64_t kOtelTrace = 1;
constexpr uint64_t kRunTrace = 100;

class TwinSpansTest : public testing::Test {
 protected:
  // As an instrumentation of LangChain sends it.
  void Otel(uint64_t id, uint64_t parent, const char* name, int64_t start_us, int64_t end_us,
            uint64_t trace = kOtelTrace) {
    r_.Span(id, parent, name, start_us, end_us, trace);
    r_.batch.spans.back().source = "otlp";
    r_.batch.spans.back().pid = RecordingBuilder::kPid;
  }
  // As LangSmith sends it: its handler runs a little later at both ends.
  void Run(uint64_t id, uint64_t parent, const char* name, int64_t start_us, int64_t end_us,
           uint64_t trace = kRunTrace) {
    r_.Span(id, parent, name, start_us + 150, end_us + 250, trace);
    r_.batch.spans.back().source = "langsmith";
    r_.batch.spans.back().uuid = {trace, id};
    r_.batch.spans.back().pid = RecordingBuilder::kPid;
    r_.batch.spans.back().attributes = {{"langsmith.span.tags", "x"}};
  }
  // At the same time: their times do not tell which run is whose.
  void TwoEqualRequests() {
    Otel(1, 0, "ask", 0, 50'000, 1);
    Otel(2, 0, "ask", 100, 50'100, 2);
    Run(11, 0, "ask", 0, 50'000, 101);
    Run(12, 0, "ask", 100, 50'100, 102);
    Run(13, 12, "inner", 1'000, 2'000, 102);
  }
  void TwoTracersOfOneRequest() {
    Otel(1, 0, "ask", 0, 600'000);
    Run(11, 0, "ask", 0, 600'000);
  }
  void AllAre(model::SpanType type) {
    for (model::Span& span : r_.batch.spans) span.type = type;
  }
  std::vector<model::TraceLedger> Ledgers() { return BuildLedgers(r_.batch, {}, &loss_); }
  MergedSpans Merge() { return MergeTwins(r_.batch, &loss_); }
  const model::Span* Find(const MergedSpans& merged, uint64_t id) {
    for (const model::Span& span : merged.spans) {
      if (span.span_id == id) return &span;
    }
    return nullptr;
  }

  RecordingBuilder r_;
  base::LossCounters loss_;
};

TEST_F(TwinSpansTest, OneTracerIsLeftAlone) {
  Otel(1, 0, "ask", 0, 50'000);
  Otel(2, 1, "ask", 100, 49'000);
  EXPECT_FALSE(Merge().changed);
  EXPECT_EQ(loss_.NonZero().size(), 0u);
}

TEST_F(TwinSpansTest, ARequestOfBothTracersIsOne) {
  Otel(1, 0, "POST /ask", 0, 60'000);  // the server's span: LangSmith has none
  Otel(2, 1, "ask", 1'000, 59'000);
  Otel(3, 2, "ChatModel", 10'000, 50'000);
  Run(12, 0, "ask", 1'000, 59'000);
  Run(13, 12, "ChatModel", 10'000, 50'000);
  Run(14, 12, "traceable", 52'000, 56'000);  // LangSmith alone
  r_.batch.spans[4].input_tokens = 7;
  auto merged = Merge();
  ASSERT_EQ(merged.spans.size(), 4u);
  EXPECT_EQ(merged.stands_for.at(12), 2u);
  EXPECT_EQ(merged.stands_for.at(13), 3u);
  EXPECT_EQ(Find(merged, 3)->input_tokens, 7);
  EXPECT_EQ(Find(merged, 3)->attributes.size(), 1u);
  EXPECT_EQ(Find(merged, 14)->parent_id, 2u);
  EXPECT_EQ(Find(merged, 14)->trace_id, Find(merged, 1)->trace_id);
  EXPECT_EQ(loss_.Get(Loss::kSpanTwin), 2u);
  auto ledgers = Ledgers();
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(ledgers[0].operation, "POST /ask");
}

TEST_F(TwinSpansTest, WhatThreadsPublishedOfARunCountsForTheSpanThatStays) {
  Otel(1, 0, "ask", 0, 50'000);
  Otel(2, 1, "lookup", 10'000, 40'000);
  Run(11, 0, "ask", 0, 50'000);
  Run(12, 11, "lookup", 10'000, 40'000);
  r_.Change(200, 11, 0, 0).Change(10'200, 12, 11, 0).Change(40'100, 11, 12, 0).Change(50'200, 0, 11, 0);
  r_.Cpu(RecordingBuilder::kPid, 0, 51'000);
  auto ledgers = Ledgers();
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(model::CheckLaw(ledgers[0]), "");
  EXPECT_TRUE(Contradictions(loss_).empty());
  int64_t lookup_on_cpu_ns = 0;
  for (const auto& piece : ledgers[0].pieces) {
    if (piece.span_id == 2 && piece.cause == model::Cause::kOnCpu) lookup_on_cpu_ns += piece.end_ns - piece.start_ns;
  }
  EXPECT_EQ(lookup_on_cpu_ns, 29'900'000);
}

TEST_F(TwinSpansTest, FiftyRequestsAtOnceAreToldApart) {
  for (uint64_t i = 0; i < 50; ++i) {
    auto start_us = static_cast<int64_t>(i * 3'000),
         end_us = start_us + 200'000 + static_cast<int64_t>(i * 7'919 % 50'000);
    Otel(1 + i, 0, "ask", start_us, end_us, 1 + i);
    Run(1001 + i, 0, "ask", start_us, end_us, 1001 + i);
  }
  auto merged = Merge();
  EXPECT_EQ(merged.spans.size(), 50u);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(merged.stands_for.at(1001 + i), 1 + i);
  EXPECT_EQ(loss_.Get(Loss::kTraceTwinAmbiguous), 0u);
}

TEST_F(TwinSpansTest, ALoopsRoundsAndNestedNamesPairInOrder) {
  Otel(1, 0, "agent", 0, 100'000);
  Run(11, 0, "agent", 0, 100'000);
  for (uint64_t i = 0; i < 4; ++i) {
    auto start_us = static_cast<int64_t>(1'000 + i * 20'000);
    Otel(2 + 2 * i, 1, "step", start_us, start_us + 15'000);
    Otel(3 + 2 * i, 2 + 2 * i, "step", start_us + 100, start_us + 14'900);  // a step in a step, nearly as long
    Run(12 + 2 * i, 11, "step", start_us, start_us + 15'000);
    Run(13 + 2 * i, 12 + 2 * i, "step", start_us + 100, start_us + 14'900);
  }
  auto merged = Merge();
  for (uint64_t i = 1; i <= 9; ++i) EXPECT_EQ(merged.stands_for.at(10 + i), i);
}

TEST_F(TwinSpansTest, RequestsThatCannotBeToldApartAreCountedOnce) {
  TwoEqualRequests();
  EXPECT_EQ(Ledgers().size(), 2u);
  EXPECT_EQ(loss_.Get(Loss::kSpanTwin), 0u);
  EXPECT_EQ(loss_.Get(Loss::kTraceTwinAmbiguous), 2u);
}

TEST_F(TwinSpansTest, WhatAThreadPublishedOfBothIsExact) {
  // The times tell nothing, or the wrong thing: one tracer's handler ran late, in another thread.
  TwoEqualRequests();
  for (auto [span, run] : {std::pair<uint64_t, uint64_t>{1, 12}, {2, 11}, {1, 12}}) {
    r_.Cpu(RecordingBuilder::kPid, 0, 1'000);
    model::ThreadInterval& interval = r_.batch.intervals.back();
    interval.trace_id = {0, span};
    interval.span_id = span;
    interval.uuid = {90 + run, run};
  }
  auto merged = Merge();
  EXPECT_EQ(merged.stands_for.at(11), 2u);
  EXPECT_EQ(merged.stands_for.at(12), 1u);
  EXPECT_EQ(Find(merged, 13)->parent_id, 1u);
  EXPECT_EQ(loss_.Get(Loss::kSpanTwin), 2u);
  EXPECT_EQ(loss_.Get(Loss::kTraceTwinAmbiguous), 0u);
}

TEST_F(TwinSpansTest, WithinARequestEqualStepsAtOnceArePaired) {
  Otel(1, 0, "ask", 0, 50'000);
  Run(11, 0, "ask", 0, 50'000);
  for (uint64_t i = 0; i < 5; ++i) {  // gather
    auto start_us = static_cast<int64_t>(1'000 + i * 100);
    Otel(2 + i, 1, "step", start_us, start_us + 20'000);
    Run(12 + i, 11, "step", start_us, start_us + 20'000);
  }
  EXPECT_EQ(Merge().spans.size(), 6u);
}

TEST_F(TwinSpansTest, LateSpansAreFoundByTheirPlace) {
  TwoTracersOfOneRequest();
  Otel(2, 1, "lookup", 35'000, 130'000);  // its handlers ran 25 and 30 ms late
  Run(12, 11, "lookup", 10'000, 100'000);
  Otel(3, 2, "embed", 65'000, 155'000);  // and so below it
  Run(13, 12, "embed", 40'000, 130'000);
  for (int64_t i = 0; i < 3; ++i) {  // one after the other
    Otel(4 + static_cast<uint64_t>(i), 1, "step", 225'000 + i * 100'000, 315'000 + i * 100'000);
    Run(14 + static_cast<uint64_t>(i), 11, "step", 200'000 + i * 100'000, 290'000 + i * 100'000);
  }
  AllAre(model::SpanType::kTool);
  auto merged = Merge();
  EXPECT_EQ(merged.spans.size(), 6u);
  for (uint64_t i = 1; i <= 6; ++i) EXPECT_EQ(merged.stands_for[10 + i], i);
}

TEST_F(TwinSpansTest, CallsAtOnceAreNoTwinsByTheirPlace) {
  // A map over one tool: one tracer's handlers ran late, and in another order.
  TwoTracersOfOneRequest();
  Run(12, 11, "lookup", 10'000, 100'000);
  Run(13, 11, "lookup", 11'000, 101'000);
  Otel(2, 1, "lookup", 35'000, 126'000);  // of 13
  Otel(3, 1, "lookup", 37'000, 128'000);  // of 12
  AllAre(model::SpanType::kTool);
  EXPECT_EQ(Merge().stands_for.size(), 1u) << "the root alone";
}

TEST_F(TwinSpansTest, OnePlaceIsNotEnough) {
  TwoTracersOfOneRequest();
  Run(12, 11, "lost", 10'000, 100'000);  // one tracer lost the second call, the other one the first
  Otel(2, 1, "lost", 101'000, 190'000);
  Run(13, 11, "two", 200'000, 300'000);  // one tracer lost one of two
  Run(14, 11, "two", 305'000, 330'000);
  Otel(3, 1, "two", 225'000, 325'000);
  Run(15, 11, "at once", 340'000, 420'000);  // as many, but one tracer saw them at once
  Run(16, 11, "at once", 425'000, 505'000);
  Otel(4, 1, "at once", 362'000, 442'000);
  Otel(5, 1, "at once", 440'000, 530'000);
  Run(17, 11, "open", 510'000, 560'000);
  Otel(6, 1, "open", 535'000, 0);
  r_.batch.spans.back().complete = false;
  AllAre(model::SpanType::kTool);
  EXPECT_EQ(Merge().stands_for.size(), 1u) << "the root alone";
}

TEST_F(TwinSpansTest, APlaceIsOfOneDefiniteKindAndProcess) {
  TwoTracersOfOneRequest();
  Run(12, 11, "search", 10'000, 100'000);
  Otel(2, 1, "search", 35'000, 130'000);  // a span of the app's own
  Run(13, 11, "lookup", 110'000, 200'000);
  Otel(3, 1, "lookup", 135'000, 230'000);
  Run(14, 11, "remote", 210'000, 300'000);
  Otel(4, 1, "remote", 235'000, 330'000);
  AllAre(model::SpanType::kTool);
  for (model::Span& span : r_.batch.spans) {
    if (span.span_id == 2) span.type = model::SpanType::kOther;
    if (span.span_id == 3) span.type = model::SpanType::kChain;
    if (span.span_id == 4) span.pid = 7;
  }
  EXPECT_EQ(Merge().stands_for.size(), 1u) << "the root alone";
}

TEST_F(TwinSpansTest, StepsOfManyRequestsAreFoundByTheirRequest) {
  // The steps alone could be anyone's: 16 requests whose steps begin and end together.
  for (uint64_t i = 0; i < 16; ++i) {
    auto at = static_cast<int64_t>(i) * 4'000;
    Otel(1 + 2 * i, 0, "ask", at, 200'000 + at, 1 + i);
    Otel(2 + 2 * i, 1 + 2 * i, "step", 100'000 + static_cast<int64_t>(i) * 50, 120'000, 1 + i);
    Run(101 + 2 * i, 0, "ask", at, 200'000 + at, 101 + i);
    Run(102 + 2 * i, 101 + 2 * i, "step", 100'000 + static_cast<int64_t>(i) * 50, 120'000, 101 + i);
  }
  auto merged = Merge();
  ASSERT_EQ(merged.spans.size(), 32u);
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(merged.stands_for.at(102 + 2 * i), 2 + 2 * i);
}

TEST_F(TwinSpansTest, ATraceIsKnownByAllItsSpans) {
  // Two requests at once, whose tracers' handlers are 10 ms apart at the start: only their steps tell.
  for (uint64_t i = 0; i < 2; ++i) {
    auto step_us = 20'000 + static_cast<int64_t>(i) * 40'000;
    auto at = static_cast<int64_t>(i) * 500;
    Otel(1 + 10 * i, 0, "ask", 10'000 + at, 200'000 + at, 1 + i);
    Run(101 + 10 * i, 0, "ask", at, 200'000 + at, 101 + i);
    for (uint64_t k = 0; k < 3; ++k) {
      auto from = step_us + static_cast<int64_t>(k) * 10'000;
      Otel(2 + 10 * i + k, 1 + 10 * i, "step", from, from + 8'000, 1 + i);
      Run(102 + 10 * i + k, 101 + 10 * i, "step", from, from + 8'000, 101 + i);
    }
  }
  auto merged = Merge();
  ASSERT_EQ(merged.spans.size(), 8u);
  EXPECT_EQ(merged.stands_for.at(101), 1u);
  EXPECT_EQ(merged.stands_for.at(111), 11u);
}

TEST_F(TwinSpansTest, ARootThatCannotBePairedIsNoSecondRoot) {
  Otel(1, 0, "ask", 100'000, 300'000);  // its handler came 100 ms late
  Otel(2, 1, "step", 150'000, 200'000);
  Run(11, 0, "ask", 0, 300'000);
  Run(12, 11, "step", 150'000, 200'000);
  auto ledgers = Ledgers();
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(ledgers[0].root_id, 1u);
}

TEST_F(TwinSpansTest, ModelsAreKnownByTheirKind) {
  Otel(1, 0, "ask.workflow", 0, 50'000);
  Otel(2, 1, "chat gpt-x", 10'000, 40'000);
  Otel(3, 1, "execute_task step", 41'000, 42'000);
  Run(11, 0, "ask", 0, 50'000);
  Run(12, 11, "ChatModel", 10'000, 40'000);
  Run(13, 11, "step", 41'000, 42'000);
  r_.batch.spans[1].type = r_.batch.spans[4].type = model::SpanType::kLlm;
  EXPECT_EQ(Merge().stands_for.size(), 3u);
}

TEST_F(TwinSpansTest, OpenLlmetrysNamesAreKnown) {
  Otel(1, 0, "ask.workflow", 0, 50'000);
  Otel(2, 1, "lookup.tool", 10'000, 40'000);
  Run(11, 0, "ask", 0, 50'000);
  Run(12, 11, "lookup", 10'000, 40'000);
  EXPECT_EQ(Merge().stands_for.size(), 2u);
}

TEST_F(TwinSpansTest, OtherProcessesKindsAndTimesAreNoTwins) {
  Otel(1, 0, "ask", 0, 50'000, 1);
  Run(11, 0, "ask", 0, 50'000, 101);
  r_.batch.spans.back().pid = 7;
  Otel(2, 0, "embed", 0, 50'000, 2);
  Run(12, 0, "embed", 0, 50'000, 102);
  r_.batch.spans[2].type = model::SpanType::kLlm;
  r_.batch.spans[3].type = model::SpanType::kEmbedding;
  Otel(3, 0, "late", 0, 50'000, 3);
  Run(13, 0, "late", 60'000, 110'000, 103);
  EXPECT_EQ(Ledgers().size(), 6u);
  EXPECT_EQ(loss_.Get(Loss::kSpanTwin), 0u);
  EXPECT_EQ(loss_.Get(Loss::kTraceTwinAmbiguous), 0u);
}

TEST_F(TwinSpansTest, ALevelThatOnlyLangsmithKnowsStandsInBetween) {
  Otel(1, 0, "POST /ask", 0, 60'000);
  Otel(2, 1, "chain", 5'000, 50'000);
  Run(11, 0, "traceable", 1'000, 55'000);
  Run(12, 11, "chain", 5'000, 50'000);
  auto merged = Merge();
  ASSERT_EQ(merged.spans.size(), 3u);
  EXPECT_EQ(Find(merged, 11)->parent_id, 1u);
  EXPECT_EQ(Find(merged, 2)->parent_id, 11u);
  EXPECT_EQ(Ledgers().size(), 1u);
}

TEST_F(TwinSpansTest, ARootIsHungUnderTheSpanItWasEnteredFrom) {
  // No instrumentation of LangChain: the server's span by OTLP, the rest by LangSmith.
  Otel(1, 0, "POST /ask", 0, 60'000, 1);
  Otel(2, 0, "POST /ask", 0, 60'000, 2);
  Run(11, 0, "chain", 5'000, 50'000, 101);
  Run(12, 11, "model", 6'000, 40'000, 101);
  r_.Change(100, 2, 0, 0).Change(5'100, 11, 2, 0);
  auto ledgers = Ledgers();
  ASSERT_EQ(ledgers.size(), 2u);
  for (const auto& ledger : ledgers) EXPECT_EQ(ledger.operation, "POST /ask");
  EXPECT_EQ(ledgers[1].paths.size(), 3u);
  EXPECT_EQ(loss_.Get(Loss::kSpanParentMissing), 1u);
}

TEST_F(TwinSpansTest, RootsEnteredFromOneAnotherCostEachSpanOnce) {
  // Innermost first: moved span by span, each root would take all those below it along again.
  constexpr uint64_t kRoots = 100'000;
  for (uint64_t i = 1; i <= kRoots; ++i) {
    const std::string name = "root " + std::to_string(i);
    const auto at_us = static_cast<int64_t>(200 * i);
    i % 2 ? Otel(i, 0, name.c_str(), at_us, 100'000'000, i) : Run(i, 0, name.c_str(), at_us, 100'000'000, i);
  }
  for (uint64_t i = kRoots; i > 1; --i) r_.Change(static_cast<int64_t>(200 * i), i, i - 1, 0);
  auto began = std::chrono::steady_clock::now();
  auto merged = Merge();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  ASSERT_EQ(merged.spans.size(), kRoots);
  for (const model::Span& span : merged.spans) {
    ASSERT_EQ(span.trace_id.lo, 1u);
    ASSERT_EQ(span.parent_id, span.span_id - 1);
  }
  EXPECT_EQ(loss_.Get(Loss::kSpanParentMissing), kRoots - 1);
}

TEST_F(TwinSpansTest, RootRunsWhoseIdsBeginAlikeCostNoSearch) {
  // Half a minute with a search among the alike ones for each, a moment without.
  Otel(1, 0, "ask", 0, 50'000);
  auto began = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < 100'000; ++i) {
    Run(1'000 + i, 0, "ask", 0, 50'000);
    r_.batch.spans.back().complete = false;
    r_.batch.spans.back().trace_id = {kRunTrace, 1'000 + i};
  }
  EXPECT_EQ(Merge().spans.size(), 100'001u);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(TwinSpansTest, TheOrderOfArrivalDoesNotMatter) {
  Otel(1, 0, "ask", 0, 50'000);
  Otel(2, 1, "lookup", 10'000, 40'000);
  Run(11, 0, "ask", 0, 50'000);
  Run(12, 11, "lookup", 10'000, 40'000);
  std::reverse(r_.batch.spans.begin(), r_.batch.spans.end());
  EXPECT_EQ(Merge().stands_for.size(), 2u);
}

TEST(UnfinishedSpans, AreCountedAndGivenNoEnd) {
  RecordingBuilder r;
  r.Span(1, 0, "ask", 0, 100, 1).Span(2, 1, "open", 10, 0, 1).Span(3, 0, "ask", 5, 0, 2).Span(4, 3, "done", 6, 9, 2);
  r.batch.spans[1].complete = r.batch.spans[2].complete = false;
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(ledgers[0].duration_ns, 100'000);
  EXPECT_EQ(loss.Get(Loss::kSpanIncomplete), 2u);
  EXPECT_EQ(loss.Get(Loss::kTraceUnfinished), 1u);
}

}  // namespace
}  // namespace tailspan::analyze
