// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// How long does a thread sleep? From when it gives up its core to wait for something until it runs again, and the wait
// for a core at the end of it counts. Who is sent off a core while it could run is runqueue.bpf.c's.

#include "switches.h"

SEC("tp_btf/sched_switch")
int BPF_PROG(switches, bool preempted, struct task_struct *before, struct task_struct *next)
{
    __u32 thread = before->pid;
    long state = state_of(before);

    if (!preempted && state != 0 && !(state & TASK_DEAD) && slot_of(before->tgid, thread))
        begins(thread);
    ends(next, next->pid);
    return 0;
}
