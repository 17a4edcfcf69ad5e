// Names what a thread waits for: from its saved registers, its state and the file behind its descriptor.
#ifndef TAILSPAN_PROBE_BPF_WAIT_FACTS_H_
#define TAILSPAN_PROBE_BPF_WAIT_FACTS_H_

#include "socket_facts.h"
#include "syscall_calls.h"

enum {
  kTaskStopped = 0x4,
  kTaskTraced = 0x8,
  kTaskFrozen = 0x8000,
  kNotRunnable = 0xff | kTaskFrozen,
  kCloneVfork = 0x4000,
  kKernelThread = 0x00200000,
  kModeMask = 0xf000,
  kModeSocket = 0xc000,
  kModePipe = 0x1000,
  kModeFile = 0x8000,
  kModeBlock = 0x6000,
  kPollIn = 0x1 | 0x2 | 0x40 | 0x80,
  kPollOut = 0x4 | 0x100 | 0x200,
};
#define JOBCTL_TRAP_FREEZE (1ul << 23)

INLINE s32 SyscallNumber(struct pt_regs* regs) {
#if defined(__TARGET_ARCH_x86)
  return (s32)regs->orig_ax;
#else
  return regs->syscallno;
#endif
}

INLINE u64 SyscallArg0(struct pt_regs* regs) {
#if defined(__TARGET_ARCH_x86)
  return regs->di;
#else
  return regs->orig_x0;
#endif
}

INLINE void ReadSyscallArgs(struct pt_regs* regs, u64* args) {
  args[0] = SyscallArg0(regs);
#if defined(__TARGET_ARCH_x86)
  args[1] = regs->si;
  args[2] = regs->dx;
  args[3] = regs->r10;
#else
  args[1] = regs->regs[1];
  args[2] = regs->regs[2];
  args[3] = regs->regs[3];
#endif
}

struct PollFd {
  s32 fd;
  s16 events, revents;
};

// Looks at the first pollfds of poll and ppoll: descriptors and directions, no payload.
INLINE void ReadPollFds(struct WireWaitFacts* facts) {
  struct PollFd fds[4];
  u64 count = facts->args[1];
  if (!count) return;
  facts->poll_count = count > 255 ? 255 : (u8)count;
  if (bpf_probe_read_user(&fds[0], sizeof(fds[0]), (void*)facts->args[0])) return;
  facts->fd = fds[0].fd;
  u16 events = (u16)fds[0].events;
  if (count > 1 && count <= 4 && !bpf_probe_read_user(fds, sizeof(fds[0]) * (count & 7), (void*)facts->args[0])) {
    events |= (u16)fds[1].events;
    if (count > 2) events |= (u16)fds[2].events;
    if (count > 3) events |= (u16)fds[3].events;
  }
  if (count <= 4 && (events & kPollOut) && !(events & kPollIn)) facts->flags |= kWirePollWrite;
}

INLINE bool CallTakesFd(u8 call) {
  return call == kWireCallRead || call == kWireCallWrite || call == kWireCallSend || call == kWireCallRecv ||
         call == kWireCallConnect || call == kWireCallAccept || call == kWireCallSync || call == kWireCallEpoll ||
         call == kWireCallFileLock;
}

// The class by call alone; kWireClassNone when the file's kind decides.
INLINE u8 ClassOfCall(const struct WireWaitFacts* facts) {
  switch (facts->call) {
    case kWireCallNone:
      return kWireClassPageFault;
    case kWireCallFutex:
      return facts->flags & kWireGil ? kWireClassGil : kWireClassFutex;
    case kWireCallSleep:
      return kWireClassSleep;
    case kWireCallPoll:
    case kWireCallSelect:
    case kWireCallEpoll:
      return facts->flags & kWirePollWrite ? kWireClassSocketSend : kWireClassPoll;
    case kWireCallConnect:
      return kWireClassConnect;
    case kWireCallAccept:
    case kWireCallRecv:
      return kWireClassSocketRecv;
    case kWireCallSend:
      return kWireClassSocketSend;
    case kWireCallWaitChild:
      return kWireClassChild;
    case kWireCallSync:
      return kWireClassDiskWrite;
    case kWireCallOpen:
      return kWireClassDiskRead;
    case kWireCallRead:
    case kWireCallWrite:
    case kWireCallSendFile:
      return kWireClassNone;
    default:
      return kWireClassOther;
  }
}

INLINE u8 ClassOfFile(u8 call, u16 mode) {
  u16 kind = mode & kModeMask;
  bool reads = call == kWireCallRead;
  if (kind == kModeSocket) return reads ? kWireClassSocketRecv : kWireClassSocketSend;
  if (kind == kModePipe) return kWireClassPipe;
  if (kind == kModeFile || kind == kModeBlock) return reads ? kWireClassDiskRead : kWireClassDiskWrite;
  return kWireClassOther;
}

INLINE struct file* FileOf(struct task_struct* task, s32 fd) {
  struct file* file = 0;
  struct fdtable* table = BPF_CORE_READ(task, files, fdt);
  if (fd < 0 || (u32)fd >= BPF_CORE_READ(table, max_fds)) return 0;
  struct file** array = BPF_CORE_READ(table, fd);
  bpf_probe_read_kernel(&file, sizeof(file), array + fd);
  return file;
}

// The hot way to the file's kind: direct loads where the kernel's types allow it.
INLINE u16 ModeOf(struct task_struct* task, s32 fd) {
  struct file* file = 0;
  struct files_struct* files = task->files;
  if (!files) return 0;
  struct fdtable* table = files->fdt;
  if (fd < 0 || (u32)fd >= table->max_fds) return 0;
  struct file** array = table->fd;
  if (bpf_probe_read_kernel(&file, sizeof(file), array + fd) || !file) return 0;
  return BPF_CORE_READ(file, f_inode, i_mode);
}

// A TCP socket that waits for the other side's answer. To be asked while the wait begins: when it ends the socket is
// connected or closed, and a poll for writability looks like one for room in the send buffer.
INLINE bool IsConnecting(struct task_struct* task, s32 fd) {
  struct file* file = FileOf(task, fd);
  if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & kModeMask) != kModeSocket) return false;
  struct socket* socket = BPF_CORE_READ(file, private_data);
  struct sock* sk = BPF_CORE_READ(socket, sk);
  if (!sk || BPF_CORE_READ(socket, type) != kSockStream) return false;
  u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
  return (family == kAfInet || family == kAfInet6) && BPF_CORE_READ(sk, __sk_common.skc_state) == kTcpSynSent;
}

// vfork, and the clones by which posix_spawn does the same, hold the caller until its child execs or ends.
INLINE bool IsVfork(const struct WireWaitFacts* facts) {
  if (facts->syscall_number == kSyscallVfork) return true;
  u64 flags = facts->args[0];
  if (facts->syscall_number == kSyscallClone3 && bpf_probe_read_user(&flags, sizeof(flags), (void*)facts->args[0]))
    return false;
  return flags & kCloneVfork;
}

// Fills in the file behind the descriptor: kind, inode, device, name, and the addresses of a socket.
INLINE void ReadTarget(struct task_struct* task, s32 fd, struct WireTarget* target) {
  struct file* file = FileOf(task, fd);
  if (!file) return;
  struct inode* inode = BPF_CORE_READ(file, f_inode);
  target->mode = BPF_CORE_READ(inode, i_mode);
  target->inode = BPF_CORE_READ(inode, i_ino);
  if ((target->mode & kModeMask) != kModeSocket) {
    target->device = BPF_CORE_READ(inode, i_sb, s_dev);
    const unsigned char* name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
    bpf_probe_read_kernel_str(target->name, sizeof(target->name), name);
    return;
  }
  struct socket* socket = BPF_CORE_READ(file, private_data);
  struct sock* sk = BPF_CORE_READ(socket, sk);
  if (!sk) return;
  target->socket_type = (u16)BPF_CORE_READ(socket, type);
  target->socket_state = BPF_CORE_READ(sk, __sk_common.skc_state);
  ReadFlow(sk, &target->family, target->local, target->remote, &target->local_port, &target->remote_port);
  if (target->family == kAfUnix) {
    target->peer_pid = BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr);
  } else if (target->socket_type == kSockStream && (target->family == kAfInet || target->family == kAfInet6)) {
    struct tcp_sock* tcp = (struct tcp_sock*)sk;
    target->total_retransmits = BPF_CORE_READ(tcp, total_retrans);
    target->unsent_bytes = BPF_CORE_READ(tcp, write_seq) - BPF_CORE_READ(tcp, snd_una);
  }
}

#endif  // TAILSPAN_PROBE_BPF_WAIT_FACTS_H_
