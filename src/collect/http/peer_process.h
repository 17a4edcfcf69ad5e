// Which process of this host holds the other end of a loopback connection. LangSmith's runs do not say who sent them.
#pragma once

#include <cstdint>
#include <vector>

#include "collect/http/socket_diag.h"
#include "model/kernel.h"

namespace tailspan::collect::http {

// One thread. Finding a process anew reads every process' descriptors (milliseconds); one seen before is tried first.
class PeerProcesses {
 public:
  // `use_diag` false: as on a kernel that is not asked for single sockets, by the table of all.
  explicit PeerProcesses(bool use_diag = true) : use_diag_(use_diag) {}

  // The process with a TCP socket from `peer` to `own`; 0 when it is not to be seen: gone, in another network
  // namespace, or another user's without the privilege to look.
  int32_t Find(const model::SocketAddress& peer, const model::SocketAddress& own);

 private:
  bool use_diag_;
  SocketDiag diag_;
  std::vector<int32_t> recent_;  // the newest first, bounded
};

}  // namespace tailspan::collect::http
