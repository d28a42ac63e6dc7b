"""Taichi, which compiles to PTX by itself and calls the driver API without CUDA's runtime."""

import sys

import numpy as np
import taichi as ti

ti.init(arch=ti.cuda, device_memory_GB=0.25, offline_cache=False, log_level=ti.ERROR)
if ti.cfg.arch != ti.cuda:
    sys.exit(f"FAIL it took {ti.cfg.arch}")
numbers = np.random.default_rng(6)
N = 4096


def check(name, got, wanted, tolerance):
    if not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        sys.exit(f"FAIL {name}: {got}, NumPy computes {wanted}")
    print(f"PASS {name}", flush=True)


values = ti.field(ti.f32, N)
total = ti.field(ti.f64, ())


@ti.kernel
def fill():
    for i in values:
        values[i] = ti.sin(i * 0.01)


@ti.kernel
def add_up():
    for i in values:
        total[None] += values[i]


fill()
add_up()
wanted = np.sin(np.arange(N) * 0.01)
check("a field", values.to_numpy(), wanted, 1e-5)
check("a sum by atomics", total[None], wanted.sum(), 1e-3)


@ti.kernel
def product(a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray()):
    for i, j in ti.ndrange(48, 40):
        entry = 0.0
        for k in range(32):
            entry += a[i, k] * b[k, j]
        c[i, j] = entry


a, b = numbers.random((48, 32), dtype=np.float32), numbers.random((32, 40), dtype=np.float32)
c = np.zeros((48, 40), np.float32)
product(a, b, c)
check("a product of arrays", c, a @ b, 1e-5)

cells = ti.field(ti.i32)
ti.root.pointer(ti.i, 32).dense(ti.i, 32).place(cells)


@ti.kernel
def some():
    for i in range(4):
        cells[300 * i] = i + 1


@ti.kernel
def active() -> ti.i32:
    count = 0
    for i in cells:
        count += ti.cast(cells[i] != 0, ti.i32)
    return count


some()
check("a sparse field", active(), 4, 0)

keys = ti.field(ti.i32, 1000)
order = numbers.permutation(1000).astype(np.int32)
keys.from_numpy(order)
ti.algorithms.parallel_sort(keys)
check("a sort", keys.to_numpy(), np.arange(1000), 0)
