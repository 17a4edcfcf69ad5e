// Which threads are followed, from when, and until when.
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
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

int64_t WaitedNs(const model::RecordBatch& batch, int32_t pid, model::Cause cause) {
  int64_t sum_ns = 0;
  for (const auto& one : batch.intervals) {
    if (one.pid == pid && one.cause == cause) sum_ns += one.wait_end_mono_ns - one.wait_start_mono_ns;
  }
  return sum_ns;
}

// The only process that was forked and exec'd to that name.
int32_t PidOf(const model::RecordBatch& batch, const char* comm) {
  for (const auto& event : batch.process_events) {
    if (event.kind == ProcessEventKind::kExec && std::strcmp(event.comm.data(), comm) == 0) return event.pid;
  }
  return 0;
}

// A child of the test that is followed and does `work` when told; `told` reads one more byte each time.
class ToldChild {
 public:
  ToldChild(probe::KernelProbes* probes, const std::function<void(const std::function<void()>& told)>& work) {
    int go[2];
    if (pipe(go) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      work([&] {
        char byte;
        if (read(go[0], &byte, 1) != 1) _exit(3);
      });
      _exit(0);
    }
    go_ = go[1];
    close(go[0]);
    EXPECT_TRUE(probes->FollowProcess(pid_));
  }
  ~ToldChild() {
    close(go_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Tell(int then_sleep_ms) const {
    EXPECT_EQ(write(go_, "g", 1), 1);
    SleepMs(then_sleep_ms);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int go_ = -1;
};

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
  for (const auto& one : batch.intervals) EXPECT_GT(one.thread_start_mono_ns, 0);
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

// Opens COUNT connections to itself; keeps them all, or one at a time.
std::vector<std::string> Connections(int count, bool keep) {
  return {"/usr/bin/python3", "-c",
          "import resource,socket,sys,time\n"
          "resource.setrlimit(resource.RLIMIT_NOFILE,(4096,resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
          "s=socket.create_server(('127.0.0.1',0))\n"
          "kept=[]\n"
          "for i in range(int(sys.argv[1])):\n"
          "  c=socket.create_connection(s.getsockname())\n"
          "  a=s.accept()[0]\n"
          "  if sys.argv[2]=='keep': kept+=[a,c]\n"
          "  else: a.close(); c.close()\n"
          "time.sleep(.3)\n",
          std::to_string(count), keep ? "keep" : "close"};
}

bool LearnsConnections(const std::vector<model::Capability>& capabilities) {
  return std::any_of(capabilities.begin(), capabilities.end(),
                     [](const auto& one) { return one.signal == "connections" && one.on; });
}

TEST(Follow, ConnectionsThatAreForgottenAreCounted) {
  SKIP_WITHOUT_PROBES();
  probe::KernelProbesOptions small;
  small.flows_max = 512;
  auto crowded = RecordCommand(Connections(600, true), small);
  ASSERT_TRUE(crowded) << crowded.error().message;
  ASSERT_EQ(crowded->status, 0);
  if (!LearnsConnections(crowded->capabilities)) GTEST_SKIP() << "no tracepoint of socket states";
  // Two ends of each and the listener. All left the table when they were closed, but those that had been pushed out.
  EXPECT_GE(crowded->losses.flows_forgotten, 2u * 600 - 512);
  EXPECT_LE(crowded->losses.flows_forgotten, 2u * 600 + 1);
  EXPECT_EQ(crowded->losses.maps_full, 0u);

  auto one_by_one = RecordCommand(Connections(600, false), small);
  ASSERT_TRUE(one_by_one) << one_by_one.error().message;
  EXPECT_EQ(one_by_one->losses.flows_forgotten, 0u);
  EXPECT_EQ(one_by_one->losses.maps_full, 0u);

  auto roomy = RecordCommand(Connections(600, true), {});
  ASSERT_TRUE(roomy) << roomy.error().message;
  EXPECT_EQ(roomy->losses.flows_forgotten, 0u);
}

// The queue of a listener with no backlog is full: the second connection's first segment is dropped, and sent again
// after a second. With a timeout Python's connect returns at once and polls for writability.
TEST(Follow, PollingForAConnectionIsConnecting) {
  SKIP_WITHOUT_PROBES();
  auto recorded = RecordCommand({"/usr/bin/python3", "-c",
                                 "import socket,threading\n"
                                 "s=socket.socket()\n"
                                 "s.bind(('127.0.0.1',0))\n"
                                 "s.listen(0)\n"
                                 "a=socket.create_connection(s.getsockname())\n"
                                 "threading.Timer(.2,s.accept).start()\n"
                                 "b=socket.create_connection(s.getsockname(),timeout=9)\n"},
                                {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_EQ(recorded->status, 0);
  EXPECT_GE(WaitedNs(recorded->batch, recorded->pid, model::Cause::kNetConnect), 700'000'000);
  EXPECT_EQ(WaitedNs(recorded->batch, recorded->pid, model::Cause::kNetSend), 0);
}

// The child opens a FIFO before its exec, and so holds its parent in the clone that made it.
TEST(Follow, WaitingForASpawnedChildsExecIsChildProcess) {
  SKIP_WITHOUT_PROBES();
  const std::string fifo = "/tmp/tailspan_spawn_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  auto recorded = RecordCommand({"/usr/bin/python3", "-c",
                                 "import os,sys,threading\n"
                                 "f=sys.argv[1]\n"
                                 "os.posix_spawn('/bin/sh',['sh','-c','sleep .3; : >'+f],os.environ)\n"
                                 "os.posix_spawn('/bin/true',['true'],os.environ,"
                                 "file_actions=[(os.POSIX_SPAWN_OPEN,0,f,os.O_RDONLY,0)])\n",
                                 fifo},
                                {});
  unlink(fifo.c_str());
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_EQ(recorded->status, 0);
  EXPECT_GE(WaitedNs(recorded->batch, recorded->pid, model::Cause::kChildProcess), 200'000'000);
  EXPECT_LT(WaitedNs(recorded->batch, recorded->pid, model::Cause::kLock), 50'000'000);
}

TEST(Follow, FrozenIsStopped) {
  SKIP_WITHOUT_PROBES();
  const std::string root = "/sys/fs/cgroup/freezer";
  if (access((root + "/cgroup.procs").c_str(), W_OK) != 0) GTEST_SKIP() << "no cgroup v1 freezer here";
  const std::string group = root + "/tailspan_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(group.c_str(), 0755), 0);
  auto recorded = RecordCommand({"sh", "-c",
                                 "while :; do :; done & echo $! > $1/cgroup.procs; echo $!; sleep .1; "
                                 "echo FROZEN > $1/freezer.state; sleep .3; echo THAWED > $1/freezer.state; "
                                 "sleep .1; kill -9 $!; wait; true",
                                 "sh", group},
                                {});
  rmdir(group.c_str());
  ASSERT_TRUE(recorded) << recorded.error().message;
  const int32_t busy = std::atoi(recorded->output.c_str());
  ASSERT_GT(busy, 0);
  EXPECT_GE(WaitedNs(recorded->batch, busy, model::Cause::kStopped), 200'000'000);
}

TEST(Follow, WhatAStopInterruptedGoesOnAsItWas) {
  SKIP_WITHOUT_PROBES();
  auto recorded = RecordCommand({"/usr/bin/python3", "-c",
                                 "import os,signal,time\n"
                                 "p=os.posix_spawnp('sleep',['sleep','0.7'],os.environ)\n"
                                 "time.sleep(.15)\n"
                                 "os.kill(p,signal.SIGSTOP)\n"
                                 "time.sleep(.15)\n"
                                 "os.kill(p,signal.SIGCONT)\n"
                                 "os.waitpid(p,0)\n"},
                                {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  const int32_t sleeper = PidOf(recorded->batch, "sleep");
  ASSERT_GT(sleeper, 0);
  EXPECT_GE(WaitedNs(recorded->batch, sleeper, model::Cause::kStopped), 50'000'000);
  EXPECT_GE(WaitedNs(recorded->batch, sleeper, model::Cause::kSleep), 450'000'000);
  EXPECT_LT(WaitedNs(recorded->batch, sleeper, model::Cause::kUnexplained), 20'000'000);
}

// What is learned of a process after it forked holds for its child too.
TEST(Follow, ChildForkedJustBeforeTheLayoutWasFound) {
  SKIP_WITHOUT_PROBES();
  auto probes = probe::KernelProbes::Open({});
  ASSERT_TRUE(probes) << probes.error().message;
  static uint32_t word = 0;
  ToldChild parent(probes->get(), [](const auto& told) {
    told();
    const pid_t child = fork();
    if (child != 0) {
      waitpid(child, nullptr, 0);
      return;
    }
    told();
    timespec wait{0, 200'000'000};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &wait, nullptr, 0);
  });
  model::RecordBatch batch;
  (*probes)->Drain(&batch);
  parent.Tell(50);
  probe::ProcessLayout layout;
  layout.gil_low = reinterpret_cast<uint64_t>(&word);
  layout.gil_high = layout.gil_low + sizeof word;
  ASSERT_TRUE((*probes)->SetProcessLayout(parent.pid(), layout));
  (*probes)->Drain(&batch);
  parent.Tell(400);
  (*probes)->Drain(&batch);
  int32_t child = 0;
  for (const auto& event : batch.process_events) {
    if (event.kind == ProcessEventKind::kFork && event.parent_pid == parent.pid()) child = event.pid;
  }
  ASSERT_GT(child, 0);
  EXPECT_GE(WaitedNs(batch, child, model::Cause::kGil), 150'000'000);
}

// A layout that was read before an exec and written after it says nothing of the new program.
TEST(Follow, LayoutOfAProgramThatExecdMeanwhile) {
  SKIP_WITHOUT_PROBES();
  auto probes = probe::KernelProbes::Open({});
  ASSERT_TRUE(probes) << probes.error().message;
  ToldChild child(probes->get(), [](const auto& told) {
    told();
    execlp("sh", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.02; done; sleep 9", nullptr);
  });
  model::RecordBatch batch;
  (*probes)->Drain(&batch);
  child.Tell(30);
  probe::ProcessLayout layout;
  layout.has_context = true;
  layout.tls_offset = int64_t{1} << 45;  // leads to no memory
  ASSERT_TRUE((*probes)->SetProcessLayout(child.pid(), layout));
  (*probes)->Drain(&batch);
  const uint64_t before = (*probes)->Losses().contexts_unreadable;
  SleepMs(200);
  (*probes)->Drain(&batch);
  EXPECT_EQ((*probes)->Losses().contexts_unreadable, before);
}

TEST(Follow, APidNamespaceOfOnesOwnIsAnObstacle) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a pid namespace";
  const pid_t maker = fork();
  if (maker == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(2);
    const pid_t child = fork();
    if (child == 0) {
      const auto found = probe::KernelProbes::Probe({});
      const bool is_said = !found.empty() && !found[0].on &&
                           found[0].reason.find("pid namespace") != std::string::npos &&
                           found[0].remedy.find("--pid=host") != std::string::npos;
      _exit(is_said && !probe::ReadHostFacts().can_probe ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  int status = 0;
  waitpid(maker, &status, 0);
  EXPECT_EQ(status, 0);
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
