// Kernels for the integration tests. Rebuild the fixtures with ./build.sh (nvcc 13.0).
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cassert>
#include <cstdio>
namespace cg = cooperative_groups;

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void recursion(int *o) { o[threadIdx.x] = fib(threadIdx.x % 20); }

__device__ float table[4] = {1, 2, 3, 4};
__device__ float *into_table = &table[1];
__constant__ int constants[16];
typedef int (*Fn)(int);
__device__ int plus_one(int x) { return x + 1; }
__device__ int twice(int x) { return x * 2; }
__device__ Fn functions[2] = {plus_one, twice};
extern "C" __global__ void indirect(int *o, int s) {
    int i = threadIdx.x;
    o[i] = functions[(s + i) & 1](i) + constants[i & 15] + (int)*into_table;
}

extern "C" __global__ void print(int n) {
    printf("hello %d %.3f %s %llu %5x|%-5d|\n", n + threadIdx.x, 1.5, "text", 1ull << 40, 255u, -7);
}
extern "C" __global__ void check(int n) { assert(n < 100); }
extern "C" __global__ void stop() { __trap(); }
extern "C" __global__ void poke(int *p) { p[threadIdx.x] = 1; }

extern "C" __global__ void grid_sum(int *o, int rounds) {
    auto g = cg::this_grid();
    for (int r = 0; r < rounds; r++) {
        o[g.thread_rank()] = 1 + r;
        g.sync();
        if (g.thread_rank() == 0) {
            int s = 0;
            for (unsigned i = 0; i < g.size(); i++) s += o[i];
            o[g.size() + r] = s;
        }
        g.sync();
    }
}

extern "C" __global__ void reduce(const float *a, float *o, int n) {
    __shared__ float s[32];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += a[i];
    for (int k = 16; k; k >>= 1) v += __shfl_down_sync(~0u, v, k);
    if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? s[threadIdx.x] : 0;
        for (int k = 16; k; k >>= 1) v += __shfl_down_sync(~0u, v, k);
        if (!threadIdx.x) atomicAdd(o, v);
    }
}

extern "C" __global__ void halves(__half *h, __nv_bfloat16 *b, __half2 *h2, __half *sum) {
    int i = threadIdx.x;
    h[i] = __hadd(h[i], __float2half(1.5f));
    b[i] = __hmul(b[i], __float2bfloat16(2.f));
    h2[i] = __hfma2(h2[i], h2[i], h2[i]);
    atomicAdd(sum, __float2half(1.0f));
}

extern "C" __global__ void branches(int *o) {
    int i = threadIdx.x;
    switch (o[i]) {
    case 0: o[i] = 5; break;
    case 1: o[i] = 77 * i; break;
    case 2: o[i] += 9; break;
    case 3: o[i] ^= 4; break;
    case 4: o[i] = 1000 / (i + 1); break;
    case 5: o[i] = (int)(sinf((float)i) * 1000.0f); break;
    case 6: o[i] = (int)pow(1.1, (double)i); break;
    case 7: o[i] = -(i % 7); break;
    }
}

// Each thread loops for a different time; collatz lengths.
extern "C" __global__ void divergent_loops(int *o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long x = i + 1;
    int steps = 0;
    while (x != 1) {
        x = x & 1 ? 3 * x + 1 : x / 2;
        steps++;
    }
    o[i] = steps;
}

extern "C" __global__ void heap(int **o) {
    int *p = (int *)malloc(40);
    p[0] = 5 + threadIdx.x;
    o[threadIdx.x] = p;
    if (threadIdx.x & 1) {
        free(p);
        o[threadIdx.x] = nullptr;
    }
}

extern __shared__ int dynamic[];
extern "C" __global__ void histogram(const unsigned char *a, int n, unsigned *o) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) dynamic[i] = 0;
    __syncthreads();
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) atomicAdd(&dynamic[a[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&o[i], dynamic[i]);
}

struct Packet {
    int a;
    double b;
    char c[5];
};
template <class T> __global__ void mixed(T *x, Packet s) { x[0] = s.a + s.b + s.c[4]; }
template __global__ void mixed<float>(float *, Packet);

struct Big {
    int a[20];
};
__device__ __noinline__ Big change(int i, Big s) {
    s.a[i % 20] += i;
    return s;
}
extern "C" __global__ void structs(Big s, int *o) {
    Big r = change(threadIdx.x, s);
    int t = 0;
    for (int i = 0; i < 20; i++) t += r.a[(i * threadIdx.x) % 20];
    o[threadIdx.x] = t;
}

// A lock per block: the holder must make progress while its warp's other lanes spin.
extern "C" __global__ void spin_lock(int *lock, int *count) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *count = *(volatile int *)count + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
extern "C" __global__ void spin_lock_straight(int *lock, int *count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    *count = *(volatile int *)count + 1;
    __threadfence();
    atomicExch(lock, 0);
}

#define TILE 16
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float x[TILE][TILE], y[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n / TILE; t++) {
        x[threadIdx.y][threadIdx.x] = a[row * n + t * TILE + threadIdx.x];
        y[threadIdx.y][threadIdx.x] = b[(t * TILE + threadIdx.y) * n + col];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += x[threadIdx.y][k] * y[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

extern "C" __global__ void warp_votes(unsigned *o) {
    unsigned i = threadIdx.x;
    unsigned r = 0;
    if (i < 20) {
        unsigned m = __activemask();
        r = __ballot_sync(m, i & 1);
        r ^= __match_any_sync(m, i / 4) << 1;
        int p;
        __match_all_sync(m, 7, &p);
        r += p;
        r += __reduce_add_sync(m, i);
        r += __any_sync(m, i == 3) + __all_sync(m, i < 20);
    }
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    r += tile.shfl_xor(i, 3) * 3 + cg::reduce(tile, i, cg::plus<unsigned>());
    o[i] = r + __syncthreads_count(i & 1) + __syncthreads_or(i == 5) + __syncthreads_and(i < 64);
}

extern "C" __global__ void integers(const int *a, const int *b, long long *o) {
    int i = threadIdx.x, x = a[i], y = b[i];
    unsigned ux = x, uy = y;
    long long r = __popc(x) + __clz(y) * 3 + __ffs(x) * 5 + (long long)__brev(ux);
    r ^= __mulhi(x, y);
    r += __umulhi(ux, uy);
    r ^= (long long)__byte_perm(ux, uy, 0x5140) << 3;
    r += __funnelshift_l(ux, uy, 7) ^ __funnelshift_r(ux, uy, 9);
    r += __dp4a(x, y, 11) + __sad(x, y, 5u);
    r ^= __mul64hi((long long)x << 20, (long long)y << 30);
    r += y ? x % y : 0;
    r += uy ? ux / uy : 0;
    r += ((long long)x << 32 | uy) / (y ? y : 1);
    o[i] = r;
}

extern "C" __global__ void floats(const float *a, const double *d, float *f, double *g, int *n) {
    int i = threadIdx.x;
    float x = a[i];
    double y = d[i];
    f[i * 8 + 0] = sqrtf(x);
    f[i * 8 + 1] = __fdividef(1.0f, x);
    f[i * 8 + 2] = expf(x);
    f[i * 8 + 3] = logf(x + 10);
    f[i * 8 + 4] = fmaf(x, x, 0.5f);
    f[i * 8 + 5] = __fadd_rz(x, 1e-8f);
    f[i * 8 + 6] = fmodf(x, 0.7f);
    f[i * 8 + 7] = tanhf(x);
    g[i * 4 + 0] = sin(y);
    g[i * 4 + 1] = exp(y);
    g[i * 4 + 2] = __dadd_ru(y, 1e-20);
    g[i * 4 + 3] = cbrt(y);
    n[i * 4 + 0] = __float2int_rn(x * 10);
    n[i * 4 + 1] = __float2int_rd(x * 10);
    n[i * 4 + 2] = (int)(x * 1e20f);
    n[i * 4 + 3] = __double2int_ru(y * 10);
}

extern "C" __global__ void spin(long long n, int *o) {
    long long s = 0;
    for (long long i = 0; i < n; i++) s += i ^ (s >> 3);
    *o = (int)s;
}

// Uses a texture instruction, which is refused; the rest of the module still works.
extern "C" __global__ void textured(cudaTextureObject_t t, float *o) { o[0] = tex1Dfetch<float>(t, 0); }
