// Asks the kernel for one TCP socket by its two ends (sock_diag(7)), however many sockets the host has. Needs no
// privilege; sees this process's network namespace. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "model/kernel.h"

namespace tailspan::collect::http {

class SocketDiag {
 public:
  SocketDiag() = default;
  ~SocketDiag();
  SocketDiag(const SocketDiag&) = delete;
  SocketDiag& operator=(const SocketDiag&) = delete;

  // The inode of the socket whose own end is `local`; 0: there is none, or nobody holds it any more. nullopt where the
  // kernel does not answer such questions. An IPv4 address also finds an IPv6 socket that has it mapped.
  std::optional<uint64_t> InodeOf(const model::SocketAddress& local, const model::SocketAddress& remote);

 private:
  // As InodeOf, with -errno of the kernel's refusal.
  int Ask(const model::SocketAddress& local, const model::SocketAddress& remote, uint64_t* inode);

  int fd_ = -1;
  uint32_t sequence_ = 0;
  bool has_answered_ = false;  // found a socket once
};

}  // namespace tailspan::collect::http
