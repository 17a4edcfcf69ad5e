// Optional: marks each CPU as being in an interrupt, so that a waking says whether a device, a timer or the network
// made it. Without these programs only wakings on an idle CPU are known to be interrupts.
#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

INLINE struct WireIrqState* Here(void) {
  u32 zero = 0;
  return bpf_map_lookup_elem(&irq_state, &zero);
}

INLINE int Enter(u32 bit) {
  struct WireIrqState* state = Here();
  if (state) state->bits |= bit;
  return 0;
}

INLINE int Leave(u32 bit) {
  struct WireIrqState* state = Here();
  if (state) state->bits &= ~bit;
  return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(OnIrqEntry) { return Enter(kWireIrqHard); }
SEC("tp_btf/irq_handler_exit")
int BPF_PROG(OnIrqExit) { return Leave(kWireIrqHard); }
SEC("tp_btf/softirq_entry")
int BPF_PROG(OnSoftirqEntry, unsigned int vector) {
  struct WireIrqState* state = Here();
  if (!state) return 0;
  state->bits |= kWireIrqSoft;
  state->vector = vector;
  return 0;
}
SEC("tp_btf/softirq_exit")
int BPF_PROG(OnSoftirqExit) { return Leave(kWireIrqSoft); }
