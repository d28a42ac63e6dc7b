"""Copies between host and device: large ones in GB/s, 1 KiB ones in microseconds."""

import statistics
import time

from report import Report, deterministic_torch, digest, require

require("copies", "torch")
torch = deterministic_torch()
report = Report("copies")
size = report.count(64, speed=256) << 20
repeats = report.count(5, speed=9)
report.gate()


def gbps(copy):
    copy()
    torch.cuda.synchronize()
    samples = []
    for _ in report.rounds(repeats):
        started = time.perf_counter()
        copy()
        torch.cuda.synchronize()
        samples.append(size / (time.perf_counter() - started) / 1e9)
    return statistics.median(samples)


for kind in ("pinned", "pageable"):
    with report.section(kind):
        source = torch.arange(size // 4, dtype=torch.int32)
        target = torch.zeros(size // 4, dtype=torch.int32)
        if kind == "pinned":
            source, target = source.pin_memory(), target.pin_memory()
        device = torch.empty(size // 4, dtype=torch.int32, device="cuda")
        h2d = gbps(lambda: device.copy_(source, non_blocking=kind == "pinned"))
        report.exact(f"{kind}_arrived", torch.equal(device, torch.arange(size // 4, dtype=torch.int32, device="cuda")))
        device.mul_(3).add_(1)
        d2h = gbps(lambda: target.copy_(device, non_blocking=kind == "pinned"))
        if report.scale != "speed":
            report.exact(f"{kind}_came_back", torch.equal(target, source * 3 + 1))
        report.extra(**{f"h2d_{kind}_gbps": h2d, f"d2h_{kind}_gbps": d2h})
        del source, target, device

with report.section("small"):
    copies = 1000
    for kind in ("pinned", "pageable"):
        sources = [torch.full((256,), float(i)) for i in range(16)]
        if kind == "pinned":
            sources = [source.pin_memory() for source in sources]
        device = torch.empty(copies, 256, device="cuda")

        def burst():
            for i in range(copies):
                device[i].copy_(sources[i % 16], non_blocking=True)

        milliseconds = report.time(burst, report.count(5, speed=20), torch.cuda.synchronize)
        report.extra(**{"h2d_1kib_us" if kind == "pinned" else "h2d_1kib_pageable_us": milliseconds * 1e3 / copies})
        report.exact(f"small_{kind}", digest(device))

report.finish_if_speed()

with report.section("overwritten_source"):
    # A pageable source may be reused at once; what was there at the time of the call must arrive.
    source, rows = torch.empty(100_000), []
    for i in range(20):
        source.fill_(float(i))
        rows.append(source.to("cuda", non_blocking=True))
    report.exact("overwritten_source", [row.sum().item() for row in rows])

with report.section("odd_sizes"):
    digests = []
    for count in (1, 3, 255, 4097, 65537, 1_000_003):
        data = torch.arange(count, dtype=torch.int64).to(torch.uint8)
        device = data.cuda()
        digests.append([digest(device), torch.equal(device.cpu(), data)])
    strided = torch.arange(10000, device="cuda").view(100, 100).t()[::3]
    report.exact("odd_sizes", digests)
    report.exact("strided", digest(strided))
    report.exact("device_to_device", digest(strided.clone().flip(0)))

report.finish()
