"""torch.profiler around a few steps: what it says the GPU did, and which call asked for it."""

import json
import os
from collections import Counter

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

    def of(*categories):
        return [event for event in events if event.get("cat") in categories]

    kernels, calls = of("kernel"), of("cuda_runtime", "cuda_driver")
    shape = ("grid", "block", "registers per thread", "shared memory", "stream", "device")
    report.exact("kernels", sorted([k["name"], *(str(k["args"].get(key)) for key in shape)] for k in kernels))
    report.exact("copies", sorted([e["name"], e["args"]["bytes"]] for e in of("gpu_memcpy", "gpu_memset")))
    report.exact("calls", sorted(Counter(call["name"] for call in calls).items()))
    report.exact("of_an_operator", sum("External id" in kernel["args"] for kernel in kernels))
    began = {call["args"]["correlation"]: call["ts"] for call in calls}
    waited_us = [kernel["ts"] - began[kernel["args"]["correlation"]] for kernel in kernels]
    report.exact("began_before_they_were_asked_for", sum(us < 0 for us in waited_us))
    report.extra(kernel_us=sum(kernel["dur"] for kernel in kernels), waited_us=[min(waited_us), max(waited_us)])

with report.section("schedule"):
    seen = []
    with profile(
        activities=activities,
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda p: seen.append(sum(e.count for e in p.key_averages() if e.device_time_total > 0) > 0),
    ) as profiled:
        for _ in range(5):
            step()
            profiled.step()
    report.exact("traces_with_times_of_the_gpu", seen)

with report.section("after"):
    step()
    report.exact("weights", digest_all(model.parameters()))

report.finish()
