"""Triton's softmax, matmul and reduction tutorials in small, without PyTorch: memory is CuPy's."""

import sys

import cupy
import numpy as np
import triton
import triton.language as tl
from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils


class Driver(CudaDriver):
    """Triton's own, but for the questions that it asks PyTorch."""

    def __init__(self):
        self.utils = CudaUtils()
        self.launcher_cls = CudaLauncher
        capability = divmod(int(cupy.cuda.Device().compute_capability), 10)
        self.get_device_capability = lambda device: capability
        self.get_current_stream = lambda device: cupy.cuda.get_current_stream().ptr
        self.get_current_device = lambda: cupy.cuda.Device().id
        self.set_current_device = lambda device: cupy.cuda.Device(device).use()


class Tensor:
    """What a kernel is given needs an address and a type."""

    def __init__(self, array):
        self.array = cupy.asarray(array)
        self.dtype = str(self.array.dtype)

    def data_ptr(self):
        return self.array.data.ptr

    def numpy(self):
        return cupy.asnumpy(self.array)


@triton.jit
def softmax(out, x, columns, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    there = at < columns
    values = tl.load(x + row * columns + at, mask=there, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, values / tl.sum(values, axis=0), mask=there)


@triton.jit
def matmul(out, a, b, m, n, k, precision: tl.constexpr, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    columns = tl.program_id(1) * bn + tl.arange(0, bn)
    total = tl.zeros((bm, bn), dtype=tl.float32)
    for begin in range(0, k, bk):
        inner = begin + tl.arange(0, bk)
        left_there = (rows[:, None] < m) & (inner[None, :] < k)
        right_there = (inner[:, None] < k) & (columns[None, :] < n)
        left = tl.load(a + rows[:, None] * k + inner[None, :], mask=left_there, other=0)
        right = tl.load(b + inner[:, None] * n + columns[None, :], mask=right_there, other=0)
        total = tl.dot(left, right, total, input_precision=precision)
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def count(out, x, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(out, tl.sum(values, axis=0))


def check(name, got, wanted, tolerance):
    if not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        worst = np.unravel_index(np.argmax(np.abs(got - wanted)), got.shape)
        sys.exit(f"FAIL {name}: {got[worst]} at {worst}, NumPy computes {wanted[worst]}")
    print(f"PASS {name}", flush=True)


triton.runtime.driver.set_active(Driver())
numbers = np.random.default_rng(11)

x = numbers.standard_normal((37, 781), dtype=np.float32)
out = Tensor(np.zeros_like(x))
softmax[(37,)](out, Tensor(x), 781, block=1024)
powers = np.exp(x - x.max(axis=1, keepdims=True))
check("softmax", out.numpy(), powers / powers.sum(axis=1, keepdims=True), 1e-5)

a, b = numbers.standard_normal((70, 96), dtype=np.float32), numbers.standard_normal((96, 50), dtype=np.float32)
for name, dtype, precision, tolerance in (
    ("matmul of f32", np.float32, "ieee", 1e-4),
    ("matmul of tf32", np.float32, "tf32", 5e-2),
    ("matmul of f16", np.float16, "ieee", 5e-2),
):
    left, right = a.astype(dtype), b.astype(dtype)
    out = Tensor(np.zeros((70, 50), np.float32))
    grid = (triton.cdiv(70, 32), triton.cdiv(50, 32))
    matmul[grid](out, Tensor(left), Tensor(right), 70, 50, 96, precision, bm=32, bn=32, bk=32)
    check(name, out.numpy(), left.astype(np.float32) @ right.astype(np.float32), tolerance)

whole = numbers.integers(-9, 9, 5000, dtype=np.int32)
out = Tensor(np.zeros(1, np.int32))
count[(triton.cdiv(5000, 512),)](out, Tensor(whole), 5000, block=512)
check("sum by atomics", out.numpy(), whole.sum(keepdims=True), 0)
