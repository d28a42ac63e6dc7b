// Managed memory: as native, or refused with cudaErrorNotSupported at the first call, which is then named.
#include "report.h"

__global__ void add(int* x, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += value;
}

int main() {
    Report report("managed");
    const int n = 1 << 16;
    int* x = nullptr;
    cudaError_t error = cudaMallocManaged(&x, n * sizeof(int));
    if (error == cudaErrorNotSupported) {
        report.exact("managed", "refused");
        return report.finish();
    }
    CHECK(error);
    for (int i = 0; i < n; i++) x[i] = i;
    add<<<n / 256, 256>>>(x, n, 10);
    CHECK(cudaDeviceSynchronize());
    bool right = true;
    for (int i = 0; i < n; i++) right &= x[i] == i + 10;
    report.expect("host_sees_device_writes", right);
    x[5] = 1000;
    add<<<n / 256, 256>>>(x, n, 1);
    CHECK(cudaDeviceSynchronize());
    report.expect("device_sees_host_writes", x[5] == 1001 && x[6] == 17);
    std::vector<int> copy(n);
    CHECK(cudaMemcpy(copy.data(), x, n * sizeof(int), cudaMemcpyDefault));
    report.expect("copied", copy[5] == 1001);
    cudaPointerAttributes where;
    CHECK(cudaPointerGetAttributes(&where, x));
    report.exact("pointer_type", where.type);
    CHECK(cudaFree(x));
    report.exact("managed", "works");
    return report.finish();
}
