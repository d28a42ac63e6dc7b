// The path of a launch: enqueueing, launching and waiting, and a call that has an answer.
#include <algorithm>
#include <cstring>

#include "report.h"

__global__ void nothing() {}
__global__ void count(unsigned long long* x, int by) { *x += by; }

double percentile(std::vector<double>& samples, double part) {
    std::sort(samples.begin(), samples.end());
    return samples[size_t(part * (samples.size() - 1))];
}

template <typename F> std::vector<double> timed(int rounds, F piece) {
    std::vector<double> samples;
    for (int i = 0; i < rounds; i++) {
        double started = now_us();
        piece();
        samples.push_back(now_us() - started);
    }
    return samples;
}

int main(int argument_count, char** arguments) {
    bool speed = argument_count > 1 && !strcmp(arguments[1], "--speed");
    int rounds = speed ? 2000 : 200;
    Report report("launches");
    auto* counter = device_array<unsigned long long>(1);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 100; i++) nothing<<<1, 1, 0, stream>>>();
    CHECK(cudaStreamSynchronize(stream));

    // Bursts that any queue holds, so that only the enqueueing is timed and not a wait for the GPU.
    const int burst = 100;
    std::vector<double> bursts;
    for (int i = 0; i < rounds; i++) {
        double started = now_us();
        for (int j = 0; j < burst; j++) nothing<<<1, 1, 0, stream>>>();
        bursts.push_back((now_us() - started) / burst * 1000);
        CHECK(cudaStreamSynchronize(stream));
    }
    report.extra("enqueue_ns", percentile(bursts, 0.5));
    report.extra("enqueue_ns_p99", percentile(bursts, 0.99));

    // As many as there are, one after the other: the rate of the whole path.
    int many = speed ? 200000 : 20000;
    double started = now_us();
    for (int i = 0; i < many; i++) count<<<1, 1, 0, stream>>>(counter, 1);
    CHECK(cudaStreamSynchronize(stream));
    double each_us = (now_us() - started) / many;
    report.extra("launch_us", each_us);
    report.steady_ms(each_us / 1000);
    report.expect("counted", to_host(counter, 1)[0] == (unsigned long long)many);

    auto waits = timed(rounds, [&] {
        nothing<<<1, 1, 0, stream>>>();
        CHECK(cudaStreamSynchronize(stream));
    });
    report.extra("launch_and_wait_us", percentile(waits, 0.5));
    // Answered by the driver without the operating system, so that the way there and back is most of it.
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    auto short_calls = timed(rounds, [&] {
        unsigned long long threshold;
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    });
    report.extra("short_call_us", percentile(short_calls, 0.5));
    report.extra("short_call_us_p99", percentile(short_calls, 0.99));
    auto calls = timed(rounds, [&] {
        size_t free_bytes, total_bytes;
        CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    });
    report.extra("call_us", percentile(calls, 0.5));
    report.extra("call_us_p99", percentile(calls, 0.99));
    int word = 0;
    auto reads = timed(rounds, [&] { CHECK(cudaMemcpy(&word, counter, 4, cudaMemcpyDeviceToHost)); });
    report.extra("read_4_bytes_us", percentile(reads, 0.5));
    auto mallocs = timed(rounds / 4, [&] {
        void* pointer;
        CHECK(cudaMalloc(&pointer, 4 << 20));
        CHECK(cudaFree(pointer));
    });
    report.extra("malloc_and_free_us", percentile(mallocs, 0.5));
    auto queries = timed(rounds, [&] { CHECK(cudaStreamQuery(stream)); });
    report.extra("query_us", percentile(queries, 0.5));
    return report.finish();
}
