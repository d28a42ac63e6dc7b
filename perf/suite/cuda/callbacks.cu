// Host callbacks run in the client, in stream order, with its own memory at hand.
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "report.h"

__global__ void set(int* x, int value) { *x = value; }

struct Seen {
    std::mutex lock;
    std::vector<int> order;
    int* pinned;
    std::atomic<int> errors{0};
    pid_t pid = 0;
};

struct Step {
    Seen* seen;
    int number;
};

void note(void* pointer) {
    auto* step = static_cast<Step*>(pointer);
    std::lock_guard<std::mutex> guard(step->seen->lock);
    // The copy before it in the stream has arrived by now.
    step->seen->order.push_back(step->number * 1000 + *step->seen->pinned);
    step->seen->pid = getpid();
}

void CUDART_CB note_status(cudaStream_t, cudaError_t status, void* pointer) {
    if (status != cudaSuccess) static_cast<Step*>(pointer)->seen->errors++;
    note(pointer);
}

struct Together {
    std::atomic<int> running{0}, most{0};
};

void linger(void* pointer) {
    auto* together = static_cast<Together*>(pointer);
    int now = ++together->running, most = together->most;
    while (now > most && !together->most.compare_exchange_weak(most, now)) {}
    usleep(500);
    --together->running;
}

int main() {
    Report report("callbacks");
    Seen seen;
    CHECK(cudaMallocHost(&seen.pinned, sizeof(int)));
    int *x = device_array<int>(1), *y = device_array<int>(1);
    cudaStream_t stream, other;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    std::vector<Step> steps(20);
    for (int i = 0; i < 20; i++) {
        steps[i] = {&seen, i};
        set<<<1, 1, 0, stream>>>(x, i * 10);
        CHECK(cudaMemcpyAsync(seen.pinned, x, sizeof(int), cudaMemcpyDeviceToHost, stream));
        if (i % 2)
            CHECK(cudaLaunchHostFunc(stream, note, &steps[i]));
        else
            CHECK(cudaStreamAddCallback(stream, note_status, &steps[i], 0));
    }
    CHECK(cudaStreamSynchronize(stream));
    bool right = seen.order.size() == 20;
    for (int i = 0; right && i < 20; i++) right &= seen.order[i] == i * 1000 + i * 10;
    report.expect("in_order", right);
    report.expect("same_process", seen.pid == getpid());
    report.exact("errors", seen.errors.load());

    // The stream waits for the callback, other streams do not.
    static std::atomic<bool> open{false};
    CHECK(cudaLaunchHostFunc(stream, [](void*) { while (!open) std::this_thread::yield(); }, nullptr));
    set<<<1, 1, 0, stream>>>(x, 1234);
    report.exact("held_up", cudaStreamQuery(stream));
    set<<<1, 1, 0, other>>>(y, 5);
    CHECK(cudaStreamSynchronize(other));
    report.exact("still_held_up", cudaStreamQuery(stream));
    open = true;
    CHECK(cudaStreamSynchronize(stream));
    report.expect("after", to_host(x, 1)[0] == 1234);

    // Many in a row, all run by the time the stream is done.
    std::atomic<int> counted{0};
    double started = now_us();
    for (int i = 0; i < 500; i++)
        CHECK(cudaLaunchHostFunc(other, [](void* pointer) { ++*static_cast<std::atomic<int>*>(pointer); }, &counted));
    CHECK(cudaStreamSynchronize(other));
    report.extra("callback_us", (now_us() - started) / 500);
    report.exact("counted", counted.load());

    // Of eight streams: CUDA leaves open how many run at a time, and programs may rely on what the driver does.
    Together together;
    std::vector<cudaStream_t> streams(8);
    for (auto& each : streams) CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
    for (int round = 0; round < 20; round++) {
        for (auto each : streams) {
            set<<<1, 1, 0, each>>>(y, round);
            CHECK(cudaLaunchHostFunc(each, linger, &together));
        }
        // Every other round is waited for without a call, so that nothing else is under way.
        while (round % 2 && together.running) usleep(100);
    }
    CHECK(cudaDeviceSynchronize());
    report.exact("at_a_time", together.most.load());
    return report.finish();
}
