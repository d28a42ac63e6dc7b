// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Which ioctls does a worker make on device files, and how long do they take? A driver's library does its work by them.

#include "histogram.h"
#include "threads.h"

#define S_IFMT 0170000
#define S_IFCHR 0020000

struct request {
    __u32 slot;
    // Of a device file: major number << 20 | minor number.
    __u32 device;
    __u32 command;
};

struct ioctls {
    __u64 count;
    __u64 failures;
    struct histogram times;
};

struct begun {
    __u64 at;
    struct request request;
};

// Thread to what it is in.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_THREADS_MAX);
    __type(key, __u32);
    __type(value, struct begun);
} under_way SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_IOCTLS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct request);
    __type(value, struct ioctls);
} ioctls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct ioctls);
} nothing SEC(".maps");

// 0 if this is no device file.
static __always_inline __u32 device_of(__u32 fd)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task();
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    struct file **files = BPF_CORE_READ(table, fd);
    struct file *file = 0;
    struct inode *inode;

    if (fd >= BPF_CORE_READ(table, max_fds))
        return 0;
    bpf_probe_read_kernel(&file, sizeof file, files + fd);
    inode = BPF_CORE_READ(file, f_inode);
    if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFCHR)
        return 0;
    return BPF_CORE_READ(inode, i_rdev);
}

SEC("tracepoint/syscalls/sys_enter_ioctl")
int enters(struct trace_event_raw_sys_enter *event)
{
    __u32 thread = bpf_get_current_pid_tgid();
    __u32 *slot = current_slot();
    struct begun begun = {};

    if (!slot)
        return 0;
    begun.request.slot = *slot;
    begun.request.device = device_of(event->args[0]);
    if (!begun.request.device)
        return 0;
    begun.request.command = event->args[1];
    begun.at = bpf_ktime_get_ns();
    if (bpf_map_update_elem(&under_way, &thread, &begun, BPF_ANY))
        lose();
    return 0;
}

SEC("tracepoint/syscalls/sys_exit_ioctl")
int leaves(struct trace_event_raw_sys_exit *event)
{
    __u32 thread = bpf_get_current_pid_tgid(), zero = 0;
    struct begun *begun = bpf_map_lookup_elem(&under_way, &thread);
    struct ioctls *fresh, *found;
    struct request request;
    __u64 took;

    if (!begun)
        return 0;
    took = bpf_ktime_get_ns() - begun->at;
    request = begun->request;
    bpf_map_delete_elem(&under_way, &thread);
    found = bpf_map_lookup_elem(&ioctls, &request);
    if (!found) {
        fresh = bpf_map_lookup_elem(&nothing, &zero);
        if (fresh)
            bpf_map_update_elem(&ioctls, &request, fresh, BPF_NOEXIST);
        found = bpf_map_lookup_elem(&ioctls, &request);
        if (!found) {
            lose();
            return 0;
        }
    }
    __sync_fetch_and_add(&found->count, 1);
    if (event->ret < 0)
        __sync_fetch_and_add(&found->failures, 1);
    record(&found->times, took);
    return 0;
}
