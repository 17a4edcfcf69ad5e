// Walks over the threads of one process that are there already: takes them in, or tells what is open of them.
#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, u32);
} walked_process SEC(".maps");

INLINE struct task_struct* WalkedThread(struct bpf_iter__task* at) {
  struct task_struct* task = at->task;
  u32 zero = 0;
  u32* tgid = bpf_map_lookup_elem(&walked_process, &zero);
  return task && tgid && (u32)task->tgid == *tgid ? task : 0;
}

// Tells the number of each thread that is followed now.
SEC("iter/task")
int TakeIn(struct bpf_iter__task* at) {
  struct task_struct* task = WalkedThread(at);
  if (!task) return 0;
  u32 tid = task->pid;
  if (!bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE)) {
    Count(kWireStorageFailed, 1);
    return 0;
  }
  bpf_seq_write(at->meta->seq, &tid, sizeof(tid));
  return 0;
}

// Tells a WireOpenThread of each thread that is followed.
SEC("iter/task")
int TellOpen(struct bpf_iter__task* at) {
  struct task_struct* task = WalkedThread(at);
  if (!task) return 0;
  u64 tid = task->pid;
  struct WireThreadState* state = bpf_task_storage_get(&threads, task, 0, 0);
  if (!state) return 0;
  bpf_seq_write(at->meta->seq, &tid, sizeof(tid));
  bpf_seq_write(at->meta->seq, state, sizeof(*state));
  return 0;
}
