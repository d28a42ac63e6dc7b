"""CuPy computes on Orion's GPU what NumPy computes: by its own kernels, CUB, Thrust, and NVIDIA's libraries.

With the argument "each" every case is right or raises. What cannot run ends its context, so that the cases behind one
that raises have another process.
"""

import os
import sys

import cupy
import cupyx.scipy.sparse
import numpy as np

NEXT = 100  # and the number of the case that is next: how a process ends of which one raised


def each():
    """In each child the number of its first case, before anything has used CUDA."""
    first = 0
    while True:
        child = os.fork()
        if child == 0:
            return first
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            sys.exit(0)
        if status <= NEXT + first:
            sys.exit(f"FAIL what began with case {first} ended with {status}")
        first = status - NEXT


first = each() if sys.argv[1:] == ["each"] else None

if cupy.cuda.runtime.getDeviceProperties(0)["name"] != b"Orion software GPU":
    sys.exit("FAIL another GPU is there")

numbers = np.random.default_rng(3)
a = numbers.standard_normal((64, 96), dtype=np.float32)
b = numbers.standard_normal((96, 48), dtype=np.float32)
whole = numbers.integers(-1000, 1000, (33, 77), dtype=np.int32)
line = numbers.standard_normal(5000, dtype=np.float32)
square = numbers.standard_normal((40, 40), dtype=np.float32)
definite = square @ square.T + 40 * np.eye(40, dtype=np.float32)
holes = np.where(abs(square) > 1.2, square, 0)
x, y, z, w, s, d = map(cupy.asarray, (a, b, whole, line, square, definite))
sparse = cupyx.scipy.sparse.csr_matrix(cupy.asarray(holes))
twice = cupy.ElementwiseKernel("T x, T y", "T z", "z = 2 * x + y", "twice")
squares = cupy.RawKernel(
    'extern "C" __global__ void squares(const int *x, int *y, int n) {'
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }",
    "squares",
)


def raw():
    out = cupy.zeros_like(z)
    squares(((z.size + 127) // 128,), (128,), (z, out, np.int32(z.size)))
    return out


# What to compute, what NumPy makes of it, and how far apart they may be.
CASES = {
    "elementwise": (lambda: x * 2 + cupy.exp(x), lambda: a * 2 + np.exp(a), 1e-5),
    "elementwise of integers": (lambda: (z * z) % 7 - z // 3, lambda: (whole * whole) % 7 - whole // 3, 0),
    "elementwise of f16": (lambda: (x.astype("e") * x.astype("e")).astype("f"), lambda: a * a, 4e-3),
    "an elementwise kernel": (lambda: twice(x, x + 1), lambda: 3 * a + 1, 1e-5),
    "a raw kernel": (raw, lambda: whole * whole, 0),
    "sum": (lambda: x.sum(), lambda: a.sum(), 1e-3),
    "sum of rows": (lambda: x.sum(axis=1), lambda: a.sum(axis=1), 1e-4),
    "max of columns": (lambda: x.max(axis=0), lambda: a.max(axis=0), 0),
    "argmin": (lambda: z.argmin(axis=1), lambda: whole.argmin(axis=1), 0),
    "cumsum": (lambda: cupy.cumsum(z), lambda: np.cumsum(whole), 0),
    "cumsum of columns": (lambda: cupy.cumsum(x, axis=0), lambda: np.cumsum(a, axis=0), 1e-4),
    "sort": (lambda: cupy.sort(w), lambda: np.sort(line), 0),
    "argsort": (lambda: cupy.argsort(w), lambda: np.argsort(line), 0),
    "unique": (lambda: cupy.unique(z), lambda: np.unique(whole), 0),
    "matmul": (lambda: x @ y, lambda: a @ b, 1e-4),
    "matmul of f64": (lambda: x.astype("d") @ y.astype("d"), lambda: a.astype("d") @ b.astype("d"), 1e-12),
    "matmul of c64": (lambda: (x * 1j) @ y.astype("F"), lambda: (a * 1j) @ b, 1e-4),
    "matmul of f16": (lambda: (x.astype("e") @ y.astype("e")).astype("f"), lambda: a @ b, 5e-2),
    "matrix times vector": (lambda: x @ y[:, 0], lambda: a @ b[:, 0], 1e-4),
    "einsum": (lambda: cupy.einsum("ij,jk->ki", x, y), lambda: np.einsum("ij,jk->ki", a, b), 1e-4),
    "fft": (lambda: cupy.fft.fft(x, axis=1), lambda: np.fft.fft(a, axis=1), 1e-4),
    "rfft2": (lambda: cupy.fft.rfft2(x), lambda: np.fft.rfft2(a), 1e-3),
    "fft there and back": (lambda: cupy.fft.ifft(cupy.fft.fft(w)).real, lambda: line, 1e-5),
    "solve": (lambda: cupy.linalg.solve(d, s), lambda: np.linalg.solve(definite, square), 1e-4),
    "cholesky": (lambda: cupy.linalg.cholesky(d), lambda: np.linalg.cholesky(definite), 1e-4),
    "svd": (lambda: cupy.linalg.svd(s, compute_uv=False), lambda: np.linalg.svd(square, compute_uv=False), 1e-4),
    "qr": (lambda: abs(cupy.linalg.qr(s, mode="r")), lambda: abs(np.linalg.qr(square, mode="r")), 1e-4),
    "a sparse matrix times a vector": (lambda: sparse @ s[:, 0], lambda: holes @ square[:, 0], 1e-4),
    "a sparse matrix times another": (lambda: (sparse @ sparse.T).toarray(), lambda: holes @ holes.T, 1e-4),
    "eigh": (lambda: cupy.linalg.eigvalsh(d), lambda: np.linalg.eigvalsh(definite), 1e-3),
}

DRAWS = {
    "random.rand": (lambda n: cupy.random.RandomState(5).rand(n, dtype="f"), 0.5, 12**-0.5),
    "random.normal": (lambda n: cupy.random.RandomState(5).standard_normal(n, dtype="f"), 0, 1),
    "random.Generator": (lambda n: cupy.random.default_rng(5).standard_normal(n, dtype="f"), 0, 1),
}


def compute(name):
    case, numpys, tolerance = CASES[name]
    got, wanted = cupy.asnumpy(case()), numpys()
    if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        worst = np.unravel_index(np.argmax(np.abs(got - wanted)), wanted.shape)
        sys.exit(f"FAIL {name}: {got[worst]} at {worst}, NumPy computes {wanted[worst]}")
    return name


def draw(name):
    drawn, mean, deviation = DRAWS[name]
    once, again = (cupy.asnumpy(drawn(100_000)) for _ in range(2))
    if abs(once.mean() - mean) > 0.02 or abs(once.std() - deviation) > 0.02 or len(np.unique(once)) < 50_000:
        sys.exit(f"FAIL {name}: mean {once.mean()}, deviation {once.std()}")
    if not np.array_equal(once, again):
        sys.exit(f"FAIL {name} draws something else from the same seed")
    return f"{name}: the first are {once[:4]}"


checks = [(compute, name) for name in CASES] + [(draw, name) for name in DRAWS]
for number, (check, name) in enumerate(checks):
    if number < (first or 0):
        continue
    try:
        print(f"PASS {check(name)}", flush=True)
    except Exception as why:
        if first is None:
            raise
        print(f"PASS {name}, which raises {type(why).__name__}", flush=True)
        # Without the destructors, which raise too.
        os._exit(NEXT + number + 1)
