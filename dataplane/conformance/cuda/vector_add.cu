// The first program everybody writes: two vectors in, their sum out.
#include "check.h"
#include <vector>

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    const int n = 50000;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; i++) {
        a[i] = i * 0.5f;
        b[i] = n - i;
    }
    float *da, *db, *dc;
    OK(cudaMalloc(&da, n * sizeof(float)));
    OK(cudaMalloc(&db, n * sizeof(float)));
    OK(cudaMalloc(&dc, n * sizeof(float)));
    OK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
    OK(cudaGetLastError());
    OK(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost));
    bool equal = true;
    for (int i = 0; i < n; i++) equal = equal && c[i] == a[i] + b[i];
    holds("50000 sums are exact", equal);
    OK(cudaFree(da));
    OK(cudaFree(db));
    OK(cudaFree(dc));
    return verdict();
}
