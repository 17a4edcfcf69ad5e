#include "collect/http/socket_diag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace tailspan::collect::http {
namespace {

struct Question {
  nlmsghdr head;
  inet_diag_req_v2 body;
};

constexpr size_t kAnswerBytesMax = 4096;

}  // namespace

SocketDiag::~SocketDiag() {
  if (fd_ >= 0) close(fd_);
}

// The kernel answers before send returns.
int SocketDiag::Ask(const model::SocketAddress& local, const model::SocketAddress& remote, uint64_t* inode) {
  if (fd_ < 0) fd_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd_ < 0) return -errno;
  Question question{};
  question.head.nlmsg_len = sizeof question;
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.head.nlmsg_seq = ++sequence_;
  question.body.sdiag_family = local.family;
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = ~0u;
  inet_diag_sockid& id = question.body.id;
  id.idiag_sport = htons(local.port);
  id.idiag_dport = htons(remote.port);
  std::memcpy(id.idiag_src, local.bytes.data(), sizeof id.idiag_src);
  std::memcpy(id.idiag_dst, remote.bytes.data(), sizeof id.idiag_dst);
  std::fill(std::begin(id.idiag_cookie), std::end(id.idiag_cookie), INET_DIAG_NOCOOKIE);
  if (send(fd_, &question, sizeof question, 0) < 0) return -errno;
  while (true) {
    alignas(nlmsghdr) char answer[kAnswerBytesMax];
    const ssize_t n = recv(fd_, answer, sizeof answer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    const auto* head = reinterpret_cast<const nlmsghdr*>(answer);
    if (!NLMSG_OK(head, static_cast<uint32_t>(n))) return -EPROTO;
    if (head->nlmsg_seq != sequence_) continue;  // to a question that was given up
    if (head->nlmsg_type == NLMSG_ERROR && head->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr)))
      return static_cast<const nlmsgerr*>(NLMSG_DATA(head))->error;
    if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY || head->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
      return -EPROTO;
    const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(head));
    // With no such connection the kernel names who listens on the port.
    if (found->id.idiag_sport != id.idiag_sport || found->id.idiag_dport != id.idiag_dport) return -ENOENT;
    *inode = found->idiag_inode;
    return 0;
  }
}

std::optional<uint64_t> SocketDiag::InodeOf(const model::SocketAddress& local, const model::SocketAddress& remote) {
  if (local.family == 0 || local.family != remote.family) return std::nullopt;
  uint64_t inode = 0;
  const int error = Ask(local, remote, &inode);
  if (error == 0) {
    has_answered_ = true;
    return inode;
  }
  if (error != -ENOENT) return std::nullopt;
  // A kernel without inet_diag says the same. The other end tells which it is: whoever asks has it open.
  uint64_t other = 0;
  if (!has_answered_) has_answered_ = Ask(remote, local, &other) == 0;
  if (!has_answered_) return std::nullopt;
  return 0;
}

}  // namespace tailspan::collect::http
