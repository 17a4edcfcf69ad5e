#include "analyze/run_lookup.h"

#include <gtest/gtest.h>

#include "analyze/recording_builder.h"

namespace tailspan::analyze {
namespace {

constexpr uint64_t kOtelTrace = 1;

// A run's UUID is {trace, id} here, a trace's id {0, trace}; LangSmith's trace has the id of its root run.
model::Uuid RunId(uint64_t trace, uint64_t id) { return {trace, id}; }

class RunLookupTest : public testing::Test {
 protected:
  void Otel(uint64_t id, uint64_t parent, const char* name, int64_t start_us, int64_t end_us, uint64_t trace) {
    r_.Span(id, parent, name, start_us, end_us, trace);
    r_.batch.spans.back().source = "otlp";
  }
  void Run(uint64_t id, uint64_t parent, const char* name, int64_t start_us, int64_t end_us, uint64_t root) {
    r_.Span(id, parent, name, start_us, end_us);
    model::Span& run = r_.batch.spans.back();
    run.source = "langsmith";
    run.trace_id = RunId(100, root);
    run.uuid = RunId(100, id);
  }
  RunLookup Find(model::Uuid id) { return FindRun(r_.batch, {}, id); }

  RecordingBuilder r_;
};

TEST_F(RunLookupTest, AnyRunOfATraceOfLangsmithAlone) {
  Run(11, 0, "ask", 0, 50'000, 11);
  Run(12, 11, "retrieve", 1'000, 40'000, 11);
  Run(13, 12, "embed", 2'000, 3'000, 11);
  Run(21, 0, "ask", 60'000, 90'000, 21);
  for (const uint64_t id : {11, 12, 13}) {
    const RunLookup found = Find(RunId(100, id));
    ASSERT_EQ(found.requests.size(), 1u) << id;
    EXPECT_EQ(found.requests[0], (RequestKey{RunId(100, 11), 11}));
    EXPECT_EQ(found.recorded_in, std::vector<model::TraceId>{RunId(100, 11)});
  }
  EXPECT_EQ(Find(RunId(100, 21)).requests.at(0).root_id, 21u);
  EXPECT_TRUE(Find(RunId(100, 14)).requests.empty());
  EXPECT_TRUE(Find(RunId(100, 14)).recorded_in.empty());
}

TEST_F(RunLookupTest, ATraceThatWasMergedIsFoundByAllItsIds) {
  Otel(1, 0, "POST /ask", 0, 60'000, kOtelTrace);
  Otel(2, 1, "ask", 1'000, 59'000, kOtelTrace);
  Otel(3, 2, "retrieve", 10'000, 50'000, kOtelTrace);
  Run(12, 0, "ask", 1'000, 59'000, 12);
  Run(13, 12, "retrieve", 10'000, 50'000, 12);
  Run(14, 12, "traceable", 52'000, 56'000, 12);  // LangSmith alone
  Otel(7, 0, "POST /ask", 100'000, 160'000, 2);
  for (const uint64_t id : {12, 13, 14}) {
    const RunLookup found = Find(RunId(100, id));
    ASSERT_EQ(found.requests.size(), 1u) << id;
    EXPECT_EQ(found.requests[0], (RequestKey{{0, kOtelTrace}, 1}));
    EXPECT_EQ(found.recorded_in, std::vector<model::TraceId>{RunId(100, 12)});
  }
}

TEST_F(RunLookupTest, NoIdIsNobodys) {
  Otel(1, 0, "ask", 0, 60'000, kOtelTrace);
  EXPECT_TRUE(Find({}).recorded_in.empty());
}

TEST_F(RunLookupTest, ATraceWhoseRootRunIsElsewhereIsFoundByItsId) {
  // A caller in another process traces the root; what came names it as its trace alone.
  Run(12, 0, "part", 1'000, 59'000, 12);
  r_.batch.spans.back().trace_id = RunId(100, 99);
  EXPECT_EQ(Find(RunId(100, 99)).requests.at(0).root_id, 12u);
}

TEST_F(RunLookupTest, ARunWithoutARequestIsStillRecorded) {
  Run(11, 0, "ask", 0, 0, 11);
  r_.batch.spans.back().complete = false;
  Run(12, 11, "retrieve", 1'000, 40'000, 11);
  const RunLookup found = Find(RunId(100, 12));
  EXPECT_TRUE(found.requests.empty());
  EXPECT_EQ(found.recorded_in, std::vector<model::TraceId>{RunId(100, 11)});
}

TEST_F(RunLookupTest, HalfAnIdMayMeanSeveralRequests) {
  // LangSmith's OTel mode: the span's id is the first half of the run's, which runs of one moment share.
  for (const uint64_t trace : {1, 2, 3}) {
    Otel(trace < 3 ? 100 : 101, 0, "ask", 0, 50'000, trace);
    r_.batch.spans.back().source = "langsmith-otel";
  }
  Otel(100, 0, "other", 0, 50'000, 4);  // no run
  const RunLookup found = Find(RunId(100, 12));
  ASSERT_EQ(found.requests.size(), 2u);
  EXPECT_EQ(found.requests[0], (RequestKey{{0, 1}, 100}));
  EXPECT_EQ(found.requests[1], (RequestKey{{0, 2}, 100}));
}

}  // namespace
}  // namespace tailspan::analyze
