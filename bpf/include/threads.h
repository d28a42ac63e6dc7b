// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Whose threads count. The loader writes both maps, and goes on doing so while there are new sessions.

#ifndef ORION_THREADS_H
#define ORION_THREADS_H

#include "kernel.h"
#include "numbers.h"

// Process to the slot of those threads of it that have none of their own.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_PROCESSES_MAX);
    __type(key, __u32);
    __type(value, __u32);
} processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_THREADS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} threads SEC(".maps");

// What was not counted because a map had no room.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} lost SEC(".maps");

// Others' threads cost one lookup.
static __always_inline __u32 *slot_of(__u32 process, __u32 thread)
{
    __u32 *slot = bpf_map_lookup_elem(&processes, &process);
    __u32 *own;

    if (!slot)
        return 0;
    own = bpf_map_lookup_elem(&threads, &thread);
    return own ? own : slot;
}

static __always_inline __u32 *current_slot(void)
{
    __u64 both = bpf_get_current_pid_tgid();

    return slot_of(both >> 32, both);
}

static __always_inline void lose(void)
{
    __u32 zero = 0;
    __u64 *count = bpf_map_lookup_elem(&lost, &zero);

    if (count)
        __sync_fetch_and_add(count, 1);
}

#endif
