// Graphs whose copies and host functions hand each other data through the application's memory.
#include "check.h"
#include <cstring>

__global__ void add(int *data, int amount) { data[threadIdx.x] += amount; }

static const int n = 1000;

// What a host function found in a buffer, and what it puts there.
struct Hands {
    int *buffer;
    int found_first, found_last;
    bool writes;
};

static void look(void *data) {
    auto *hands = (Hands *)data;
    hands->found_first = hands->buffer[0];
    hands->found_last = hands->buffer[n - 1];
    if (hands->writes) {
        for (int i = 0; i < n; i++) hands->buffer[i] = 500;
    }
}

static bool all(const int *buffer, int value) {
    for (int i = 0; i < n; i++) {
        if (buffer[i] != value) return false;
    }
    return true;
}

// Down, a host function that looks and writes, up again from another buffer, and down once more. Pageable memory is
// read when the graph is launched, before any host function of it runs.
static void there_and_back(const char *name, bool pageable, int *first, int *second, int *last) {
    int *device;
    cudaStream_t stream;
    OK(cudaMalloc(&device, n * 4));
    OK(cudaStreamCreate(&stream));
    for (int *buffer : {first, second, last}) {
        for (int i = 0; i < n; i++) buffer[i] = -1;
    }
    Hands sees = {first, 0, 0, false}, writes = {second, 0, 0, true};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    add<<<1, n, 0, stream>>>(device, 1);
    OK(cudaMemcpyAsync(first, device, n * 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaLaunchHostFunc(stream, look, &sees));
    OK(cudaLaunchHostFunc(stream, look, &writes));
    OK(cudaMemcpyAsync(device, second, n * 4, cudaMemcpyHostToDevice, stream));
    add<<<1, n, 0, stream>>>(device, 2);
    OK(cudaMemcpyAsync(last, device, n * 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));

    char what[100];
    int expected = 1;
    for (int round = 0; round < 2; round++) {
        if (round == 0) OK(cudaMemset(device, 0, n * 4));
        for (int i = 0; i < n; i++) second[i] = last[i] = 7 + round;
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        snprintf(what, sizeof what, "%s, round %d: a host function sees what the copy before it brought", name, round);
        holds(what, sees.found_first == expected && sees.found_last == expected && all(first, expected));
        snprintf(what, sizeof what, "%s, round %d: what no copy has written yet is the program's", name, round);
        holds(what, writes.found_first == 7 + round && writes.found_last == 7 + round);
        int up = pageable ? 7 + round : 500;
        snprintf(what, sizeof what, "%s, round %d: a copy reads what it is to read", name, round);
        holds(what, all(last, up + 2));
        // The second time the device holds what the first one left.
        expected = up + 3;
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(device));
}

// A copy that a graph does not make leaves the program's memory as it is.
static void disabled(const char *name, int *buffer) {
    int *device;
    cudaStream_t stream;
    OK(cudaMalloc(&device, n * 4));
    OK(cudaMemset(device, 0, n * 4));
    OK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, buffer, device, n * 4, cudaMemcpyDeviceToHost));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    char what[100];
    snprintf(what, sizeof what, "%s: a copy node brings the device's bytes", name);
    holds(what, all(buffer, 0));
    for (int i = 0; i < n; i++) buffer[i] = 9;
    OK(cudaGraphNodeSetEnabled(exec, node, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    snprintf(what, sizeof what, "%s: disabled, it does not", name);
    holds(what, all(buffer, 9));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(device));
}

// A graph inside another one copies what it would by itself. A launch of it cannot be captured.
static void inside(bool pageable, int *from, int *to) {
    int *device;
    cudaStream_t stream;
    OK(cudaMalloc(&device, n * 4));
    OK(cudaStreamCreate(&stream));
    cudaGraph_t inner, outer;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaMemcpyAsync(device, from, n * 4, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(to, device, n * 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamEndCapture(stream, &inner));
    OK(cudaGraphInstantiate(&exec, inner, 0));
    for (int i = 0; i < n; i++) from[i] = to[i] = -1;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    holds("a launch cannot be captured", cudaGraphLaunch(exec, stream) == cudaErrorStreamCaptureUnsupported);
    holds("and ends the capture", cudaStreamEndCapture(stream, &outer) == cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
    holds("and copies nothing", all(to, -1));
    OK(cudaGraphExecDestroy(exec));
    Hands writes = {from, 0, 0, true};
    cudaHostNodeParams host = {look, &writes};
    cudaGraphNode_t first, second;
    OK(cudaGraphCreate(&outer, 0));
    OK(cudaGraphAddHostNode(&first, outer, nullptr, 0, &host));
    OK(cudaGraphAddChildGraphNode(&second, outer, &first, 1, inner));
    OK(cudaGraphInstantiate(&exec, outer, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    holds("a graph inside another one copies its memory", all(to, pageable ? -1 : 500));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(inner));
    OK(cudaGraphDestroy(outer));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(device));
}

// Into a graph of the program's own a capture ends without handing it out.
static void into_a_graph() {
    int *device, value = 0;
    cudaStream_t stream;
    OK(cudaMalloc(&device, 4));
    OK(cudaMemset(device, 0, 4));
    OK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    add<<<1, 1, 0, stream>>>(device, 3);
    answers("a capture into a graph of one's own ends without an answer", cudaSuccess,
            cudaStreamEndCapture(stream, nullptr));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaMemcpyAsync(&value, device, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    holds("and the graph has what was captured", value == 3);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(device));
}

int main() {
    int *pageable[3], *pinned[3];
    for (int i = 0; i < 3; i++) {
        pageable[i] = (int *)malloc(n * 4);
        OK(cudaMallocHost(&pinned[i], n * 4));
    }
    there_and_back("pageable", true, pageable[0], pageable[1], pageable[2]);
    there_and_back("pinned", false, pinned[0], pinned[1], pinned[2]);
    disabled("pageable", pageable[0]);
    inside(true, pageable[0], pageable[1]);
    inside(false, pinned[0], pinned[1]);
    into_a_graph();
    return verdict();
}
