#include "probe/classify.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tailspan::probe {
namespace {

using model::Cause;
using model::TargetKind;
using model::WaitClass;
using model::WakerKind;

constexpr uint16_t kDnsPort = 53;
constexpr uint8_t kTcpSynSent = 2;
constexpr uint32_t kUninterruptible = 0x2;

// Softirq vectors, include/linux/interrupt.h.
enum SoftirqVector : uint8_t { kHi, kTimer, kNetTx, kNetRx, kBlock, kIrqPoll, kTasklet, kSched, kHrTimer };

bool IsInet(const WireTarget& target) { return target.family == AF_INET || target.family == AF_INET6; }

bool IsKind(const WireTarget& target, mode_t kind) { return (target.mode & S_IFMT) == kind; }

std::string_view NameOf(const WireTarget& target) { return {target.name, strnlen(target.name, sizeof target.name)}; }

Cause CauseOfSocket(const WireTarget& target, bool for_write) {
  if (!IsInet(target)) return Cause::kIpc;  // local, netlink and other sockets of this host
  if (target.socket_type == SOCK_STREAM && target.socket_state == kTcpSynSent) return Cause::kNetConnect;
  if (target.remote_port == kDnsPort) return Cause::kDns;
  return for_write ? Cause::kNetSend : Cause::kNetRecv;
}

bool IsNetworkSoftirq(const WireWaker& waker) {
  return (waker.flags & kWireWakerSeen) && (waker.irq & kWireIrqSoft) &&
         (waker.softirq == kNetRx || waker.softirq == kNetTx);
}

bool SendsToNetwork(uint8_t call) {
  return call == kWireCallSend || call == kWireCallWrite || call == kWireCallSendFile || call == kWireCallConnect;
}

// poll, select and epoll: by the descriptor when there is one to name, else by who ended the wait.
Cause CauseOfPoll(const WireWait& wait, bool for_write) {
  const WireTarget& target = wait.target;
  if (wait.facts.call == kWireCallPoll && wait.facts.poll_count == 0) return Cause::kSleep;
  if (wait.facts.call == kWireCallPoll && wait.facts.poll_count == 1) {
    if (IsKind(target, S_IFSOCK)) return CauseOfSocket(target, for_write);
    if (IsKind(target, S_IFIFO) || target.mode == 0 || NameOf(target) == "[eventfd]") return Cause::kIpc;
    if (NameOf(target) == "[timerfd]") return Cause::kSleep;
  }
  if (IsNetworkSoftirq(wait.waker)) return for_write ? Cause::kNetSend : Cause::kNetRecv;
  switch (WakerKindOf(wait.waker)) {
    case WakerKind::kTimer:
      return Cause::kSleep;
    case WakerKind::kThread:
      return Cause::kIpc;
    default:
      return Cause::kUnexplained;
  }
}

Cause CauseOfOther(const WireWait& wait) {
  const WireWaitFacts& facts = wait.facts;
  if (NameOf(wait.target) == "[eventfd]") return Cause::kIpc;
  if (NameOf(wait.target) == "[timerfd]") return Cause::kSleep;
  if (facts.call == kWireCallFileLock) return Cause::kLock;
  if (facts.call == kWireCallSignalWait) return Cause::kSleep;
  if (facts.flags & kWireIoWait) return Cause::kDiskRead;
  // Uninterruptible, not for I/O, in a call of its own: a lock of the kernel, such as the address space's.
  if (facts.call != kWireCallNone && (facts.task_state & 0xff) == kUninterruptible) return Cause::kLock;
  return Cause::kUnexplained;
}

}  // namespace

WaitClass ClassOf(const WireWaitFacts& facts) {
  static_assert(static_cast<int>(WaitClass::kCount) == kWireClassCount);
  static_assert(static_cast<int>(WaitClass::kOther) == kWireClassOther);
  static_assert(static_cast<int>(WaitClass::kPageFault) == kWireClassPageFault);
  return facts.wait_class < kWireClassCount ? static_cast<WaitClass>(facts.wait_class) : WaitClass::kOther;
}

Cause CauseOf(const WireWait& wait) {
  const WireWaitFacts& facts = wait.facts;
  const bool for_write = facts.flags & kWirePollWrite;
  switch (ClassOf(facts)) {
    case WaitClass::kPoll:
      return CauseOfPoll(wait, for_write);
    case WaitClass::kSocketRecv:
      return CauseOfSocket(wait.target, false);
    case WaitClass::kSocketSend:
      return facts.call == kWireCallPoll ? CauseOfPoll(wait, for_write) : CauseOfSocket(wait.target, true);
    case WaitClass::kConnect:
      return IsInet(wait.target) ? Cause::kNetConnect : Cause::kIpc;
    case WaitClass::kDiskRead:
      // Opening a FIFO waits for its other end, not for the disk.
      return facts.call == kWireCallOpen && !(facts.flags & kWireIoWait) ? Cause::kUnexplained : Cause::kDiskRead;
    case WaitClass::kOther:
      return CauseOfOther(wait);
    default:
      return model::CauseOfClass(ClassOf(facts));
  }
}

WakerKind WakerKindOf(const WireWaker& waker) {
  if (!(waker.flags & kWireWakerSeen)) return WakerKind::kNone;
  if (waker.irq == 0) return waker.tid != 0 ? WakerKind::kThread : WakerKind::kOtherIrq;
  if (waker.irq & kWireIrqSoft) {
    switch (waker.softirq) {
      case kNetTx:
      case kNetRx:
        // Over loopback and veth the receiver's side runs inside the sender's own call.
        return waker.tid != 0 && SendsToNetwork(waker.call) ? WakerKind::kThread : WakerKind::kNetwork;
      case kTimer:
      case kHrTimer:
        return WakerKind::kTimer;
      case kBlock:
        return WakerKind::kBlock;
      default:
        return WakerKind::kOtherIrq;
    }
  }
  if (waker.irq & kWireIrqTimer) return WakerKind::kTimer;
  return WakerKind::kOtherIrq;
}

model::WaitTarget TargetOf(const WireWait& wait) {
  const WireTarget& raw = wait.target;
  model::WaitTarget target;
  target.fd = wait.facts.fd;
  target.for_write = (wait.facts.flags & kWirePollWrite) || wait.facts.call == kWireCallSend ||
                     wait.facts.call == kWireCallWrite || wait.facts.call == kWireCallSendFile;
  target.inode = raw.inode;
  target.device = raw.device;
  std::copy(std::begin(raw.name), std::end(raw.name), target.name.begin());
  const std::string_view name = NameOf(raw);
  if (wait.facts.call == kWireCallFutex) {
    target.kind = TargetKind::kFutex;
    target.address = wait.facts.args[0];
  } else if (IsKind(raw, S_IFSOCK)) {
    target.kind = IsInet(raw)             ? TargetKind::kSocket
                  : raw.family == AF_UNIX ? TargetKind::kUnixSocket
                                          : TargetKind::kOther;
    if (IsInet(raw)) {
      target.local = model::MakeSocketAddress(raw.family, raw.local, raw.local_port);
      target.remote = model::MakeSocketAddress(raw.family, raw.remote, raw.remote_port);
    }
  } else if (IsKind(raw, S_IFIFO)) {
    target.kind = TargetKind::kPipe;
  } else if (name == "[eventpoll]") {
    target.kind = TargetKind::kEpoll;
  } else if (name == "[eventfd]") {
    target.kind = TargetKind::kEventFd;
  } else if (name == "[timerfd]") {
    target.kind = TargetKind::kTimerFd;
  } else if (IsKind(raw, S_IFREG) || IsKind(raw, S_IFBLK)) {
    target.kind = TargetKind::kFile;
    target.address = raw.fault_address;
  } else if (wait.facts.wait_class == kWireClassPageFault) {
    target.kind = TargetKind::kMemory;
    target.address = raw.fault_address;
  } else if (raw.mode != 0) {
    target.kind = TargetKind::kOther;
  }
  return target;
}

}  // namespace tailspan::probe
