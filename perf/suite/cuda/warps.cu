// Arithmetic that a compiler back end can get wrong: shuffles, votes, atomics, shared memory, 64 bit, half, math.
#include <cuda_fp16.h>

#include "report.h"

__global__ void shuffles(int* out) {
    int lane = threadIdx.x & 31, x = threadIdx.x * 3;
    int sum = x;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    int next = __shfl_down_sync(~0u, x, 1), previous = __shfl_up_sync(~0u, x, 1), third = __shfl_sync(~0u, x, 3, 8);
    unsigned odd = __ballot_sync(~0u, lane & 1);
    int all = __all_sync(~0u, lane < 32), any = __any_sync(~0u, lane == 40);
    out[threadIdx.x] = sum + next * 3 + previous * 5 + third * 7 + int(odd % 1000) + all * 11 + any * 13 + __popc(odd) +
                       __clz(x + 1) + __ffs(x) + int(__brev(unsigned(x)) >> 20);
}

__global__ void block_scan(const int* in, int* out) {
    __shared__ int shared[2][256];
    int t = threadIdx.x, from = 0;
    shared[0][t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (int step = 1; step < 256; step *= 2, from ^= 1) {
        shared[from ^ 1][t] = shared[from][t] + (t >= step ? shared[from][t - step] : 0);
        __syncthreads();
    }
    out[blockIdx.x * 256 + t] = shared[from][t];
}

__global__ void atomics(int* counters, unsigned long long* wide, float* sum) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counters[0], i);
    atomicMax(&counters[1], (i * 7919) % 10007);
    atomicMin(&counters[2], -(i * 7919) % 10007);
    atomicOr(&counters[3], 1 << (i % 31));
    atomicXor(&counters[4], i);
    atomicAdd(wide, (unsigned long long)i << 20);
    atomicAdd(sum, float(i % 4));
    int old = counters[5], assumed;
    do {
        assumed = old;
        old = atomicCAS(&counters[5], assumed, assumed + 2);
    } while (old != assumed);
}

__global__ void arithmetic(const double* in, double* out, long long* whole, __half* halves) {
    int i = threadIdx.x;
    double x = in[i];
    float f = float(x);
    out[i] = fma(x, x, 1.0) / 3.0 + sqrt(x + 1) + rint(x * 1.5) + double(__fmul_rz(f, 1.1f)) + double(rsqrtf(f + 1));
    long long w = (long long)(x * 1e9);
    whole[i] = w / 7 + w % 13 + __mul64hi(w, w) + (w << 5) + (w >> 3) + llrint(x) + __double_as_longlong(x) % 1000;
    halves[i] = __hfma(__float2half(f), __float2half(0.5f), __float2half(1.0f));
}

__device__ int recurse(int n) { return n < 2 ? n : recurse(n - 1) + recurse(n - 2); }
__global__ void recursion(int* out) { out[threadIdx.x] = recurse(threadIdx.x % 12); }

typedef int (*Operation)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int times(int a, int b) { return a * b; }
__device__ Operation operations[2] = {plus, times};
__global__ void by_pointer(int* out) { out[threadIdx.x] = operations[threadIdx.x & 1](threadIdx.x, 5); }

struct Large {
    int values[900];
    double last;
};
__global__ void large_argument(const Large large, int* out) {
    out[threadIdx.x] = large.values[threadIdx.x * 3] + int(large.last);
}

int main(int, char** arguments) {
    bool from_ptx = std::string(arguments[0]).find("ptx") != std::string::npos;
    Report report(from_ptx ? "warps_ptx" : "warps");
    const int n = 1 << 16;
    int *out = device_array<int>(n), *in = device_array<int>(n);

    shuffles<<<1, 128>>>(out);
    report.bytes("shuffles", to_host(out, 128));
    std::vector<int> host(n);
    for (int i = 0; i < n; i++) host[i] = (i * 31) % 17;
    CHECK(cudaMemcpy(in, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    block_scan<<<n / 256, 256>>>(in, out);
    auto scanned = to_host(out, n);
    int sum = 0;
    for (int i = 0; i < 256; i++) sum += host[512 + i];
    report.expect("scan", scanned[512 + 255] == sum);
    report.bytes("scan_bytes", scanned);

    int* counters = device_array<int>(8);
    auto* wide = device_array<unsigned long long>(1);
    auto* total = device_array<float>(1);
    atomics<<<64, 256>>>(counters, wide, total);
    report.bytes("atomics", to_host(counters, 6));
    report.expect("atomic_sums", to_host(total, 1)[0] == 64 * 256 * 1.5f && to_host(counters, 6)[5] == 64 * 256 * 2);
    report.bytes("atomic_wide", to_host(wide, 1));

    std::vector<double> numbers(256);
    for (int i = 0; i < 256; i++) numbers[i] = i * 1.37 + 0.01;
    double *x = device_array<double>(256), *y = device_array<double>(256);
    auto* whole = device_array<long long>(256);
    auto* halves = device_array<__half>(256);
    CHECK(cudaMemcpy(x, numbers.data(), 2048, cudaMemcpyHostToDevice));
    arithmetic<<<1, 256>>>(x, y, whole, halves);
    report.bytes("doubles", to_host(y, 256));
    report.bytes("whole", to_host(whole, 256));
    std::vector<unsigned short> half_bits(256);
    CHECK(cudaMemcpy(half_bits.data(), halves, 512, cudaMemcpyDeviceToHost));
    report.bytes("halves", half_bits);

    recursion<<<1, 64>>>(out);
    report.expect("recursion", to_host(out, 64)[11] == 89);
    by_pointer<<<1, 32>>>(out);
    auto pointed = to_host(out, 32);
    report.expect("by_pointer", pointed[4] == 9 && pointed[5] == 25);
    Large large;
    for (int i = 0; i < 900; i++) large.values[i] = i * i;
    large.last = 0.5 + 41;
    large_argument<<<1, 256>>>(large, out);
    report.expect("large_argument", to_host(out, 256)[100] == 300 * 300 + 41);
    CHECK(cudaDeviceSynchronize());
    return report.finish();
}
