"""CuPy: elementwise, reductions, FFT, SVD, kernels compiled at run time by NVRTC, and a launch loop."""

from report import Report, digest, require

cupy = require("cupy_arrays", "cupy")
report = Report("cupy_arrays")
report.gate()
synchronize = cupy.cuda.Device().synchronize

RAW = r"""
extern "C" __global__ void scale_add(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""

MODULE = r"""
extern "C" { __constant__ float table[4]; }
template <typename T> __global__ void square(T* x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = x[i] * x[i] + T(table[i % 4]);
}
"""

x = cupy.arange(100_000, dtype=cupy.float32)

with report.section("raw_kernel"):
    kernel = cupy.RawKernel(RAW, "scale_add")
    y = cupy.ones_like(x)
    kernel(((x.size + 255) // 256,), (256,), (x, y, cupy.float32(3), cupy.int32(x.size)))
    report.exact("raw_kernel", digest(y))
    report.exact("attributes", [kernel.max_threads_per_block, kernel.num_regs, kernel.shared_size_bytes])

with report.section("launch_loop"):
    launches = 1000
    grid, block, arguments = (1,), (32,), (x, y, cupy.float32(1), cupy.int32(32))

    def loop():
        for _ in range(launches):
            kernel(grid, block, arguments)

    report.steady_ms = report.time(loop, report.count(10, speed=50), synchronize)
    report.extra(us_per_launch=report.steady_ms * 1e3 / launches)
    report.exact("after_launch_loop", digest(y))

report.finish_if_speed()

with report.section("elementwise"):
    report.exact("sin", digest(cupy.sin(x) * 2 + cupy.sqrt(x)))
    fused = cupy.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = a * b + 1", "fused")
    report.exact("elementwise_kernel", digest(fused(x, x)))
    report.exact("where", digest(cupy.where(x % 3 == 0, x, -x)))
    report.exact("indexed", digest(x.reshape(100, 1000)[::7, ::-3].T.copy()))

with report.section("reductions"):
    report.exact("sum_int", int(cupy.arange(1_000_000).sum()))
    report.close("mean", float(x.mean()), rtol=1e-6)
    report.exact("max_axis", digest(x.reshape(100, 1000).max(axis=0)))
    report.exact("argmax", int((x % 997).argmax()))
    report.exact("cumsum", digest(cupy.cumsum(cupy.arange(10_000))))
    report.exact("sort", digest(cupy.sort(-x)))
    reduction = cupy.ReductionKernel("T a", "T b", "a * a", "a + b", "b = a", "0", "squares")
    report.exact("reduction_kernel", int(reduction(cupy.arange(1000))))

with report.section("fft"):
    signal = cupy.sin(x[:4096] * 0.1)
    report.exact("fft", digest(cupy.fft.fft(signal)))
    report.close("fft_round_trip", float(cupy.abs(cupy.fft.ifft(cupy.fft.fft(signal)).real - signal).max()), atol=1e-5)

with report.section("linalg"):
    matrix = cupy.sin(cupy.arange(64 * 64, dtype=cupy.float64) ** 1.5).reshape(64, 64)
    u, s, vh = cupy.linalg.svd(matrix)
    report.close("svd_values", s, rtol=1e-9, atol=1e-12)
    report.exact("svd", [digest(u), digest(vh)])
    report.exact("matmul", digest(matrix @ matrix))

with report.section("raw_module"):
    module = cupy.RawModule(code=MODULE, options=("-std=c++17",), name_expressions=("square<double>", "square<int>"))
    table = cupy.ndarray(4, cupy.float32, module.get_global("table"))
    table[...] = cupy.arange(4, dtype=cupy.float32)
    numbers = cupy.arange(1000, dtype=cupy.float64)
    module.get_function("square<double>")((1,), (128,), (numbers, cupy.int32(1000)))
    report.exact("template_double", digest(numbers))
    integers = cupy.arange(1000, dtype=cupy.int32)
    module.get_function("square<int>")((1,), (128,), (integers, cupy.int32(1000)))
    report.exact("template_int", digest(integers))

with report.section("compile_error"):
    try:
        cupy.RawKernel('extern "C" __global__ void f() { nonsense; }', "f").compile()
        report.exact("compile_error", "no error")
    except cupy.cuda.compiler.CompileException as error:
        report.exact("compile_error", "nonsense" in str(error))

with report.section("streams"):
    with cupy.cuda.Stream(non_blocking=True) as stream:
        z = cupy.arange(1000) ** 2
        event = stream.record()
    event.synchronize()
    report.exact("streams", digest(z))

with report.section("random"):
    try:
        report.exact("random", digest(cupy.random.RandomState(5).standard_normal(1000)))
    except ImportError as error:
        report.exact("random", f"no cuRAND: {error}"[:80])

report.finish()
