// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// What does io_uring complete, of which operations, and how much of it fails?

#include "threads.h"

struct operation {
    __u32 slot;
    __u32 opcode;
};

struct completions {
    __u64 count;
    __u64 failures;
    // The sum of results that are not errors: bytes, of what sends and receives.
    __u64 results;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_COMPLETIONS_MAX);
    __type(key, struct operation);
    __type(value, struct completions);
} completions SEC(".maps");

SEC("tracepoint/io_uring/io_uring_complete")
int completes(struct trace_event_raw_io_uring_complete *event)
{
    struct io_ring_ctx *ring = event->ctx;
    void *request = event->req;
    int result = event->res;
    struct operation operation = { .opcode = ORION_NO_OPCODE };
    struct completions fresh = {}, *found;
    struct task_struct *owner = 0;
    __u32 *slot;

    // Who submits alone is known; else it is who runs, for completions are posted in the submitter's name.
    if (bpf_core_field_exists(ring->submitter_task))
        owner = BPF_CORE_READ(ring, submitter_task);
    slot = owner ? slot_of(BPF_CORE_READ(owner, tgid), BPF_CORE_READ(owner, pid)) : current_slot();
    if (!slot)
        return 0;
    operation.slot = *slot;
    if (request)
        operation.opcode = BPF_CORE_READ((struct io_kiocb *)request, opcode);
    found = bpf_map_lookup_elem(&completions, &operation);
    if (!found) {
        bpf_map_update_elem(&completions, &operation, &fresh, BPF_NOEXIST);
        found = bpf_map_lookup_elem(&completions, &operation);
        if (!found) {
            lose();
            return 0;
        }
    }
    __sync_fetch_and_add(&found->count, 1);
    if (result < 0)
        __sync_fetch_and_add(&found->failures, 1);
    else
        __sync_fetch_and_add(&found->results, result);
    return 0;
}
