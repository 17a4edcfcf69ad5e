#include "collect/http/peer_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tuple>

namespace tailspan::collect::http {
namespace {

sockaddr_in6 V6Address(const char* address) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, address, &out.sin6_addr), 1);
  return out;
}

model::SocketAddress AddressOf(const sockaddr_storage& end) {
  if (end.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
    return model::MakeSocketAddress(AF_INET, reinterpret_cast<const uint8_t*>(&v4.sin_addr), ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
  return model::MakeSocketAddress(AF_INET6, v6.sin6_addr.s6_addr, ntohs(v6.sin6_port));
}

// A connection whose client end only another process holds.
class Connection {
 public:
  // Families and addresses of the two sockets; "" is an IPv4 socket at 127.0.0.1.
  Connection(const char* server, const char* client) {
    int listener = Listen(server);
    sockaddr_storage at{};
    socklen_t size = sizeof at;
    getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
    const uint16_t port = AddressOf(at).port;
    int fd = Connect(client, port);
    if (fd < 0) {
      close(listener);
      return;
    }
    server_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    sockaddr_storage ends[2] = {};
    size = sizeof ends[0];
    getpeername(server_, reinterpret_cast<sockaddr*>(&ends[0]), &size);
    size = sizeof ends[1];
    getsockname(server_, reinterpret_cast<sockaddr*>(&ends[1]), &size);
    peer = AddressOf(ends[0]);
    own = AddressOf(ends[1]);
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    holder = fork();
    if (holder == 0) {
      close(server_);
      close(listener);
      close(ready[1]);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 0) << "until the holder has nothing but its end";
    close(ready[0]);
    close(fd);
    close(listener);
    opened = true;
  }
  ~Connection() {
    Close();
    if (server_ >= 0) close(server_);
  }
  void Close() {
    if (holder <= 0) return;
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
    holder = 0;
  }

  bool opened = false;
  pid_t holder = 0;
  model::SocketAddress peer, own;

 private:
  static int Listen(const char* address) {
    int fd = socket(*address ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*address) {
      int off = 0;
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      sockaddr_in6 at = V6Address(address);
      if (bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return fd;
    } else {
      sockaddr_in at{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
      if (bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return fd;
    }
    listen(fd, 4);
    return fd;
  }
  static int Connect(const char* address, uint16_t port) {
    int fd = socket(*address ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = 0;
    if (*address) {
      sockaddr_in6 at = V6Address(address);
      at.sin6_port = htons(port);
      failed = connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at);
    } else {
      sockaddr_in at{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
      failed = connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at);
    }
    if (!failed) return fd;
    close(fd);
    return -1;
  }

  int server_ = -1;
};

struct Ends {
  const char* server;
  const char* client;
};

class PeerProcess : public testing::TestWithParam<std::tuple<Ends, bool>> {};

TEST_P(PeerProcess, IsWhoHoldsTheClientsEnd) {
  const auto [ends, use_diag] = GetParam();
  Connection connection(ends.server, ends.client);
  if (!connection.opened) GTEST_SKIP() << "no IPv6 here";
  PeerProcesses processes(use_diag);
  EXPECT_EQ(processes.Find(connection.peer, connection.own), connection.holder);
  EXPECT_EQ(processes.Find(connection.own, connection.peer), getpid()) << "the other way round";
  connection.Close();
  EXPECT_EQ(processes.Find(connection.peer, connection.own), 0) << "it is gone";
}

INSTANTIATE_TEST_SUITE_P(All, PeerProcess,
                         testing::Combine(testing::Values(Ends{"", ""}, Ends{"::", ""}, Ends{"::", "::ffff:127.0.0.1"},
                                                          Ends{"::1", "::1"}),
                                          testing::Bool()));

TEST(SocketDiag, ToldApartFromTheListenerOfThePort) {
  Connection connection("", "");
  SocketDiag diag;
  const auto inode = diag.InodeOf(connection.peer, connection.own);
  if (!inode) GTEST_SKIP() << "this kernel is not asked for single sockets";
  EXPECT_NE(*inode, 0u);
  // Nobody connects from there: the kernel would answer with a listener of the own end's port.
  model::SocketAddress nobody = connection.peer;
  nobody.port = nobody.port == 1 ? 2 : 1;
  EXPECT_EQ(diag.InodeOf(connection.own, nobody), 0u);
  EXPECT_EQ(diag.InodeOf(nobody, connection.own), 0u);
}

}  // namespace
}  // namespace tailspan::collect::http
