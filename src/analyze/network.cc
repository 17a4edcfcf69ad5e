#include "analyze/network.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

namespace tailspan::analyze {

using model::Retransmission;
using model::SocketAddress;
using model::SocketInfo;
using model::TargetKind;

namespace {

constexpr int64_t kTimerSlackNs = 10'000'000;

// The latest owner until then, else the first one after; 0 none.
template <typename Owners, typename Key>
int32_t OwnerAt(const Owners& owners, const Key& key, int64_t at_ns) {
  auto it = owners.find(key);
  if (it == owners.end()) return 0;
  auto after = std::upper_bound(it->second.begin(), it->second.end(), at_ns,
                                [](int64_t value, const auto& owner) { return value < owner.from_ns; });
  return after == it->second.begin() ? after->pid : std::prev(after)->pid;
}

template <typename Owners>
void SortByTime(Owners* owners) {
  for (auto& [key, list] : *owners) {
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.from_ns < b.from_ns; });
  }
}

SocketAddress WithoutPort(SocketAddress address) {
  address.port = 0;
  return address;
}

bool IsWildcard(const SocketAddress& address) {
  return std::all_of(address.bytes.begin(), address.bytes.end(), [](uint8_t byte) { return byte == 0; });
}

bool IsLoopback(const SocketAddress& address) {
  if (address.family == AF_INET) return address.bytes[0] == 127;
  return std::all_of(address.bytes.begin(), address.bytes.end() - 1, [](uint8_t byte) { return byte == 0; }) &&
         address.bytes.back() == 1;
}

}  // namespace

Network::Network(const Timeline& timeline) : timeline_(timeline) {
  const model::RecordBatch& batch = timeline.batch();
  for (const Retransmission& r : batch.retransmissions) retransmissions_[{r.local, r.remote}].push_back(&r);
  for (const model::SocketReady& r : batch.sockets_ready) ready_[{r.local, r.remote}].push_back(r.at_mono_ns);
  for (const SocketInfo& info : batch.sockets) {
    by_fd_[{info.pid, info.fd}].push_back({&info, &info});
    AddOwner(info.local, info.remote, {info.from_mono_ns, info.pid});
  }
  for (const model::ThreadInterval& interval : batch.intervals) {
    if (interval.target.kind == TargetKind::kSocket) {
      AddOwner(interval.target.local, interval.target.remote, {interval.wait_start_mono_ns, interval.pid});
    }
  }
  for (auto& [pair, list] : retransmissions_) {
    std::sort(list.begin(), list.end(),
              [](const Retransmission* a, const Retransmission* b) { return a->at_mono_ns < b->at_mono_ns; });
  }
  for (auto& [pair, list] : ready_) std::sort(list.begin(), list.end());
  for (auto& [key, list] : by_fd_) {
    std::stable_sort(list.begin(), list.end(), [](const Descriptor& a, const Descriptor& b) {
      return std::pair(a.told->from_mono_ns, a.told->remote.family != 0) <
             std::pair(b.told->from_mono_ns, b.told->remote.family != 0);
    });
    for (size_t i = list.size(); i-- > 0;) {
      bool goes_on = i + 1 < list.size() && list[i + 1].told->inode == list[i].told->inode;
      if (!list[i].told->remote.family && goes_on) list[i].known = list[i + 1].known;
    }
  }
  SortByTime(&connected_);
  SortByTime(&listening_);
  SortByTime(&listening_anywhere_);
  for (const auto& [port, owners] : listening_anywhere_) {
    if (AreSeveralServices(owners)) several_services_.insert(port);
  }
}

void Network::AddOwner(const SocketAddress& local, const SocketAddress& remote, Owner owner) {
  if (!local.family) return;
  const bool anywhere = IsWildcard(local);
  if (!anywhere) host_addresses_.insert(WithoutPort(local));
  auto& list = remote.port ? connected_[{local, remote}]
               : anywhere  ? listening_anywhere_[local.port]
                           : listening_[local];
  if (list.empty() || list.back().pid != owner.pid || list.back().from_ns > owner.from_ns) list.push_back(owner);
}

Connection Network::ConnectionOf(int32_t pid, int32_t fd, int64_t at_ns) const {
  auto it = by_fd_.find({pid, fd});
  if (it == by_fd_.end()) return {};
  const auto& list = it->second;
  auto after = std::upper_bound(list.begin(), list.end(), at_ns,
                                [](int64_t value, const Descriptor& one) { return value < one.told->from_mono_ns; });
  const Descriptor& best = after == list.begin() ? list.front() : *std::prev(after);
  if (best.told->from_mono_ns > at_ns && best.told->registered) return {};
  // Not connected yet when it was told: the same socket's next entry knows more.
  return {best.known->local, best.known->remote, best.known->inode};
}

int64_t Network::ReadyAt(const Connection& connection, int64_t from_ns, int64_t to_ns) const {
  auto it = ready_.find({connection.local, connection.remote});
  if (it == ready_.end()) return 0;
  auto first = std::upper_bound(it->second.begin(), it->second.end(), from_ns);
  return first == it->second.end() || *first > to_ns ? 0 : *first;
}

// When the segment was sent whose loss this event repaired. The sender says when it sent after all had been
// acknowledged, or the last that was; that is the lost segment's own time unless others of its flight arrived. A timer
// fires up to an eighth late (the kernel's timer wheel) and some ticks: what would be longer ago is not this loss.
int64_t Network::SentAt(const Retransmission& event, const Retransmission* before) {
  const int64_t earliest_ns = event.at_mono_ns - event.rto_ns - event.rto_ns / 8 - kTimerSlackNs;
  const int64_t before_ns = before ? before->at_mono_ns : 0;
  if (event.sent_mono_ns >= std::max(earliest_ns, before_ns)) return std::min(event.sent_mono_ns, event.at_mono_ns);
  if (before_ns >= earliest_ns) return before_ns;  // the same segment again
  return event.at_mono_ns - event.rto_ns;
}

// When what was sent last arrived at us; 0 when nothing new came of it: then only its acknowledgement had been lost,
// and nobody waited for it.
int64_t Network::DeliveredAt(const Connection& connection, const Retransmission& event, int64_t to_ns) const {
  const int64_t latest_ns = event.at_mono_ns + 2 * event.round_trip_ns + kTimerSlackNs;
  if (ready_.count({connection.local, connection.remote}))
    return ReadyAt(connection, event.at_mono_ns, std::min(to_ns, latest_ns));
  return to_ns <= latest_ns ? to_ns : event.at_mono_ns;
}

// One direction's losses within a wait, each with all the times it was sent.
void Network::AddRepairs(const Connection& connection, bool ours, int64_t from_ns, int64_t to_ns,
                         std::vector<Repair>* out) const {
  Pair pair = ours ? Pair(connection.local, connection.remote) : Pair(connection.remote, connection.local);
  auto it = retransmissions_.find(pair);
  if (it == retransmissions_.end()) return;
  const std::vector<const Retransmission*>& events = it->second;
  std::optional<Repair> open;
  auto first = std::upper_bound(events.begin(), events.end(), from_ns,
                                [](int64_t value, const Retransmission* event) { return value < event->at_mono_ns; });
  for (auto i = static_cast<size_t>(first - events.begin()); i < events.size(); ++i) {
    const Retransmission& event = *events[i];
    if (event.at_mono_ns > to_ns) break;
    const Retransmission* before = i ? events[i - 1] : nullptr;
    const int64_t sent_ns = SentAt(event, before);
    const bool again = open && before && sent_ns == before->at_mono_ns;
    if (!again) open = Repair{std::max(from_ns, sent_ns), 0, 0, 0, 0};
    (ours ? open->segments_ours : open->segments_theirs) += event.segments;
    open->last_mono_ns = event.at_mono_ns;
    const Retransmission* next = i + 1 < events.size() ? events[i + 1] : nullptr;
    if (next && next->at_mono_ns <= to_ns && SentAt(*next, &event) == event.at_mono_ns) continue;
    open->end_ns = ours ? event.at_mono_ns : DeliveredAt(connection, event, to_ns);
    if (open->end_ns > open->start_ns) out->push_back(*open);
  }
}

std::vector<Repair> Network::RepairsIn(const Connection& connection, int64_t from_ns, int64_t to_ns) const {
  std::vector<Repair> all, joined;
  if (!connection.known()) return joined;
  for (bool ours : {true, false}) AddRepairs(connection, ours, from_ns, to_ns, &all);
  std::sort(all.begin(), all.end(), [](const Repair& a, const Repair& b) { return a.start_ns < b.start_ns; });
  for (const Repair& repair : all) {
    if (joined.empty() || repair.start_ns > joined.back().end_ns) {
      joined.push_back(repair);
      continue;
    }
    Repair& last = joined.back();
    last.end_ns = std::max(last.end_ns, repair.end_ns);
    last.last_mono_ns = std::max(last.last_mono_ns, repair.last_mono_ns);
    last.segments_ours += repair.segments_ours;
    last.segments_theirs += repair.segments_theirs;
  }
  return joined;
}

bool Network::AreSeveralServices(const std::vector<Owner>& owners) const {
  const model::ProcessInfo* first = timeline_.Process(owners.front().pid);
  return std::any_of(owners.begin(), owners.end(), [&](const Owner& owner) {
    const model::ProcessInfo* process = timeline_.Process(owner.pid);
    return owner.pid != owners.front().pid && (!first || !process || first->comm != process->comm);
  });
}

// Who listens at the address's port, if the address is of this host as far as followed sockets tell. In several network
// namespaces one port may be several services': then it is nobody.
int32_t Network::ListenerAnywhere(const SocketAddress& address, int64_t at_ns) const {
  if (!IsLoopback(address) && !host_addresses_.count(WithoutPort(address))) return 0;
  if (several_services_.count(address.port)) return 0;
  return OwnerAt(listening_anywhere_, address.port, at_ns);
}

int32_t Network::PeerPid(const Connection& connection, int64_t at_ns) const {
  if (!connection.known()) return 0;
  // Ports of short connections come back: the other end's own record of this very connection is the surest.
  if (int32_t pid = OwnerAt(connected_, Pair(connection.remote, connection.local), at_ns)) return pid;
  if (int32_t pid = OwnerAt(listening_, connection.remote, at_ns)) return pid;
  return ListenerAnywhere(connection.remote, at_ns);
}

std::string Network::PeerName(const Connection& connection, int64_t at_ns) const {
  if (!connection.known()) return {};
  if (int32_t pid = PeerPid(connection, at_ns)) {
    if (const model::ProcessInfo* process = timeline_.Process(pid)) return process->comm;
  }
  return model::ToText(connection.remote);
}

}  // namespace tailspan::analyze
