#include "cli/process_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "context/thread_state.h"

namespace tailspan::cli {
namespace {

// The first seconds of a process are looked at twice when it is attached to: as a followed process's child, and as one
// of those to attach to.
TEST(ProcessWatch, AProcessThatIsAddedAgainKeepsItsKeyAndRing) {
  base::LossCounters loss;
  ProcessWatch watch(nullptr, &loss, 0);
  model::RecordBatch batch;
  watch.Add(getpid(), &batch);
  ASSERT_EQ(batch.processes.size(), 1u);
  const model::ProcessKey key = batch.processes[0].key;
  watch.Update(&batch);
  ASSERT_TRUE(batch.processes.back().has_loop_ring);
  for (int i = 0; i < 100; ++i) watch.Add(getpid(), &batch);
  for (const model::ProcessInfo& info : batch.processes) EXPECT_EQ(info.key, key);
  EXPECT_TRUE(batch.processes.back().has_loop_ring);
  batch = {};
  std::thread([] {
    const uint8_t trace[16] = {1}, span[8] = {2};
    tailspan_context_set(trace, span, nullptr);
    tailspan_context_clear();
  }).join();
  watch.Update(&batch);
  EXPECT_EQ(batch.span_changes.size(), 2u);
}

TEST(ProcessWatch, AChildOfAnyThreadIsFoundWithoutProbes) {
  base::LossCounters loss;
  ProcessWatch watch(nullptr, &loss, 0);
  model::RecordBatch batch;
  watch.Add(getpid(), &batch);
  pid_t child = 0;
  std::thread([&] {
    child = fork();
    if (child == 0) {
      while (true) pause();
    }
    watch.UpdateSlow(&batch);
  }).join();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::any_of(batch.processes.begin(), batch.processes.end(),
                          [&](const model::ProcessInfo& info) { return info.key.pid == child; }));
}

TEST(ProcessWatch, SocketsAreToldWithTheirEnds) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  base::LossCounters loss;
  ProcessWatch watch(nullptr, &loss, 0);
  model::RecordBatch batch;
  watch.Add(getpid(), &batch);
  watch.UpdateSlow(&batch);
  auto told = [&](int fd) {
    auto found =
        std::find_if(batch.sockets.begin(), batch.sockets.end(), [&](const auto& one) { return one.fd == fd; });
    return found == batch.sockets.end() ? model::SocketInfo{} : *found;
  };
  EXPECT_EQ(told(client).remote.port, ntohs(at.sin_port));
  EXPECT_EQ(ToText(told(client).remote), "127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
  EXPECT_EQ(told(listener).local.port, ntohs(at.sin_port));
  EXPECT_EQ(told(listener).remote.family, 0) << "it listens";
  batch = {};
  watch.UpdateSlow(&batch);
  EXPECT_TRUE(batch.sockets.empty()) << "nothing is new";
  close(client);
  close(listener);
}

}  // namespace
}  // namespace tailspan::cli
