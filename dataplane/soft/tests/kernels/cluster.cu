// Clusters, distributed shared memory and barrier objects.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cstdint>

namespace groups = cooperative_groups;
namespace ptx = cuda::ptx;

__device__ static uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

template <int N> __device__ static void wait_parity(uint64_t* bar, uint32_t parity) {
    while (!ptx::mbarrier_try_wait_parity(bar, parity)) {}
}

// The special registers, 16 words a block.
extern "C" __global__ void where(uint32_t* out) {
    auto c = groups::this_cluster();
    uint32_t explicitly;
    asm("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(explicitly));
    uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint32_t* o = out + 16 * block;
    uint32_t values[16] = {
        ptx::get_sreg_clusterid_x(),  ptx::get_sreg_clusterid_y(),  ptx::get_sreg_clusterid_z(),
        ptx::get_sreg_nclusterid_x(), ptx::get_sreg_nclusterid_y(), ptx::get_sreg_nclusterid_z(),
        c.block_index().x,            c.block_index().y,            c.block_index().z,
        c.dim_blocks().x,             c.dim_blocks().y,             c.dim_blocks().z,
        c.block_rank(),               c.num_blocks(),               explicitly,
        c.thread_rank(),
    };
    for (int i = 0; i < 16; i++) o[i] = values[i];
}

// Every block adds to a counter of every block, by generic address, and stores and loads by shared address.
extern "C" __global__ void exchange(int* out) {
    __shared__ int counter, cells[16];
    auto c = groups::this_cluster();
    unsigned rank = c.block_rank(), n = c.num_blocks();
    if (threadIdx.x == 0) counter = 0;
    if (threadIdx.x < 16) cells[threadIdx.x] = -1;
    c.sync();
    for (unsigned r = 0; r < n; r++) {
        atomicAdd(c.map_shared_rank(&counter, r), 1 + (int)rank);
        if (threadIdx.x == 0) {
            uint32_t there;
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(cells)), "r"(r));
            asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there + 4 * rank), "r"(100 * r + rank) : "memory");
            asm volatile("red.shared::cluster.add.u32 [%0], 1000;" ::"r"(there + 4 * rank) : "memory");
        }
    }
    c.sync();
    int* o = out + blockIdx.x * 32;
    if (threadIdx.x < 16) o[threadIdx.x] = cells[threadIdx.x];
    if (threadIdx.x == 0) o[16] = counter;
    int* next = c.map_shared_rank(&counter, (rank + 1) % n);
    if (threadIdx.x == 0) {
        uint32_t of_generic, of_shared, there;
        uint32_t own_is_cta = __isShared(&counter), next_is_cta = __isShared(next), next_in_cluster, global_in_cluster;
        asm("getctarank.u64 %0, %1;" : "=r"(of_generic) : "l"(next));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(&counter)), "r"(n - 1));
        asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(of_shared) : "r"(there));
        asm("{ .reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p; }"
            : "=r"(next_in_cluster) : "l"(next));
        asm("{ .reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p; }"
            : "=r"(global_in_cluster) : "l"(out));
        o[17] = of_generic;
        o[18] = of_shared;
        o[19] = own_is_cta | next_is_cta << 1 | next_in_cluster << 2 | global_in_cluster << 3;
        o[20] = *next;
    }
    c.sync();
}

// Pointers into shared memory travel through memory, and mean the block that made them.
extern "C" __global__ void __cluster_dims__(4, 1, 1) pointers(int** table, int* out) {
    __shared__ int mine;
    auto c = groups::this_cluster();
    mine = 7 * blockIdx.x;
    table[blockIdx.x] = &mine;
    __threadfence();
    c.sync();
    unsigned first = blockIdx.x / 4 * 4;
    out[blockIdx.x] = *(volatile int*)table[first + (c.block_rank() + 1) % 4];
    c.sync();
}

// Blocks of a cluster go on at different paces: arrive, work, wait; and half of the threads exit before.
extern "C" __global__ void paces(int* out, int rounds) {
    __shared__ int value;
    auto c = groups::this_cluster();
    unsigned rank = c.block_rank(), n = c.num_blocks();
    if (threadIdx.x % 2) return;
    int sum = 0;
    for (int k = 0; k < rounds; k++) {
        if (threadIdx.x == 0) value = k * 10 + rank;
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
        for (unsigned i = 0; i < 500 * rank; i++) asm volatile("" ::"r"(i));
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        sum += *c.map_shared_rank(&value, (rank + 1) % n);
        asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Each block waits on its own barrier object, on which the next block arrives.
extern "C" __global__ void ring(int* out, int rounds) {
    __shared__ uint64_t bar;
    __shared__ int inbox;
    auto c = groups::this_cluster();
    unsigned rank = c.block_rank(), n = c.num_blocks();
    if (threadIdx.x == 0) ptx::mbarrier_init(&bar, blockDim.x);
    c.sync();
    int* next_inbox = c.map_shared_rank(&inbox, (rank + 1) % n);
    uint64_t* next_bar = c.map_shared_rank(&bar, (rank + 1) % n);
    int sum = 0;
    for (int k = 0; k < rounds; k++) {
        if (threadIdx.x == 0) *next_inbox = k * 100 + rank;
        ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, next_bar);
        wait_parity<0>(&bar, k & 1);
        sum += inbox;
        c.sync();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// States, parities, drops and counts of one barrier object.
extern "C" __global__ void states(uint32_t* out) {
    __shared__ uint64_t bar;
    if (threadIdx.x) return;
    uint64_t s, first;
    uint32_t n = 0, ok;
    ptx::mbarrier_init(&bar, 5);
    out[n++] = ptx::mbarrier_test_wait_parity(&bar, 0);
    out[n++] = ptx::mbarrier_test_wait_parity(&bar, 1);
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;" : "=l"(first) : "r"(address(&bar)) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(ok) : "l"(first));
    out[n++] = ok;
    asm volatile("mbarrier.arrive_drop.noComplete.shared.b64 %0, [%1], 1;" : "=l"(s) : "r"(address(&bar)) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(ok) : "l"(s));
    out[n++] = ok;
    out[n++] = ptx::mbarrier_test_wait(&bar, first);
    s = ptx::mbarrier_arrive(&bar, 2);
    out[n++] = ptx::mbarrier_test_wait(&bar, first);
    out[n++] = ptx::mbarrier_test_wait(&bar, s);
    out[n++] = ptx::mbarrier_test_wait_parity(&bar, 0);
    out[n++] = ptx::mbarrier_test_wait_parity(&bar, 1);
    // The next phase expects four.
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(s) : "r"(address(&bar)) : "memory");
    s = ptx::mbarrier_arrive(&bar, 2);
    out[n++] = ptx::mbarrier_test_wait(&bar, s);
    s = ptx::mbarrier_arrive(&bar);
    out[n++] = ptx::mbarrier_try_wait(&bar, s);
    // And the one after it three, and bytes.
    s = ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, 24);
    ptx::mbarrier_arrive(&bar, 2);
    out[n++] = ptx::mbarrier_test_wait(&bar, s);
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ::"r"(address(&bar)) : "memory");
    out[n++] = ptx::mbarrier_test_wait(&bar, s);
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 8;" ::"r"(address(&bar)) : "memory");
    out[n++] = ptx::mbarrier_test_wait(&bar, s);
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(address(&bar)) : "memory");
    out[n++] = (uint32_t)bar;
}

// cuda::barrier between a producer warp and a consumer warp.
extern "C" __global__ void produce(const int* in, int* out, int rounds) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier full, empty;
    __shared__ int stage[32];
    if (threadIdx.x == 0) {
        init(&full, 64);
        init(&empty, 64);
    }
    __syncthreads();
    int lane = threadIdx.x % 32;
    for (int k = 0; k < rounds; k++) {
        if (threadIdx.x < 32) {
            empty.arrive_and_wait();
            stage[lane] = in[32 * k + lane];
            (void)full.arrive();
        } else {
            (void)empty.arrive();
            full.arrive_and_wait();
            out[32 * k + lane] = 2 * stage[lane ^ 1];
        }
    }
}

// Bulk copies in and out, the one in completing on a barrier object.
extern "C" __global__ void bulk(const int* in, int* out, uint32_t bytes) {
    extern __shared__ __align__(128) int tile[];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, in, bytes, &bar);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, bytes);
    }
    __syncthreads();
    wait_parity<1>(&bar, 0);
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) tile[i] = 3 * tile[i] + 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, tile, bytes);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

// cp.async that arrives on a barrier object when it is complete.
extern "C" __global__ void copies(const int* in, int* out) {
    __shared__ int tile[64];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) ptx::mbarrier_init(&bar, 2 * blockDim.x);
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address(tile + threadIdx.x)), "l"(in + threadIdx.x));
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(address(&bar)) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&bar)) : "memory");
    uint64_t s = ptx::mbarrier_arrive(&bar);
    while (!ptx::mbarrier_try_wait(&bar, s)) {}
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// Rank 0 sends to every block of the cluster: one multicast, one asynchronous store, one asynchronous add.
extern "C" __global__ void send(const int* in, int* out) {
    __shared__ __align__(16) int tile[8];
    __shared__ uint64_t bar;
    auto c = groups::this_cluster();
    unsigned n = c.num_blocks();
    if (threadIdx.x == 0) {
        for (int i = 0; i < 8; i++) tile[i] = 0;
        ptx::mbarrier_init(&bar, 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, 16 + 8 + 4);
    }
    c.sync();
    if (c.block_rank() == 0 && threadIdx.x == 0) {
        uint16_t all = (uint16_t)((1u << n) - 1);
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 16, "
            "[%2], %3;" ::"r"(address(tile)), "l"(in), "r"(address(&bar)), "h"(all) : "memory");
        for (unsigned r = 0; r < n; r++) {
            uint32_t there, bar_there;
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(tile)), "r"(r));
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar_there) : "r"(address(&bar)), "r"(r));
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
                             there + 16), "r"(r), "r"(r * r), "r"(bar_there) : "memory");
            asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, "
                         "[%2];" ::"r"(there + 24), "r"(5 + r), "r"(bar_there) : "memory");
        }
    }
    wait_parity<2>(&bar, 0);
    if (threadIdx.x < 8) out[blockIdx.x * 8 + threadIdx.x] = tile[threadIdx.x];
    c.sync();
}

// Faults, by number.
extern "C" __global__ void fault(int kind, int* out) {
    __shared__ int cell;
    __shared__ uint64_t bar;
    auto c = groups::this_cluster();
    cell = 1;
    c.sync();
    switch (kind) {
    case 0:  // a rank that the cluster lacks
        if (threadIdx.x == 0) *out = *c.map_shared_rank(&cell, c.num_blocks());
        break;
    case 1:  // a block that has exited
        if (c.block_rank() == 1) return;
        for (int i = 0; i < 200000; i++) asm volatile("" ::"r"(i));
        *c.map_shared_rank(&cell, 1) = 2;
        break;
    case 2:  // an arrival where no barrier object is
        bar = 0;
        ptx::mbarrier_arrive(&bar);
        break;
    case 3:  // more arrivals than the phase expects
        ptx::mbarrier_init(&bar, 1);
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ::"r"(address(&bar)) : "memory");
        ptx::mbarrier_arrive(&bar, 2);
        break;
    case 4:  // a bulk copy that is not aligned
        ptx::mbarrier_init(&bar, 1);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, &cell, out + 1, 16, &bar);
        break;
    case 5:  // beyond another block's shared memory
        *out = c.map_shared_rank(&cell, 1)[1 << 20];
        break;
    case 6:  // an address that is not of shared memory
        *out = *c.map_shared_rank(out, 1);
        break;
    case 7:  // half of the cluster waits for the other half, which waits for the block's own barrier
        if (threadIdx.x == 0) asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
        else asm volatile("barrier.sync 1, 1024;" ::: "memory");
        break;
    }
    c.sync();
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) pairs(int* out) {
    auto c = groups::this_cluster();
    out[blockIdx.x] = c.num_blocks() * 10 + c.block_rank();
}
extern "C" __global__ void __cluster_dims__() any_cluster(int* out) {
    auto c = groups::this_cluster();
    out[blockIdx.x] = c.num_blocks() * 10 + c.block_rank();
}
extern "C" __global__ void __launch_bounds__(128, 1, 4) up_to_four(int* out) {
    auto c = groups::this_cluster();
    out[blockIdx.x] = c.num_blocks() * 10 + c.block_rank();
}
extern "C" __global__ void tensor(const void* map, int* out) {
    __shared__ __align__(128) int tile[32];
    __shared__ uint64_t bar;
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], "
                 "[%3];" ::"r"(address(tile)), "l"(map), "r"(0), "r"(address(&bar)) : "memory");
}
