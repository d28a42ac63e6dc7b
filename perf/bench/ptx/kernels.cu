// What `orion-bench run kernels` times. Rebuild: nvcc -ptx -arch=compute_80 kernels.cu -o kernels.ptx
//
// Each is written as libraries write it: tiles in shared memory and sums in registers, shuffles, vector accesses.

// c = a * b, row-major squares of a multiple of 128: blocks of 128 x 128, threads of 8 x 8, by steps of 8.
extern "C" __global__ void __launch_bounds__(256) matmul(const float *a, const float *b, float *c, int n) {
    __shared__ __align__(16) float left[8][128], right[8][128];
    int thread = threadIdx.x, row = thread / 16 * 8, column = thread % 16 * 8;
    a += size_t(blockIdx.y) * 128 * n;
    b += blockIdx.x * 128;
    float sum[8][8] = {};
    for (int k = 0; k < n; k += 8) {
        float4 l = *reinterpret_cast<const float4 *>(&a[size_t(thread / 2) * n + k + thread % 2 * 4]);
        float4 r = *reinterpret_cast<const float4 *>(&b[size_t(k + thread / 32) * n + thread % 32 * 4]);
        left[thread % 2 * 4 + 0][thread / 2] = l.x;
        left[thread % 2 * 4 + 1][thread / 2] = l.y;
        left[thread % 2 * 4 + 2][thread / 2] = l.z;
        left[thread % 2 * 4 + 3][thread / 2] = l.w;
        *reinterpret_cast<float4 *>(&right[thread / 32][thread % 32 * 4]) = r;
        __syncthreads();
#pragma unroll
        for (int step = 0; step < 8; step++) {
            float x[8], y[8];
#pragma unroll
            for (int i = 0; i < 8; i += 4) {
                *reinterpret_cast<float4 *>(&x[i]) = *reinterpret_cast<const float4 *>(&left[step][row + i]);
                *reinterpret_cast<float4 *>(&y[i]) = *reinterpret_cast<const float4 *>(&right[step][column + i]);
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
    c += (size_t(blockIdx.y) * 128 + row) * n + blockIdx.x * 128 + column;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) c[size_t(i) * n + j] = sum[i][j];
}

// Each block adds up its part: vectors of four, shuffles, shared memory.
extern "C" __global__ void __launch_bounds__(256) sum(const float4 *in, float *out, int n) {
    __shared__ float parts[8];
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        float4 v = in[i];
        s += (v.x + v.y) + (v.z + v.w);
    }
    for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(~0u, s, d);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < 8 ? parts[threadIdx.x] : 0;
        for (int d = 4; d > 0; d /= 2) s += __shfl_xor_sync(~0u, s, d);
        if (threadIdx.x == 0) out[blockIdx.x] = s;
    }
}

extern "C" __global__ void add(const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

// As frameworks compute it: four elements a thread, a tanh from the exponential function.
extern "C" __global__ void gelu(const float *in, float *out, int n) {
    int first = blockIdx.x * blockDim.x * 4 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int i = first + k * blockDim.x;
        if (i < n) {
            float x = in[i], t = 0.7978845608f * (x + 0.044715f * x * x * x);
            out[i] = 0.5f * x * (1.0f + (1.0f - 2.0f / (expf(2.0f * t) + 1.0f)));
        }
    }
}

// Products of tensor cores: each warp adds the same one to its sums, n times eight.
extern "C" __global__ void __launch_bounds__(256) products(const unsigned *in, float *out, int n) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned a = in[threadIdx.x % 32], b = in[32 + threadIdx.x % 32];
    float d[4] = {};
    for (int i = 0; i < n; i++) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                         "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a), "r"(b));
    }
    *reinterpret_cast<float4 *>(&out[thread * 4]) = make_float4(d[0], d[1], d[2], d[3]);
}
