#include "base/background_thread.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tailspan::base {
namespace {

using std::chrono::milliseconds;

// Waits until the calling thread has another policy, or for ten seconds. Returns the policy seen last.
int WaitForOtherThan(int policy, BackgroundThread* comes_round) {
  for (int i = 0; i < 10'000 && sched_getscheduler(0) == policy; ++i) {
    if (comes_round) comes_round->CameRound();
    std::this_thread::sleep_for(milliseconds(1));
  }
  return sched_getscheduler(0);
}

TEST(BackgroundThread, OneThatIsLateIsOrdinaryForAWhile) {
  bool can_give_way = true;
  std::thread([&] {
    BackgroundThread background(milliseconds(300), milliseconds(200));
    can_give_way = background.can_give_way();
    if (!can_give_way) return;
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
    EXPECT_EQ(WaitForOtherThan(SCHED_IDLE, nullptr), SCHED_OTHER);
    EXPECT_EQ(WaitForOtherThan(SCHED_OTHER, &background), SCHED_IDLE);
  }).join();
  if (!can_give_way) GTEST_SKIP() << "needs root, CAP_SYS_NICE or RLIMIT_NICE";
}

TEST(BackgroundThread, WithoutTheWayBackItStaysOrdinary) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    BackgroundThread background(milliseconds(1));
    if (background.can_give_way()) _exit(3);
    _exit(sched_getscheduler(0) == SCHED_OTHER ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "RLIMIT_NICE lets anyone come back here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tailspan::base
