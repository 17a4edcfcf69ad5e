// The two always-on programs (sched_switch, sched_waking) and the bookkeeping of fork, exec and exit.
//
// Each followed thread's life is cut into consecutive windows and waits (wire.h). Accounting happens only at switches,
// so on-CPU time is measured from switch-in to switch-out and a stretch without a switch costs nothing. The logic
// stands in inline functions below thin program wrappers.
#include "context.h"
#include "wait_facts.h"

char LICENSE[] SEC("license") = "GPL";

const volatile __u64 threshold_ns = 50000;     // waits from here on are records of their own
const volatile __u64 gil_threshold_ns = 5000;  // lower, since who released the GIL when is known from these records
const volatile __u64 flush_ns = 10000000;      // short waits are told at least this often
const volatile __u32 drop_per_mille = 0;       // test option: records lost on purpose
const volatile __u32 cpu_mask = 0;             // CPUs that the history map holds, a power of two, minus one

// Who had each CPU, by switch. The one thing kept of processes that are not followed.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct WireCpuHistory);
} cpu_history SEC(".maps");

// Commands that are not followed from their exec on.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, kWireExcludedComms);
  __uint(key_size, kWireCommBytes);
  __uint(value_size, 4);
} excluded SEC(".maps");

// For a window that ends between two switches, where the scheduler's book is not up to date.
#define kBookUnread (~0ull)

INLINE bool DropOnPurpose(u64 covered_ns) {
  if (!drop_per_mille || bpf_get_prandom_u32() % 1000 >= drop_per_mille) return false;
  Count(kWireDropped, 1);
  Count(kWireDroppedNs, covered_ns);
  return true;
}

// Starts the next window at start. A record that was lost leaves its number unused, and so shows.
INLINE void NextWindow(struct WireThreadState* state, u64 start, u64 runtime) {
  state->sequence++;
  state->window_start = start;
  state->on_cpu_ns = 0;
  state->runtime_base = runtime;
  state->window_flags = 0;
  if (state->has_short) {
    __builtin_memset(state->short_ns, 0, sizeof(state->short_ns));
    __builtin_memset(state->short_count, 0, sizeof(state->short_count));
    state->has_short = 0;
  }
}

INLINE void FillWindow(struct WireWindow* window, struct WireThreadState* state, struct task_struct* task, u32 type,
                       u64 end, u64 runtime) {
  window->type = type;
  window->flags = state->window_flags;
  window->tid = task->pid;
  window->tgid = task->tgid;
  window->start_time_ns = task->start_time;
  window->sequence = state->sequence;
  window->start_mono_ns = state->window_start;
  window->end_mono_ns = end;
  window->on_cpu_ns = state->on_cpu_ns;
  window->runtime_ns = runtime == kBookUnread ? kBookUnread : runtime - state->runtime_base;
  __builtin_memcpy(&window->context, &state->context, sizeof(window->context));
  __builtin_memcpy(window->short_ns, state->short_ns, sizeof(window->short_ns));
  __builtin_memcpy(window->short_count, state->short_count, sizeof(window->short_count));
}

// Tells the window [window_start, end) and starts the next one there.
static __attribute__((noinline)) int EmitFlush(struct WireThreadState* state, struct task_struct* task, u64 end,
                                               u64 runtime) {
  if (!state || !task) return 0;
  u64 covered = end - state->window_start;
  if (!covered) return 0;
  if (!DropOnPurpose(covered)) {
    struct WireWindow* window = bpf_ringbuf_reserve(&records, sizeof(*window), 0);
    if (window) {
      FillWindow(window, state, task, kWireFlush, end, runtime);
      bpf_ringbuf_submit(window, BPF_RB_NO_WAKEUP);
      Count(kWireRecords, 1);
    } else {
      Count(kWireRingFull, 1);
      Count(kWireRingFullNs, covered);
    }
  }
  NextWindow(state, end, runtime);
  return 0;
}

// Books one piece of a CPU's time with its occupant. With more occupants than places the smallest gives way, so whoever
// ran longest is kept unless it ran in many short pieces; what gave way is counted as other.
INLINE void AddOccupant(struct WireWait* wait, const struct WireCpuSlot* slot, u64 ns) {
  struct WireOccupant* smallest = &wait->occupants[0];
  for (int k = 0; k < kWireOccupants; k++) {
    struct WireOccupant* one = &wait->occupants[k];
    if (one->tid == slot->tid) {
      one->ns += ns;
      return;
    }
    if (one->ns < smallest->ns) smallest = one;
  }
  if (ns <= smallest->ns) {
    wait->occupant_other_ns += ns;
    return;
  }
  wait->occupant_other_ns += smallest->ns;
  smallest->tid = slot->tid;
  smallest->tgid = slot->tgid;
  smallest->cgroup_id = slot->cgroup_id;
  smallest->ns = ns;
  __builtin_memcpy(smallest->comm, slot->comm, sizeof(smallest->comm));
}

struct HistoryWalk {
  struct WireCpuHistory* history;
  struct WireWait* wait;
  u64 from, end;
};

// One step back in the CPU's switches. Returns 1 to stop.
static long WalkBack(u32 step, struct HistoryWalk* walk) {
  struct WireCpuHistory* history = walk->history;
  struct WireWait* wait = walk->wait;
  struct WireCpuSlot* slot = &history->slots[((u32)history->head - step) & (kWireSlots - 1)];
  u64 since = slot->since_mono_ns;
  u64 begin = since > walk->from ? since : walk->from;
  if (!since || begin > walk->end) return 1;
  if (slot->tid) {
    AddOccupant(wait, slot, walk->end - begin);
  } else {
    wait->occupant_idle_ns += walk->end - begin;
  }
  walk->end = begin;
  return since <= walk->from;
}

// Who ran while this thread was runnable. A preempted thread that another CPU pulled over waited at the CPU it left.
INLINE void FillOccupants(struct WireWait* wait, struct WireThreadState* state, u64 from, u64 to) {
  u32 here = bpf_get_smp_processor_id();
  u32 cpu = (state->facts.flags & kWireRunnable) && !(state->facts.flags & kWireNewThread) ? state->facts.cpu : here;
  cpu &= cpu_mask;
  struct WireCpuHistory* history = bpf_map_lookup_elem(&cpu_history, &cpu);
  if (!history || to <= from) return;
  struct HistoryWalk walk = {.history = history, .wait = wait, .from = from, .end = to};
  bpf_loop(kWireSlots, WalkBack, &walk, 0);
  if (walk.end > from) wait->occupant_other_ns += walk.end - from;
}

INLINE void NoteFlow(const struct WireTarget* target, u32 tgid) {
  if (target->socket_type != kSockStream || (target->family != kAfInet && target->family != kAfInet6)) return;
  if (!target->remote_port) return;
  struct WireFlow flow;
  __builtin_memcpy(flow.local, target->local, 16);
  __builtin_memcpy(flow.remote, target->remote, 16);
  flow.local_port = target->local_port;
  flow.remote_port = target->remote_port;
  flow.family = target->family;
  flow.pad = 0;
  if (bpf_map_lookup_elem(&flows, &flow)) return;
  struct WireFlowState fresh = {.tgid = tgid, .retransmits = target->total_retransmits};
  AddFlow(&flow, &fresh);
}

INLINE void FillTarget(struct WireWait* wait, struct WireThreadState* state, struct task_struct* task) {
  struct WireTarget* target = &wait->target;
  __builtin_memset(target, 0, sizeof(*target));
  if (state->facts.flags & kWireRunnable) return;
  if (state->facts.fd >= 0) {
    ReadTarget(task, state->facts.fd, target);
    NoteFlow(target, task->tgid);
  }
  bool in_call = state->facts.call != kWireCallNone;
  if (in_call) {
    // A fault inside a system call: it waits for I/O though the call itself reads or writes no file.
    u8 class = wait->facts.wait_class;
    if (!(state->facts.flags & kWireIoWait) || class == kWireClassDiskRead || class == kWireClassDiskWrite) return;
  }
  if (state->fault_mono_ns < state->stretch_start) return;
  if (in_call) wait->facts.wait_class = kWireClassPageFault;
  target->fault_address = state->fault_address;
  if (!state->fault_inode) return;
  target->mode = kModeFile;
  target->inode = state->fault_inode;
  target->device = state->fault_device;
  __builtin_memcpy(target->name, state->fault_name, sizeof(target->name));
}

// Tells the window up to the wait, and the wait [state->out, now). The next window starts at now.
static __attribute__((noinline)) int EmitWait(struct WireThreadState* state, struct task_struct* task, u64 now) {
  if (!state || !task) return 0;
  u64 runtime = task->se.sum_exec_runtime;
  u64 covered = now - state->window_start;
  if (!DropOnPurpose(covered)) {
    struct WireWait* wait = bpf_ringbuf_reserve(&records, sizeof(*wait), 0);
    if (wait) {
      FillWindow(&wait->window, state, task, kWireWait, state->out, runtime);
      wait->wake_mono_ns = state->wake;
      wait->end_mono_ns = now;
      wait->occupant_idle_ns = 0;
      wait->occupant_other_ns = 0;
      __builtin_memset(wait->occupants, 0, sizeof(wait->occupants));
      __builtin_memcpy(&wait->facts, &state->facts, sizeof(wait->facts));
      FillTarget(wait, state, task);
      if (state->waker.flags) {
        __builtin_memcpy(&wait->waker, &state->waker, sizeof(wait->waker));
      } else {
        __builtin_memset(&wait->waker, 0, sizeof(wait->waker));
      }
      if (state->wake) FillOccupants(wait, state, state->wake, now);
      bpf_ringbuf_submit(wait, BPF_RB_NO_WAKEUP);
      Count(kWireRecords, 1);
    } else {
      Count(kWireRingFull, 1);
      Count(kWireRingFullNs, covered);
    }
  }
  NextWindow(state, now, runtime);
  return 0;
}

// The state does not fit the switch that is seen: one was missed. The time since the last mark is left as a hole.
INLINE void Hole(struct WireThreadState* state, struct task_struct* task, u64 now) {
  Count(kWireHoles, 1);
  Count(kWireHolesNs, now - state->window_start);
  NextWindow(state, now, task->se.sum_exec_runtime);
}

INLINE void Start(struct WireThreadState* state, struct task_struct* task, u64 now) {
  state->started = 1;
  state->window_start = now;
  state->stretch_start = now;
  state->runtime_base = task->se.sum_exec_runtime;
  state->start_time_ns = task->start_time;
}

// Looks at the published span of the thread that leaves the CPU. If it changed, the stretch since mark is split where
// the thread says that it changed, and the former span's window is told.
INLINE void LookAtContext(struct WireThreadState* state, struct task_struct* task, const struct WireLayout* layout,
                          u64 now) {
  struct WireContext seen;
  __builtin_memset(&seen, 0, sizeof(seen));
  int read = ReadContext(task, layout, &seen);
  if (read == kContextUnreadable) Count(kWireContextUnreadable, 1);
  if (read != kContextRead) return;
  struct WireContext* known = &state->context;
  if (seen.span_id == known->span_id && seen.trace_id[0] == known->trace_id[0] &&
      seen.trace_id[1] == known->trace_id[1] && seen.uuid[0] == known->uuid[0]) {
    if (seen.changed_mono_ns != known->changed_mono_ns) {
      known->changed_mono_ns = seen.changed_mono_ns;
      state->window_flags |= kWireContextMoved;
    }
    return;
  }
  u64 at = seen.changed_mono_ns ? seen.changed_mono_ns : now;
  if (at < state->mark) at = state->mark;
  if (at > now) at = now;
  u64 before = at - state->mark;
  state->on_cpu_ns += before;
  state->mark = at;
  // The scheduler's book is read at switches only: the part before the change is taken to be what was measured.
  u64 runtime = task->se.sum_exec_runtime, after = now - at;
  runtime = runtime - state->runtime_base > after ? runtime - after : state->runtime_base;
  EmitFlush(state, task, at, runtime);
  __builtin_memcpy(known, &seen, sizeof(*known));
}

INLINE bool IsThrottled(struct task_struct* task) {
  if (bpf_core_field_exists(task->throttled)) return task->throttled;
  struct cfs_rq* queue = task->se.cfs_rq;
  if (bpf_core_field_exists(queue->throttle_count)) return BPF_CORE_READ(queue, throttle_count) > 0;
  return false;
}

// The interpreter's gil.last_holder and, right behind it, gil.locked.
struct GilState {
  u64 last_holder;
  u64 locked;
};

INLINE void ReadHolder(struct WireWaitFacts* facts, const struct WireLayout* layout) {
  if (!(layout->flags & kWireHasHolder)) return;
  struct GilState gil;
  if (bpf_probe_read_user(&gil, sizeof(gil), (void*)layout->holder_address)) return;
  // Between two holders the last one says nothing.
  if (!gil.last_holder || (u32)gil.locked != 1) return;
  u64 tid = 0;
  if (bpf_probe_read_user(&tid, sizeof(tid), (void*)(gil.last_holder + layout->holder_tid_offset))) return;
  if (layout->flags & kWireHolderByPthread) {
    u32 number = 0;
    if (bpf_probe_read_user(&number, sizeof(number), (void*)(tid + kWireTidInPthread))) return;
    tid = number;
  }
  facts->gil_holder_tid = (s32)tid;
}

// What can only be known while the thread is still on the CPU: its state and its own memory.
INLINE void TakeFacts(struct WireThreadState* state, struct task_struct* task, const struct WireLayout* layout,
                      bool runnable, u32 task_state) {
  struct WireWaitFacts* facts = &state->facts;
  __builtin_memset(facts, 0, sizeof(*facts));
  facts->task_state = task_state;
  facts->fd = -1;
  facts->syscall_number = -1;
  facts->cpu = bpf_get_smp_processor_id();
  if (runnable) {
    facts->flags = kWireRunnable;
    if (IsThrottled(task)) facts->flags |= kWireThrottled;
    facts->wait_class = facts->flags & kWireThrottled ? kWireClassThrottled : kWireClassRunQueue;
    return;
  }
  if (BPF_CORE_READ_BITFIELD(task, in_iowait)) facts->flags |= kWireIoWait;
  if (bpf_core_field_exists(task->jobctl) && (task->jobctl & JOBCTL_TRAP_FREEZE)) facts->flags |= kWireFrozen;
  struct pt_regs* regs = (struct pt_regs*)bpf_task_pt_regs(task);
  s32 number = SyscallNumber(regs);
  // After a stop or a freeze the kernel goes on with a wait under a number of its own; the arguments still stand.
  if (number == kSyscallRestart) {
    if (state->blocked_call) number = (s32)(state->blocked_call - 1);
  } else if (number >= 0) {
    state->blocked_call = (u32)number + 1;
  }
  facts->syscall_number = number;
  facts->call = CallOfSyscall(number);
  if (facts->call != kWireCallNone) ReadSyscallArgs(regs, facts->args);
  if (facts->call == kWireCallClone) facts->call = IsVfork(facts) ? kWireCallWaitChild : kWireCallOther;
  if ((task_state & (kTaskStopped | kTaskTraced | kTaskFrozen)) || (facts->flags & kWireFrozen)) {
    facts->wait_class = kWireClassStopped;
    return;
  }
  if (facts->call == kWireCallPoll) ReadPollFds(facts);
  if (CallTakesFd(facts->call)) facts->fd = (s32)facts->args[0];
  if (facts->call == kWireCallFutex && facts->args[0] >= layout->gil_low && facts->args[0] < layout->gil_high) {
    facts->flags |= kWireGil;
    ReadHolder(facts, layout);
  }
  facts->wait_class = ClassOfCall(facts);
  if (facts->call == kWireCallPoll && (facts->poll_count == 1 || (facts->flags & kWirePollWrite)) &&
      IsConnecting(task, facts->fd))
    facts->wait_class = kWireClassConnect;
  if (!facts->wait_class) facts->wait_class = ClassOfFile(facts->call, ModeOf(task, facts->fd));
}

INLINE void AddShort(struct WireThreadState* state, u32 class, u64 ns) {
  if (class >= kWireClasses) return;
  state->short_ns[class] += (u32)ns;
  state->short_count[class]++;
  state->has_short = 1;
}

static __attribute__((noinline)) int SwitchIn(struct WireThreadState* state, struct task_struct* task, u64 now) {
  if (!state || !task) return 0;
  if (!state->started) {
    Start(state, task, now);
  } else if (!state->out) {
    Hole(state, task, now);
  } else {
    u64 out = state->out, whole = now - out;
    u32 class = state->facts.wait_class;
    // A waking between the thread's decision to sleep and its switch comes before the switch.
    if (!state->wake && state->early_wake && out - state->early_wake < 20000) {
      state->wake = out;
      state->facts.flags |= kWireEarlyWake;
    }
    if (whole >= threshold_ns || (class == kWireClassGil && whole >= gil_threshold_ns)) {
      EmitWait(state, task, now);
    } else {
      u64 wake = state->wake ? state->wake : now;
      if (wake > now) wake = now;
      if (wake > out) AddShort(state, class, wake - out);
      if (now > wake) AddShort(state, class == kWireClassThrottled ? class : kWireClassRunQueue, now - wake);
      if (now - state->window_start >= flush_ns) EmitFlush(state, task, now, task->se.sum_exec_runtime);
    }
    if (class != kWireClassPageFault) state->stretch_start = now;
  }
  state->out = 0;
  state->early_wake = 0;
  state->mark = now;
  return 0;
}

// Some kernels leave out the switch away from certain threads, and so the switch-in of whoever came next. The
// scheduler's own book tells how long this thread has been on the CPU since then.
INLINE void RepairSwitchIn(struct WireThreadState* state, struct task_struct* task, u64 now) {
  u64 ran = task->se.sum_exec_runtime - state->runtime_out;
  u64 earliest = state->wake > state->out ? state->wake : state->out;
  if (earliest + ran > now) {
    if (earliest > now || ran > now - state->out) {
      Hole(state, task, now);
      state->mark = now;
      return;
    }
    ran = now - earliest;
  }
  Count(kWireRepaired, 1);
  SwitchIn(state, task, now - ran);
}

INLINE void SwitchOut(struct task_struct* task, struct WireThreadState* state, bool runnable, u32 task_state, u64 now) {
  Count(kWireSwitches, 1);
  if (!state->started) {
    Start(state, task, now);
    state->mark = now;
  } else if (state->out) {
    RepairSwitchIn(state, task, now);
  }
  const struct WireLayout* layout = LayoutOf(task, state);
  if (layout->flags & kWireHasContext) LookAtContext(state, task, layout, now);
  state->on_cpu_ns += now - state->mark;
  state->mark = now;
  TakeFacts(state, task, layout, runnable, task_state);
  state->out = now;
  state->runtime_out = task->se.sum_exec_runtime;
  state->wake = runnable ? now : 0;
  state->waker.flags = 0;
}

INLINE void NoteOccupant(struct task_struct* next, u64 now) {
  u32 cpu = bpf_get_smp_processor_id() & cpu_mask;
  struct WireCpuHistory* history = bpf_map_lookup_elem(&cpu_history, &cpu);
  if (!history) return;
  u64 head = history->head + 1;
  struct WireCpuSlot* slot = &history->slots[head & (kWireSlots - 1)];
  slot->since_mono_ns = now;
  slot->tid = next->pid;
  slot->tgid = next->tgid;
  if (next->pid) {
    slot->cgroup_id = next->cgroups->dfl_cgrp->kn->id;
    bpf_probe_read_kernel(slot->comm, sizeof(slot->comm), next->comm);
  }
  history->head = head;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(OnSwitch, bool preempt, struct task_struct* prev, struct task_struct* next, unsigned int prev_state) {
  u64 now = bpf_ktime_get_ns();
  struct WireThreadState* state = FollowedState(prev);
  // Sleeping states carry high flag bits (0x2001) that say nothing of whether it could have run on; but a frozen one
  // has no bit in the low byte.
  if (state) SwitchOut(prev, state, preempt || !(prev_state & kNotRunnable), prev_state, now);
  state = FollowedState(next);
  if (state) SwitchIn(state, next, now);
  NoteOccupant(next, now);
  return 0;
}

INLINE void FillWaker(struct WireWaker* waker) {
  struct task_struct* current = bpf_get_current_task_btf();
  __builtin_memset(waker, 0, sizeof(*waker));
  waker->flags = kWireWakerSeen;
  waker->tid = current->pid;
  waker->tgid = current->tgid;
  waker->syscall_number = -1;
  u32 zero = 0;
  struct WireIrqState* irq = bpf_map_lookup_elem(&irq_state, &zero);
  if (irq) {
    waker->irq = (u8)irq->bits;
    waker->softirq = (u8)irq->vector;
  }
  if (!current->pid) return;
  bpf_get_current_comm(waker->comm, sizeof(waker->comm));
  if (current->flags & kKernelThread) {
    waker->flags |= kWireWakerKernel;
    return;
  }
  struct pt_regs* regs = (struct pt_regs*)bpf_task_pt_regs(current);
  waker->syscall_number = SyscallNumber(regs);
  waker->call = CallOfSyscall(waker->syscall_number);
  if (waker->call == kWireCallFutex) waker->futex_address = SyscallArg0(regs);
  struct WireThreadState* state = FollowedState(current);
  if (!state) return;
  const struct WireLayout* layout = LayoutOf(current, state);
  if (layout->flags & kWireHasContext) ReadContext(current, layout, &waker->context);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(OnWaking, struct task_struct* task) {
  struct WireThreadState* state = FollowedState(task);
  if (!state || state->wake) return 0;
  u64 now = bpf_ktime_get_ns();
  if (state->out) {
    state->wake = now;
  } else {
    state->early_wake = now;
  }
  FillWaker(&state->waker);
  return 0;
}

INLINE void EmitThread(struct task_struct* task, struct task_struct* parent, u32 event, s32 exit_code) {
  struct WireThreadRecord* record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
  if (!record) {
    Count(kWireRingFull, 1);
    return;
  }
  record->type = kWireThread;
  record->event = event;
  record->tid = task->pid;
  record->tgid = task->tgid;
  record->parent_tid = parent->pid;
  record->parent_tgid = parent->tgid;
  record->at_mono_ns = bpf_ktime_get_ns();
  record->start_time_ns = task->start_time;
  record->exit_code = exit_code;
  record->pad = 0;
  bpf_probe_read_kernel(record->comm, sizeof(record->comm), task->comm);
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  Count(kWireRecords, 1);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(OnFork, struct task_struct* parent, struct task_struct* child) {
  if (!FollowedState(parent)) return 0;
  struct WireThreadState* state = bpf_task_storage_get(&threads, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!state) {
    Count(kWireStorageFailed, 1);
    return 0;
  }
  u64 now = bpf_ktime_get_ns();
  state->started = 1;
  state->start_time_ns = child->start_time;
  state->window_start = state->mark = state->out = state->wake = state->stretch_start = now;
  state->facts.flags = kWireRunnable | kWireNewThread;
  state->facts.wait_class = kWireClassRunQueue;
  state->facts.fd = -1;
  state->facts.syscall_number = -1;
  u32 tgid = parent->tgid, child_tgid = child->tgid;
  if (child_tgid != tgid) {
    struct WireLayout* layout = bpf_map_lookup_elem(&layouts, &tgid);
    if (layout && bpf_map_update_elem(&layouts, &child_tgid, layout, BPF_ANY)) Count(kWireProcessesFull, 1);
  }
  EmitThread(child, parent, child_tgid != tgid ? kWireForkProcess : kWireForkThread, 0);
  return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(OnExec, struct task_struct* task, int old_pid) {
  struct WireThreadState* state = FollowedState(task);
  if (!state) return 0;
  u32 tgid = task->tgid;
  bpf_map_delete_elem(&layouts, &tgid);
  state->layout_version = 0;
  char comm[kWireCommBytes];
  bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
  EmitThread(task, task->real_parent, kWireExec, 0);
  if (bpf_map_lookup_elem(&excluded, comm)) bpf_task_storage_delete(&threads, task);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(OnExit, struct task_struct* task) {
  struct WireThreadState* state = FollowedState(task);
  if (!state) return 0;
  u64 now = bpf_ktime_get_ns();
  if (state->started && !state->out) {
    state->on_cpu_ns += now - state->mark;
    state->mark = now;
    EmitFlush(state, task, now, kBookUnread);
  }
  bool last = task->signal->live.counter == 0;
  if (last) {
    u32 tgid = task->tgid;
    bpf_map_delete_elem(&layouts, &tgid);
  }
  EmitThread(task, task->real_parent, last ? kWireExitProcess : kWireExitThread, task->exit_code);
  bpf_task_storage_delete(&threads, task);
  return 0;
}
