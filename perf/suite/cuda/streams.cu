// Streams and events. Built twice: with the legacy default stream and with one default stream a thread.
#include <algorithm>
#include <thread>

#include "report.h"

__global__ void spin(long long clocks) {
    long long start = clock64();
    while (clock64() - start < clocks) {
    }
}

__global__ void append(int* log, int* length, int value) { log[atomicAdd(length, 1)] = value; }

__global__ void add_to(int* x, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += value;
}

int main() {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    Report report("streams_per_thread");
#else
    Report report("streams");
#endif
    const int n = 1 << 16;
    int *log = device_array<int>(64), *length = device_array<int>(1), *data = device_array<int>(n);
    cudaStream_t blocking, other, quiet, urgent;
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaStreamCreate(&other));
    CHECK(cudaStreamCreateWithFlags(&quiet, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -1));

    // Order by events across streams: 1 before 2 before 3, whichever stream is faster.
    cudaEvent_t first, second, start, stop;
    CHECK(cudaEventCreateWithFlags(&first, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&second, cudaEventDisableTiming | cudaEventBlockingSync));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    spin<<<1, 1, 0, blocking>>>(100000000);
    append<<<1, 1, 0, blocking>>>(log, length, 1);
    CHECK(cudaEventRecord(first, blocking));
    report.exact("stream_still_busy", cudaStreamQuery(blocking));
    report.exact("event_still_pending", cudaEventQuery(first));
    CHECK(cudaStreamWaitEvent(quiet, first, 0));
    append<<<1, 1, 0, quiet>>>(log, length, 2);
    CHECK(cudaEventRecord(second, quiet));
    CHECK(cudaStreamWaitEvent(urgent, second, 0));
    append<<<1, 1, 0, urgent>>>(log, length, 3);
    CHECK(cudaStreamSynchronize(urgent));
    report.exact("event_done", cudaEventQuery(first));
    CHECK(cudaEventSynchronize(second));
    auto order = to_host(log, 3);
    report.expect("order_by_events", order[0] == 1 && order[1] == 2 && order[2] == 3);

    // The legacy default stream waits for blocking streams and they for it; the one of a thread does not.
    CHECK(cudaMemset(length, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    spin<<<1, 1, 0, blocking>>>(200000000);
    append<<<1, 1, 0, blocking>>>(log, length, 1);
    append<<<1, 1>>>(log, length, 2);
    append<<<1, 1, 0, other>>>(log, length, 3);
    CHECK(cudaDeviceSynchronize());
    order = to_host(log, 3);
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    report.expect("default_stream_does_not_wait", order[2] == 1);
#else
    report.expect("default_stream_waits", order[0] == 1 && order[1] == 2 && order[2] == 3);
#endif
    CHECK(cudaMemset(length, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    spin<<<1, 1, 0, blocking>>>(200000000);
    append<<<1, 1, 0, blocking>>>(log, length, 1);
    append<<<1, 1, 0, cudaStreamLegacy>>>(log, length, 2);
    CHECK(cudaDeviceSynchronize());
    order = to_host(log, 2);
    report.expect("legacy_handle_waits", order[0] == 1 && order[1] == 2);
    append<<<1, 1, 0, cudaStreamPerThread>>>(log, length, 3);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));

    // Times of events: positive, and about as long as the kernel between them.
    CHECK(cudaEventRecord(start, blocking));
    spin<<<1, 1, 0, blocking>>>(10000000);
    CHECK(cudaEventRecord(stop, blocking));
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    report.extra("elapsed_ms", ms);
    report.expect("elapsed_is_plausible", ms > 1 && ms < 1000);
    report.exact("elapsed_without_timing", cudaEventElapsedTime(&ms, first, second));
    cudaGetLastError();

    // Four threads, each with a stream of its own and then with the default stream.
    CHECK(cudaMemset(data, 0, n * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            CHECK(cudaSetDevice(0));
            cudaStream_t own;
            CHECK(cudaStreamCreate(&own));
            int* part = data + t * (n / 4);
            for (int i = 0; i < 100; i++) add_to<<<n / 4 / 256, 256, 0, own>>>(part, n / 4, t + 1);
            CHECK(cudaStreamSynchronize(own));
            for (int i = 0; i < 100; i++) add_to<<<n / 4 / 256, 256>>>(part, n / 4, t + 1);
            CHECK(cudaStreamSynchronize(nullptr));
            CHECK(cudaStreamDestroy(own));
        });
    }
    for (auto& thread : threads) thread.join();
    report.bytes("threads", to_host(data, n));

    unsigned flags = 99;
    int priority = 99;
    CHECK(cudaStreamGetFlags(quiet, &flags));
    CHECK(cudaStreamGetPriority(urgent, &priority));
    report.exact("flags", flags);
    report.exact("priority", priority);
    unsigned long long id = 0, other_id = 0;
    CHECK(cudaStreamGetId(blocking, &id));
    CHECK(cudaStreamGetId(quiet, &other_id));
    report.expect("ids_differ", id != other_id);

    std::vector<double> samples;
    for (int i = 0; i < 200; i++) {
        double started = now_us();
        CHECK(cudaEventRecord(start, quiet));
        CHECK(cudaEventSynchronize(start));
        samples.push_back(now_us() - started);
    }
    std::sort(samples.begin(), samples.end());
    report.extra("record_and_synchronize_us", samples[samples.size() / 2]);
    for (auto stream : {blocking, other, quiet, urgent}) CHECK(cudaStreamDestroy(stream));
    for (auto event : {first, second, start, stop}) CHECK(cudaEventDestroy(event));
    CHECK(cudaDeviceReset());
    return report.finish();
}
