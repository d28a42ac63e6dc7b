"""Hello: what PyTorch says of the device, and the first small tensors."""

from report import Report, digest, require

torch = require("hello", "torch")
report = Report("hello")

with report.section("properties"):
    report.exact("available", torch.cuda.is_available())
    report.exact("device_count", torch.cuda.device_count())
    properties = torch.cuda.get_device_properties(0)
    for name in (
        "name",
        "major",
        "minor",
        "multi_processor_count",
        "warp_size",
        "max_threads_per_multi_processor",
        "regs_per_multiprocessor",
        "shared_memory_per_block",
        "shared_memory_per_block_optin",
        "shared_memory_per_multiprocessor",
        "L2_cache_size",
        "is_integrated",
        "is_multi_gpu_board",
    ):
        if hasattr(properties, name):
            report.exact(name, getattr(properties, name))
    report.exact("capability", list(torch.cuda.get_device_capability()))
    report.exact("arch_list_nonempty", len(torch.cuda.get_arch_list()) > 0)
    report.exact("bf16", torch.cuda.is_bf16_supported())
    if torch.cuda.device_count() > 1:
        report.exact("peer_access", torch.cuda.can_device_access_peer(0, 1))
    report.extra(total_memory=properties.total_memory, uuid=str(getattr(properties, "uuid", "")))

with report.section("memory"):
    free, total = torch.cuda.mem_get_info()
    report.exact("free_is_sane", 0 < free <= total)
    report.exact("total_matches_properties", total == properties.total_memory)
    block = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    free_after, _ = torch.cuda.mem_get_info()
    # Others may use the GPU meanwhile, so only that our own block is gone from it.
    report.extra(free=free, total=total, free_after_256_mib=free_after)
    report.exact("allocated", torch.cuda.memory_allocated())
    del block
    torch.cuda.empty_cache()

with report.section("tensors"):
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    report.exact("sum", (x * 2 + 1).sum().item())
    report.exact("mean", x.mean().item())
    report.exact("int_item", torch.tensor(41, device="cuda").add(1).item())
    report.exact("bool_item", bool((x[10] > 9).item()))
    report.exact("round_trip", digest(x.cpu().cuda().sqrt()))
    report.exact("nonzero", digest(torch.nonzero(x.remainder(7) == 0)))
    report.exact("where", digest(torch.where(x > 500, x, -x)))
    report.exact("cat", digest(torch.cat([x, x[:3]]).view(-1)))
    report.exact("repr", repr(x[:4]))
    report.exact("matmul", digest(x.view(10, 100) @ x.view(100, 10)))

with report.section("streams"):
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    done = torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        event.record()
        y = torch.ones(1 << 20, device="cuda").cumsum(0)
        done.record()
    torch.cuda.current_stream().wait_stream(stream)
    report.exact("cumsum_last", y[-1].item())
    report.exact("event_done", done.query())
    report.exact("elapsed_is_positive", event.elapsed_time(done) > 0)

report.finish()
