// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// How often does each of Orion's own probes fire, and how long is it from one that begins something to the one that
// ends it? Which probes there are is read from the program, and the cookie of each says what it is.

#include "histogram.h"
#include "threads.h"

// Of the registers' struct, which is the system's.
#include <linux/ptrace.h>
#include "usdt.bpf.h"

struct pair {
    __u32 pair;
    __u32 reserved;
    // The first argument, which is the session.
    __u64 session;
};

struct under_way {
    __u32 pair;
    __u32 process;
    __u64 names[ORION_NAMES_MAX];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, ORION_PROBES_MAX);
    __type(key, __u32);
    __type(value, __u64);
} hits SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, ORION_UNDER_WAY_MAX);
    __type(key, struct under_way);
    __type(value, __u64);
} under_way SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_PAIRS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct pair);
    __type(value, struct histogram);
} pairs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct histogram);
} nothing SEC(".maps");

static __always_inline void pass(struct under_way *key, __u64 began)
{
    struct pair pair = { .pair = key->pair, .session = key->names[0] };
    struct histogram *found = bpf_map_lookup_elem(&pairs, &pair), *fresh;
    __u32 zero = 0;

    if (!found) {
        fresh = bpf_map_lookup_elem(&nothing, &zero);
        if (fresh)
            bpf_map_update_elem(&pairs, &pair, fresh, BPF_NOEXIST);
        found = bpf_map_lookup_elem(&pairs, &pair);
    }
    if (found)
        record(found, bpf_ktime_get_ns() - began);
    else
        lose();
}

SEC("usdt")
int fires(struct pt_regs *ctx)
{
    __u64 cookie = bpf_usdt_cookie(ctx);
    __u32 probe = cookie & 0xffff;
    __u32 kind = (cookie >> ORION_COOKIE_KIND_SHIFT) & 0xff;
    __u32 names = (cookie >> ORION_COOKIE_NAMES_SHIFT) & 0xff;
    struct under_way key = { .pair = cookie >> ORION_COOKIE_PAIR_SHIFT, .process = bpf_get_current_pid_tgid() >> 32 };
    __u64 *count, *began, now;

    if (!current_slot())
        return 0;
    count = bpf_map_lookup_elem(&hits, &probe);
    if (count)
        __sync_fetch_and_add(count, 1);
    if (kind == ORION_KIND_ALONE)
        return 0;
    for (int i = 0; i < ORION_NAMES_MAX; i++) {
        long value = 0;
        if (i < names)
            bpf_usdt_arg(ctx, i, &value);
        key.names[i] = value;
    }
    if (kind == ORION_KIND_BEGIN) {
        now = bpf_ktime_get_ns();
        bpf_map_update_elem(&under_way, &key, &now, BPF_ANY);
        return 0;
    }
    began = bpf_map_lookup_elem(&under_way, &key);
    if (!began)
        return 0;
    now = *began;
    bpf_map_delete_elem(&under_way, &key);
    pass(&key, now);
    return 0;
}
