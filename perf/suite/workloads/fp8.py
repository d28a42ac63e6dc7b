"""fp8 matrix products through torch._scaled_mm: a scale for the tensor, and a scale for each row."""

from report import Report, deterministic_torch, digest, require

require("fp8", "torch")
torch = deterministic_torch()
report = Report("fp8")

generator = torch.Generator(device="cuda").manual_seed(5)
a = torch.randn(512, 1024, device="cuda", generator=generator)
b = torch.randn(768, 1024, device="cuda", generator=generator)
a8, b8 = (x.to(torch.float8_e4m3fn) for x in (a, b))
one = torch.tensor(1.0, device="cuda")

with report.section("tensorwise"):
    out = torch._scaled_mm(a8, b8.t(), scale_a=one * 0.5, scale_b=one * 2, out_dtype=torch.bfloat16)
    report.exact("cast", [digest(a8), digest(b8)])
    report.exact("tensorwise", digest(out))
    error = (out.float() - a @ b.t()).abs().mean().item()
    report.exact("near_fp32", error < 1.5)
    report.close("error", error, rtol=1e-3)
    fast = torch._scaled_mm(a8, b8.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=True)
    report.exact("fast_accumulation", digest(fast))

with report.section("rowwise"):
    scale_a, scale_b = torch.rand(512, 1, device="cuda", generator=generator), torch.ones(1, 768, device="cuda")
    out = torch._scaled_mm(a8, b8.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)
    report.exact("rowwise", digest(out))

with report.section("time"):
    report.steady_ms = report.time(
        lambda: torch._scaled_mm(a8, b8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16),
        report.count(100, speed=1000),
        torch.cuda.synchronize,
        window=50,
    )

report.finish()
