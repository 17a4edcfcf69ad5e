// Waits on sockets: who the peer is, when the socket was ready, and how much of a wait was the repair of a lost
// segment.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analyze/timeline.h"

namespace tailspan::analyze {

struct Connection {
  model::SocketAddress local, remote;
  uint64_t inode = 0;
  bool known() const { return remote.family != 0; }
};

// A part of a wait on a socket in which something lost was missing: from its sending until its delivery.
struct Repair {
  int64_t start_ns = 0, end_ns = 0;
  int64_t last_mono_ns = 0;  // the last time that it was sent
  uint32_t segments_ours = 0, segments_theirs = 0;
};

class Network {
 public:
  explicit Network(const Timeline& timeline);

  // The connection behind a descriptor of a process at a time: by its latest entry until then. Before the first one it
  // is that one's if a scan found it, which may be late by a second; none if the process itself told it, for then the
  // descriptor was another's.
  Connection ConnectionOf(int32_t pid, int32_t fd, int64_t at_ns) const;
  // First time in (from, to] at which the connection's socket became readable; 0 unknown.
  int64_t ReadyAt(const Connection& connection, int64_t from_ns, int64_t to_ns) const;
  // Within a wait (from, to] on the connection, in order and apart from each other. A loss is seen when it is repaired:
  // it lasted from when the lost segment was sent, the last moment either end worked on this exchange, until its
  // delivery.
  std::vector<Repair> RepairsIn(const Connection& connection, int64_t from_ns, int64_t to_ns) const;
  // "chroma" when a followed process has the remote end at that time, else "10.0.0.2:8000".
  std::string PeerName(const Connection& connection, int64_t at_ns) const;
  int32_t PeerPid(const Connection& connection, int64_t at_ns) const;  // 0: not followed

 private:
  using Pair = std::pair<model::SocketAddress, model::SocketAddress>;
  static int64_t SentAt(const model::Retransmission& event, const model::Retransmission* before);
  int64_t DeliveredAt(const Connection& connection, const model::Retransmission& event, int64_t to_ns) const;
  void AddRepairs(const Connection& connection, bool ours, int64_t from_ns, int64_t to_ns,
                  std::vector<Repair>* out) const;

  struct Owner {
    int64_t from_ns;
    int32_t pid;
  };
  template <typename Key>
  using Owners = std::map<Key, std::vector<Owner>>;  // by time

  void AddOwner(const model::SocketAddress& local, const model::SocketAddress& remote, Owner owner);
  bool AreSeveralServices(const std::vector<Owner>& owners) const;
  int32_t ListenerAnywhere(const model::SocketAddress& address, int64_t at_ns) const;

  const Timeline& timeline_;
  std::map<Pair, std::vector<const model::Retransmission*>> retransmissions_;
  std::map<Pair, std::vector<int64_t>> ready_;
  Owners<Pair> connected_;                         // by (local, remote)
  Owners<model::SocketAddress> listening_;         // at an address
  Owners<uint16_t> listening_anywhere_;            // at the wildcard address: by port
  std::set<uint16_t> several_services_;            // of these ports
  std::set<model::SocketAddress> host_addresses_;  // of local ends; port 0
  struct Descriptor {
    const model::SocketInfo* told;
    const model::SocketInfo* known;  // the same socket's next entry that knows its remote end; without one its last
  };
  std::map<std::pair<int32_t, int32_t>, std::vector<Descriptor>> by_fd_;  // by time
};

}  // namespace tailspan::analyze
