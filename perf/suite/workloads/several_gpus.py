"""PyTorch on two GPUs of one machine: copies between them, a model that spans them, a thread for each.

With `nccl`, what PyTorch does through NCCL in one process instead; with `ddp`, in a process for each.
"""

import json
import os
import socket
import subprocess
import sys

from report import Report, at_once, deterministic_torch, digest, digest_all, require, skip

COUNT = 2


def main():
    torch = require("several_gpus", "torch")
    if torch.cuda.device_count() < COUNT:
        skip("several_gpus", f"{torch.cuda.device_count()} GPU of the {COUNT} that this is about")
    deterministic_torch()
    report = Report("several_gpus")
    {"nccl": one_process, "ddp": process_each}.get("".join(report.args), plain)(report, torch)
    report.finish()


def model_of(torch, seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))


def plain(report, torch):
    devices = [torch.device("cuda", index) for index in range(COUNT)]
    with report.section("devices"):
        properties = [torch.cuda.get_device_properties(device) for device in devices]
        report.exact("names", [p.name for p in properties])
        report.exact("peers", [torch.cuda.can_device_access_peer(a, 1 - a) for a in range(COUNT)])
        report.exact("uuids_differ", properties[0].uuid != properties[1].uuid)

    with report.section("copies"):
        digests = []
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
            source = (torch.arange(1 << 20) % 251).to(dtype)
            there = source.to(devices[0]).to(devices[1])
            strided = there.view(1024, 1024).t()[::3, ::2].to(devices[0])
            digests += [digest(there), digest(strided), str(there.device), str(strided.device)]
        report.exact("digests", digests)
        a = torch.arange(1 << 22, device=devices[0])
        b = torch.empty_like(a, device=devices[1])
        side = [torch.cuda.Stream(device) for device in devices]
        for round_ in range(20):
            side[0].wait_stream(side[1])
            with torch.cuda.stream(side[0]):
                a.add_(round_)
                b.copy_(a, non_blocking=True)
            side[1].wait_stream(side[0])
            with torch.cuda.stream(side[1]):
                b.mul_(3)
                a.copy_(b, non_blocking=True)
        for device in devices:
            torch.cuda.synchronize(device)
        report.exact("to_and_fro", digest_all([a, b]))
        pinned = torch.arange(1 << 20).pin_memory()
        both = [pinned.to(device, non_blocking=True) for device in devices]
        back = [torch.empty_like(pinned).pin_memory() for _ in devices]
        for device, tensor, host in zip(devices, both, back):
            host.copy_(tensor, non_blocking=True)
            torch.cuda.synchronize(device)
        report.exact("pinned", digest_all(back))

    with report.section("a model across both"):
        first, second = model_of(torch, 1).to(devices[0]), model_of(torch, 2).to(devices[1])
        optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])
        x = torch.randn(512, 256, generator=torch.Generator().manual_seed(3)).to(devices[0])
        losses = []

        def step():
            optimizer.zero_grad(set_to_none=True)
            out = second(first(x).to(devices[1]))
            loss = (out - x.to(devices[1])).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())

        report.steady_ms = report.time(step, 40, lambda: [torch.cuda.synchronize(d) for d in devices], window=5)
        report.exact("losses", torch.stack(losses))
        report.exact("weights", digest_all([*first.parameters(), *second.parameters()]))

    with report.section("a thread for each"):
        trained = [None] * COUNT

        def train(index):
            with torch.cuda.device(index):
                model = models[index].cuda()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
                x = inputs[index].cuda()
                for _ in range(50):
                    optimizer.zero_grad(set_to_none=True)
                    (model(x) - x).square().mean().backward()
                    optimizer.step()
                trained[index] = digest_all(model.parameters())

        models = [model_of(torch, 5 + index) for index in range(COUNT)]
        inputs = [torch.randn(512, 256, generator=torch.Generator().manual_seed(index)) for index in range(COUNT)]
        report.exact("failures", at_once(train, COUNT))
        report.exact("trained", trained)

    with report.section("graphs"):
        outs = []
        for device in devices:
            with torch.cuda.device(device):
                x = torch.ones(1024, device=device)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    y = (x * 2 + 1).cumsum(0)
                x.fill_(3 + device.index)
                graph.replay()
                outs.append(y.cpu())
        report.exact("graphs", digest_all(outs))

    with report.section("memory"):
        # Out of memory on one device is nothing to the other.
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device=devices[1])
        except torch.OutOfMemoryError:
            report.exact("out_of_memory", True)
        report.exact("goes_on", [torch.ones(3, device=device).sum().item() for device in devices])


def one_process(report, torch):
    with report.section("all_reduce"):
        tensors = [torch.full((1 << 20,), float(index + 1), device=f"cuda:{index}") for index in range(COUNT)]
        torch.cuda.nccl.all_reduce(tensors)
        report.exact("sums", [tensor.unique().tolist() for tensor in tensors])

    with report.section("DataParallel"):
        model = torch.nn.DataParallel(model_of(torch, 1).cuda(), device_ids=list(range(COUNT)))
        x = torch.randn(512, 256, generator=torch.Generator().manual_seed(3)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(10):
            optimizer.zero_grad(set_to_none=True)
            (model(x) - x).square().mean().backward()
            optimizer.step()
        report.exact("data_parallel", digest_all(model.parameters()))


def process_each(report, _):
    with report.section("DDP"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command = [sys.executable, __file__, "rank", port]
        ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(COUNT)]
        said = [rank.communicate(timeout=80)[0] for rank in ranks]
        report.exact("ended", [rank.returncode for rank in ranks])
        report.exact("ddp", [json.loads(text.splitlines()[-1]) for text in said])


def rank(port, index):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch = deterministic_torch()
    torch.cuda.set_device(index)
    torch.distributed.init_process_group("nccl", rank=index, world_size=COUNT)
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch, 1).cuda(), device_ids=[index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(512, 256, generator=torch.Generator().manual_seed(index)).cuda()
    for _ in range(20):
        optimizer.zero_grad(set_to_none=True)
        (model(x) - x).square().mean().backward()
        optimizer.step()
    print(json.dumps(digest_all(model.parameters())), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    rank(sys.argv[2], int(sys.argv[3])) if sys.argv[1:2] == ["rank"] else main()
