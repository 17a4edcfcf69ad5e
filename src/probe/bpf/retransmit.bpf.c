// Optional: TCP segments that were sent again, for sockets either end of which belongs to a followed process.
#include "tcp_flows.h"

char LICENSE[] SEC("license") = "GPL";

enum { kFirstTimeoutUs = 1000000, kBackoffMax = 16 };

// The sender's timeout as it stands, by RFC 6298 as the kernel computes it (tcp_set_rto): its own copy is in ticks,
// whose length the kernel tells only by files that containers and some hosts lack.
INLINE u64 TimeoutNs(const struct sock* sk) {
  u64 smoothed_us = BPF_CORE_READ((struct tcp_sock*)sk, srtt_us) >> 3;  // kept in eighths
  u64 timeout_us = kFirstTimeoutUs;                                     // nothing measured yet
  if (smoothed_us) timeout_us = smoothed_us + BPF_CORE_READ((struct tcp_sock*)sk, rttvar_us);
  u64 doubled = BPF_CORE_READ((struct inet_connection_sock*)sk, icsk_backoff);
  if (doubled > kBackoffMax) doubled = kBackoffMax;
  return (timeout_us << doubled) * 1000;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(OnRetransmit, const struct sock* sk) {
  struct WireFlow flow;
  struct WireFlowState* known = FindFlow(sk, &flow);
  if (!known) known = FindReversedFlow(&flow);
  if (!known) return 0;
  struct WireRetransmitRecord* record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
  if (!record) {
    Count(kWireRingFull, 1);
    return 0;
  }
  u32 total = BPF_CORE_READ((struct tcp_sock*)sk, total_retrans);
  record->type = kWireRetransmit;
  record->total_retransmits = total;
  record->at_mono_ns = bpf_ktime_get_ns();
  record->inode = SocketInode(sk);
  record->rto_ns = TimeoutNs(sk);
  // When sending began after all had been acknowledged, or the send time of what was acknowledged last: microseconds of
  // CLOCK_MONOTONIC, never later than when the lost segment was first sent.
  record->sent_mono_ns = BPF_CORE_READ((struct tcp_sock*)sk, first_tx_mstamp) * 1000;
  record->segments = 1;
  record->round_trip_us = BPF_CORE_READ((struct tcp_sock*)sk, srtt_us) >> 3;  // kept in eighths
  __builtin_memcpy(&record->flow, &flow, sizeof(flow));
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  Count(kWireRecords, 1);
  return 0;
}
