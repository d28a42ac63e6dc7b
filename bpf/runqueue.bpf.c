// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// How long does a thread that could run wait for a core? From its wake-up, or from when it was sent off its core, until
// it runs.

#include "switches.h"

static __always_inline void could_run(struct task_struct *task)
{
    __u32 thread = task->pid;

    if (slot_of(task->tgid, thread))
        begins(thread);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(wakes, struct task_struct *task)
{
    could_run(task);
    return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(is_new, struct task_struct *task)
{
    could_run(task);
    return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switches, bool preempted, struct task_struct *before, struct task_struct *next)
{
    // Who was about to sleep when it was sent off is still in the queue.
    if (preempted || state_of(before) == 0)
        could_run(before);
    ends(next, next->pid);
    return 0;
}
