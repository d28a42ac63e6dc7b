// Streams, events, pinned memory and callbacks.
#include "check.h"
#include <vector>

__global__ void scale(int *data, int n, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * factor + 1;
}

static void count_up(void *counter) { ++*(int *)counter; }

static void note(cudaStream_t, cudaError_t status, void *into) { *(int *)into = status == cudaSuccess ? 1 : -1; }

int main() {
    const int n = 4096, streams = 4;
    cudaStream_t stream[streams];
    int *pinned, *device;
    OK(cudaMallocHost(&pinned, streams * n * sizeof(int)));
    OK(cudaMalloc(&device, streams * n * sizeof(int)));
    for (int i = 0; i < streams * n; i++) pinned[i] = i;
    for (int s = 0; s < streams; s++) OK(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
    for (int s = 0; s < streams; s++) {
        int *host = pinned + s * n, *part = device + s * n;
        OK(cudaMemcpyAsync(part, host, n * sizeof(int), cudaMemcpyHostToDevice, stream[s]));
        scale<<<n / 256, 256, 0, stream[s]>>>(part, n, s + 2);
        OK(cudaMemcpyAsync(host, part, n * sizeof(int), cudaMemcpyDeviceToHost, stream[s]));
    }
    for (int s = 0; s < streams; s++) OK(cudaStreamSynchronize(stream[s]));
    bool equal = true;
    for (int i = 0; i < streams * n; i++) equal = equal && pinned[i] == i * (i / n + 2) + 1;
    holds("four streams work on their parts", equal);

    cudaEvent_t begin, end, fence;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventCreateWithFlags(&fence, cudaEventDisableTiming));
    OK(cudaMemset(device, 0, 4));
    OK(cudaDeviceSynchronize());
    OK(cudaEventRecord(begin, stream[0]));
    scale<<<1, 1, 0, stream[0]>>>(device, 1, 5);
    OK(cudaEventRecord(fence, stream[0]));
    OK(cudaStreamWaitEvent(stream[1], fence));
    scale<<<1, 1, 0, stream[1]>>>(device, 1, 5);
    OK(cudaEventRecord(end, stream[1]));
    OK(cudaEventSynchronize(end));
    float milliseconds = -1;
    OK(cudaEventElapsedTime(&milliseconds, begin, end));
    int value;
    OK(cudaMemcpy(&value, device, 4, cudaMemcpyDeviceToHost));
    holds("an event orders two streams", value == 6);
    holds("time does not run backwards", milliseconds >= 0);
    cudaError_t untimed = cudaEventElapsedTime(&milliseconds, begin, fence);
    answers("elapsed time without timing", cudaErrorInvalidResourceHandle, untimed);

    int counted = 0, noted = 0;
    for (int i = 0; i < 10; i++) OK(cudaLaunchHostFunc(stream[2], count_up, &counted));
    OK(cudaStreamAddCallback(stream[2], note, &noted, 0));
    OK(cudaStreamSynchronize(stream[2]));
    holds("host functions run in order", counted == 10);
    holds("a stream callback is told success", noted == 1);

    int least, greatest, priority;
    cudaStream_t urgent;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    OK(cudaStreamGetPriority(urgent, &priority));
    holds("a stream keeps its priority", priority == greatest);
    OK(cudaStreamDestroy(urgent));

    OK(cudaStreamQuery(stream[0]));
    scale<<<1, 1>>>(device, 1, 2);
    OK(cudaMemcpy(&value, device, 4, cudaMemcpyDeviceToHost));
    holds("the default stream", value == 13);
    for (int s = 0; s < streams; s++) OK(cudaStreamDestroy(stream[s]));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(device));
    return verdict();
}
