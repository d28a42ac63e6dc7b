// Tiles in shared memory: a transpose, a matrix product, and dynamic shared memory beyond 48 KiB.
#include "check.h"
#include <vector>

const int TILE = 16;

__global__ void transpose(const float *in, float *out, int width, int height) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void multiply(const float *a, const float *b, float *c, int n) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n / TILE; t++) {
        as[threadIdx.y][threadIdx.x] = a[row * n + t * TILE + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(t * TILE + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void large_shared(int *out, int words) {
    extern __shared__ int store[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) store[i] = i * 3;
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int i = 0; i < words; i += 511) sum += store[words - 1 - i];
        *out = sum;
    }
}

int main() {
    const int width = 70, height = 45;
    std::vector<float> in(width * height), out(width * height);
    for (size_t i = 0; i < in.size(); i++) in[i] = i;
    float *din, *dout;
    OK(cudaMalloc(&din, in.size() * 4));
    OK(cudaMalloc(&dout, in.size() * 4));
    OK(cudaMemcpy(din, in.data(), in.size() * 4, cudaMemcpyHostToDevice));
    transpose<<<dim3(5, 3), dim3(TILE, TILE)>>>(din, dout, width, height);
    OK(cudaMemcpy(out.data(), dout, in.size() * 4, cudaMemcpyDeviceToHost));
    bool equal = true;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) equal = equal && out[x * height + y] == in[y * width + x];
    holds("a transpose of 70 by 45", equal);

    const int n = 64;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = i % 7 - 3;
        b[i] = i % 5 - 2;
    }
    float *da, *db, *dc;
    OK(cudaMalloc(&da, n * n * 4));
    OK(cudaMalloc(&db, n * n * 4));
    OK(cudaMalloc(&dc, n * n * 4));
    OK(cudaMemcpy(da, a.data(), n * n * 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b.data(), n * n * 4, cudaMemcpyHostToDevice));
    multiply<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(da, db, dc, n);
    OK(cudaMemcpy(c.data(), dc, n * n * 4, cudaMemcpyDeviceToHost));
    equal = true;
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
            equal = equal && c[row * n + column] == sum;
        }
    holds("a product of 64 by 64", equal);

    const int words = 15000;
    int *dsum, sum, expected = 0;
    OK(cudaMalloc(&dsum, 4));
    cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    OK(cudaFuncSetAttribute(large_shared, limit, words * 4));
    large_shared<<<1, 128, words * 4>>>(dsum, words);
    OK(cudaMemcpy(&sum, dsum, 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < words; i += 511) expected += (words - 1 - i) * 3;
    holds("60000 bytes of dynamic shared memory", sum == expected);
    return verdict();
}
