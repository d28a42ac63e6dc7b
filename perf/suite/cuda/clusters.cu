// Thread block clusters: distributed shared memory, and a launch that depends on the one before.
#include <cooperative_groups.h>

#include "report.h"
namespace groups = cooperative_groups;

// Each block counts its part of the histogram that any block of its cluster asks for.
__global__ void histogram(const int* in, int n, int* bins, int bins_per_block) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ int shared[];
    auto cluster = groups::this_cluster();
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) shared[i] = 0;
    cluster.sync();
    int total_bins = bins_per_block * cluster.num_blocks();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int bin = in[i] % total_bins;
        int* theirs = cluster.map_shared_rank(shared, bin / bins_per_block);
        atomicAdd(theirs + bin % bins_per_block, 1);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x)
        atomicAdd(&bins[cluster.block_rank() * bins_per_block + i], shared[i]);
#endif
}

// Older GPUs get a kernel without the attribute, which main then does not launch.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define IN_PAIRS __cluster_dims__(2, 1, 1)
#else
#define IN_PAIRS
#endif

__global__ void IN_PAIRS swap_halves(int* x) {
#if __CUDA_ARCH__ >= 900
    __shared__ int mine[32];
    auto cluster = groups::this_cluster();
    mine[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    cluster.sync();
    int theirs = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1)[threadIdx.x];
    cluster.sync();
    x[blockIdx.x * 32 + threadIdx.x] = theirs;
#endif
}

__global__ void dependent(int* x) {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    x[threadIdx.x] += 1000;
}

int main() {
    Report report("clusters");
    int major = 0;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (major < 9) {
        printf("{\"workload\": \"clusters\", \"skipped\": \"needs compute capability 9.0\", \"checks\": {}}\n");
        return 0;
    }
    const int n = 1 << 20, bins_per_block = 1024;
    std::vector<int> host(n), expected(4 * bins_per_block);
    for (int i = 0; i < n; i++) {
        host[i] = int((i * 2654435761u) >> 8);
        expected[host[i] % (4 * bins_per_block)]++;
    }
    int *in = device_array<int>(n), *bins = device_array<int>(4 * bins_per_block);
    CHECK(cudaMemcpy(in, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(32);
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = bins_per_block * sizeof(int);
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {4, 1, 1};
    config.attrs = attributes;
    config.numAttrs = 1;
    int cluster_size = 0, active = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&active, histogram, &config));
    CHECK(cudaOccupancyMaxPotentialClusterSize(&cluster_size, histogram, &config));
    report.exact("max_active_clusters", active);
    report.exact("max_cluster_size", cluster_size);
    CHECK(cudaLaunchKernelEx(&config, histogram, (const int*)in, n, bins, bins_per_block));
    CHECK(cudaDeviceSynchronize());
    report.expect("histogram", to_host(bins, 4 * bins_per_block) == expected);

    CHECK(cudaMemcpy(in, host.data(), 64 * sizeof(int), cudaMemcpyHostToDevice));
    swap_halves<<<2, 32>>>(in);
    CHECK(cudaGetLastError());
    auto swapped = to_host(in, 64);
    report.expect("swapped", swapped[0] == host[32] && swapped[63] == host[31]);

    // A grid that its cluster size does not divide is refused.
    config.gridDim = dim3(30);
    report.exact("indivisible", cudaLaunchKernelEx(&config, histogram, (const int*)in, 1, bins, bins_per_block));
    cudaGetLastError();

    // Programmatic dependent launch.
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemset(in, 0, 64 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(1);
    config.blockDim = dim3(64);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    for (int i = 0; i < 5; i++) CHECK(cudaLaunchKernelEx(&config, dependent, in));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("dependent_launches", to_host(in, 64)[9] == 5000);
    return report.finish();
}
