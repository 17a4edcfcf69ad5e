#include "analyze/loop_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "analyze/recording_builder.h"

namespace tailspan::analyze {
namespace {

using model::LoopStep;
using model::StepKind;

// "id start-end" and "disputed start-end", us.
std::string Print(const RecordingBuilder& recording) {
  const StepOrder order = OrderSteps(recording.batch.steps);
  std::string out;
  for (const LoopStep* step : order.steps) {
    out += fmt::format("{} {}-{}\n", step->step_id, step->start_mono_ns / 1000, step->end_mono_ns / 1000);
  }
  for (const Dispute& dispute : order.disputes) {
    out += fmt::format("{} disputed {}-{}\n", dispute.tid, dispute.start_ns / 1000, dispute.end_ns / 1000);
  }
  return out + fmt::format("{} contradictions", order.contradictions);
}

RecordingBuilder& Step(RecordingBuilder& r, uint64_t id, int64_t start_us, int64_t end_us, int32_t tid = 100) {
  return r.Step(id, 0, 0, StepKind::kSoon, 0, start_us, start_us, end_us, tid);
}

TEST(LoopOrder, StepsApartAndWithinAnotherStay) {
  RecordingBuilder r;
  Step(r, 4, 60, 60), Step(r, 3, 40, 60), Step(r, 2, 10, 60), Step(r, 1, 0, 100), Step(r, 5, 100, 120);
  Step(r, 6, 50, 70, 101);  // of another thread
  EXPECT_EQ(Print(r), "1 0-100\n2 10-60\n3 40-60\n6 50-70\n4 60-60\n5 100-120\n0 contradictions");
}

TEST(LoopOrder, OfTwoThatCrossTheLaterBeginsAtTheEndOfTheEarlier) {
  RecordingBuilder r;
  Step(r, 1, 0, 60), Step(r, 2, 40, 100), Step(r, 3, 110, 120);
  EXPECT_EQ(Print(r), "1 0-60\n2 60-100\n3 110-120\n100 disputed 40-60\n1 contradictions");
}

// 3 leaves both that it began in; 4 begins in the time that 3 has lost, and is within it still.
TEST(LoopOrder, OneThatLeavesSeveralBeginsAfterTheLongest) {
  RecordingBuilder r;
  Step(r, 1, 0, 60), Step(r, 2, 10, 50), Step(r, 3, 40, 100), Step(r, 4, 55, 90);
  EXPECT_EQ(Print(r), "1 0-60\n2 10-50\n3 60-100\n4 60-90\n100 disputed 40-60\n100 disputed 55-60\n2 contradictions");
}

TEST(LoopOrder, TimesThatCannotBeAreMended) {
  RecordingBuilder r;
  Step(r, 1, 20, 10);                               // ends before it begins
  r.Step(2, 0, 0, StepKind::kSoon, 0, 50, 30, 40);  // ready after it began
  const StepOrder order = OrderSteps(r.batch.steps);
  ASSERT_EQ(order.steps.size(), 1u);
  EXPECT_EQ(order.steps[0]->ready_mono_ns, 30'000);
  EXPECT_EQ(order.contradictions, 2u);
}

// Whatever comes in: the steps of a thread are apart or nested, end when they said, are moved only in disputed time,
// and stay as they were when they cross none.
TEST(LoopOrder, AnythingComesOutNested) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    RecordingBuilder r;
    const uint64_t count = 1 + random() % 12;
    for (uint64_t id = 1; id <= count; ++id) {
      const auto start_us = static_cast<int64_t>(random() % 20);
      Step(r, id, start_us, start_us + static_cast<int64_t>(random() % 12), 100 + static_cast<int32_t>(random() % 2));
    }
    const StepOrder order = OrderSteps(r.batch.steps);
    ASSERT_EQ(order.steps.size(), count);
    uint64_t moved = 0;
    for (const LoopStep* a : order.steps) {
      const LoopStep& said = r.batch.steps[a->step_id - 1];
      EXPECT_EQ(a->end_mono_ns, said.end_mono_ns);
      bool crosses_any = false;
      for (const LoopStep& b : r.batch.steps) {
        if (b.tid != said.tid) continue;
        crosses_any |= b.start_mono_ns < said.start_mono_ns && said.start_mono_ns < b.end_mono_ns &&
                       b.end_mono_ns < said.end_mono_ns;
      }
      if (a->start_mono_ns != said.start_mono_ns) {
        ++moved;
        EXPECT_TRUE(crosses_any);
        bool disputed = std::any_of(order.disputes.begin(), order.disputes.end(), [&](const Dispute& dispute) {
          return dispute.tid == a->tid && dispute.start_ns == said.start_mono_ns && dispute.end_ns == a->start_mono_ns;
        });
        EXPECT_TRUE(disputed);
      }
      for (const LoopStep* b : order.steps) {
        if (a->tid != b->tid) continue;
        bool crosses =
            b->start_mono_ns < a->start_mono_ns && a->start_mono_ns < b->end_mono_ns && b->end_mono_ns < a->end_mono_ns;
        EXPECT_FALSE(crosses);
      }
    }
    EXPECT_EQ(order.contradictions, moved);
  }
}

}  // namespace
}  // namespace tailspan::analyze
