#include "analyze/cpu_book.h"

#include <gtest/gtest.h>

namespace tailspan::analyze {
namespace {

model::ThreadInterval Interval(int32_t tid, int64_t on_cpu_ns, int64_t kernel_run_ns, int64_t run_queue_ns = 0) {
  model::ThreadInterval interval;
  interval.pid = 1;
  interval.tid = tid;
  interval.on_cpu_ns = on_cpu_ns;
  interval.kernel_run_ns = kernel_run_ns;
  interval.wake_mono_ns = 1'000;
  interval.wait_end_mono_ns = 1'000 + run_queue_ns;
  return interval;
}

TEST(CpuBook, SumsWhatCouldBeReadOnBothSides) {
  const model::CpuBook book = CompareCpuBooks({Interval(1, 1000, 1010), Interval(1, 500, -1), Interval(2, 2000, 1990)});
  EXPECT_EQ(book.measured_ns, 3000);
  EXPECT_EQ(book.scheduler_ns, 3000);
  EXPECT_EQ(book.preemption_ns, 0) << "no thread stood in the run queue";
  EXPECT_EQ(book.difference(), 0);
}

// The book may be ahead by the run-queue time of the same thread, and by no more; behind it may not be.
TEST(CpuBook, RunQueueTimeExcusesALeadOfTheSameThreadOnly) {
  EXPECT_DOUBLE_EQ(CompareCpuBooks({Interval(1, 1000, 1100, 60)}).difference(), 0.04);
  EXPECT_DOUBLE_EQ(CompareCpuBooks({Interval(1, 1000, 1100, 500)}).difference(), 0);
  EXPECT_DOUBLE_EQ(CompareCpuBooks({Interval(1, 1000, 900, 500)}).difference(), -0.1);
  EXPECT_DOUBLE_EQ(CompareCpuBooks({Interval(1, 1000, 1100), Interval(2, 1000, 1000, 500)}).difference(), 0.05);
  model::ThreadInterval short_waits = Interval(1, 1000, 1100);
  short_waits.short_ns[static_cast<size_t>(model::WaitClass::kRunQueue)] = 100;
  EXPECT_DOUBLE_EQ(CompareCpuBooks({short_waits}).difference(), 0);
}

// Where a window ends within a turn the book lags behind and catches up in the next one.
TEST(CpuBook, ALagBetweenWindowsIsNoDifference) {
  EXPECT_DOUBLE_EQ(CompareCpuBooks({Interval(1, 1000, 0, 100), Interval(1, 1000, 2000)}).difference(), 0);
}

TEST(CpuBook, NothingReadIsNoDifference) {
  const model::CpuBook book = CompareCpuBooks({Interval(1, 1000, -1)});
  EXPECT_EQ(book.measured_ns, 0);
  EXPECT_EQ(book.difference(), 0);
}

}  // namespace
}  // namespace tailspan::analyze
