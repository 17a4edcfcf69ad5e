// Optional, where mm_filemap_fault is missing: the address of a user page fault; the loader finds the file by it.
#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/page_fault_user")
int BPF_PROG(OnUserFault, unsigned long address) {
  struct WireThreadState* state = FollowedState(bpf_get_current_task_btf());
  if (!state) return 0;
  state->fault_mono_ns = bpf_ktime_get_ns();
  state->fault_address = address;
  state->fault_inode = 0;
  return 0;
}
