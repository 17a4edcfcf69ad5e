// System call numbers to call kinds, for the two machines we run on, so that records do not depend on the machine.
#ifndef TAILSPAN_PROBE_BPF_SYSCALL_CALLS_H_
#define TAILSPAN_PROBE_BPF_SYSCALL_CALLS_H_

#include "wire.h"

enum {
#if defined(__TARGET_ARCH_x86)
  kSyscallVfork = 58,
  kSyscallRestart = 219,
#else
  kSyscallVfork = -2,  // a clone with a flag there
  kSyscallRestart = 128,
#endif
  kSyscallClone3 = 435,
};

static inline __attribute__((always_inline)) __u8 CallOfSyscall(__s32 number) {
  switch (number) {
#if defined(__TARGET_ARCH_x86)
    case 0:
    case 17:
    case 19:
    case 295:
    case 327:
      return kWireCallRead;
    case 1:
    case 18:
    case 20:
    case 296:
    case 328:
      return kWireCallWrite;
    case 2:
    case 257:
      return kWireCallOpen;
    case 7:
    case 271:
      return kWireCallPoll;
    case 23:
    case 270:
      return kWireCallSelect;
    case 26:
    case 74:
    case 75:
    case 277:
    case 306:
    case 285:
      return kWireCallSync;
    case 34:
    case 128:
    case 130:
      return kWireCallSignalWait;
    case 35:
    case 230:
      return kWireCallSleep;
    case 40:
    case 275:
      return kWireCallSendFile;
    case 42:
      return kWireCallConnect;
    case 43:
    case 288:
      return kWireCallAccept;
    case 44:
    case 46:
    case 307:
      return kWireCallSend;
    case 45:
    case 47:
    case 299:
      return kWireCallRecv;
    case 61:
    case 247:
      return kWireCallWaitChild;
    case 56:
    case 58:
    case 435:
      return kWireCallClone;
    case 73:
      return kWireCallFileLock;
    case 202:
    case 449:
    case 455:
      return kWireCallFutex;
    case 232:
    case 281:
    case 441:
      return kWireCallEpoll;
    case 208:
    case 333:
    case 426:
      return kWireCallAsyncIo;
#elif defined(__TARGET_ARCH_arm64)
    case 63:
    case 65:
    case 67:
    case 69:
    case 286:
      return kWireCallRead;
    case 64:
    case 66:
    case 68:
    case 70:
    case 287:
      return kWireCallWrite;
    case 56:
      return kWireCallOpen;
    case 73:
      return kWireCallPoll;
    case 72:
      return kWireCallSelect;
    case 47:
    case 82:
    case 83:
    case 84:
    case 227:
    case 267:
      return kWireCallSync;
    case 133:
    case 137:
      return kWireCallSignalWait;
    case 101:
    case 115:
      return kWireCallSleep;
    case 71:
    case 76:
      return kWireCallSendFile;
    case 203:
      return kWireCallConnect;
    case 202:
    case 242:
      return kWireCallAccept;
    case 206:
    case 211:
    case 269:
      return kWireCallSend;
    case 207:
    case 212:
    case 243:
      return kWireCallRecv;
    case 95:
    case 260:
      return kWireCallWaitChild;
    case 220:
    case 435:
      return kWireCallClone;
    case 32:
      return kWireCallFileLock;
    case 98:
    case 449:
    case 455:
      return kWireCallFutex;
    case 22:
    case 441:
      return kWireCallEpoll;
    case 4:
    case 426:
      return kWireCallAsyncIo;
#endif
    default:
      return number < 0 ? kWireCallNone : kWireCallOther;
  }
}

#endif  // TAILSPAN_PROBE_BPF_SYSCALL_CALLS_H_
