"""torch.profiler around a few steps: it must not crash; what it can see of the GPU may differ."""

import json
import os

from report import Report, deterministic_torch, digest_all, require

require("profiler", "torch")
torch = deterministic_torch()
from torch.profiler import ProfilerActivity, profile, record_function, schedule  # noqa: E402

report = Report("profiler")
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 256, device="cuda")


def step():
    with record_function("one_step"):
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()


with report.section("profile"):
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=True, profile_memory=True) as profiled:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    averages = {event.key: event.count for event in profiled.key_averages()}
    report.exact("steps_seen", averages.get("one_step", 0) >= 5)
    report.exact("addmm_calls", averages.get("aten::addmm", 0))
    path = "trace.json"
    profiled.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    os.remove(path)
    kernels = sum(event.get("cat") == "kernel" for event in events)
    report.exact("trace_has_events", len(events) > 50)
    report.extra(kernels_seen=kernels, events=len(events))

with report.section("schedule"):
    seen = []
    with profile(
        activities=activities,
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda p: seen.append(len(p.events())),
    ) as profiled:
        for _ in range(5):
            step()
            profiled.step()
    report.exact("traces", len(seen))

with report.section("after"):
    step()
    report.exact("weights", digest_all(model.parameters()))

report.finish()
