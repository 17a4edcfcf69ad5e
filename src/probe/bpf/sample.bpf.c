// Optional: what followed threads run, by sampling the CPU clock.
#include "context.h"

char LICENSE[] SEC("license") = "GPL";

struct bpf_perf_event_data;

SEC("perf_event")
int OnSample(void* context) {
  struct task_struct* task = bpf_get_current_task_btf();
  struct WireThreadState* state = FollowedState(task);
  if (!state) return 0;
  struct WireSampleRecord* record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
  if (!record) {
    Count(kWireRingFull, 1);
    return 0;
  }
  record->type = kWireSample;
  record->tid = task->pid;
  record->tgid = task->tgid;
  record->at_mono_ns = bpf_ktime_get_ns();
  record->span_id = 0;
  // The user's instruction stands first in the user stack, also when the sample hit the kernel.
  u64 address = 0, kernel = 0;
  bpf_get_stack(context, &address, sizeof(address), BPF_F_USER_STACK);
  record->in_kernel = bpf_get_stack(context, &kernel, sizeof(kernel), 0) > 0;
  record->address = address;
  const struct WireLayout* layout = LayoutOf(task, state);
  if (layout->flags & kWireHasContext) {
    struct WireContext seen;
    if (ReadContext(task, layout, &seen) == kContextRead) record->span_id = seen.span_id;
  }
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  Count(kWireRecords, 1);
  return 0;
}
