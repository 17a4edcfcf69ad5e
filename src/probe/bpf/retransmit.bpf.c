// Optional: TCP segments that were sent again, for sockets either end of which belongs to a followed process.
#include "tcp_flows.h"

char LICENSE[] SEC("license") = "GPL";

// The kernel counts timeouts in ticks. Zero where it does not publish its configuration; 250 is what most are built
// with.
extern int CONFIG_HZ __kconfig __weak;
enum { kUsualTicksPerSecond = 250 };

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
  u64 ticks = BPF_CORE_READ((struct inet_connection_sock*)sk, icsk_rto);
  u64 per_second = CONFIG_HZ > 0 ? CONFIG_HZ : kUsualTicksPerSecond;
  record->rto_ns = ticks * (1000000000ull / per_second);
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
