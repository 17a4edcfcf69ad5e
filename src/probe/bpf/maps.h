// The maps that the kernel programs share. Every object declares them; the loader lets the optional objects use those
// of the hot one.
#ifndef TAILSPAN_PROBE_BPF_MAPS_H_
#define TAILSPAN_PROBE_BPF_MAPS_H_

// clang-format off
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "wire.h"
// clang-format on

// Presence in this map is what "followed" means.
struct {
  __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct WireThreadState);
} threads SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 16 << 20);
} records SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, kWireCounterCount);
  __type(key, u32);
  __type(value, u64);
} counters SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, kWireProcesses);
  __type(key, u32);
  __type(value, struct WireLayout);
} layouts SEC(".maps");

// Grows with each change that the loader makes to the layouts; until then threads go by their copies.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, u32);
} layouts_version SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct WireIrqState);
} irq_state SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, kWireFlows);
  __type(key, struct WireFlow);
  __type(value, struct WireFlowState);
} flows SEC(".maps");

#define INLINE static __attribute__((always_inline)) inline

INLINE void Count(u32 counter, u64 n) {
  u64* value = bpf_map_lookup_elem(&counters, &counter);
  if (value) *value += n;
}

// For what is compared with another count: also right where an interrupt's program counts the same on this CPU.
INLINE void CountExactly(u32 counter, u64 n) {
  u64* value = bpf_map_lookup_elem(&counters, &counter);
  if (value) __sync_fetch_and_add(value, n);
}

enum { kThereAlready = 17 };  // EEXIST

INLINE void AddFlow(const struct WireFlow* flow, const struct WireFlowState* state) {
  long status = bpf_map_update_elem(&flows, flow, state, BPF_NOEXIST);
  if (!status) {
    CountExactly(kWireFlowsAdded, 1);
  } else if (status != -kThereAlready) {  // another CPU may have noted it meanwhile: nothing is lost
    Count(kWireFlowsFull, 1);
  }
}

INLINE void RemoveFlow(const struct WireFlow* flow) {
  if (!bpf_map_delete_elem(&flows, flow)) CountExactly(kWireFlowsRemoved, 1);
}

INLINE struct WireThreadState* FollowedState(struct task_struct* task) {
  return bpf_task_storage_get(&threads, task, 0, 0);
}

// The layout of the thread's process, by the thread's own copy: the table's cache lines are cold at most switches.
INLINE const struct WireLayout* LayoutOf(struct task_struct* task, struct WireThreadState* state) {
  u32 zero = 0;
  u32* version = bpf_map_lookup_elem(&layouts_version, &zero);
  if (version && state->layout_version != *version + 1) {
    state->layout_version = *version + 1;
    u32 tgid = task->tgid;
    const struct WireLayout* layout = bpf_map_lookup_elem(&layouts, &tgid);
    if (layout) {
      __builtin_memcpy(&state->layout, layout, sizeof(state->layout));
    } else {
      __builtin_memset(&state->layout, 0, sizeof(state->layout));
    }
  }
  return &state->layout;
}

#endif  // TAILSPAN_PROBE_BPF_MAPS_H_
