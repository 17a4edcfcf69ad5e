// Optional: when a followed process's socket became readable. Told once for each time that the reader had caught up.
#include "tcp_flows.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/sk_data_ready")
int BPF_PROG(OnDataReady, const struct sock* sk) {
  struct WireFlow flow;
  struct WireFlowState* known = FindFlow(sk, &flow);
  if (!known) return 0;
  u32 copied = BPF_CORE_READ((struct tcp_sock*)sk, copied_seq);
  if (known->told && known->copied_seq == copied) return 0;
  known->told = 1;
  known->copied_seq = copied;
  struct WireReadyRecord* record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
  if (!record) {
    Count(kWireRingFull, 1);
    return 0;
  }
  record->type = kWireReady;
  record->pad = 0;
  record->at_mono_ns = bpf_ktime_get_ns();
  record->inode = SocketInode(sk);
  __builtin_memcpy(&record->flow, &flow, sizeof(flow));
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  Count(kWireRecords, 1);
  return 0;
}
