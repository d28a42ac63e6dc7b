"""Examples of numba's documentation in small: elementwise, shared memory, atomics, random numbers, reduction."""

import math
import sys

import numba
import numpy as np
from numba import cuda, float32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

# It names grids that are small for a GPU.
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
if cuda.get_current_device().name not in ("Orion software GPU", b"Orion software GPU"):
    sys.exit("FAIL another GPU is there")

TILE = 16
numbers = np.random.default_rng(4)


def check(name, got, wanted, tolerance=0.0):
    if not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        sys.exit(f"FAIL {name}: {got}, NumPy computes {wanted}")
    print(f"PASS {name}", flush=True)


@cuda.jit
def saxpy(out, a, x, y):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + math.sin(y[i])


x, y = numbers.standard_normal((2, 10_000), dtype=np.float32)
out = cuda.device_array_like(x)
saxpy[(x.size + 127) // 128, 128](out, np.float32(2), cuda.to_device(x), cuda.to_device(y))
check("saxpy", out.copy_to_host(), 2 * x + np.sin(y), 1e-5)


@cuda.jit
def matmul(a, b, out):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    row, column = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        left[tx, ty] = a[row, tile * TILE + ty] if row < a.shape[0] and tile * TILE + ty < a.shape[1] else 0
        right[tx, ty] = b[tile * TILE + tx, column] if column < b.shape[1] and tile * TILE + tx < b.shape[0] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += left[tx, k] * right[k, ty]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


a, b = numbers.standard_normal((70, 50), dtype=np.float32), numbers.standard_normal((50, 40), dtype=np.float32)
out = cuda.device_array((70, 40), np.float32)
matmul[(5, 3), (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), out)
check("matmul in shared memory", out.copy_to_host(), a @ b, 1e-4)


@cuda.jit
def histogram(values, counts):
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, values[i], 1)


values = numbers.integers(0, 20, 20_000).astype(np.int32)
counts = cuda.to_device(np.zeros(20, np.int32))
histogram[8, 128](cuda.to_device(values), counts)
check("histogram by atomics", counts.copy_to_host(), np.bincount(values, minlength=20))


@cuda.reduce
def total(a, b):
    return a + b


check("reduce", total(values.astype(np.int64)), values.sum())


@cuda.jit
def pi(states, steps, out):
    i = cuda.grid(1)
    inside = 0
    for _ in range(steps):
        x = xoroshiro128p_uniform_float32(states, i)
        y = xoroshiro128p_uniform_float32(states, i)
        if x * x + y * y <= 1:
            inside += 1
    out[i] = 4.0 * inside / steps


states = create_xoroshiro128p_states(512, seed=1)
out = cuda.device_array(512, np.float32)
pi[4, 128](states, 100, out)
check("pi by random numbers", out.copy_to_host().mean(), np.pi, 0.02)


@cuda.vectorize(["float32(float32, float32)"])
def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


check("a vectorized function", hypotenuse(x, y), np.hypot(x, y), 1e-5)


@cuda.jit(debug=True, opt=False)
def lanes(out):
    out[cuda.grid(1)] = cuda.laneid


out = cuda.device_array(96, np.int32)
lanes[1, 96](out)
check("a kernel to be debugged", out.copy_to_host(), np.arange(96) % 32)



@cuda.jit(debug=True, opt=False)
def halved(x):
    return x / 2


@cuda.jit(debug=True, opt=False)
def roots(x):
    i = cuda.grid(1)
    if x[i] < 0:
        raise ValueError("it is negative")
    x[i] = math.sqrt(halved(x[i]))


x64 = numbers.random(64)
out = cuda.to_device(x64)
roots[2, 32](out)
check("debugged functions in several texts", out.copy_to_host(), np.sqrt(x64 / 2), 1e-12)
try:
    roots[2, 32](cuda.to_device(-x64))
    sys.exit("FAIL an exception in a kernel: there was none")
except ValueError as error:
    check("an exception in a kernel", "it is negative" in str(error), True)


@cuda.jit
def sums(values, out):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for step in range(out.size):
        values[i] += 1
        grid.sync()
        if i == 0:
            for value in values:
                out[step] += value
        grid.sync()


values, out = cuda.to_device(np.zeros(128, np.int32)), cuda.to_device(np.zeros(10, np.int32))
sums[4, 32](values, out)
check("a group of the whole grid", out.copy_to_host(), 128 * np.arange(1, 11))

TWICE = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .func (.param .b32 code) twice(.param .b64 result, .param .b32 x)
{
    .reg .b32 %x;
    .reg .b64 %result;
    ld.param.u64 %result, [result];
    ld.param.u32 %x, [x];
    shl.b32 %x, %x, 1;
    st.u32 [%result], %x;
    st.param.b32 [code], 0;
    ret;
}
\0"""
twice = cuda.declare_device("twice", "int32(int32)", link=cuda.PTXSource(TWICE))


@cuda.jit
def doubled(x):
    i = cuda.grid(1)
    x[i] = twice(x[i])


out = cuda.to_device(np.arange(32, dtype=np.int32))
doubled[1, 32](out)
check("a function of linked PTX", out.copy_to_host(), 2 * np.arange(32))

stream = cuda.stream()
with stream.auto_synchronize():
    there = cuda.to_device(x, stream=stream)
    saxpy[(x.size + 127) // 128, 128, stream](there, np.float32(3), there, there)
    back = there.copy_to_host(stream=stream)
check("a stream of its own", back, 3 * x + np.sin(x), 1e-5)
