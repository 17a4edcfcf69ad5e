// Retransmissions against TCP_INFO's own count, with packets dropped at the receiver in a network namespace of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "probe/host_facts.h"
#include "probe/recording.h"

namespace tailspan::probe_test {
namespace {

TEST(Retransmit, AgreesWithTcpInfo) {
  const probe::HostFacts facts = probe::ReadHostFacts();
  if (!facts.can_probe) GTEST_SKIP() << "no kernel probes here: " << facts.obstacle;
  if (std::system("unshare --net iptables -L -n >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no network namespace with iptables here";
  const std::string out = "/tmp/tailspan_retransmit_" + std::to_string(getpid()) + ".txt";
  auto recorded = RecordCommand(
      {"unshare", "--net", "/usr/bin/python3", std::string(PROBE_PROGRAMS) + "/retransmit_truth.py", "60", out}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_EQ(recorded->status, 0);
  size_t truth = 0;
  int64_t timeout_us = 0;
  std::ifstream(out) >> truth >> timeout_us;
  unlink(out.c_str());
  int64_t rto_ns = 0, blocked_ns = 0;
  std::vector<int64_t> timeouts_ns;
  for (const auto& one : recorded->batch.retransmissions) {
    rto_ns += one.rto_ns;
    timeouts_ns.push_back(one.rto_ns);
    EXPECT_EQ(one.local.family, 2);
    EXPECT_NE(one.local.port, 0);
  }
  for (const auto& one : recorded->batch.intervals) {
    if (one.cause == model::Cause::kNetRecv && one.wake_mono_ns)
      blocked_ns += one.wake_mono_ns - one.wait_start_mono_ns;
  }
  std::printf(
      "retransmissions: %zu by TCP_INFO, %zu seen; timeouts %ld ms, waits for data %ld ms; %zu times a socket became "
      "ready\n",
      truth, recorded->batch.retransmissions.size(), long(rto_ns / 1'000'000), long(blocked_ns / 1'000'000),
      recorded->batch.sockets_ready.size());
  EXPECT_GT(truth, 0u);
  ASSERT_EQ(recorded->batch.retransmissions.size(), truth);
  std::nth_element(timeouts_ns.begin(), timeouts_ns.begin() + truth / 2, timeouts_ns.end());
  // A tick is 10 ms at most.
  EXPECT_NEAR(double(timeouts_ns[truth / 2]) * 1e-6, double(timeout_us) * 1e-3, 11) << "ms, and by TCP_INFO";
  EXPECT_GE(recorded->batch.sockets_ready.size(), 60u);
}

}  // namespace
}  // namespace tailspan::probe_test
