"""numba-cuda, where it is installed and works natively: a kernel compiled from Python through NVVM."""

import json

from report import Report, digest, require

numpy, numba = require("numba_kernels", "numpy", "numba", "numba.cuda")[:2]
from numba import cuda  # noqa: E402

# NumPy 2.5 removed this name, and numba-cuda (0.30.4 still) asks for it before it compiles anything at all.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

report = Report("numba_kernels")
if not cuda.is_available():
    print(json.dumps({"workload": "numba_kernels", "skipped": "numba finds no CUDA", "checks": {}, "extra": {}}))
    raise SystemExit(0)


@cuda.jit
def scale(x, out, factor):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * factor


with report.section("kernel"):
    x = numpy.arange(10_000, dtype=numpy.float32)
    device = cuda.to_device(x)
    out = cuda.device_array_like(device)
    scale[40, 256](device, out, numpy.float32(2.5))
    result = out.copy_to_host()
    report.exact("scaled", digest(result))
    report.exact("scaled_is_right", bool(numpy.array_equal(result, x * numpy.float32(2.5))))

report.finish()
