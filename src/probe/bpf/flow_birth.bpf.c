// Optional: learns the connections of followed processes when they are made, so that those which are only ever waited
// for through epoll are known too. An accepted connection belongs to whoever listens on its port.
#include "tcp_flows.h"

char LICENSE[] SEC("license") = "GPL";

enum { kTcpEstablished = 1, kTcpClose = 7, kTcpListen = 10, kConnectingMax = 4096 };

// Sockets on their way to ESTABLISHED: the answer comes in an interrupt, and the port is chosen after SYN_SENT is told.
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, kConnectingMax);
  __type(key, u64);
  __type(value, u32);
} connecting SEC(".maps");

INLINE void Note(const struct WireFlow* flow, u32 tgid) {
  struct WireFlowState fresh = {.tgid = tgid};
  if (bpf_map_update_elem(&flows, flow, &fresh, BPF_ANY)) Count(kWireFlowsFull, 1);
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
      if (FollowedState(bpf_get_current_task_btf())) bpf_map_update_elem(&connecting, &key, &tgid, BPF_ANY);
      return 0;
    case kTcpListen:
      if (!FollowedState(bpf_get_current_task_btf())) return 0;
      FindFlow(sk, &flow);
      KeepPort(&flow);
      Note(&flow, tgid);
      return 0;
    case kTcpEstablished: {
      if (FindFlow(sk, &flow)) return 0;
      u32* connector = bpf_map_lookup_elem(&connecting, &key);
      if (connector) {
        Note(&flow, *connector);
        bpf_map_delete_elem(&connecting, &key);
        return 0;
      }
      struct WireFlow listener = flow;
      KeepPort(&listener);
      struct WireFlowState* known = bpf_map_lookup_elem(&flows, &listener);
      if (known) Note(&flow, known->tgid);
      return 0;
    }
    case kTcpClose:
      if (FindFlow(sk, &flow)) bpf_map_delete_elem(&flows, &flow);
      return 0;
    default:
      return 0;
  }
}
