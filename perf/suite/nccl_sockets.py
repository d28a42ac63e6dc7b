#!/usr/bin/env python3
"""Two processes, a GPU each, that send through NCCL and count wrong words: sums, gathers, messages of several sizes.

    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29501 NCCL_SHM_DISABLE=1 NCCL_P2P_DISABLE=1
    for rank in 0 1; do
        RANK=$rank orion-run --server tcp:gpu-node:7411 -- python3 perf/suite/nccl_sockets.py &
    done; wait

Without shared memory and peer access NCCL gets on by sockets, whose buffers are mapped memory. Ends with 1 if a word
is wrong.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

SIZES = (1, 1000, 1 << 15, 1 << 18, 1 << 20, 1 << 22)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", rank=rank, world_size=world)
    wrong = 0
    for n in SIZES:
        for dtype in (torch.float32, torch.int64):
            each = torch.arange(n, device="cuda", dtype=dtype) % 97
            x = each * (rank + 1)
            torch.cuda.synchronize()
            began = time.monotonic()
            dist.all_reduce(x)
            torch.cuda.synchronize()
            took = time.monotonic() - began
            wrong += int((x != each * sum(range(1, world + 1))).sum())
            if rank == 0:
                print(f"{n * x.element_size()} bytes of {dtype}: {took * 1e3:.1f} ms", flush=True)
        mine = torch.full((n,), float(rank), device="cuda")
        all_of_them = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(all_of_them, mine)
        wrong += sum(int((theirs != i).sum()) for i, theirs in enumerate(all_of_them))
        message = torch.full((n,), 7.0 + rank, device="cuda")
        if rank == 0:
            dist.send(message, 1)
        elif rank == 1:
            dist.recv(message, 0)
            wrong += int((message != 7.0).sum())
        torch.cuda.synchronize()
    print(f"rank {rank}: {wrong} wrong", flush=True)
    dist.destroy_process_group()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
