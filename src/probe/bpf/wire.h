// What the kernel programs and the loader say to each other: records in the ring buffer, map values, counters.
// Compiles as C for BPF and as C++; fixed width, padding spelled out, sizes asserted. All times are CLOCK_MONOTONIC ns.
// Both sides are built together, so there is no version: a change here needs no compatibility.
#ifndef TAILSPAN_PROBE_BPF_WIRE_H_
#define TAILSPAN_PROBE_BPF_WIRE_H_

#include <linux/types.h>

#ifdef __cplusplus
#  define WIRE_ASSERT(condition) static_assert(condition, #  condition)
#else
#  define WIRE_ASSERT(condition) _Static_assert(condition, #  condition)
#endif

enum WireLimits {
  kWireCommBytes = 16,
  kWireNameBytes = 32,
  kWireOccupants = 4,
  kWireSlots = 256,  // switches that each CPU remembers; a power of two
  kWireClasses = 20,
  kWireThreadStates = 16384,
  kWireProcesses = 4096,
  kWireFlows = 16384,
  kWireExcludedComms = 64,
};

enum WireRecordType {
  kWireFlush = 1,
  kWireWait,
  kWireThread,
  kWireRetransmit,
  kWireReady,
  kWireBlock,
  kWireSample,
};

// Classes of waits; the order is model::WaitClass's.
enum WireClass {
  kWireClassNone,
  kWireClassRunQueue,
  kWireClassThrottled,
  kWireClassGil,
  kWireClassFutex,
  kWireClassPoll,
  kWireClassSocketRecv,
  kWireClassSocketSend,
  kWireClassConnect,
  kWireClassPipe,
  kWireClassSleep,
  kWireClassPageFault,
  kWireClassDiskRead,
  kWireClassDiskWrite,
  kWireClassChild,
  kWireClassStopped,
  kWireClassOther,
  kWireClassCount,
};

enum WireCall {
  kWireCallNone,  // not in a system call
  kWireCallOther,
  kWireCallRead,
  kWireCallWrite,
  kWireCallOpen,
  kWireCallPoll,
  kWireCallSelect,
  kWireCallEpoll,
  kWireCallSync,
  kWireCallSignalWait,
  kWireCallSleep,
  kWireCallSendFile,
  kWireCallConnect,
  kWireCallAccept,
  kWireCallSend,
  kWireCallRecv,
  kWireCallWaitChild,
  kWireCallFileLock,
  kWireCallFutex,
  kWireCallAsyncIo,
  kWireCallClone,  // seen by the tables only: a wait in it is kWireCallWaitChild or kWireCallOther
};

enum WireCounter {
  kWireRingFull,           // records that found no room
  kWireRingFullNs,         // the time that those records covered
  kWireDropped,            // records dropped on purpose (test option)
  kWireDroppedNs,          //
  kWireStorageFailed,      // threads for which no state could be made
  kWireHoles,              // switches that were not seen: the thread's state did not fit
  kWireHolesNs,            //
  kWireRepaired,           // switch-ins that were not seen, but timed by the scheduler's book
  kWireProcessesFull,      // process layouts that found no room
  kWireFlowsFull,          // sockets that found no room
  kWireContextUnreadable,  // published records that could not be read
  kWireRecords,            // records written, for scale
  kWireSwitches,           // switches of followed threads
  kWireRequestsFull,       // block requests that found no room
  kWireFlowsAdded,         // entries made in the table of flows, and taken out of it: where more are missing than were
  kWireFlowsRemoved,       // taken out, newer ones have pushed them out
  kWireCounterCount,
};

// Interrupt context of a CPU, kept by the optional irq programs.
enum WireIrq { kWireIrqHard = 1, kWireIrqTimer = 2, kWireIrqSoft = 4 };

// A span as a thread published it; zero ids mean none. span_id holds the 8 bytes as they lie in memory.
struct WireContext {
  __u64 trace_id[2];
  __u64 span_id;
  __u64 uuid[2];
  __u64 changed_mono_ns;  // 0 unknown
};
WIRE_ASSERT(sizeof(struct WireContext) == 48);

enum WireWindowFlags {
  kWireContextMoved = 1,  // the thread changed spans and came back within this window
};

// One window of a thread: [start, end) = on_cpu + the sum of short_ns, always.
struct WireWindow {
  __u32 type;  // WireRecordType, first in every record
  __u32 flags;
  __u32 tid, tgid;
  __u64 start_time_ns;  // when the thread started, monotonic: ids come back
  __u64 sequence;
  __u64 start_mono_ns, end_mono_ns;
  __u64 on_cpu_ns;
  __u64 runtime_ns;  // growth of the scheduler's own book
  struct WireContext context;
  __u32 short_ns[kWireClasses];
  __u32 short_count[kWireClasses];
};
WIRE_ASSERT(sizeof(struct WireWindow) == 64 + 48 + 160);

enum WireWaitFlags {
  kWireRunnable = 1,  // left the CPU while it could have run on
  kWireIoWait = 2,
  kWireThrottled = 4,
  kWireNewThread = 8,  // waits for its first turn
  kWireFrozen = 16,
  kWireGil = 32,        // futex word inside the interpreter's state
  kWirePollWrite = 64,  // polls, and only for writability
  kWireEarlyWake = 128,
};

// Taken when the thread leaves the CPU.
struct WireWaitFacts {
  __u32 task_state;
  __u8 call;
  __u8 flags;
  __u8 wait_class;
  __u8 poll_count;  // pollfds that were looked at
  __s32 syscall_number;
  __s32 fd;
  __u64 args[4];
  __s32 gil_holder_tid;
  __u32 cpu;
};
WIRE_ASSERT(sizeof(struct WireWaitFacts) == 56);

enum WireTargetFlags { kWireEventPoll = 1, kWireEventFd = 2, kWireTimerFd = 4 };

// The file behind the wait: a descriptor's, or the mapped file of a page fault.
struct WireTarget {
  __u16 mode;  // as in stat
  __u16 family, socket_type;
  __u8 socket_state;
  __u8 pad0;
  __u32 device;
  __s32 peer_pid;  // of a local socket
  __u64 inode;
  __u8 local[16], remote[16];
  __u16 local_port, remote_port;  // host order
  __u32 total_retransmits;
  __u32 unsent_bytes;
  __u32 pad1;
  __u64 fault_address;
  char name[kWireNameBytes];
};
WIRE_ASSERT(sizeof(struct WireTarget) == 112);

enum WireWakerFlags { kWireWakerSeen = 1, kWireWakerKernel = 2 };

struct WireWaker {
  __u32 tid, tgid;
  __u8 irq;      // WireIrq bits
  __u8 softirq;  // its vector when kWireIrqSoft
  __u8 call;     // the waker's own WireCall
  __u8 flags;    // WireWakerFlags
  __s32 syscall_number;
  __u64 futex_address;
  struct WireContext context;
  char comm[kWireCommBytes];
};
WIRE_ASSERT(sizeof(struct WireWaker) == 88);

struct WireOccupant {
  __u32 tid, tgid;
  __u64 cgroup_id;
  __u64 ns;
  char comm[kWireCommBytes];
};
WIRE_ASSERT(sizeof(struct WireOccupant) == 40);

struct WireWait {
  struct WireWindow window;
  __u64 wake_mono_ns;  // 0: not seen
  __u64 end_mono_ns;
  struct WireWaitFacts facts;
  struct WireTarget target;
  struct WireWaker waker;
  struct WireOccupant occupants[kWireOccupants];
  __u64 occupant_idle_ns;   // the CPU was idle: the thread was on its way
  __u64 occupant_other_ns;  // others than those listed, or before what the CPU remembers
};
WIRE_ASSERT(sizeof(struct WireWait) == 272 + 16 + 56 + 112 + 88 + 160 + 16);

enum WireThreadEvent { kWireForkProcess = 1, kWireForkThread, kWireExec, kWireExitThread, kWireExitProcess };

struct WireThreadRecord {
  __u32 type;
  __u32 event;
  __u32 tid, tgid;
  __u32 parent_tid, parent_tgid;
  __u64 at_mono_ns;
  __u64 start_time_ns;
  __s32 exit_code;
  __u32 pad;
  char comm[kWireCommBytes];
};
WIRE_ASSERT(sizeof(struct WireThreadRecord) == 64);

struct WireFlow {
  __u8 local[16], remote[16];
  __u16 local_port, remote_port;
  __u16 family;
  __u16 pad;
};
WIRE_ASSERT(sizeof(struct WireFlow) == 40);

struct WireFlowState {
  __u32 tgid;        // who waited on it
  __u32 copied_seq;  // at the last readiness that was told
  __u32 told;
  __u32 retransmits;  // total at the last event
};

struct WireRetransmitRecord {
  __u32 type;
  __u32 total_retransmits;
  __u64 at_mono_ns;
  __u64 inode;
  __u64 rto_ns;
  __u64 sent_mono_ns;
  __u32 segments;
  __u32 round_trip_us;
  struct WireFlow flow;
};
WIRE_ASSERT(sizeof(struct WireRetransmitRecord) == 88);

struct WireReadyRecord {
  __u32 type;
  __u32 pad;
  __u64 at_mono_ns;
  __u64 inode;
  struct WireFlow flow;
};
WIRE_ASSERT(sizeof(struct WireReadyRecord) == 64);

struct WireBlockRecord {
  __u32 type;
  __u32 device;
  __u64 issue_mono_ns, complete_mono_ns;
  __u32 bytes;
  __u32 write;
  __u32 tid, tgid;
};
WIRE_ASSERT(sizeof(struct WireBlockRecord) == 40);

struct WireSampleRecord {
  __u32 type;
  __u32 in_kernel;
  __u32 tid, tgid;
  __u64 at_mono_ns;
  __u64 address;  // user instruction
  __u64 span_id;
};
WIRE_ASSERT(sizeof(struct WireSampleRecord) == 40);

// kWireHolderByPthread: what stands at holder_tid_offset is the thread's pthread_t, which points to glibc's own record.
enum WireLayoutFlags { kWireHasContext = 1, kWireHasGil = 2, kWireHasHolder = 4, kWireHolderByPthread = 8 };
enum { kWireTidInPthread = 0x2d0 };  // of the thread's number in that record, on x86-64

// What the loader knows about a followed process's memory. Copied to a child on fork, removed on exec and exit.
struct WireLayout {
  __s64 tls_offset;  // of the context pointer, from the thread pointer
  __u64 gil_low, gil_high;
  __u64 holder_address;     // of the interpreter's pointer to the thread state that last held the GIL
  __u32 holder_tid_offset;  // of the native thread id in that thread state
  __u32 flags;
};
WIRE_ASSERT(sizeof(struct WireLayout) == 40);

// The always-on state of a followed thread: the value of the task storage map.
struct WireThreadState {
  __u64 sequence;
  __u64 window_start;
  __u64 mark;  // up to here its CPU time is booked
  __u64 on_cpu_ns;
  __u64 runtime_base;
  __u64 runtime_out;  // the scheduler's book when it left the CPU
  __u64 out;          // 0 while it runs
  __u64 wake;
  __u64 early_wake;     // a waking that came while it was still on its way out
  __u64 stretch_start;  // switch-in after the last wait that was no page fault
  __u32 started;        // 0 until the first switch that was seen
  __u32 window_flags;
  __u64 fault_mono_ns;  // the last page fault's file, by the optional fault programs
  __u64 fault_address;
  __u64 fault_inode;
  __u32 fault_device;
  __u32 has_short;
  __u64 start_time_ns;   // of the thread
  __u32 blocked_call;    // number + 1 of the system call it last blocked in; 0 none yet
  __u32 layout_version;  // of the layout below, plus one; 0 not looked up
  char fault_name[kWireNameBytes];
  __u32 short_ns[kWireClasses];
  __u32 short_count[kWireClasses];
  struct WireLayout layout;  // its process's, all zero when there is none
  struct WireContext context;
  struct WireWaitFacts facts;
  struct WireWaker waker;
};
WIRE_ASSERT(sizeof(struct WireThreadState) == 136 + 32 + 160 + 40 + 48 + 56 + 88);

// What a walk over the threads tells of one.
struct WireOpenThread {
  __u64 tid;
  struct WireThreadState state;
};

struct WireCpuSlot {
  __u64 since_mono_ns;
  __u64 cgroup_id;
  __u32 tid, tgid;
  char comm[kWireCommBytes];
};
struct WireCpuHistory {
  __u64 head;
  struct WireCpuSlot slots[kWireSlots];
};

struct WireIrqState {
  __u32 bits;
  __u32 vector;
};

#endif  // TAILSPAN_PROBE_BPF_WIRE_H_
