#include "analyze/network.h"

#include <fmt/format.h>

#include <algorithm>

namespace tailspan::analyze {

using model::Retransmission;
using model::SocketAddress;
using model::SocketInfo;
using model::TargetKind;

Network::Network(const Timeline& timeline) : timeline_(timeline) {
  const model::RecordBatch& batch = timeline.batch();
  for (const Retransmission& r : batch.retransmissions) retransmissions_[{r.local, r.remote}].push_back(&r);
  for (const model::SocketReady& r : batch.sockets_ready) ready_[{r.local, r.remote}].push_back(r.at_mono_ns);
  for (const SocketInfo& info : batch.sockets) {
    by_fd_[{info.pid, info.fd}].push_back(&info);
    if (info.local.family) owner_by_local_[info.local] = info.pid;
  }
  for (const model::ThreadInterval& interval : batch.intervals) {
    if (interval.target.kind == TargetKind::kSocket && interval.target.local.family) {
      owner_by_local_.try_emplace(interval.target.local, interval.pid);
    }
  }
  for (auto& [pair, list] : retransmissions_) {
    std::sort(list.begin(), list.end(),
              [](const Retransmission* a, const Retransmission* b) { return a->at_mono_ns < b->at_mono_ns; });
  }
  for (auto& [pair, list] : ready_) std::sort(list.begin(), list.end());
  for (auto& [key, list] : by_fd_) {
    std::sort(list.begin(), list.end(),
              [](const SocketInfo* a, const SocketInfo* b) { return a->from_mono_ns < b->from_mono_ns; });
  }
}

Connection Network::ConnectionOf(int32_t pid, int32_t fd, int64_t at_ns) const {
  auto it = by_fd_.find({pid, fd});
  if (it == by_fd_.end()) return {};
  const SocketInfo* best = nullptr;
  for (const SocketInfo* info : it->second) {
    if (info->from_mono_ns <= at_ns || !best) best = info;
  }
  return {best->local, best->remote, best->inode};
}

int64_t Network::ReadyAt(const Connection& connection, int64_t from_ns, int64_t to_ns) const {
  auto it = ready_.find({connection.local, connection.remote});
  if (it == ready_.end()) return 0;
  auto first = std::upper_bound(it->second.begin(), it->second.end(), from_ns);
  return first == it->second.end() || *first > to_ns ? 0 : *first;
}

Repair Network::RepairIn(const Connection& connection, int64_t from_ns, int64_t to_ns) const {
  Repair out;
  if (!connection.known()) return out;
  const Retransmission* first = nullptr;
  int64_t last_ns = 0, rto_sum_ns = 0;
  uint32_t count = 0;
  bool first_is_ours = false;
  for (bool ours : {true, false}) {
    Pair pair = ours ? Pair(connection.local, connection.remote) : Pair(connection.remote, connection.local);
    auto it = retransmissions_.find(pair);
    if (it == retransmissions_.end()) continue;
    for (const Retransmission* r : it->second) {
      if (r->at_mono_ns <= from_ns || r->at_mono_ns > to_ns) continue;
      if (!first || r->at_mono_ns < first->at_mono_ns) {
        first = r;
        first_is_ours = ours;
      }
      last_ns = std::max(last_ns, r->at_mono_ns);
      rto_sum_ns += r->rto_ns;
      count += r->segments;
    }
  }
  if (!first) return out;
  // The repair ends with the delivery that the last retransmission brought: when the socket became readable, else the
  // end of the wait. The lost segment was sent one timeout before the first retransmission; that was the last work on
  // this exchange.
  int64_t ready_ns = ReadyAt(connection, last_ns, to_ns);
  out.end_ns = ready_ns ? ready_ns : to_ns;
  int64_t sent_ns = std::min(first->at_mono_ns, first->at_mono_ns - first->rto_ns);
  out.start_ns = std::max({from_ns, sent_ns, rto_sum_ns > 0 ? out.end_ns - rto_sum_ns : from_ns});
  out.start_ns = std::min(out.start_ns, std::max(from_ns, first->at_mono_ns));
  out.evidence =
      fmt::format("{} retransmission{} on {} > {}, {}", count, count == 1 ? "" : "s", model::ToText(connection.local),
                  model::ToText(connection.remote), first_is_ours ? "sent by us" : "sent by the peer");
  return out;
}

int32_t Network::PeerPid(const Connection& connection) const {
  auto it = owner_by_local_.find(connection.remote);
  if (it != owner_by_local_.end()) return it->second;
  // A listening socket is bound to the wildcard address: the port alone, when only one followed process has it.
  int32_t found = 0;
  for (const auto& [address, pid] : owner_by_local_) {
    if (address.port != connection.remote.port) continue;
    if (found && found != pid) return 0;
    found = pid;
  }
  return found;
}

std::string Network::PeerName(const Connection& connection) const {
  if (!connection.known()) return {};
  if (int32_t pid = PeerPid(connection)) {
    if (const model::ProcessInfo* process = timeline_.Process(pid)) return process->comm;
  }
  return model::ToText(connection.remote);
}

}  // namespace tailspan::analyze
