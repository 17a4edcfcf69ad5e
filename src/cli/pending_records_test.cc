#include "cli/pending_records.h"

#include <gtest/gtest.h>

namespace tailspan::cli {
namespace {

constexpr size_t kBytesMax = 100 * sizeof(model::ThreadInterval);

model::RecordBatch Intervals(size_t count) {
  model::RecordBatch batch;
  batch.intervals.resize(count);
  return batch;
}

model::RecordBatch Processes(size_t count) {
  model::RecordBatch batch;
  batch.process_events.resize(count);
  return batch;
}

model::RecordBatch Step(int32_t tid, int64_t start_mono_ns, int64_t end_mono_ns) {
  model::RecordBatch batch;
  model::LoopStep step;
  step.pid = 7;
  step.tid = tid;
  step.start_mono_ns = start_mono_ns;
  step.end_mono_ns = end_mono_ns;
  batch.steps.push_back(step);
  return batch;
}

class PendingRecordsTest : public testing::Test {
 protected:
  base::LossCounters loss_;
  PendingRecords pending_{kBytesMax, &loss_};
};

TEST_F(PendingRecordsTest, WhatFitsIsHandedOnInOrder) {
  model::RecordBatch first = Step(1, 10, 20), second = Step(1, 20, 30);
  first.spans.resize(1);
  second.clock_pairs.resize(2);
  pending_.Add(std::move(first));
  pending_.Add(std::move(second));
  model::RecordBatch all = pending_.Take();
  ASSERT_EQ(all.steps.size(), 2u);
  EXPECT_EQ(all.steps[0].end_mono_ns, 20);
  EXPECT_EQ(all.steps[1].end_mono_ns, 30);
  EXPECT_EQ(all.spans.size(), 1u);
  EXPECT_EQ(all.clock_pairs.size(), 2u);
  EXPECT_TRUE(all.loop_holes.empty());
  EXPECT_TRUE(pending_.Take().steps.empty());
  EXPECT_TRUE(loss_.NonZero().empty());
}

TEST_F(PendingRecordsTest, TheNewestIsLeftOutAndCounted) {
  for (int i = 0; i < 1000; ++i) pending_.Add(Intervals(10));
  EXPECT_LE(pending_.bytes(), kBytesMax);
  EXPECT_EQ(pending_.Take().intervals.size(), 100u);
  EXPECT_EQ(loss_.Get(base::Loss::kRecordsShed), 9900u);
  EXPECT_EQ(loss_.Get(base::Loss::kShedUnderLoad), 0u);
}

TEST_F(PendingRecordsTest, SpansCountAlongAndAreCountedApart) {
  pending_.Add(Intervals(100));
  model::RecordBatch batch;
  batch.spans.resize(3);
  pending_.Add(std::move(batch));
  EXPECT_EQ(loss_.Get(base::Loss::kShedUnderLoad), 3u);
  EXPECT_EQ(loss_.Get(base::Loss::kRecordsShed), 0u);
  EXPECT_TRUE(pending_.Take().spans.empty());
}

TEST_F(PendingRecordsTest, WhatIsBeingWrittenCountsUntilItIs) {
  pending_.Add(Intervals(100));
  model::RecordBatch writing = pending_.Take();
  pending_.Add(Intervals(5));
  EXPECT_TRUE(pending_.Take().intervals.empty());
  pending_.Written();
  pending_.Add(Intervals(5));
  EXPECT_EQ(pending_.Take().intervals.size(), 5u);
  EXPECT_EQ(loss_.Get(base::Loss::kRecordsShed), 5u);
}

TEST_F(PendingRecordsTest, FactsHaveAnEighthMore) {
  pending_.Add(Intervals(100));
  for (int i = 0; i < 10'000; ++i) pending_.Add(Processes(1));
  const size_t there = pending_.Take().process_events.size();
  EXPECT_GE(there * sizeof(model::ProcessEvent), kBytesMax / 8);
  EXPECT_LT((there - 1) * sizeof(model::ProcessEvent), kBytesMax / 8);
  EXPECT_EQ(loss_.Get(base::Loss::kRecordsShed), 10'000 - there);
}

TEST_F(PendingRecordsTest, LostLoopRecordsAreAHoleOfTheirThread) {
  pending_.Add(Intervals(100));
  pending_.Add(Step(1, 100, 150));
  pending_.Add(Step(2, 120, 130));
  model::RecordBatch batch = Step(1, 160, 200);
  batch.polls.push_back({7, 1, 150, 155, 160, 1});
  batch.span_changes.push_back({7, 1, 170, 0, 0, 0, model::SpanChangeKind::kEnter});
  batch.gc_pauses.push_back({7, 1, 90, 95, 0, 0, 0});
  pending_.Add(std::move(batch));
  const model::RecordBatch taken = pending_.Take();
  EXPECT_TRUE(taken.steps.empty() && taken.polls.empty() && taken.span_changes.empty() && taken.gc_pauses.empty());
  ASSERT_EQ(taken.loop_holes.size(), 2u);
  EXPECT_EQ(taken.loop_holes[0].pid, 7);
  EXPECT_EQ(taken.loop_holes[0].tid, 1);
  EXPECT_EQ(taken.loop_holes[0].after_mono_ns, 90);
  EXPECT_EQ(taken.loop_holes[0].before_mono_ns, 200);
  EXPECT_EQ(taken.loop_holes[0].record_count, 5u);
  EXPECT_EQ(taken.loop_holes[1].tid, 2);
  EXPECT_EQ(loss_.Get(base::Loss::kRecordsShed), 6u);
}

}  // namespace
}  // namespace tailspan::cli
