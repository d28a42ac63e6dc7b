// Graphs: captured from streams, built by hand, updated and launched again.
#include "check.h"

__global__ void add(int *data, int amount) { atomicAdd(data, amount); }
__global__ void twice(int *data) { *data *= 2; }

static void count_up(void *counter) { ++*(int *)counter; }

static int read(int *device) {
    int value;
    OK(cudaMemcpy(&value, device, 4, cudaMemcpyDeviceToHost));
    return value;
}

int main() {
    int *data, counted = 0;
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    OK(cudaMalloc(&data, 8));
    OK(cudaMemset(data, 0, 8));
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamCreate(&side));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<1, 32, 0, stream>>>(data, 1);
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(side, fork));
    add<<<1, 1, 0, side>>>(data + 1, 7);
    twice<<<1, 1, 0, stream>>>(data);
    OK(cudaEventRecord(join, side));
    OK(cudaStreamWaitEvent(stream, join));
    OK(cudaLaunchHostFunc(stream, count_up, &counted));
    OK(cudaStreamEndCapture(stream, &graph));
    holds("nothing ran while it was captured", read(data) == 0 && counted == 0);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    holds("a captured graph runs three times", read(data) == (((32 * 2) + 32) * 2 + 32) * 2);
    holds("its side branch too", read(data + 1) == 21);
    holds("its host function too", counted == 3);
    size_t nodes = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    holds("it has four nodes", nodes == 4);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));

    cudaGraphNode_t set, first, second;
    int amount = 5;
    OK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill = {};
    fill.dst = data;
    fill.elementSize = 4;
    fill.width = 1;
    fill.height = 1;
    fill.value = 100;
    OK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &fill));
    void *arguments[] = {&data, &amount};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)add;
    kernel.gridDim = dim3(2);
    kernel.blockDim = dim3(3);
    kernel.kernelParams = arguments;
    OK(cudaGraphAddKernelNode(&first, graph, &set, 1, &kernel));
    void *only[] = {&data};
    cudaKernelNodeParams doubling = kernel;
    doubling.func = (void *)twice;
    doubling.gridDim = doubling.blockDim = dim3(1);
    doubling.kernelParams = only;
    OK(cudaGraphAddKernelNode(&second, graph, &first, 1, &doubling));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    holds("a graph built by hand", read(data) == (100 + 6 * 5) * 2);

    amount = 9;
    OK(cudaGraphExecKernelNodeSetParams(exec, first, &kernel));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    holds("parameters set in the executable", read(data) == (100 + 6 * 9) * 2);

    amount = 1;
    OK(cudaGraphKernelNodeSetParams(first, &kernel));
    cudaGraphExecUpdateResultInfo info;
    OK(cudaGraphExecUpdate(exec, graph, &info));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    holds("an update from the graph", read(data) == (100 + 6) * 2);

    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaError_t code = cudaStreamSynchronize(stream);
    answers("a synchronize during capture", cudaErrorStreamCaptureUnsupported, code);
    cudaGraph_t broken;
    answers("the capture is invalidated", cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &broken));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));

    // What a graph allocates has the same address in every launch, and may be freed behind each.
    int *captured, *added;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync((void **)&captured, 4, stream));
    OK(cudaMemsetAsync(captured, 0, 4, stream));
    add<<<1, 5, 0, stream>>>(captured, 2);
    OK(cudaStreamEndCapture(stream, &graph));
    cudaMemAllocNodeParams allocation = {};
    allocation.poolProps.allocType = cudaMemAllocationTypePinned;
    allocation.poolProps.location.type = cudaMemLocationTypeDevice;
    allocation.bytesize = 4;
    OK(cudaGraphAddMemAllocNode(&set, graph, nullptr, 0, &allocation));
    added = (int *)allocation.dptr;
    fill.dst = added;
    OK(cudaGraphAddMemsetNode(&first, graph, &set, 1, &fill));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    bool held = true, freed = true;
    for (int i = 0; i < 3; i++) {
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        held &= read(captured) == 10 && read(added) == 100;
        freed &= cudaFreeAsync(captured, stream) == cudaSuccess && cudaFreeAsync(added, stream) == cudaSuccess;
    }
    OK(cudaStreamSynchronize(stream));
    holds("a graph's allocations are there after each launch", held);
    holds("and are freed after each", freed);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    return verdict();
}
