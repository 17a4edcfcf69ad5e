// Reads what identifies a socket. Everything is read by probe reads, which yield zeros if the memory has gone.
#ifndef TAILSPAN_PROBE_BPF_SOCKET_FACTS_H_
#define TAILSPAN_PROBE_BPF_SOCKET_FACTS_H_

#include "maps.h"

enum { kAfUnix = 1, kAfInet = 2, kAfInet6 = 10, kSockStream = 1, kTcpSynSent = 2 };

// Fills addresses and ports (host order); leaves them zero for other families.
INLINE void ReadFlow(const struct sock* sk, u16* family, u8* local, u8* remote, u16* local_port, u16* remote_port) {
  u16 found = BPF_CORE_READ(sk, __sk_common.skc_family);
  *family = found;
  if (found == kAfInet) {
    BPF_CORE_READ_INTO((u32*)local, sk, __sk_common.skc_rcv_saddr);
    BPF_CORE_READ_INTO((u32*)remote, sk, __sk_common.skc_daddr);
  } else if (found == kAfInet6) {
    bpf_core_read(local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
    bpf_core_read(remote, 16, &sk->__sk_common.skc_v6_daddr);
  } else {
    return;
  }
  *local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
  *remote_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
}

INLINE u64 SocketInode(const struct sock* sk) { return BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino); }

#endif  // TAILSPAN_PROBE_BPF_SOCKET_FACTS_H_
