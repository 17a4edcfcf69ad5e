// Optional: disk requests that a followed thread issued, from issue to completion. Those of kernel threads are left
// out: the wait itself is in the thread's own record.
#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

enum { kRequestsMax = 4096, kOperationMask = 0xff, kOperationWrite = 1 };

struct Pending {
  u64 issue_mono_ns;
  u32 tid, tgid;
};
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, kRequestsMax);
  __type(key, u64);
  __type(value, struct Pending);
} requests SEC(".maps");

INLINE int Begin(u64 request) {
  struct task_struct* task = bpf_get_current_task_btf();
  if (!FollowedState(task)) return 0;
  struct Pending pending = {.issue_mono_ns = bpf_ktime_get_ns(), .tid = task->pid, .tgid = task->tgid};
  if (bpf_map_update_elem(&requests, &request, &pending, BPF_ANY)) Count(kWireRequestsFull, 1);
  return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(OnIssue, struct request* request) { return Begin((u64)request); }

SEC("tp_btf/block_rq_insert")
int BPF_PROG(OnInsert, struct request* request) { return Begin((u64)request); }

SEC("tp_btf/block_rq_complete")
int BPF_PROG(OnComplete, struct request* request, int error, unsigned int bytes) {
  u64 key = (u64)request;
  struct Pending* pending = bpf_map_lookup_elem(&requests, &key);
  if (!pending) return 0;
  struct WireBlockRecord* record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
  if (record) {
    record->type = kWireBlock;
    record->device = BPF_CORE_READ(request, part, bd_dev);
    record->issue_mono_ns = pending->issue_mono_ns;
    record->complete_mono_ns = bpf_ktime_get_ns();
    record->bytes = bytes;
    record->write = (BPF_CORE_READ(request, cmd_flags) & kOperationMask) == kOperationWrite;
    record->tid = pending->tid;
    record->tgid = pending->tgid;
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
    Count(kWireRecords, 1);
  } else {
    Count(kWireRingFull, 1);
  }
  bpf_map_delete_elem(&requests, &key);
  return 0;
}
