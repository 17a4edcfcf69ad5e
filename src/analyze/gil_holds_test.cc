#include "analyze/gil_holds.h"

#include <gtest/gtest.h>

namespace tailspan::analyze {
namespace {

using model::ThreadInterval;

ThreadInterval Wait(int32_t tid, int64_t start, int64_t wake, int64_t end, int32_t released_by, int32_t holder = 0) {
  ThreadInterval one;
  one.pid = 1;
  one.tid = tid;
  one.wait_class = model::WaitClass::kGil;
  one.wait_start_mono_ns = start;
  one.wake_mono_ns = wake;
  one.wait_end_mono_ns = end;
  one.gil_holder_tid = holder;
  if (released_by) {
    one.waker.kind = model::WakerKind::kThread;
    one.waker.pid = 1;
    one.waker.tid = released_by;
    one.waker.futex_address = 0x1000;
  }
  return one;
}

GilHolds Of(const std::vector<ThreadInterval>& intervals) {
  std::vector<const ThreadInterval*> pointers;
  for (const auto& one : intervals) pointers.push_back(&one);
  return GilHolds(pointers);
}

std::string Text(const std::vector<GilHold>& holds) {
  std::string text;
  for (const GilHold& hold : holds)
    text += std::to_string(hold.tid) + ":" + std::to_string(hold.start_mono_ns) + "-" +
            std::to_string(hold.end_mono_ns) + " ";
  return text;
}

TEST(GilHolds, NoRecordsNoHolds) { EXPECT_EQ(Text(Of({}).HoldsBetween(0, 100)), ""); }

TEST(GilHolds, AReleaseEndsItsHold) {
  // 10 held it until 50; 11 got it at 52 and let go at 90, woken for 12.
  const auto line = Of({Wait(11, 0, 50, 52, 10), Wait(12, 20, 90, 95, 11)});
  EXPECT_EQ(Text(line.HoldsBetween(0, 100)), "10:0-50 11:52-90 ");
  EXPECT_EQ(Text(line.HoldsBetween(60, 70)), "11:60-70 ");
}

TEST(GilHolds, HandOverIsNobodys) {
  // 11 was woken at 50 and came onto the CPU at 80 only.
  const auto line = Of({Wait(11, 0, 50, 80, 10), Wait(12, 20, 90, 95, 11)});
  EXPECT_EQ(Text(line.HoldsBetween(20, 95)), "10:20-50 11:80-90 ");
}

TEST(GilHolds, WakingsByInterruptsReleaseNothing) {
  auto slice = Wait(11, 0, 50, 50, 0);
  slice.waker.kind = model::WakerKind::kTimer;
  EXPECT_EQ(Text(Of({slice}).HoldsBetween(0, 100)), "");
}

TEST(GilHolds, SamplesCorrectAReleaseThatWokeNobody) {
  // 10 is seen holding at 0 and 50; its release was not seen. 13 is seen from 60 on and releases at 90.
  const auto line = Of({Wait(11, 0, 0, 45, 0, 10), Wait(11, 50, 0, 55, 0, 10), Wait(11, 60, 90, 95, 13, 13)});
  EXPECT_EQ(Text(line.HoldsBetween(0, 100)), "10:0-50 13:50-90 ");
}

TEST(GilHolds, NobodyTakesItWhileOffTheCpu) {
  // 10 holds it at 20, preempted from 15 to 40; 13 sleeps until 60, takes it uncontended and releases at 90.
  auto preempted = Wait(10, 15, 15, 40, 0);
  preempted.wait_class = model::WaitClass::kRunQueue;
  auto sleep = Wait(13, 5, 58, 60, 0);
  sleep.wait_class = model::WaitClass::kSleep;
  const auto line = Of({preempted, sleep, Wait(11, 20, 90, 95, 13, 10)});
  EXPECT_EQ(Text(line.HoldsBetween(20, 100)), "10:20-40 13:60-90 ");
}

TEST(GilHolds, OrderOfRecordsDoesNotMatter) {
  const auto forward = Of({Wait(11, 0, 50, 52, 10), Wait(12, 20, 90, 95, 11)});
  const auto backward = Of({Wait(12, 20, 90, 95, 11), Wait(11, 0, 50, 52, 10)});
  EXPECT_EQ(Text(forward.HoldsBetween(0, 100)), Text(backward.HoldsBetween(0, 100)));
}

TEST(GilHolds, OtherWaitsAreIgnored) {
  auto lock = Wait(11, 0, 50, 52, 10);
  lock.wait_class = model::WaitClass::kFutex;
  EXPECT_EQ(Text(Of({lock}).HoldsBetween(0, 100)), "");
}

}  // namespace
}  // namespace tailspan::analyze
