// Optional: which mapped file a page fault reads. mm_filemap_fault exists on recent kernels only.
#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(OnFileFault, struct address_space* mapping, unsigned long index) {
  struct WireThreadState* state = FollowedState(bpf_get_current_task_btf());
  if (!state) return 0;
  struct inode* inode = mapping->host;
  state->fault_mono_ns = bpf_ktime_get_ns();
  state->fault_address = index;
  state->fault_inode = BPF_CORE_READ(inode, i_ino);
  state->fault_device = BPF_CORE_READ(inode, i_sb, s_dev);
  state->fault_name[0] = 0;
  struct hlist_node* alias = BPF_CORE_READ(inode, i_dentry.first);
  if (!alias) return 0;
  struct dentry* dentry = (void*)alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
  const unsigned char* name = BPF_CORE_READ(dentry, d_name.name);
  bpf_probe_read_kernel_str(state->fault_name, sizeof(state->fault_name), name);
  return 0;
}
