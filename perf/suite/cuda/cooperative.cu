// Cooperative launch: a reduction over the whole grid that needs every block at the same barrier.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "report.h"
namespace groups = cooperative_groups;

__global__ void reduce_grid(const unsigned* in, unsigned* partial, unsigned* out, int n, int rounds) {
    groups::grid_group grid = groups::this_grid();
    groups::thread_block block = groups::this_thread_block();
    auto warp = groups::tiled_partition<32>(block);
    for (int round = 0; round < rounds; round++) {
        unsigned sum = 0;
        for (unsigned i = grid.thread_rank(); i < unsigned(n); i += grid.size()) sum += in[i] * (round + 1);
        sum = groups::reduce(warp, sum, groups::plus<unsigned>());
        if (block.thread_rank() == 0) partial[blockIdx.x] = 0;
        block.sync();
        if (warp.thread_rank() == 0) atomicAdd(&partial[blockIdx.x], sum);
        grid.sync();
        if (grid.thread_rank() == 0) {
            unsigned total = 0;
            for (unsigned i = 0; i < gridDim.x; i++) total += partial[i];
            out[round] = total;
        }
        grid.sync();
    }
}

int main() {
    Report report("cooperative");
    int supported = 0, multiprocessors = 0, blocks_per_sm = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    report.exact("supported", supported);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, reduce_grid, 256, 0));
    int blocks = multiprocessors * std::min(blocks_per_sm, 2), n = 1 << 20, rounds = 8;
    report.exact("blocks", blocks);

    std::vector<unsigned> host(n);
    unsigned expected = 0;
    for (int i = 0; i < n; i++) expected += host[i] = (i * 2654435761u) >> 16;
    unsigned *in = device_array<unsigned>(n), *partial = device_array<unsigned>(blocks);
    unsigned* out = device_array<unsigned>(rounds);
    CHECK(cudaMemcpy(in, host.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    void* arguments[] = {&in, &partial, &out, &n, &rounds};
    CHECK(cudaLaunchCooperativeKernel((void*)reduce_grid, dim3(blocks), dim3(256), arguments, 0, nullptr));
    CHECK(cudaDeviceSynchronize());
    auto sums = to_host(out, rounds);
    bool right = true;
    for (int i = 0; i < rounds; i++) right &= sums[i] == expected * unsigned(i + 1);
    report.expect("sums", right);

    // The same by way of a launch attribute.
    CHECK(cudaMemset(out, 0, rounds * sizeof(unsigned)));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(256);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, reduce_grid, (const unsigned*)in, partial, out, n, rounds));
    CHECK(cudaDeviceSynchronize());
    report.bytes("sums_by_attribute", to_host(out, rounds));

    // More blocks than can be resident at once are refused at the launch.
    int too_many = multiprocessors * blocks_per_sm + 1;
    report.exact("too_many",
                 cudaLaunchCooperativeKernel((void*)reduce_grid, dim3(too_many), dim3(256), arguments, 0, nullptr));
    report.exact("last_error", cudaGetLastError());
    report.exact("after", cudaDeviceSynchronize());
    return report.finish();
}
