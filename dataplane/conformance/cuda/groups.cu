// Cooperative groups: blocks, tiles of a warp, coalesced threads.
#include "check.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <vector>

namespace cg = cooperative_groups;

__global__ void tiles(int *out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int sum = tile.thread_rank();
    for (int offset = tile.size() / 2; offset > 0; offset /= 2) sum += tile.shfl_down(sum, offset);
    if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = sum + 1000 * tile.meta_group_size();
    block.sync();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int total = cg::reduce(warp, (int)block.thread_rank(), cg::plus<int>());
    if (warp.thread_rank() == 0) out[16 + warp.meta_group_rank()] = total;
    if (block.thread_rank() == 0) out[32] = block.size();
}

__global__ void coalesced(int *out) {
    if (threadIdx.x % 3 == 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        out[threadIdx.x / 3] = active.thread_rank() * 100 + active.size();
    }
}

__global__ void whole_grid(int *data) {
    cg::grid_group grid = cg::this_grid();
    if (grid.thread_rank() == 0) data[0] = grid.size();
}

int main() {
    int *out;
    std::vector<int> seen(33);
    OK(cudaMalloc(&out, 33 * 4));
    tiles<<<1, 128>>>(out);
    OK(cudaMemcpy(seen.data(), out, 33 * 4, cudaMemcpyDeviceToHost));
    bool equal = true;
    for (int i = 0; i < 16; i++) equal = equal && seen[i] == 28 + 16000;
    holds("tiles of eight", equal);
    equal = true;
    for (int i = 0; i < 4; i++) equal = equal && seen[16 + i] == 32 * 32 * i + 31 * 32 / 2;
    holds("a reduction in a tile of 32", equal);
    holds("a block knows its size", seen[32] == 128);

    coalesced<<<1, 32>>>(out);
    OK(cudaMemcpy(seen.data(), out, 11 * 4, cudaMemcpyDeviceToHost));
    equal = true;
    for (int i = 0; i < 11; i++) equal = equal && seen[i] == i * 100 + 11;
    holds("threads that took the same branch", equal);

    void *arguments[] = {&out};
    OK(cudaLaunchCooperativeKernel((void *)whole_grid, dim3(2), dim3(32), arguments, 0, 0));
    OK(cudaMemcpy(seen.data(), out, 4, cudaMemcpyDeviceToHost));
    holds("a cooperative launch", seen[0] == 64);
    return verdict();
}
