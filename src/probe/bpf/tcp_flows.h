// Which sockets belong to followed processes: those that a followed thread was seen to wait at, by addresses and ports,
// from either end.
#ifndef TAILSPAN_PROBE_BPF_TCP_FLOWS_H_
#define TAILSPAN_PROBE_BPF_TCP_FLOWS_H_

#include "socket_facts.h"

INLINE struct WireFlowState* FindFlow(const struct sock* sk, struct WireFlow* flow) {
  __builtin_memset(flow, 0, sizeof(*flow));
  ReadFlow(sk, &flow->family, flow->local, flow->remote, &flow->local_port, &flow->remote_port);
  return bpf_map_lookup_elem(&flows, flow);
}

INLINE struct WireFlowState* FindReversedFlow(const struct WireFlow* flow) {
  struct WireFlow reversed;
  __builtin_memcpy(reversed.local, flow->remote, 16);
  __builtin_memcpy(reversed.remote, flow->local, 16);
  reversed.local_port = flow->remote_port;
  reversed.remote_port = flow->local_port;
  reversed.family = flow->family;
  reversed.pad = 0;
  return bpf_map_lookup_elem(&flows, &reversed);
}

#endif  // TAILSPAN_PROBE_BPF_TCP_FLOWS_H_
