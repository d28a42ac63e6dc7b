// Occupancy and the attributes of functions: what libraries ask before they choose a launch.
#include "report.h"

__global__ void small(int* x) { x[threadIdx.x] = 1; }

__global__ void __launch_bounds__(256, 2) with_shared(float* x) {
    __shared__ float tile[2048];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[255 - threadIdx.x];
}

template <int N> __global__ void with_local(float* x, int k) {
    float local[N];
    for (int i = 0; i < N; i++) local[i] = x[i] * k;
    for (int i = 0; i < N; i++) x[i] = local[(i * k) % N];
}

extern __shared__ char dynamic[];
__global__ void with_dynamic(char* x) { x[threadIdx.x] = dynamic[threadIdx.x]; }

template <typename F> void describe(Report& report, const std::string& name, F* kernel) {
    cudaFuncAttributes a;
    CHECK(cudaFuncGetAttributes(&a, kernel));
    char text[200];
    snprintf(text, sizeof text, "shared %zu const %zu local %zu threads %d registers %d ptx %d binary %d dynamic %d",
             a.sharedSizeBytes, a.constSizeBytes, a.localSizeBytes, a.maxThreadsPerBlock, a.numRegs, a.ptxVersion,
             a.binaryVersion, a.maxDynamicSharedSizeBytes);
    report.exact(name, std::string(text));
    std::string blocks;
    for (int threads : {32, 128, 256, 1024}) {
        for (size_t shared : {size_t(0), size_t(16) << 10, size_t(40) << 10}) {
            int count = 0;
            cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, threads, shared);
            blocks += error == cudaSuccess ? std::to_string(count) + " " : std::string(cudaGetErrorName(error)) + " ";
        }
    }
    cudaGetLastError();
    report.exact(name + "_blocks", blocks);
    int grid = 0, block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 0));
    report.exact(name + "_potential", grid * 10000 + block);
    size_t available = 0;
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, kernel, 1, 32));
    report.exact(name + "_available", (long long)available);
}

int main() {
    Report report("occupancy");
    describe(report, "small", small);
    describe(report, "with_shared", with_shared);
    describe(report, "with_local", with_local<300>);
    CHECK(cudaFuncSetAttribute(with_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 48 << 10));
    describe(report, "with_dynamic", with_dynamic);
    CHECK(cudaFuncSetAttribute(with_dynamic, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    describe(report, "with_carveout", with_dynamic);
    CHECK(cudaFuncSetCacheConfig(small, cudaFuncCachePreferL1));
    describe(report, "prefer_l1", small);
    const char* name = nullptr;
    CHECK(cudaFuncGetName(&name, (const void*)small));
    report.exact("name", std::string(name));

    // Kernels with a lot of local memory run, and right.
    std::vector<float> host(300);
    for (int i = 0; i < 300; i++) host[i] = float(i);
    float* x = device_array<float>(300);
    CHECK(cudaMemcpy(x, host.data(), 1200, cudaMemcpyHostToDevice));
    with_local<300><<<1, 1>>>(x, 7);
    report.bytes("local", to_host(x, 300));

    cudaFuncAttributes a;
    double started = now_us();
    for (int i = 0; i < 10000; i++) CHECK(cudaFuncGetAttributes(&a, small));
    report.extra("attributes_us", (now_us() - started) / 10000);
    int count = 0;
    started = now_us();
    for (int i = 0; i < 10000; i++) CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, small, 128, 0));
    report.extra("occupancy_us", (now_us() - started) / 10000);
    return report.finish();
}
