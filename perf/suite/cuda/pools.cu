// Stream-ordered allocation: the default pool, a pool of one's own, its attributes and its reuse.
#include "report.h"

__global__ void fill(int* x, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value + i;
}

long long attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
    unsigned long long value = 0;
    CHECK(cudaMemPoolGetAttribute(pool, which, &value));
    return (long long)value;
}

int main() {
    Report report("pools");
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    report.exact("supported", supported);
    cudaStream_t a, b;
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    const int n = 1 << 20;

    cudaMemPool_t standard, current;
    CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    report.expect("current_is_default", standard == current);
    unsigned long long keep = ~0ull;
    CHECK(cudaMemPoolSetAttribute(standard, cudaMemPoolAttrReleaseThreshold, &keep));
    report.exact("threshold", attribute(standard, cudaMemPoolAttrReleaseThreshold));

    int *x, *y;
    CHECK(cudaMallocAsync(&x, n * sizeof(int), a));
    fill<<<n / 256, 256, 0, a>>>(x, n, 5);
    std::vector<int> host(n);
    CHECK(cudaMemcpyAsync(host.data(), x, n * sizeof(int), cudaMemcpyDeviceToHost, a));
    CHECK(cudaFreeAsync(x, a));
    CHECK(cudaStreamSynchronize(a));
    report.expect("filled", host[0] == 5 && host[n - 1] == n + 4);
    report.exact("used_after_free", attribute(standard, cudaMemPoolAttrUsedMemCurrent));
    report.exact("kept", attribute(standard, cudaMemPoolAttrReservedMemCurrent) >= n * 4);
    int* again;
    CHECK(cudaMallocAsync(&again, n * sizeof(int), a));
    report.exact("reused", again == x);

    // Freed on another stream than the one it came from, in the order that an event gives.
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    fill<<<n / 256, 256, 0, a>>>(again, n, 7);
    CHECK(cudaEventRecord(event, a));
    CHECK(cudaStreamWaitEvent(b, event, 0));
    CHECK(cudaMemcpyAsync(host.data(), again, n * sizeof(int), cudaMemcpyDeviceToHost, b));
    CHECK(cudaFreeAsync(again, b));
    CHECK(cudaStreamSynchronize(b));
    report.expect("freed_elsewhere", host[100] == 107);
    CHECK(cudaMemPoolTrimTo(standard, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolTrimTo(standard, 0));
    report.exact("trimmed", attribute(standard, cudaMemPoolAttrReservedMemCurrent));

    // A pool of one's own, with a limit.
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    properties.maxSize = 64 << 20;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaMallocFromPoolAsync(&y, n * sizeof(int), pool, a));
    fill<<<n / 256, 256, 0, a>>>(y, n, 9);
    CHECK(cudaStreamSynchronize(a));
    report.expect("own_pool", to_host(y, n)[3] == 12);
    report.exact("own_pool_used", attribute(pool, cudaMemPoolAttrUsedMemCurrent));
    int* too_much = nullptr;
    report.exact("past_its_limit", cudaMallocFromPoolAsync(&too_much, 256 << 20, pool, a));
    cudaGetLastError();
    cudaPointerAttributes where;
    CHECK(cudaPointerGetAttributes(&where, y));
    report.exact("pointer_type", where.type);
    CHECK(cudaFreeAsync(y, a));
    CHECK(cudaStreamSynchronize(a));
    CHECK(cudaDeviceSetMemPool(0, pool));
    CHECK(cudaMallocAsync(&y, 4096, a));
    report.expect("set_as_current", attribute(pool, cudaMemPoolAttrUsedMemCurrent) > 0);
    CHECK(cudaFreeAsync(y, a));
    CHECK(cudaStreamSynchronize(a));
    CHECK(cudaDeviceSetMemPool(0, standard));
    CHECK(cudaMemPoolDestroy(pool));

    // Ordinary cudaFree of such memory is allowed.
    CHECK(cudaMallocAsync(&x, 4096, a));
    CHECK(cudaStreamSynchronize(a));
    report.exact("plain_free", cudaFree(x));

    double started = now_us();
    for (int i = 0; i < 1000; i++) {
        CHECK(cudaMallocAsync(&x, 65536, a));
        CHECK(cudaFreeAsync(x, a));
    }
    CHECK(cudaStreamSynchronize(a));
    report.extra("malloc_and_free_us", (now_us() - started) / 1000);
    return report.finish();
}
