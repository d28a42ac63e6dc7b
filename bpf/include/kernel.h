// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Of the kernel's structs, the fields that are read. Their places come from the running kernel's BTF when a program is
// loaded, so these need neither its order nor its size, and there is no vmlinux.h of a megabyte here.

#ifndef ORION_KERNEL_H
#define ORION_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include "bpf_helpers.h"
// In the order that they need each other.
#include "bpf_core_read.h"
#include "bpf_tracing.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};

struct files_struct {
    struct fdtable *fdt;
};

struct inode {
    unsigned short i_mode;
    unsigned int i_rdev;
};

struct file {
    struct inode *f_inode;
};

struct task_struct {
    unsigned int __state;
    int pid;
    int tgid;
    struct files_struct *files;
};

// Before Linux 5.14.
struct task_struct___before_514 {
    long state;
};

struct ns_common {
    unsigned int inum;
};

struct net {
    struct ns_common ns;
};

typedef struct {
    struct net *net;
} possible_net_t;

struct in6_addr {
    union {
        __u8 u6_addr8[16];
    } in6_u;
};

struct sock_common {
    __be32 skc_daddr;
    __be16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    possible_net_t skc_net;
    struct in6_addr skc_v6_daddr;
};

struct sock {
    struct sock_common __sk_common;
};

struct tcp_rack {
    __u32 rtt_us;
};

struct tcp_sock {
    __u32 write_seq;
    __u32 snd_una;
    __u32 snd_nxt;
    __u32 rcv_nxt;
    __u32 copied_seq;
    __u32 srtt_us;
    struct tcp_rack rack;
};

struct io_kiocb {
    __u8 opcode;
};

struct io_ring_ctx {
    struct task_struct *submitter_task;
};

struct trace_event_raw_io_uring_complete {
    struct io_ring_ctx *ctx;
    void *req;
    int res;
};

struct trace_event_raw_sys_enter {
    unsigned long args[6];
};

struct trace_event_raw_sys_exit {
    long ret;
};

#pragma clang attribute pop

// All of a program may be had under the GPL, which is what helpers that read the kernel's memory ask for.
char LICENSE[] SEC("license") = "GPL";

#endif
