// Sums by shuffles, through shared memory and with votes.
#include "check.h"
#include <vector>

__inline__ __device__ int warp_sum(int value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

__global__ void block_sum(const int *in, int *out, int n) {
    __shared__ int partial[32];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
        sum = warp_sum(sum);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

__global__ void tree_max(const float *in, float *out) {
    extern __shared__ float tree[];
    tree[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tree[threadIdx.x] = fmaxf(tree[threadIdx.x], tree[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = tree[0];
}

__global__ void votes(unsigned *out) {
    int lane = threadIdx.x % 32;
    unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
    int any = __any_sync(0xffffffffu, lane == 31);
    int all = __all_sync(0xffffffffu, lane < 31);
    int crossed = __shfl_xor_sync(0xffffffffu, lane, 5);
    int from_up = __shfl_up_sync(0xffffffffu, lane, 3);
    int broadcast = __shfl_sync(0xffffffffu, lane * 10, 7);
    unsigned active = __activemask();
    if (lane == 4) {
        out[0] = odd;
        out[1] = any;
        out[2] = all;
        out[3] = crossed;
        out[4] = from_up;
        out[5] = broadcast;
        out[6] = active;
        out[7] = __popc(odd) + 100 * __clz(1) + 10000 * __ffs(8);
    }
}

__global__ void scan(const int *in, int *out) {
    int lane = threadIdx.x, value = in[lane];
    for (int offset = 1; offset < 32; offset *= 2) {
        int other = __shfl_up_sync(0xffffffffu, value, offset);
        if (lane >= offset) value += other;
    }
    out[lane] = value;
}

int main() {
    const int n = 100003;
    std::vector<int> numbers(n);
    long expected = 0;
    for (int i = 0; i < n; i++) expected += numbers[i] = (i * 7919) % 1000 - 300;
    int *in, *out, total = 0;
    OK(cudaMalloc(&in, n * sizeof(int)));
    OK(cudaMalloc(&out, sizeof(int)));
    OK(cudaMemcpy(in, numbers.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    OK(cudaMemset(out, 0, sizeof(int)));
    block_sum<<<20, 256>>>(in, out, n);
    OK(cudaMemcpy(&total, out, sizeof(int), cudaMemcpyDeviceToHost));
    holds("100003 numbers sum up by shuffles", total == expected);

    std::vector<float> values(1024), highest(4);
    for (int i = 0; i < 1024; i++) values[i] = (i * 37) % 1021 * 0.25f;
    float *fin, *fout;
    OK(cudaMalloc(&fin, 4096));
    OK(cudaMalloc(&fout, 16));
    OK(cudaMemcpy(fin, values.data(), 4096, cudaMemcpyHostToDevice));
    tree_max<<<4, 256, 256 * sizeof(float)>>>(fin, fout);
    OK(cudaMemcpy(highest.data(), fout, 16, cudaMemcpyDeviceToHost));
    bool equal = true;
    for (int block = 0; block < 4; block++) {
        float most = 0;
        for (int i = 0; i < 256; i++) most = values[block * 256 + i] > most ? values[block * 256 + i] : most;
        equal = equal && highest[block] == most;
    }
    holds("maxima by a tree in shared memory", equal);

    unsigned *words, seen[8];
    OK(cudaMalloc(&words, sizeof seen));
    votes<<<1, 32>>>(words);
    OK(cudaMemcpy(seen, words, sizeof seen, cudaMemcpyDeviceToHost));
    holds("ballot", seen[0] == 0xaaaaaaaau);
    holds("any and all", seen[1] == 1 && seen[2] == 0);
    holds("shuffles", seen[3] == (4 ^ 5) && seen[4] == 1 && seen[5] == 70);
    holds("the active mask is full", seen[6] == 0xffffffffu);
    holds("popc, clz and ffs", seen[7] == 16 + 100 * 31 + 10000 * 4);

    std::vector<int> steps(32), sums(32);
    for (int i = 0; i < 32; i++) steps[i] = i * i;
    OK(cudaMemcpy(in, steps.data(), 128, cudaMemcpyHostToDevice));
    scan<<<1, 32>>>(in, in + 32);
    OK(cudaMemcpy(sums.data(), in + 32, 128, cudaMemcpyDeviceToHost));
    equal = true;
    for (int i = 0, sum = 0; i < 32; i++) equal = equal && sums[i] == (sum += i * i);
    holds("a prefix sum in a warp", equal);
    return verdict();
}
