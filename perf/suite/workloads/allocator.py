"""PyTorch's allocators other than the usual one; the environment chooses which."""

import os

from report import Report, deterministic_torch, digest, digest_all, require

require("allocator", "torch")
torch = deterministic_torch()
setting = os.environ.get("PYTORCH_ALLOC_CONF", "")
report = Report("malloc_async" if "cudaMallocAsync" in setting else "expandable_segments")

with report.section("backend"):
    report.exact("backend", torch.cuda.get_allocator_backend())

with report.section("grow_and_shrink"):
    kept, total = [], torch.zeros((), device="cuda")
    for round_index in range(6):
        sizes = [mib << 20 for mib in (1, 3, 24, 40, 130)]
        blocks = [torch.full((size,), round_index, dtype=torch.uint8, device="cuda") for size in sizes]
        total += sum(block.float().mean() for block in blocks)
        kept.append(blocks[round_index % 5])
        del blocks
        if round_index % 2:
            torch.cuda.empty_cache()
    report.exact("total", total.item())
    report.exact("kept", [digest(block[:4096]) for block in kept])
    report.exact("allocated", torch.cuda.memory_allocated())
    if "expandable" in setting:
        segments = torch.cuda.memory_snapshot()
        report.exact("segments_are_expandable", all(segment.get("is_expandable") for segment in segments))
    del kept
    torch.cuda.empty_cache()

with report.section("train"):
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()

    def step():
        x = torch.randn(256, 512, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            target = x.roll(1, 0)
            x.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(x), target).backward()
        target.record_stream(torch.cuda.current_stream())
        optimizer.step()

    report.steady_ms = report.time(step, report.count(30, speed=300), torch.cuda.synchronize, window=10)
    report.exact("weights", digest_all(model.parameters()))

report.finish()
