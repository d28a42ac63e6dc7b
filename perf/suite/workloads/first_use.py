"""From the first touch of CUDA in a fresh process to its first result. Importing PyTorch is not counted."""

import time

from report import Report, require

torch = require("first_use", "torch")
report = Report("first_use")
report.gate()

with report.section("first_use"):
    started = time.perf_counter()
    result = (torch.ones(4, device="cuda") + 1).sum().item()
    first_ms = (time.perf_counter() - started) * 1e3
    report.exact("result", result)
    started = time.perf_counter()
    product = (torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda"))[0, 0].item()
    report.exact("product", product)
    report.extra(first_use_ms=first_ms, first_matmul_ms=(time.perf_counter() - started) * 1e3)

report.finish()
