// The closed list of causes. Every nanosecond of a request's ledger carries one of these; nothing else is a cause.
// Order and names are part of the stored format and of the JSON: append only, never rename.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tailspan::model {

// X(id, name): name is what users see and script against.
#define TAILSPAN_CAUSES(X)                                                                                         \
  X(OnCpu, "on_cpu")                                                                                               \
  X(RunQueue, "run_queue")                                                                                         \
  X(CpuThrottled, "cpu_throttled")                                                                                 \
  X(Gil, "gil")                                                                                                    \
  X(Lock, "lock") X(EventLoop, "event_loop") X(Queue, "queue") X(PageFault, "page_fault") X(DiskRead, "disk_read") \
      X(DiskWrite, "disk_write") X(NetConnect, "net_connect") X(Dns, "dns") X(NetSend, "net_send")                 \
          X(NetRecv, "net_recv") X(NetEdge, "net_edge") X(Retransmit, "retransmit") X(GpuSync, "gpu_sync")         \
              X(GpuCopy, "gpu_copy") X(GpuLaunch, "gpu_launch") X(Gc, "gc") X(Sleep, "sleep") X(Ipc, "ipc")        \
                  X(ChildProcess, "child_process") X(IrqSteal, "irq_steal") X(Stopped, "stopped")                  \
                      X(Unexplained, "unexplained")

enum class Cause : uint8_t {
#define X(id, name) k##id,
  TAILSPAN_CAUSES(X)
#undef X
      kCount,
};

std::string_view CauseName(Cause cause);
std::optional<Cause> CauseByName(std::string_view name);

// Causes that ordinary queueing also fills: a fault needs more than their excess (docs/verdict.md).
bool IsContention(Cause cause);

}  // namespace tailspan::model
