"""Eager PyTorch with 2,000 tiny kernels a step: what is measured is the path of a launch."""

from report import Report, deterministic_torch, digest, require

require("small_ops", "torch")
torch = deterministic_torch()
report = Report("small_ops")
OPS = 2000
report.gate()

with report.section("ops"):
    x = torch.zeros(256, device="cuda")

    def step():
        for _ in range(OPS // 4):
            x.add_(1.0)
            x.mul_(0.5)
            x.sub_(0.25)
            x.neg_()

    with torch.no_grad():
        report.steady_ms = report.time(step, report.count(20, speed=100), torch.cuda.synchronize, warmup=3)
    report.extra(us_per_op=report.steady_ms * 1e3 / OPS)
    report.exact("result", digest(x))

with report.section("allocating"):
    # The same with a new tensor each time, as most scripts have it.
    def step():
        y = x
        for _ in range(OPS // 4):
            y = ((y + 1.0) * 0.5 - 0.25).neg()
        return y

    with torch.no_grad():
        allocating_ms = report.time(step, report.count(10), torch.cuda.synchronize)
        report.exact("allocating_result", digest(step()))
    report.extra(us_per_allocating_op=allocating_ms * 1e3 / OPS)

report.finish()
