// The language: templates, structs by value, constants, device functions, recursion, and arithmetic of all widths.
#include "check.h"
#include <cmath>
#include <cstdint>
#include <vector>

struct Plane {
    double a, b;
    int shift[3];
    char tag;
};

struct Vector {
    float x, y, z;
    __host__ __device__ Vector cross(const Vector &o) const {
        return {y * o.z - z * o.y, z * o.x - x * o.z, x * o.y - y * o.x};
    }
};

__constant__ int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__constant__ Plane plane;
__device__ int called = 40;
__device__ float bias[4];

template <typename T, int STEP> __global__ void ramp(T *out, T start, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = start + T(i * STEP);
}

__noinline__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__noinline__ __device__ double apply(const Plane &p, double x) { return p.a * x + p.b + p.shift[1] + p.tag; }

__global__ void by_value(Plane p, Vector v, Vector w, double *out, Vector *crossed) {
    out[0] = apply(p, 2.5);
    out[1] = apply(plane, 2.5);
    *crossed = v.cross(w);
}

__global__ void symbols(int *out) {
    out[threadIdx.x] = table[threadIdx.x] + (int)bias[threadIdx.x % 4];
    if (threadIdx.x == 0) {
        called += 2;
        out[8] = fibonacci(12);
    }
}

__global__ void arithmetic(int64_t *i, double *d, float *f, unsigned x, int y, uint64_t wide) {
    i[0] = (int64_t)y * 1000000007ll;
    i[1] = y / 7;
    i[2] = y % 7;
    i[3] = x / 10u;
    i[4] = wide / 1000003ull;
    i[5] = wide % 1000003ull;
    i[6] = __mulhi(y, y);
    i[7] = (int64_t)__umul64hi(wide, wide);
    i[8] = x << 5 | x >> 27;
    i[9] = y >> 3;
    i[10] = __brev(x);
    i[11] = (int8_t)x + (int16_t)y + (uint8_t)y;
    i[12] = __byte_perm(x, y, 0x7531);
    i[13] = (int64_t)(float)y + (int64_t)(double)x;
    i[14] = min(y, -5) + max(x, 7u) + abs(y);
    i[15] = __double2int_rn(2.5) + __float2int_rz(-2.9f) * 100;
    d[0] = sqrt((double)x) + fma(0.5, (double)y, 3.0);
    d[1] = 1.0 / y;
    d[2] = floor(-2.5) + ceil(2.25) * 10 + trunc(-7.75) * 100 + rint(3.5) * 1000;
    f[0] = sqrtf(2.0f) + fmaf(0.1f, 3.0f, -0.25f);
    f[1] = 1.0f / 3.0f;
    f[2] = fminf(1.0f, -0.5f) + fabsf(-8.0f) + copysignf(2.0f, -1.0f);
    f[3] = sinf(0.5f) + cosf(0.25f) + expf(1.0f) + logf(10.0f) + powf(1.5f, 2.5f);
}

__global__ void branches(int *out) {
    int i = threadIdx.x, steps = 0, value = i + 1;
    while (value != 1) {
        value = value % 2 ? 3 * value + 1 : value / 2;
        steps++;
    }
    switch (i % 5) {
    case 0: steps += 1000; break;
    case 1: steps += 2000; break;
    case 3: steps = -steps; break;
    default: break;
    }
    out[i] = steps;
}

static int collatz(int i) {
    int steps = 0;
    for (int value = i + 1; value != 1; steps++) value = value % 2 ? 3 * value + 1 : value / 2;
    return i % 5 == 0 ? steps + 1000 : i % 5 == 1 ? steps + 2000 : i % 5 == 3 ? -steps : steps;
}

template <typename T, int STEP> static bool ramps(T start) {
    const int n = 300;
    T *device;
    std::vector<T> host(n);
    OK(cudaMalloc(&device, n * sizeof(T)));
    ramp<T, STEP><<<3, 128>>>(device, start, n);
    OK(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
    bool equal = true;
    for (int i = 0; i < n; i++) equal = equal && host[i] == T(start + T(i * STEP));
    OK(cudaFree(device));
    return equal;
}

int main() {
    holds("templates", ramps<int, 3>(5) && ramps<float, 2>(0.5f) && ramps<double, -1>(9.25) &&
                           ramps<unsigned char, 7>(250) && ramps<short, 300>(-4) && ramps<long long, 1>(1ll << 40));

    Plane p = {2.0, 0.25, {1, 20, 300}, 'a'}, constant = {4.0, -1.0, {5, 6, 7}, 'b'};
    double *d, out[3];
    Vector *dv, crossed;
    OK(cudaMalloc(&d, sizeof out));
    OK(cudaMalloc(&dv, sizeof crossed));
    OK(cudaMemcpyToSymbol(plane, &constant, sizeof constant));
    by_value<<<1, 1>>>(p, Vector{1, 2, 3}, Vector{4, 5, 6}, d, dv);
    OK(cudaMemcpy(out, d, 16, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(&crossed, dv, sizeof crossed, cudaMemcpyDeviceToHost));
    holds("a struct by value", out[0] == 2.0 * 2.5 + 0.25 + 20 + 'a');
    holds("a struct in constant memory", out[1] == 4.0 * 2.5 - 1.0 + 6 + 'b');
    holds("member functions", crossed.x == -3 && crossed.y == 6 && crossed.z == -3);

    int *di, numbers[9], seen = 0, digits[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    float offsets[4] = {10, 20, 30, 40};
    OK(cudaMalloc(&di, 4096));
    OK(cudaMemcpyToSymbol(bias, offsets, sizeof offsets));
    symbols<<<1, 8>>>(di);
    OK(cudaMemcpy(numbers, di, sizeof numbers, cudaMemcpyDeviceToHost));
    bool equal = true;
    for (int i = 0; i < 8; i++) equal = equal && numbers[i] == digits[i] + (int)offsets[i % 4];
    holds("constants and device variables", equal);
    holds("recursion", numbers[8] == 144);
    OK(cudaMemcpyFromSymbol(&seen, called, 4));
    holds("a device variable is written", seen == 42);
    void *address;
    size_t bytes;
    OK(cudaGetSymbolAddress(&address, bias));
    OK(cudaGetSymbolSize(&bytes, bias));
    holds("a symbol has an address and a size", address != nullptr && bytes == 16);

    const unsigned x = 0xdeadbeefu;
    const int y = -123456;
    const uint64_t wide = 0x123456789abcdef0ull;
    int64_t *dl, l[16];
    float *df, f[4];
    OK(cudaMalloc(&dl, sizeof l));
    OK(cudaMalloc(&df, sizeof f));
    arithmetic<<<1, 1>>>(dl, d, df, x, y, wide);
    OK(cudaMemcpy(l, dl, sizeof l, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(out, d, sizeof out, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(f, df, sizeof f, cudaMemcpyDeviceToHost));
    holds("multiply", l[0] == (int64_t)y * 1000000007ll && l[6] == (int)(((int64_t)y * y) >> 32) &&
                          (uint64_t)l[7] == (uint64_t)(((unsigned __int128)wide * wide) >> 64));
    holds("divide", l[1] == y / 7 && l[2] == y % 7 && l[3] == x / 10u && l[4] == (int64_t)(wide / 1000003ull) &&
                        l[5] == (int64_t)(wide % 1000003ull));
    holds("shift and permute", l[8] == (int64_t)(x << 5 | x >> 27) && l[9] == y >> 3 && l[10] == 0xf77db57bll &&
                                   l[12] == (int64_t)(((unsigned)y & 0xff000000u) | (((unsigned)y >> 8 & 0xff) << 16) |
                                                      (x >> 24 << 8) | (x >> 8 & 0xff)));
    holds("narrow integers", l[11] == (int8_t)x + (int16_t)y + (uint8_t)y);
    holds("conversions", l[13] == (int64_t)(float)y + (int64_t)(double)x && l[15] == 2 - 200);
    holds("minimum, maximum, magnitude", l[14] == (int64_t)(unsigned)(-123456 + (int)x + 123456));
    holds("doubles", out[0] == std::sqrt((double)x) + std::fma(0.5, (double)y, 3.0) && out[1] == 1.0 / y &&
                         out[2] == -3.0 + 30 - 700 + 4000);
    holds("floats", f[0] == sqrtf(2.0f) + fmaf(0.1f, 3.0f, -0.25f) && f[1] == 1.0f / 3.0f && f[2] == -0.5f + 8 - 2);
    holds("functions of floats",
          std::fabs(f[3] - (sinf(0.5f) + cosf(0.25f) + expf(1.0f) + logf(10.0f) + powf(1.5f, 2.5f))) < 1e-4);

    int steps[100];
    branches<<<1, 100>>>(di);
    OK(cudaMemcpy(steps, di, sizeof steps, cudaMemcpyDeviceToHost));
    equal = true;
    for (int i = 0; i < 100; i++) equal = equal && steps[i] == collatz(i);
    holds("threads that part and meet again", equal);
    return verdict();
}
