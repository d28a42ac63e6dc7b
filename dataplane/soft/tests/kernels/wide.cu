// Less common features, one kernel each; see tests/wide.rs. Rebuild the fixture with ./build.sh.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

namespace cg = cooperative_groups;
typedef unsigned long long u64;

extern "C" __global__ void coal(int* o) {
    if (threadIdx.x % 3 == 0) {
        auto g = cg::coalesced_threads();
        o[threadIdx.x] = g.thread_rank() + 100 * g.size() + cg::reduce(g, (int)threadIdx.x, cg::greater<int>());
        o[threadIdx.x] += cg::inclusive_scan(g, 1) * 10000;
    }
}

extern "C" __global__ void atoms(unsigned* u, u64* ll, float* f, double* d, unsigned short* h) {
    int i = threadIdx.x;
    atomicInc(&u[0], 40);
    atomicDec(&u[1], 17);
    atomicMax(&u[2], i);
    atomicMin((int*)&u[3], -i);
    atomicXor(&u[4], 1u << (i & 31));
    atomicOr(&u[5], 1u << (i & 31));
    atomicAnd(&u[6], ~(1u << (i & 15)));
    atomicExch(&u[7], i);
    atomicAdd_system(&u[8], 2);
    atomicAdd(&ll[0], (u64)i << 33);
    atomicMax(&ll[1], (u64)i << 33);
    atomicCAS(&ll[2], 0ull, 7ull);
    atomicAdd(&f[0], 0.5f);
    atomicAdd(&d[0], 0.25);
    unsigned short o = h[0], a;
    do {
        a = o;
        o = atomicCAS(&h[0], a, (unsigned short)(a + 1));
    } while (a != o);
}

extern "C" __global__ void pipe(const int* a, int* o) {
    __shared__ int s[256];
    __pipeline_memcpy_async(&s[threadIdx.x * 4], &a[threadIdx.x * 4], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int k = 0; k < 4; k++) o[threadIdx.x * 4 + k] = s[255 - (threadIdx.x * 4 + k)];
}

extern "C" __global__ void i128(u64* a, u64* o) {
    unsigned __int128 x = ((unsigned __int128)a[0] << 64) | a[1], y = a[2];
    unsigned __int128 p = x * y + x;
    o[0] = p;
    o[1] = p >> 64;
    unsigned __int128 q = x / y;
    o[2] = q;
    o[3] = q >> 64;
    o[4] = x % y;
}

extern "C" __global__ void cg_async(const int* a, int* o) {
    __shared__ int s[64];
    auto b = cg::this_thread_block();
    cg::memcpy_async(b, s, a, sizeof(int) * 64);
    cg::wait(b);
    o[threadIdx.x] = s[63 - threadIdx.x];
}

extern "C" __global__ void wm(const half* a, const half* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, row_major> x;
    fragment<matrix_b, 16, 16, 16, half, col_major> y;
    fragment<accumulator, 16, 16, 16, float> z;
    fill_fragment(z, 0.f);
    load_matrix_sync(x, a, 16);
    load_matrix_sync(y, b, 16);
    mma_sync(z, x, y, z);
    store_matrix_sync(c, z, 16, mem_row_major);
}

extern "C" __global__ void f8(float* a, unsigned char* o) {
    o[threadIdx.x] = __nv_fp8_e4m3(a[threadIdx.x]).__x;
}

extern "C" __global__ void hcmp(const __half2* a, const __half2* b, __half2* o, int* c) {
    int i = threadIdx.x;
    o[i] = __hmax2(a[i], b[i]);
    o[i] = __hadd2(o[i], h2exp2(a[i]));
    c[i] = __hlt(__low2half(a[i]), __low2half(b[i])) + 2 * __hbgt2(a[i], b[i]);
    o[i] = h2sqrt(o[i]);
    c[i] += __half2int_rn(__high2half(a[i]));
}

extern "C" __global__ void clk(long long* o) {
    long long t = clock64();
    __nanosleep(100);
    o[0] = clock64() - t;
    o[1] = __isGlobal(o);
    __shared__ int s;
    s = 1;
    o[2] = __isShared(&s);
    int l[4] = {1, 2, 3, (int)t};
    o[3] = __isLocal(&l[t & 3]);
    o[4] = l[o[3]];
    unsigned x;
    asm volatile("mov.u32 %0,%%smid;" : "=r"(x));
    o[5] = x;
}

extern "C" __global__ void __launch_bounds__(64, 2) lb(double* d) {
    d[threadIdx.x] = __shfl_xor_sync(~0u, (double)threadIdx.x, 5) + rsqrt(d[threadIdx.x]) + erf(d[threadIdx.x]) +
                     tgamma(d[threadIdx.x]) + fma(1.0, 2.0, 3.0) + pow(d[threadIdx.x], 1.5) + __double2loint(3.0);
}

extern "C" __global__ void vec(const float4* a, float4* b, const double2* c, double2* d, const char4* e, short2* f) {
    int i = threadIdx.x;
    float4 v = __ldg(&a[i]);
    v.x += v.w;
    b[i] = v;
    double2 w = c[i];
    w.x *= w.y;
    d[i] = w;
    char4 q = e[i];
    f[i] = make_short2(q.x * q.y, q.z + q.w);
}

struct V {
    virtual __device__ int f(int x) { return x; }
};

struct W : V {
    __device__ int f(int x) override { return x * 3; }
};

extern "C" __global__ void virt(int* o) {
    V v;
    W w;
    V* p = (threadIdx.x & 1) ? &v : (V*)&w;
    o[threadIdx.x] = p->f(threadIdx.x);
}

__managed__ int mg;
__device__ volatile int flag;

extern "C" __global__ void mgk() {
    mg = 7;
    flag = 1;
}
