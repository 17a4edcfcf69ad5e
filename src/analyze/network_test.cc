// Which connection a descriptor was, and whose its other end, over a time in which numbers and ports come back.
#include "analyze/network.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace tailspan::analyze {
namespace {

using model::SocketAddress;

constexpr int32_t kClient = 100, kServer = 200, kOther = 300;

SocketAddress Ip(uint8_t last, uint16_t port) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  return model::MakeSocketAddress(AF_INET, bytes, port);
}
const SocketAddress kNone{};

SocketAddress Anywhere(uint16_t port) {
  const uint8_t bytes[4] = {};
  return model::MakeSocketAddress(AF_INET, bytes, port);
}

struct Recording {
  model::RecordBatch batch;

  Recording() {
    for (auto [pid, comm] : {std::pair(kClient, "client"), {kServer, "server"}, {kOther, "other"}}) {
      model::ProcessInfo info;
      info.key.pid = pid;
      info.comm = comm;
      batch.processes.push_back(info);
    }
  }
  Recording& Told(int32_t pid, int32_t fd, int64_t from, uint64_t inode, SocketAddress local, SocketAddress remote) {
    batch.sockets.push_back({pid, fd, from, inode, local, remote, true});
    return *this;
  }
  Recording& Scanned(int32_t pid, int32_t fd, int64_t from, uint64_t inode, SocketAddress local, SocketAddress remote) {
    batch.sockets.push_back({pid, fd, from, inode, local, remote, false});
    return *this;
  }
};

TEST(Network, ANumberThatComesBackIsEachConnectionInItsTime) {
  Recording r;
  r.Told(kClient, 7, 3000, 13, Ip(1, 43), Ip(2, 80)).Told(kClient, 7, 1000, 11, Ip(1, 41), Ip(2, 80));
  r.Told(kClient, 7, 2000, 12, Ip(1, 42), Ip(3, 80)).Told(kClient, 7, 4000, 0, kNone, kNone);
  Timeline timeline(r.batch);
  Network network(timeline);
  EXPECT_FALSE(network.ConnectionOf(kClient, 7, 999).known());  // another's, or nobody's: never the next one's
  for (auto [at_ns, inode] : {std::pair(1000, 11), {1999, 11}, {2000, 12}, {2999, 12}, {3000, 13}, {3999, 13}}) {
    EXPECT_EQ(network.ConnectionOf(kClient, 7, at_ns).inode, static_cast<uint64_t>(inode)) << at_ns;
  }
  EXPECT_EQ(network.ConnectionOf(kClient, 7, 2500).remote, Ip(3, 80));
  EXPECT_FALSE(network.ConnectionOf(kClient, 7, 4000).known());  // no IP socket any more
  EXPECT_FALSE(network.ConnectionOf(kClient, 8, 2000).known());
  EXPECT_FALSE(network.ConnectionOf(kOther, 7, 2000).known());
}

TEST(Network, APeerThatIsToldLaterHoldsFromTheFirst) {
  Recording r;
  r.Told(kClient, 7, 1000, 11, Ip(1, 41), Ip(2, 80)).Told(kClient, 7, 1000, 11, Ip(1, 41), kNone);  // any order
  r.Told(kClient, 8, 1000, 12, Ip(1, 42), kNone).Scanned(kClient, 8, 1500, 12, Ip(1, 42), Ip(3, 80));
  r.Told(kClient, 9, 1000, 13, Ip(1, 43), kNone).Told(kClient, 9, 1500, 14, Ip(1, 44), Ip(4, 80));  // another socket
  Timeline timeline(r.batch);
  Network network(timeline);
  EXPECT_EQ(network.ConnectionOf(kClient, 7, 1200).remote, Ip(2, 80));
  EXPECT_EQ(network.ConnectionOf(kClient, 8, 1200).remote, Ip(3, 80));
  EXPECT_FALSE(network.ConnectionOf(kClient, 9, 1200).known());
}

TEST(Network, AScanIsLateSoItsFirstFindHoldsBefore) {
  Recording r;
  r.Scanned(kOther, 7, 1'000, 11, Ip(1, 41), Ip(2, 80));
  Timeline timeline(r.batch);
  EXPECT_EQ(Network(timeline).ConnectionOf(kOther, 7, 500).remote, Ip(2, 80));
}

TEST(Network, APortThatComesBackIsEachProcessInItsTime) {
  Recording r;
  r.Told(kServer, 3, 10, 1, Anywhere(8000), kNone);
  r.Told(kClient, 7, 1000, 11, Ip(1, 40001), Ip(1, 8000)).Told(kServer, 9, 1010, 12, Ip(1, 8000), Ip(1, 40001));
  r.Told(kOther, 7, 2000, 13, Ip(1, 40001), Ip(1, 8000)).Told(kServer, 9, 2010, 14, Ip(1, 8000), Ip(1, 40001));
  Timeline timeline(r.batch);
  Network network(timeline);
  const Connection of_client{Ip(1, 40001), Ip(1, 8000), 0}, of_server{Ip(1, 8000), Ip(1, 40001), 0};
  EXPECT_EQ(network.PeerName(of_client, 1500), "server");
  EXPECT_EQ(network.PeerPid(of_server, 1500), kClient);
  EXPECT_EQ(network.PeerPid(of_server, 2500), kOther);
}

TEST(Network, TheListenerIsThePeerBeforeItAccepts) {
  Recording r;
  r.Told(kServer, 3, 10, 1, Ip(1, 8000), kNone).Told(kOther, 3, 10, 2, Anywhere(9000), kNone);
  r.Told(kClient, 7, 1000, 11, Ip(1, 40001), Ip(1, 8000)).Told(kClient, 8, 1000, 12, Ip(1, 40002), Ip(1, 9000));
  Timeline timeline(r.batch);
  Network network(timeline);
  EXPECT_EQ(network.PeerPid(network.ConnectionOf(kClient, 7, 1500), 1500), kServer);
  EXPECT_EQ(network.PeerPid(network.ConnectionOf(kClient, 8, 1500), 1500), kOther);
}

TEST(Network, AnotherHostsPortIsNotOurListeners) {
  Recording r;
  r.Told(kServer, 3, 10, 1, Anywhere(8000), kNone);
  r.Told(kServer, 7, 1000, 11, Ip(1, 40001), Ip(9, 8000));  // calls a service at the port that it has itself
  Timeline timeline(r.batch);
  Network network(timeline);
  EXPECT_EQ(network.PeerName(network.ConnectionOf(kServer, 7, 1500), 1500), "10.0.0.9:8000");
}

// A client's own port of one moment is not a service that listened there at another.
TEST(Network, AConnectionsPortIsNoListener) {
  Recording r;
  r.Told(kClient, 7, 1000, 11, Ip(1, 40001), Ip(2, 80)).Told(kClient, 8, 5000, 12, Ip(1, 40002), Ip(1, 40001));
  Timeline timeline(r.batch);
  Network network(timeline);
  EXPECT_EQ(network.PeerName(network.ConnectionOf(kClient, 8, 5000), 5000), "10.0.0.1:40001");
}

TEST(Network, OnePortOfSeveralServicesIsNobodys) {
  const uint8_t loopback[4] = {127, 0, 0, 1};
  const SocketAddress local = model::MakeSocketAddress(AF_INET, loopback, 8000);
  Recording r;
  r.Told(kServer, 3, 10, 1, Anywhere(8000), kNone);
  Timeline one(r.batch);
  EXPECT_EQ(Network(one).PeerPid({Ip(1, 40001), local, 0}, 100), kServer);
  r.Told(kOther, 3, 20, 2, Anywhere(8000), kNone);
  Timeline two(r.batch);
  EXPECT_EQ(Network(two).PeerPid({Ip(1, 40001), local, 0}, 100), 0);
}

constexpr int64_t kMs = 1'000'000;

std::string Told(const std::vector<Repair>& repairs) {
  std::string out;
  for (const Repair& one : repairs) {
    out += fmt::format("{}-{} ours {} theirs {}\n", one.start_ns / kMs, one.end_ns / kMs, one.segments_ours,
                       one.segments_theirs);
  }
  return out;
}

// The question was lost twice, later the answer: what lies between is the peer's own time.
TEST(Network, LossesInBothDirectionsLeaveThePeerItsTime) {
  const SocketAddress us = Ip(1, 40), peer = Ip(2, 80);
  Recording r;
  r.batch.retransmissions = {{130 * kMs, us, peer, 1, 100 * kMs, 22 * kMs, 2 * kMs, 1},
                             {350 * kMs, us, peer, 1, 200 * kMs, 22 * kMs, 2 * kMs, 1},
                             {1400 * kMs, peer, us, 1, 200 * kMs, 1190 * kMs, 2 * kMs, 1}};
  r.batch.sockets_ready = {{1403 * kMs, 1, us, peer}};
  Timeline timeline(r.batch);
  Network network(timeline);
  const Connection connection{us, peer, 1};
  EXPECT_EQ(Told(network.RepairsIn(connection, 20 * kMs, 1410 * kMs)),
            "22-350 ours 2 theirs 0\n1190-1403 ours 0 theirs 1\n");
  // The wait began after the loss.
  EXPECT_EQ(Told(network.RepairsIn(connection, 300 * kMs, 1000 * kMs)), "300-350 ours 1 theirs 0\n");
  EXPECT_EQ(Told(network.RepairsIn(connection, 400 * kMs, 1000 * kMs)), "");
}

// The question was lost, and with it the acknowledgement of the last answer, which the peer therefore sends again: we
// had it. Without the question's loss nothing of ours was missing at all.
TEST(Network, ALostAcknowledgementIsNoWaitOfOurs) {
  const SocketAddress us = Ip(1, 40), peer = Ip(2, 80);
  Recording r;
  r.batch.retransmissions = {{230 * kMs, us, peer, 1, 200 * kMs, 20 * kMs, 2 * kMs, 1},
                             {228 * kMs, peer, us, 1, 200 * kMs, 15 * kMs, 2 * kMs, 1},
                             {7000 * kMs, peer, us, 1, 200 * kMs, 6790 * kMs, 2 * kMs, 1}};
  r.batch.sockets_ready = {{5000 * kMs, 1, us, peer}, {8000 * kMs, 1, us, peer}};
  Timeline timeline(r.batch);
  Network network(timeline);
  EXPECT_EQ(Told(network.RepairsIn({us, peer, 1}, 20 * kMs, 5001 * kMs)), "20-230 ours 1 theirs 0\n");
  EXPECT_EQ(Told(network.RepairsIn({us, peer, 1}, 6500 * kMs, 8001 * kMs)), "");
}

// Of a long flight an earlier segment's time is told: not longer ago than the timer can have run.
TEST(Network, ALossIsNoLongerThanItsTimer) {
  const SocketAddress us = Ip(1, 40), peer = Ip(2, 80);
  Recording r;
  r.batch.retransmissions = {{5000 * kMs, peer, us, 1, 200 * kMs, 1000 * kMs, 2 * kMs, 1},
                             {9000 * kMs, peer, us, 1, 200 * kMs, 0, 2 * kMs, 1}};
  Timeline timeline(r.batch);
  Network network(timeline);
  EXPECT_EQ(Told(network.RepairsIn({us, peer, 1}, 1000 * kMs, 5001 * kMs)), "4800-5001 ours 0 theirs 1\n");
  EXPECT_EQ(Told(network.RepairsIn({us, peer, 1}, 6000 * kMs, 9000 * kMs)), "8800-9000 ours 0 theirs 1\n");
}

}  // namespace
}  // namespace tailspan::analyze
