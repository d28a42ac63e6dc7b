"""Triton: a vector add, a matmul through tensor descriptors made on the host, and a launch loop."""

from report import Report, deterministic_torch, digest, require

require("triton_programs", "torch", "triton")
torch = deterministic_torch()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

report = Report("triton_programs")


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        accumulator = tl.dot(a, b, accumulator)
    c_desc.store([row, column], accumulator.to(tl.float16))


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=offsets < columns)


report.gate()

with report.section("launch_loop"):
    launches = 1000
    x = torch.zeros(1024, device="cuda")
    one = torch.ones(1024, device="cuda")

    def loop():
        for _ in range(launches):
            add_kernel[(1,)](x, one, x, 1024, BLOCK=1024)

    report.steady_ms = report.time(loop, report.count(10, speed=50), torch.cuda.synchronize)
    report.extra(us_per_launch=report.steady_ms * 1e3 / launches)
    report.exact("counted", x[17].item())

report.finish_if_speed()

with report.section("vector_add"):
    n = 98_432
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    report.exact("add", digest(out))
    report.exact("add_is_right", torch.equal(out, x + y))

with report.section("softmax"):
    rows = torch.randn(128, 781, device="cuda")
    out = torch.empty_like(rows)
    softmax_kernel[(128,)](rows, out, 781, BLOCK=1024)
    report.exact("softmax", digest(out))
    report.exact("softmax_is_right", torch.allclose(out, torch.softmax(rows, 1), atol=1e-6))

with report.section("descriptors"):
    M, N, K, BM, BN, BK = 512, 384, 1024, 128, 128, 64
    a = torch.randn(M, K, device="cuda", dtype=torch.float16)
    b = torch.randn(K, N, device="cuda", dtype=torch.float16)
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)

    def matmul():
        a_desc = TensorDescriptor.from_tensor(a, [BM, BK])
        b_desc = TensorDescriptor.from_tensor(b, [BK, BN])
        c_desc = TensorDescriptor.from_tensor(c, [BM, BN])
        matmul_kernel[(M // BM, N // BN)](a_desc, b_desc, c_desc, K, BM=BM, BN=BN, BK=BK, num_warps=8)

    matmul()
    report.exact("matmul", digest(c))
    report.close("matmul_error", (c.float() - a.float() @ b.float()).abs().max().item(), rtol=1e-2, atol=0.1)
    matmul_ms = report.time(matmul, report.count(200, speed=2000), torch.cuda.synchronize, window=100)
    report.extra(us_per_matmul_launch=matmul_ms * 1e3)

report.finish()
