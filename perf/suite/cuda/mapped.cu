// Host memory that the GPU reads and writes in place: pinned, mapped, write-combined, registered.
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "report.h"

__global__ void add_one(int* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1;
}

// Waits for the host to answer through mapped memory while the kernel runs.
__global__ void ask(volatile int* mailbox) {
    mailbox[0] = 1;
    __threadfence_system();
    long long start = clock64();
    while (mailbox[1] == 0 && clock64() - start < 3000000000ll) {
    }
    mailbox[2] = mailbox[1] * 2;
}

std::string kind(void* pointer) {
    cudaPointerAttributes where;
    cudaError_t error = cudaPointerGetAttributes(&where, pointer);
    if (error != cudaSuccess) return cudaGetErrorName(error);
    return std::to_string(where.type) + (where.devicePointer ? " device" : "") + (where.hostPointer ? " host" : "");
}

// Over a network, host memory cannot be shared while a kernel runs, hence a row of its own: mapped.cu live
int live() {
    Report report("mapped_live");
    int* mapped;
    CHECK(cudaHostAlloc(&mapped, 4096, cudaHostAllocMapped));
    volatile int* mailbox = mapped;
    mailbox[0] = mailbox[1] = mailbox[2] = 0;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ask<<<1, 1>>>(mapped);
    cudaStreamQuery(nullptr);
    double started = now_us();
    while (mailbox[0] == 0 && now_us() - started < 1e6) {
    }
    report.extra("seen_after_us", now_us() - started);
    report.exact("host_sees_a_running_kernel", mailbox[0]);
    mailbox[1] = 21;
    CHECK(cudaDeviceSynchronize());
    report.exact("the_kernel_sees_the_host", mailbox[2]);
    return report.finish();
}

int main(int count, char** arguments) {
    if (count > 1 && !strcmp(arguments[1], "live")) return live();
    Report report("mapped");
    const int n = 1 << 18;
    int *pinned, *mapped, *combined, *seen;
    CHECK(cudaMallocHost(&pinned, n * sizeof(int)));
    CHECK(cudaHostAlloc(&mapped, n * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
    CHECK(cudaHostAlloc(&combined, n * sizeof(int), cudaHostAllocWriteCombined | cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&seen, mapped, 0));
    report.expect("same_address", seen == mapped);
    unsigned flags = 0;
    CHECK(cudaHostGetFlags(&flags, mapped));
    report.exact("flags", flags);

    for (int i = 0; i < n; i++) mapped[i] = pinned[i] = combined[i] = i;
    add_one<<<64, 256>>>(mapped, n);
    add_one<<<64, 256>>>(pinned, n);
    add_one<<<64, 256>>>(combined, n);
    CHECK(cudaDeviceSynchronize());
    bool right = true;
    for (int i = 0; i < n; i++) right &= mapped[i] == i + 1 && pinned[i] == i + 1;
    report.expect("written_in_place", right && combined[n - 1] == n);
    report.exact("kinds", kind(mapped) + ", " + kind(mapped + 100) + ", " + kind(&right));

    // Memory that malloc or mmap gave, registered in place.
    auto* plain = static_cast<int*>(aligned_alloc(4096, n * sizeof(int)));
    for (int i = 0; i < n; i++) plain[i] = 3 * i;
    report.exact("before_registering", kind(plain));
    CHECK(cudaHostRegister(plain, n * sizeof(int), cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&seen, plain, 0));
    report.exact("registered", kind(plain));
    report.expect("content_kept", plain[n - 1] == 3 * (n - 1));
    add_one<<<64, 256>>>(seen, n);
    CHECK(cudaDeviceSynchronize());
    report.expect("registered_in_place", plain[0] == 1 && plain[n - 1] == 3 * (n - 1) + 1);
    int* device = device_array<int>(n);
    CHECK(cudaMemcpyAsync(device, plain, n * sizeof(int), cudaMemcpyHostToDevice));
    add_one<<<64, 256>>>(device, n);
    CHECK(cudaMemcpyAsync(plain, device, n * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    report.expect("copied_both_ways", plain[7] == 23);
    report.exact("register_twice", cudaHostRegister(plain, n * sizeof(int), 0));
    cudaGetLastError();
    CHECK(cudaHostUnregister(plain));
    report.exact("unregister_twice", cudaHostUnregister(plain));
    cudaGetLastError();
    report.expect("content_after", plain[7] == 23);
    free(plain);

    auto* pages = static_cast<int*>(mmap(nullptr, n * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    // Neither its start nor its length a multiple of the page.
    CHECK(cudaHostRegister(pages + 100, 5000 * sizeof(int), cudaHostRegisterDefault));
    CHECK(cudaMemset(device, 0x22, n * sizeof(int)));
    CHECK(cudaMemcpyAsync(pages + 100, device, 5000 * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    report.expect("part_of_a_page",
                  pages[99] == 0 && pages[100] == 0x22222222 && pages[5099] == 0x22222222 && pages[5100] == 0);
    CHECK(cudaHostUnregister(pages + 100));
    munmap(pages, n * 4);

    for (auto each : {pinned, mapped, combined}) CHECK(cudaFreeHost(each));
    return report.finish();
}
