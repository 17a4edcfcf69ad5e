// Optional: learns the connections of followed processes when they are made, so that those which are only ever waited
// for through epoll are known too. An accepted connection belongs to whoever listens on its port.
#include "tcp_flows.h"

char LICENSE[] SEC("license") = "GPL";

enum { kTcpEstablished = 1, kTcpClose = 7, kTcpListen = 10, kConnectingMax = 4096 };

// Whose sockets are on their way to ESTABLISHED: the answer comes in an interrupt, and the port is chosen after
// SYN_SENT is told. Each leaves the table when it is let in or given up.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, kConnectingMax);
  __type(key, u64);
  __type(value, u32);
} connecting SEC(".maps");

INLINE void Note(const struct WireFlow* flow, u32 tgid) {
  struct WireFlowState fresh = {.tgid = tgid};
  struct WireFlowState* known = bpf_map_lookup_elem(&flows, flow);
  if (known) {
    *known = fresh;
  } else {
    AddFlow(flow, &fresh);
  }
}

// Who connects this socket, 0 unknown. It does so no longer.
INLINE u32 TakeConnector(u64 socket) {
  u32* connector = bpf_map_lookup_elem(&connecting, &socket);
  if (!connector) return 0;
  u32 tgid = *connector;
  bpf_map_delete_elem(&connecting, &socket);
  return tgid;
}

// A closed socket has given up its own port by now, but still knows where it sent from.
INLINE void Forget(const struct sock* sk) {
  struct WireFlow flow;
  __builtin_memset(&flow, 0, sizeof(flow));
  ReadFlow(sk, &flow.family, flow.local, flow.remote, &flow.local_port, &flow.remote_port);
  flow.local_port = __builtin_bswap16(BPF_CORE_READ((struct inet_sock*)sk, inet_sport));
  if (bpf_map_lookup_elem(&flows, &flow)) RemoveFlow(&flow);
}

// A listener stands in the same table, by its port alone.
INLINE void KeepPort(struct WireFlow* flow) {
  __builtin_memset(flow->local, 0, 16);
  __builtin_memset(flow->remote, 0, 16);
  flow->remote_port = 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(OnSocketState, const struct sock* sk, int old_state, int new_state) {
  struct WireFlow flow;
  u64 key = (u64)sk;
  u32 tgid = bpf_get_current_pid_tgid() >> 32;
  switch (new_state) {
    case kTcpSynSent:
      if (!FollowedState(bpf_get_current_task_btf())) return 0;
      if (bpf_map_update_elem(&connecting, &key, &tgid, BPF_ANY)) Count(kWireFlowsFull, 1);
      return 0;
    case kTcpListen:
      if (!FollowedState(bpf_get_current_task_btf())) return 0;
      FindFlow(sk, &flow);
      KeepPort(&flow);
      Note(&flow, tgid);
      return 0;
    case kTcpEstablished: {
      u32 connector = old_state == kTcpSynSent ? TakeConnector(key) : 0;
      if (FindFlow(sk, &flow)) return 0;
      if (connector) {
        Note(&flow, connector);
        return 0;
      }
      struct WireFlow listener = flow;
      KeepPort(&listener);
      struct WireFlowState* known = bpf_map_lookup_elem(&flows, &listener);
      if (known) Note(&flow, known->tgid);
      return 0;
    }
    case kTcpClose:
      if (old_state == kTcpSynSent) TakeConnector(key);
      Forget(sk);
      return 0;
    default:
      return 0;
  }
}
