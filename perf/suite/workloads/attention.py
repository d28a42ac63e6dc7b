"""Scaled dot product attention, forward and backward, with each implementation that PyTorch has."""

from report import Report, deterministic_torch, digest, require

require("attention", "torch")
torch = deterministic_torch()
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

report = Report("attention")
sdpa = torch.nn.functional.scaled_dot_product_attention
shape = (4, 16, 512, 64)


def inputs(dtype):
    generator = torch.Generator(device="cuda").manual_seed(3)
    return [
        torch.randn(shape, device="cuda", dtype=dtype, generator=generator, requires_grad=True) for _ in range(3)
    ]


backends = {
    "flash": (SDPBackend.FLASH_ATTENTION, torch.bfloat16),
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, torch.float32),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, torch.bfloat16),
    "math": (SDPBackend.MATH, torch.float32),
}
for name, (backend, dtype) in backends.items():
    # cuDNN's backward does not promise to repeat itself and may not be chosen where that is asked for.
    torch.use_deterministic_algorithms(name != "cudnn", warn_only=True)
    with report.section(name), sdpa_kernel(backend):
        q, k, v = inputs(dtype)
        out = sdpa(q, k, v, is_causal=True)
        out.backward(torch.ones_like(out))
        report.close(f"{name}_sum", [out.float().abs().sum().item(), q.grad.float().abs().sum().item()], rtol=5e-3)
        report.exact(f"{name}_forward", digest(out))
        report.exact(f"{name}_gradients", [digest(x.grad) for x in (q, k, v)])

with report.section("default"):
    q, k, v = inputs(torch.bfloat16)
    with torch.no_grad():
        report.exact("default_forward", digest(sdpa(q, k, v)))
        report.steady_ms = report.time(
            lambda: sdpa(q, k, v, is_causal=True), report.count(40, speed=400), torch.cuda.synchronize, window=10
        )

report.finish()
