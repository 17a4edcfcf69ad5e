// What the kernel probes tell, decoded. All times are CLOCK_MONOTONIC nanoseconds.
//
// The kernel cuts each followed thread's life into consecutive records without gaps: a window in which it ran and took
// short waits (summed), then at most one long wait. Records carry a per-thread sequence number; a hole is a loss and is
// never filled by inference.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "model/cause.h"
#include "model/ids.h"

namespace tailspan::model {

// Coarse classes by which the kernel sums waits shorter than the threshold.
enum class WaitClass : uint8_t {
  kNone,
  kRunQueue,
  kThrottled,
  kGil,
  kFutex,
  kPoll,
  kSocketRecv,
  kSocketSend,
  kConnect,
  kPipe,
  kSleep,
  kPageFault,
  kDiskRead,
  kDiskWrite,
  kChild,
  kStopped,
  kOther,
  kCount,
};

// Of a sum of short waits, for which only the class is kept. Poll and other stay unexplained: what was waited for is
// not known.
Cause CauseOfClass(WaitClass wait_class);

enum class TargetKind : uint8_t {
  kNone,
  kFutex,
  kSocket,
  kUnixSocket,
  kPipe,
  kFile,
  kEpoll,
  kEventFd,
  kTimerFd,
  kMemory,
  kOther
};

struct SocketAddress {
  uint8_t family = 0;               // AF_INET or AF_INET6; 0 none
  std::array<uint8_t, 16> bytes{};  // network order; the first four for AF_INET
  uint16_t port = 0;
  auto operator<=>(const SocketAddress&) const = default;
};
std::string ToText(const SocketAddress& address);  // "10.0.0.2:8000", "[::1]:80", "" for none
// `bytes`: 4 for AF_INET, 16 for AF_INET6, in network order. An IPv4 end of an IPv6 socket is the IPv4 address, so that
// both ends of a connection have the same names for it. Another family: none.
SocketAddress MakeSocketAddress(int family, const uint8_t* bytes, uint16_t port);

// What a thread waited at.
struct WaitTarget {
  TargetKind kind = TargetKind::kNone;
  bool for_write = false;  // waits to be able to send (in send, or poll/epoll for writability)
  int32_t fd = -1;
  uint64_t address = 0;  // futex word or fault address
  uint64_t inode = 0;    // file, pipe, socket
  uint32_t device = 0;   // as in stat's st_dev, kernel encoding
  SocketAddress local, remote;
  std::array<char, 32> name{};  // file name, cut
};

enum class WakerKind : uint8_t { kNone, kThread, kTimer, kNetwork, kBlock, kOtherIrq };

struct Waker {
  WakerKind kind = WakerKind::kNone;
  int32_t pid = 0, tid = 0;
  int32_t syscall = -1;        // the waker's own, -1 none or unknown
  uint64_t futex_address = 0;  // set when the waker was in FUTEX_WAKE
  TraceId trace_id;            // the waker's published span at that moment, when it is followed
  SpanId span_id = 0;
  std::array<char, 16> comm{};
};

struct CpuOccupant {  // who ran while a followed thread was runnable
  int32_t pid = 0, tid = 0;
  int64_t ns = 0;
  uint64_t cgroup_id = 0;  // of the unified hierarchy
  std::array<char, 16> comm{};
};

struct ThreadInterval {
  int32_t pid = 0, tid = 0;
  int64_t thread_start_mono_ns = 0;  // ids come back; (tid, start) does not
  uint64_t sequence = 0;             // per thread, consecutive

  // The window [window_start, wait_start).
  int64_t window_start_mono_ns = 0;
  int64_t on_cpu_ns = 0;  // measured between switch-in and switch-out
  // Growth of the scheduler's sum_exec_runtime over the window, the independent book; -1 where it could not be read. It
  // starts a turn at the waking that preempts, so it may exceed on_cpu_ns by the time from that waking to the switch.
  int64_t kernel_run_ns = 0;
  std::array<int64_t, static_cast<size_t>(WaitClass::kCount)> short_ns{};
  std::array<uint32_t, static_cast<size_t>(WaitClass::kCount)> short_count{};

  // The published span during the window and the wait, and since when this thread had it.
  TraceId trace_id;
  SpanId span_id = 0;
  Uuid uuid;
  int64_t span_since_mono_ns = 0;
  bool span_moved = false;  // within the window it changed to other spans and came back

  // The wait [wait_start, wait_end); empty (equal) in a flush record.
  int64_t wait_start_mono_ns = 0;
  int64_t wake_mono_ns = 0;  // became runnable; wait_start when it was preempted; 0 unknown
  int64_t wait_end_mono_ns = 0;
  WaitClass wait_class = WaitClass::kNone;
  Cause cause = Cause::kUnexplained;  // of the blocked part [wait_start, wake); the rest of the wait is run_queue
  bool preempted = false, throttled = false, io_wait = false;
  int32_t syscall = -1;  // -1: none, a page fault when blocked
  std::array<uint64_t, 3> syscall_args{};
  WaitTarget target;
  Waker waker;
  std::array<CpuOccupant, 2> occupants;  // of [wake, wait_end), longest first
  int64_t occupant_idle_ns = 0;          // of it the CPU was idle: the thread was on its way
  int64_t occupant_other_ns = 0;         // of it others than those two; the three add up to it
  int32_t gil_holder_tid = 0;            // read from the interpreter at wait_start, 0 unknown
};

enum class ProcessEventKind : uint8_t { kFork, kThread, kExec, kExit, kThreadExit };

struct ProcessEvent {
  ProcessEventKind kind = ProcessEventKind::kFork;
  int64_t at_mono_ns = 0;
  int32_t pid = 0, tid = 0;
  int32_t parent_pid = 0, parent_tid = 0;
  int64_t start_mono_ns = 0;  // of this thread
  int32_t exit_code = 0;      // as wait(2) gives it
  std::array<char, 16> comm{};
};

struct Retransmission {
  int64_t at_mono_ns = 0;
  SocketAddress local, remote;  // as the sender of the segment sees it
  uint64_t inode = 0;           // 0 when the socket has no file
  int64_t rto_ns = 0;           // the sender's timeout when it fired
  int64_t sent_mono_ns = 0;     // the lost segment was first sent then, or a little later; 0 unknown
  int64_t round_trip_ns = 0;    // the sender's smoothed estimate
  uint32_t segments = 1;        // growth of total_retrans
};

// A descriptor that is a socket, from when it was first seen so until the next entry for the same descriptor. Of two
// entries of one moment the one that names the remote end is the better.
struct SocketInfo {
  int32_t pid = 0;
  int32_t fd = -1;
  int64_t from_mono_ns = 0;
  uint64_t inode = 0;           // 0: no socket
  SocketAddress local, remote;  // none when it is no IP socket; remote: none when it listens or has no peer yet
  // Told by the process itself when it registered the descriptor with its event loop: `from` is that moment. Else it
  // was seen from outside and was so for up to a second before.
  bool registered = false;
};

struct SocketReady {
  int64_t at_mono_ns = 0;
  uint64_t inode = 0;
  SocketAddress local, remote;
};

struct BlockRequest {
  int64_t issue_mono_ns = 0, complete_mono_ns = 0;
  uint32_t device = 0;
  bool write = false;
  int64_t size_bytes = 0;
  int32_t pid = 0, tid = 0;  // who issued it; may be a kernel thread
};

struct CpuSample {
  int64_t at_mono_ns = 0;
  int32_t pid = 0, tid = 0;
  bool in_kernel = false;
  uint64_t address = 0;
  SpanId span_id = 0;
};

// One signal that this host can or cannot give.
struct Capability {
  std::string signal;
  bool on = false;
  std::string reason;  // why not; empty when on
  std::string remedy;  // what to do about it
};

}  // namespace tailspan::model
