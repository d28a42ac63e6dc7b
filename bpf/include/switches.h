// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// What the two questions about the scheduler have in common.

#ifndef ORION_SWITCHES_H
#define ORION_SWITCHES_H

#include "histogram.h"
#include "threads.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, ORION_SLOTS_MAX);
    __type(key, __u32);
    __type(value, struct histogram);
} histograms SEC(".maps");

// Thread to the time since which it waits.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_THREADS_MAX);
    __type(key, __u32);
    __type(value, __u64);
} since SEC(".maps");

#define TASK_DEAD 0x80

static __always_inline long state_of(struct task_struct *task)
{
    if (bpf_core_field_exists(task->__state))
        return BPF_CORE_READ(task, __state);
    return BPF_CORE_READ((struct task_struct___before_514 *)task, state);
}

static __always_inline void begins(__u32 thread)
{
    __u64 now = bpf_ktime_get_ns();

    if (bpf_map_update_elem(&since, &thread, &now, BPF_ANY))
        lose();
}

static __always_inline void ends(struct task_struct *task, __u32 thread)
{
    __u64 *began = bpf_map_lookup_elem(&since, &thread);
    __u64 waited;
    __u32 *slot;
    struct histogram *histogram;

    if (!began)
        return;
    waited = bpf_ktime_get_ns() - *began;
    bpf_map_delete_elem(&since, &thread);
    slot = slot_of(task->tgid, thread);
    histogram = slot ? bpf_map_lookup_elem(&histograms, slot) : 0;
    if (histogram)
        record(histogram, waited);
}

#endif
