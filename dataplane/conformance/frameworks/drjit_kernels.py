"""Dr.Jit, which traces a program, writes PTX by itself and calls the driver API without CUDA's runtime."""

import sys

import drjit as dr
import numpy as np
from drjit.cuda import Array2f, Float, Float16, Int, Texture2f, TensorXf, UInt
from drjit.cuda.ad import Float as Differentiable

numbers = np.random.default_rng(9)
N = 40_003


def check(name, got, wanted, tolerance=0.0):
    got = np.asarray(got)
    if got.shape != np.shape(wanted) or not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        sys.exit(f"FAIL {name}: {got}, NumPy computes {wanted}")
    print(f"PASS {name}", flush=True)


x = numbers.uniform(-3, 3, N).astype(np.float32)
check("functions", dr.sin(Float(x)) * dr.exp(Float(x)), np.sin(x) * np.exp(x), 1e-5)
check("a sum", dr.sum(Int(np.arange(N, dtype=np.int32))), [np.arange(N).sum()])
counts = np.arange(N, dtype=np.uint32) % 11
check("sums before each", dr.prefix_sum(UInt(counts)), np.cumsum(counts) - counts)
check("which hold", dr.compress(dr.cuda.Bool(counts == 3)), np.nonzero(counts == 3)[0])

bins = dr.zeros(UInt, 11)
dr.scatter_reduce(dr.ReduceOp.Add, bins, UInt(1), UInt(counts))
check("a histogram by atomics", bins, np.bincount(counts, minlength=11))
# The address of a pair of halves is an expression of constants: `and.b64 %rd3, %rd3, ~0x2`.
bins = dr.zeros(Float16, 11)
dr.scatter_reduce(dr.ReduceOp.Add, bins, Float16(np.ones(1000, np.float16)), UInt(counts[:1000]))
check("a histogram of halves", bins, np.bincount(counts[:1000], minlength=11))


@dr.syntax
def steps(n):
    count = UInt(0)
    while n != 1:
        if (n & 1) == 1:
            n = 3 * n + 1
        else:
            n >>= 1
        count += 1
    return count


def steps_of(n):
    count = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        count += 1
    return count


check("a loop", steps(dr.arange(UInt, 1, 1000)), [steps_of(n) for n in range(1, 1000)])

# Functions by their addresses, which are elements that a register numbers: `callables[%r3]`.
functions = [lambda v: v + 1, lambda v: v * 2, lambda v: dr.abs(v)]
which = numbers.integers(0, 3, N).astype(np.uint32)
check("calls of one of three", dr.switch(UInt(which), functions, Float(x)), np.choose(which, [x + 1, x * 2, np.abs(x)]))


@dr.syntax
def last_of_eight(n):
    sums = dr.alloc_local(UInt, 8, value=dr.zeros(UInt))
    k = UInt(0)
    while k < 20:
        sums[(k * n) % 8] += k
        k += 1
    return sums[3]


wanted = [sum(k for k in range(20) if k * n % 8 == 3) for n in range(1, 200)]
check("an array of each thread", last_of_eight(dr.arange(UInt, 1, 200)), wanted)

texels = numbers.random((16, 32, 4), dtype=np.float32)
places = numbers.random((2, 500), dtype=np.float32)
hardware, software = (Texture2f(TensorXf(texels), use_accel=accel) for accel in (True, False))
got, wanted = (np.array(t.eval(Array2f(places))) for t in (hardware, software))
check("a texture, by hardware as by arithmetic", got, wanted, 4e-3)

t = Differentiable(x)
dr.enable_grad(t)
dr.backward(dr.sum(dr.sin(t) * t))
check("a gradient", t.grad, np.cos(x) * x + np.sin(x), 1e-5)
