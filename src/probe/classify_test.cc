#include "probe/classify.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>

namespace tailspan::probe {
namespace {

using model::Cause;
using model::TargetKind;
using model::WaitClass;
using model::WakerKind;

enum : uint8_t { kTimerVector = 1, kNetRxVector = 3, kBlockVector = 4, kRcuVector = 9 };

WireWaker Thread(uint8_t call) {
  WireWaker waker{};
  waker.flags = kWireWakerSeen;
  waker.tid = waker.tgid = 7;
  waker.call = call;
  return waker;
}

WireWaker Softirq(uint8_t vector, uint32_t interrupted_tid = 0, uint8_t call = kWireCallNone) {
  WireWaker waker{};
  waker.flags = kWireWakerSeen;
  waker.tid = interrupted_tid;
  waker.call = call;
  waker.irq = kWireIrqSoft;
  waker.softirq = vector;
  return waker;
}

WireTarget Tcp(uint16_t remote_port, uint8_t state = 1) {
  WireTarget target{};
  target.mode = S_IFSOCK;
  target.family = AF_INET;
  target.socket_type = SOCK_STREAM;
  target.socket_state = state;
  target.remote_port = remote_port;
  return target;
}

WireTarget Of(uint16_t mode, const char* name = "") {
  WireTarget target{};
  target.mode = mode;
  std::strncpy(target.name, name, sizeof target.name - 1);
  return target;
}

WireTarget UnixSocket() {
  WireTarget target{};
  target.mode = S_IFSOCK;
  target.family = AF_UNIX;
  target.socket_type = SOCK_STREAM;
  return target;
}

WireTarget Udp(uint16_t remote_port) {
  WireTarget target = Tcp(remote_port);
  target.socket_type = SOCK_DGRAM;
  return target;
}

struct Row {
  const char* what;
  uint8_t wait_class, call;
  uint8_t flags, poll_count;
  uint32_t state;
  WireTarget target;
  WireWaker waker;
  Cause cause;
};

TEST(Classify, CauseByHandMadeTable) {
  const WireTarget none{};
  const WireWaker nobody{};
  const Row rows[] = {
      {"preempted", kWireClassRunQueue, kWireCallNone, kWireRunnable, 0, 0, none, nobody, Cause::kRunQueue},
      {"quota", kWireClassThrottled, kWireCallNone, kWireRunnable | kWireThrottled, 0, 0, none, nobody,
       Cause::kCpuThrottled},
      {"gil", kWireClassGil, kWireCallFutex, kWireGil, 0, 1, none, Thread(kWireCallFutex), Cause::kGil},
      {"lock", kWireClassFutex, kWireCallFutex, 0, 0, 1, none, Thread(kWireCallFutex), Cause::kLock},
      {"sleep", kWireClassSleep, kWireCallSleep, 0, 0, 1, none, Softirq(kTimerVector), Cause::kSleep},
      {"recv tcp", kWireClassSocketRecv, kWireCallRecv, 0, 0, 1, Tcp(8000), Softirq(kNetRxVector), Cause::kNetRecv},
      {"read tcp", kWireClassSocketRecv, kWireCallRead, 0, 0, 1, Tcp(8000), Softirq(kNetRxVector), Cause::kNetRecv},
      {"recv dns", kWireClassSocketRecv, kWireCallRecv, 0, 0, 1, Udp(53), Softirq(kNetRxVector), Cause::kDns},
      {"recv unix", kWireClassSocketRecv, kWireCallRecv, 0, 0, 1, UnixSocket(), Thread(kWireCallSend), Cause::kIpc},
      {"send tcp", kWireClassSocketSend, kWireCallSend, 0, 0, 1, Tcp(8000), Softirq(kNetRxVector), Cause::kNetSend},
      {"send unix", kWireClassSocketSend, kWireCallSend, 0, 0, 1, UnixSocket(), Thread(kWireCallRecv), Cause::kIpc},
      {"connect", kWireClassConnect, kWireCallConnect, 0, 0, 1, Tcp(8000, 2), nobody, Cause::kNetConnect},
      {"connect unix", kWireClassConnect, kWireCallConnect, 0, 0, 1, UnixSocket(), nobody, Cause::kIpc},
      {"poll connect", kWireClassSocketSend, kWireCallPoll, kWirePollWrite, 1, 1, Tcp(8000, 2), nobody,
       Cause::kNetConnect},
      {"poll connect, answered", kWireClassConnect, kWireCallPoll, kWirePollWrite, 1, 1, Tcp(8000), nobody,
       Cause::kNetConnect},
      {"poll for room", kWireClassSocketSend, kWireCallPoll, kWirePollWrite, 1, 1, Tcp(8000), nobody, Cause::kNetSend},
      {"poll for data", kWireClassPoll, kWireCallPoll, 0, 1, 1, Tcp(8000), nobody, Cause::kNetRecv},
      {"poll dns", kWireClassPoll, kWireCallPoll, 0, 1, 1, Udp(53), nobody, Cause::kDns},
      {"poll pipe", kWireClassPoll, kWireCallPoll, 0, 1, 1, Of(S_IFIFO), nobody, Cause::kIpc},
      {"poll timerfd", kWireClassPoll, kWireCallPoll, 0, 1, 1, Of(0600, "[timerfd]"), nobody, Cause::kSleep},
      {"poll of nothing", kWireClassPoll, kWireCallPoll, 0, 0, 1, none, Softirq(kTimerVector), Cause::kSleep},
      {"epoll, packet", kWireClassPoll, kWireCallEpoll, 0, 0, 1, Of(0600, "[eventpoll]"), Softirq(kNetRxVector),
       Cause::kNetRecv},
      {"epoll, packet by the sender", kWireClassPoll, kWireCallEpoll, 0, 0, 1, Of(0600, "[eventpoll]"),
       Softirq(kNetRxVector, 9, kWireCallSend), Cause::kNetRecv},
      {"epoll, timeout", kWireClassPoll, kWireCallEpoll, 0, 0, 1, Of(0600, "[eventpoll]"), Softirq(kTimerVector),
       Cause::kSleep},
      {"epoll, thread", kWireClassPoll, kWireCallEpoll, 0, 0, 1, Of(0600, "[eventpoll]"), Thread(kWireCallWrite),
       Cause::kIpc},
      {"epoll, unknown", kWireClassPoll, kWireCallEpoll, 0, 0, 1, Of(0600, "[eventpoll]"), nobody, Cause::kUnexplained},
      {"pipe", kWireClassPipe, kWireCallRead, 0, 0, 1, Of(S_IFIFO), Thread(kWireCallWrite), Cause::kIpc},
      {"fault", kWireClassPageFault, kWireCallNone, kWireIoWait, 0, 2, Of(S_IFREG, "index"), nobody, Cause::kPageFault},
      {"read file", kWireClassDiskRead, kWireCallRead, kWireIoWait, 0, 2, Of(S_IFREG, "a"), nobody, Cause::kDiskRead},
      {"open file", kWireClassDiskRead, kWireCallOpen, kWireIoWait, 0, 2, none, nobody, Cause::kDiskRead},
      {"open fifo", kWireClassDiskRead, kWireCallOpen, 0, 0, 1, none, nobody, Cause::kUnexplained},
      {"fsync", kWireClassDiskWrite, kWireCallSync, kWireIoWait, 0, 2, Of(S_IFREG, "a"), nobody, Cause::kDiskWrite},
      {"wait4", kWireClassChild, kWireCallWaitChild, 0, 0, 1, none, Thread(kWireCallOther), Cause::kChildProcess},
      {"stopped", kWireClassStopped, kWireCallRead, 0, 0, 4, none, nobody, Cause::kStopped},
      {"read eventfd", kWireClassOther, kWireCallRead, 0, 0, 1, Of(0600, "[eventfd]"), Thread(kWireCallWrite),
       Cause::kIpc},
      {"read timerfd", kWireClassOther, kWireCallRead, 0, 0, 1, Of(0600, "[timerfd]"), Softirq(kTimerVector),
       Cause::kSleep},
      {"flock", kWireClassOther, kWireCallFileLock, 0, 0, 1, none, nobody, Cause::kLock},
      {"mmap lock", kWireClassOther, kWireCallOther, 0, 0, 2, none, nobody, Cause::kLock},
      {"stat from disk", kWireClassOther, kWireCallOther, kWireIoWait, 0, 2, none, nobody, Cause::kDiskRead},
      {"unknown", kWireClassOther, kWireCallOther, 0, 0, 1, none, nobody, Cause::kUnexplained},
  };
  for (const Row& row : rows) {
    WireWait wait{};
    wait.facts.wait_class = row.wait_class;
    wait.facts.call = row.call;
    wait.facts.flags = row.flags;
    wait.facts.poll_count = row.poll_count;
    wait.facts.task_state = row.state;
    wait.target = row.target;
    wait.waker = row.waker;
    EXPECT_EQ(CauseOf(wait), row.cause) << row.what << ": " << model::CauseName(CauseOf(wait));
  }
}

TEST(Classify, ShortWaitsOfUnknownTargetsStayUnexplained) {
  EXPECT_EQ(model::CauseOfClass(WaitClass::kPoll), Cause::kUnexplained);
  EXPECT_EQ(model::CauseOfClass(WaitClass::kOther), Cause::kUnexplained);
  EXPECT_EQ(model::CauseOfClass(WaitClass::kGil), Cause::kGil);
  EXPECT_EQ(model::CauseOfClass(WaitClass::kThrottled), Cause::kCpuThrottled);
}

TEST(Classify, Waker) {
  EXPECT_EQ(WakerKindOf({}), WakerKind::kNone);
  EXPECT_EQ(WakerKindOf(Thread(kWireCallFutex)), WakerKind::kThread);
  EXPECT_EQ(WakerKindOf(Softirq(kTimerVector)), WakerKind::kTimer);
  EXPECT_EQ(WakerKindOf(Softirq(kBlockVector)), WakerKind::kBlock);
  EXPECT_EQ(WakerKindOf(Softirq(kRcuVector)), WakerKind::kOtherIrq);
  EXPECT_EQ(WakerKindOf(Softirq(kNetRxVector)), WakerKind::kNetwork);
  // An interrupt that found a thread computing is not that thread's doing; one inside its own send is.
  EXPECT_EQ(WakerKindOf(Softirq(kNetRxVector, 9, kWireCallNone)), WakerKind::kNetwork);
  EXPECT_EQ(WakerKindOf(Softirq(kNetRxVector, 9, kWireCallSend)), WakerKind::kThread);
  WireWaker local_timer{};
  local_timer.flags = kWireWakerSeen;
  local_timer.irq = kWireIrqTimer;
  EXPECT_EQ(WakerKindOf(local_timer), WakerKind::kTimer);
  WireWaker idle{};  // an idle CPU wakes only from interrupts
  idle.flags = kWireWakerSeen;
  EXPECT_EQ(WakerKindOf(idle), WakerKind::kOtherIrq);
}

TEST(Classify, TargetKeepsAddresses) {
  WireWait wait{};
  wait.facts.call = kWireCallSend;
  wait.facts.fd = 5;
  wait.target = Tcp(8000);
  wait.target.remote[0] = 10;
  wait.target.remote[3] = 2;
  wait.target.inode = 77;
  const model::WaitTarget target = TargetOf(wait);
  EXPECT_EQ(target.kind, TargetKind::kSocket);
  EXPECT_TRUE(target.for_write);
  EXPECT_EQ(target.fd, 5);
  EXPECT_EQ(target.inode, 77u);
  EXPECT_EQ(ToText(target.remote), "10.0.0.2:8000");
}

TEST(Classify, TargetOfAFaultIsItsFile) {
  WireWait wait{};
  wait.facts.wait_class = kWireClassPageFault;
  wait.facts.fd = -1;
  wait.target = Of(S_IFREG, "index.bin");
  EXPECT_EQ(TargetOf(wait).kind, TargetKind::kFile);
  EXPECT_STREQ(TargetOf(wait).name.data(), "index.bin");
  wait.target = {};
  wait.target.fault_address = 0x1000;
  EXPECT_EQ(TargetOf(wait).kind, TargetKind::kMemory);
  EXPECT_EQ(TargetOf(wait).address, 0x1000u);
}

}  // namespace
}  // namespace tailspan::probe
