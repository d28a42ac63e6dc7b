// Atomic operations on global and shared memory.
#include "check.h"
#include <vector>

__global__ void histogram(const unsigned char *in, unsigned *bins, int n) {
    __shared__ unsigned local[64];
    if (threadIdx.x < 64) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[in[i] % 64], 1u);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

struct Results {
    int sum, most, least, exchanged;
    unsigned bits_and, bits_or, bits_xor, wrapped;
    unsigned long long wide, most_wide;
    float fraction;
    double precise;
    int locked;
    int lock;
};

__global__ void every_kind(Results *r) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&r->sum, i);
    atomicMax(&r->most, i * 3);
    atomicMin(&r->least, -i);
    atomicExch(&r->exchanged, 5);
    atomicAnd(&r->bits_and, ~(1u << (i % 8)));
    atomicOr(&r->bits_or, 1u << (i % 32));
    atomicXor(&r->bits_xor, 1u);
    atomicInc(&r->wrapped, 9u);
    atomicAdd(&r->wide, 1ull << 33);
    atomicMax(&r->most_wide, (unsigned long long)i << 40);
    atomicAdd(&r->fraction, 0.25f);
    atomicAdd(&r->precise, 0.125);
    if (threadIdx.x == 0) {
        while (atomicCAS(&r->lock, 0, 1) != 0) {
        }
        r->locked += 1;
        __threadfence();
        atomicExch(&r->lock, 0);
    }
}

int main() {
    const int n = 40000;
    std::vector<unsigned char> data(n);
    std::vector<unsigned> expected(64), bins(64);
    for (int i = 0; i < n; i++) {
        data[i] = (i * i) >> 3;
        expected[data[i] % 64]++;
    }
    unsigned char *in;
    unsigned *out;
    OK(cudaMalloc(&in, n));
    OK(cudaMalloc(&out, 256));
    OK(cudaMemcpy(in, data.data(), n, cudaMemcpyHostToDevice));
    OK(cudaMemset(out, 0, 256));
    histogram<<<8, 128>>>(in, out, n);
    OK(cudaMemcpy(bins.data(), out, 256, cudaMemcpyDeviceToHost));
    holds("a histogram of 40000 bytes", bins == expected);

    Results start = {}, r;
    start.bits_and = 0xffffffffu;
    Results *dr;
    OK(cudaMalloc(&dr, sizeof r));
    OK(cudaMemcpy(dr, &start, sizeof r, cudaMemcpyHostToDevice));
    every_kind<<<4, 64>>>(dr);
    OK(cudaMemcpy(&r, dr, sizeof r, cudaMemcpyDeviceToHost));
    holds("add", r.sum == 255 * 256 / 2);
    holds("max and min", r.most == 255 * 3 && r.least == -255);
    holds("exchange", r.exchanged == 5);
    holds("and, or, xor", r.bits_and == 0xffffff00u && r.bits_or == 0xffffffffu && r.bits_xor == 0);
    holds("increment wraps", r.wrapped == 256 % 10);
    holds("64 bits", r.wide == 256ull << 33 && r.most_wide == 255ull << 40);
    holds("floats", r.fraction == 64.0f && r.precise == 32.0);
    holds("compare-and-swap makes a lock", r.locked == 4 && r.lock == 0);
    return verdict();
}
