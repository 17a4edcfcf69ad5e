// Optional, x86 only: marks the CPU's own timer interrupt, which does not pass through irq_handler_entry there.
#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

INLINE int Mark(u32 set, u32 clear) {
  u32 zero = 0;
  struct WireIrqState* state = bpf_map_lookup_elem(&irq_state, &zero);
  if (state) state->bits = (state->bits & ~clear) | set;
  return 0;
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(OnTimerEntry) { return Mark(kWireIrqTimer, 0); }
SEC("tp_btf/local_timer_exit")
int BPF_PROG(OnTimerExit) { return Mark(0, kWireIrqTimer); }
