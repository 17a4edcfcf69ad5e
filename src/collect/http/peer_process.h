// Which process of this host holds the other end of a loopback connection. LangSmith's runs do not say who sent them.
#pragma once

#include <cstdint>
#include <vector>

namespace tailspan::collect::http {

// One thread. Finding a process anew reads every process' descriptors (milliseconds); one seen before is tried first.
class PeerProcesses {
 public:
  // The process with a TCP socket from `peer_port` to `own_port`; 0 when it is not to be seen: gone, in another network
  // namespace, or another user's without the privilege to look.
  int32_t Find(uint16_t peer_port, uint16_t own_port);

 private:
  std::vector<int32_t> recent_;  // the newest first, bounded
};

}  // namespace tailspan::collect::http
