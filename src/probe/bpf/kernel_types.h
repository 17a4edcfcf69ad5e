// The few kernel types that the probes touch, for CO-RE: libbpf moves every access to where the running kernel keeps
// the field, so this header needs no BTF on the build machine and only the names have to be right. Fields that some
// kernels lack are tested with bpf_core_field_exists before they are read.
#ifndef TAILSPAN_PROBE_BPF_KERNEL_TYPES_H_
#define TAILSPAN_PROBE_BPF_KERNEL_TYPES_H_

#include <linux/bpf.h>
// Tells libbpf's headers that the kernel's own pt_regs is in use; only its macros depend on it.
#define __VMLINUX_H__

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __s16 s16;

#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
#if defined(__TARGET_ARCH_x86)
  unsigned long r10, dx, si, di, orig_ax;
#elif defined(__TARGET_ARCH_arm64)
  u64 regs[31];
  u64 orig_x0;
  s32 syscallno;
#endif
};

struct thread_struct {
#if defined(__TARGET_ARCH_x86)
  unsigned long fsbase;
#elif defined(__TARGET_ARCH_arm64)
  struct {
    unsigned long tp_value;
  } uw;
#endif
};

struct kernfs_node {
  u64 id;
};
struct cgroup {
  struct kernfs_node* kn;
};
struct css_set {
  struct cgroup* dfl_cgrp;
};

struct cfs_rq {
  int throttle_count;
};
struct sched_entity {
  u64 sum_exec_runtime;
  struct cfs_rq* cfs_rq;
};

typedef struct {
  int counter;
} atomic_t;
struct signal_struct {
  atomic_t live;
  int group_exit_code;
};

struct super_block {
  u32 s_dev;
};
struct hlist_node {
  struct hlist_node* next;
};
struct hlist_head {
  struct hlist_node* first;
};
struct inode {
  u16 i_mode;
  unsigned long i_ino;
  struct super_block* i_sb;
  struct hlist_head i_dentry;
};
struct qstr {
  const unsigned char* name;
};
struct dentry {
  struct qstr d_name;
  struct {
    struct hlist_node d_alias;
  } d_u;
};
struct path {
  struct dentry* dentry;
};
struct file {
  struct inode* f_inode;
  void* private_data;
  struct path f_path;
  const void* f_op;
};
struct fdtable {
  unsigned int max_fds;
  struct file** fd;
};
struct files_struct {
  struct fdtable* fdt;
};
struct address_space {
  struct inode* host;
};

struct upid {
  int nr;
};
struct pid {
  struct upid numbers[1];
};

struct in6_addr {
  union {
    u8 u6_addr8[16];
  } in6_u;
};
struct sock_common {
  u32 skc_daddr;
  u32 skc_rcv_saddr;
  u16 skc_dport;
  u16 skc_num;
  u16 skc_family;
  volatile unsigned char skc_state;
  struct in6_addr skc_v6_daddr;
  struct in6_addr skc_v6_rcv_saddr;
};
struct socket;
struct sock {
  struct sock_common __sk_common;
  struct socket* sk_socket;
  struct pid* sk_peer_pid;
};
struct socket {
  short type;
  struct file* file;
  struct sock* sk;
};
struct inet_sock {
  u16 inet_sport;
};
struct inet_connection_sock {
  u8 icsk_backoff;
};
struct tcp_sock {
  u64 first_tx_mstamp;
  u32 srtt_us;
  u32 rttvar_us;
  u32 total_retrans;
  u32 write_seq;
  u32 snd_una;
  u32 copied_seq;
};

struct task_struct {
  unsigned int flags;
  int pid, tgid;
  char comm[16];
  struct task_struct* real_parent;
  struct task_struct* group_leader;
  u64 start_time;
  struct sched_entity se;
  bool throttled;
  unsigned in_iowait : 1;
  unsigned long jobctl;
  int exit_code;
  struct css_set* cgroups;
  struct files_struct* files;
  struct signal_struct* signal;
  struct thread_struct thread;
};

struct block_device {
  u32 bd_dev;
};
struct request {
  u32 cmd_flags;
  unsigned int __data_len;
  struct block_device* part;
};

struct seq_file;
struct bpf_iter_meta {
  struct seq_file* seq;
};
struct bpf_iter__task {
  struct bpf_iter_meta* meta;
  struct task_struct* task;
};

#pragma clang attribute pop

#endif  // TAILSPAN_PROBE_BPF_KERNEL_TYPES_H_
