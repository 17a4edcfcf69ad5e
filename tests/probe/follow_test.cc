// Which threads are followed, from when, and until when.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "probe/host_facts.h"
#include "probe/recording.h"

namespace tailspan::probe_test {
namespace {

using model::ProcessEventKind;

#define SKIP_WITHOUT_PROBES()                                                          \
  do {                                                                                 \
    const probe::HostFacts facts = probe::ReadHostFacts();                             \
    if (!facts.can_probe) GTEST_SKIP() << "no kernel probes here: " << facts.obstacle; \
  } while (false)

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Follow, ChildrenFromForkToExit) {
  SKIP_WITHOUT_PROBES();
  auto recorded = RecordCommand({"sh", "-c", "sleep 0.05; exit 3"}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  int32_t child = 0;
  bool has_exec = false, has_exit = false, has_root_exit = false;
  for (const auto& event : recorded->batch.process_events) {
    if (event.kind == ProcessEventKind::kFork && event.parent_pid == recorded->pid) child = event.pid;
    has_exec |= event.kind == ProcessEventKind::kExec && child && event.pid == child &&
                std::strcmp(event.comm.data(), "sleep") == 0;
    has_exit |= event.kind == ProcessEventKind::kExit && child && event.pid == child;
    if (event.kind == ProcessEventKind::kExit && event.pid == recorded->pid) {
      has_root_exit = true;
      EXPECT_EQ(event.exit_code, 3 << 8);
    }
  }
  EXPECT_TRUE(has_exec && has_exit && has_root_exit);
  int64_t slept_ns = 0;
  for (const auto& one : recorded->batch.intervals) {
    if (one.pid == child && one.cause == model::Cause::kSleep)
      slept_ns += one.wait_end_mono_ns - one.wait_start_mono_ns;
  }
  EXPECT_GE(slept_ns, 50'000'000);
}

TEST(Follow, ExcludedCommandsEndAtTheirExec) {
  SKIP_WITHOUT_PROBES();
  probe::KernelProbesOptions options;
  options.excluded_comms = {"sleep"};
  auto recorded = RecordCommand({"sh", "-c", "sleep 0.05; true"}, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_FALSE(recorded->batch.intervals.empty());
  for (const auto& one : recorded->batch.intervals) EXPECT_NE(one.cause, model::Cause::kSleep);
}

TEST(Follow, ThreadsThatRunAlready) {
  SKIP_WITHOUT_PROBES();
  const std::string out = "/tmp/tailspan_follow_" + std::to_string(getpid()) + ".txt";
  const std::string program = std::string(PROBE_PROGRAMS) + "/busy_threads";
  const pid_t child = fork();
  if (child == 0) {
    execl(program.c_str(), program.c_str(), "4", "20000", out.c_str(), nullptr);
    _exit(127);
  }
  SleepMs(200);
  auto probes = probe::KernelProbes::Open({});
  ASSERT_TRUE(probes) << probes.error().message;
  ASSERT_TRUE((*probes)->FollowProcess(child));
  model::RecordBatch batch;
  for (int i = 0; i < 12; ++i) {
    SleepMs(25);
    (*probes)->Drain(&batch);
  }
  const size_t closed = batch.intervals.size();
  (*probes)->DrainOpenWindows(&batch);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  unlink(out.c_str());
  std::set<int32_t> tids;
  for (const auto& one : batch.intervals) tids.insert(one.tid);
  EXPECT_GE(tids.size(), 4u);
  EXPECT_GT(batch.intervals.size(), closed);
  EXPECT_EQ((*probes)->Losses().threads_not_followed, 0u);
}

TEST(Follow, ProcessThatIsGone) {
  SKIP_WITHOUT_PROBES();
  auto probes = probe::KernelProbes::Open({});
  ASSERT_TRUE(probes) << probes.error().message;
  const base::Status status = (*probes)->FollowProcess(0x3fffffff);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, base::Code::kNotFound);
}

TEST(Follow, StoppedIsStopped) {
  SKIP_WITHOUT_PROBES();
  auto recorded = RecordCommand({"sh", "-c", "(sleep 0.1; kill -CONT $$) & kill -STOP $$; wait"}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  int64_t stopped_ns = 0;
  for (const auto& one : recorded->batch.intervals) {
    if (one.cause == model::Cause::kStopped) stopped_ns += one.wait_end_mono_ns - one.wait_start_mono_ns;
  }
  EXPECT_GE(stopped_ns, 80'000'000);
}

TEST(Follow, WithoutPrivilegesEverySignalSaysWhy) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give it up";
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    bool all_explained = true;
    for (const auto& one : probe::KernelProbes::Probe({}))
      all_explained &= !one.on && !one.reason.empty() && !one.remedy.empty();
    _exit(all_explained ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tailspan::probe_test
