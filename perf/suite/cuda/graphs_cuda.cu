// Graphs: nodes added by hand, capture, update of an instantiated graph, child and conditional nodes.
#include "report.h"

__global__ void add(int* x, int value) { x[threadIdx.x] += value; }
__global__ void multiply(int* x, int value) { x[threadIdx.x] *= value; }

__global__ void count_down(int* counter, cudaGraphConditionalHandle handle) {
    *counter -= 1;
    cudaGraphSetConditional(handle, *counter > 0);
}

int* data;
const int n = 128;

cudaGraphNode_t kernel_node(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, void (*kernel)(int*, int),
                            int value) {
    void* arguments[] = {&data, &value};
    cudaKernelNodeParams parameters = {};
    parameters.func = reinterpret_cast<void*>(kernel);
    parameters.gridDim = dim3(1);
    parameters.blockDim = dim3(n);
    parameters.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &parameters));
    return node;
}

void explicit_nodes(Report& report, cudaStream_t stream) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    std::vector<int> ramp(n), back(n);
    for (int i = 0; i < n; i++) ramp[i] = i;
    cudaGraphNode_t in, out, empty, clear;
    int* scratch = device_array<int>(n);
    cudaMemsetParams memset = {};
    memset.dst = scratch;
    memset.value = 0x01010101;
    memset.elementSize = 4;
    memset.width = n;
    memset.height = 1;
    CHECK(cudaGraphAddMemcpyNode1D(&in, graph, nullptr, 0, data, ramp.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &memset));
    auto a = kernel_node(graph, {in}, add, 5);
    auto b = kernel_node(graph, {a}, multiply, 3);
    cudaGraphNode_t both[] = {b, clear};
    CHECK(cudaGraphAddEmptyNode(&empty, graph, both, 2));
    CHECK(cudaGraphAddMemcpyNode1D(&out, graph, &empty, 1, back.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost));
    size_t nodes = 0, edges = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    report.exact("nodes", (long long)nodes);
    report.exact("edges", (long long)edges);
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(a, &type));
    report.exact("node_type", type);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("explicit", back[7] == (7 + 5) * 3 && back[127] == (127 + 5) * 3);
    report.bytes("memset_node", to_host(scratch, n));

    // One node of the instantiated graph gets other arguments.
    int value = 100;
    void* arguments[] = {&data, &value};
    cudaKernelNodeParams parameters = {};
    parameters.func = reinterpret_cast<void*>(add);
    parameters.gridDim = dim3(1);
    parameters.blockDim = dim3(n);
    parameters.kernelParams = arguments;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, a, &parameters));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("node_updated", back[7] == (7 + 100) * 3);
    // A disabled node does nothing.
    CHECK(cudaGraphNodeSetEnabled(exec, b, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("node_disabled", back[7] == 7 + 100);

    // As a child of another graph, and cloned.
    cudaGraph_t parent, clone;
    cudaGraphNode_t child;
    CHECK(cudaGraphCreate(&parent, 0));
    CHECK(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, graph));
    kernel_node(parent, {child}, add, 1000);
    cudaGraphExec_t parent_exec;
    CHECK(cudaGraphClone(&clone, parent));
    CHECK(cudaGraphInstantiate(&parent_exec, clone, 0));
    CHECK(cudaGraphLaunch(parent_exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("child_graph", to_host(data, n)[7] == (7 + 5) * 3 + 1000);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(parent_exec));
    for (auto each : {graph, parent, clone}) CHECK(cudaGraphDestroy(each));
    CHECK(cudaFree(scratch));
}

cudaGraph_t captured(cudaStream_t stream, cudaStream_t side, int value, cudaStreamCaptureMode mode) {
    cudaEvent_t fork, join;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(stream, mode));
    CHECK(cudaMemsetAsync(data, 0, 2 * n * sizeof(int), stream));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    add<<<1, n, 0, stream>>>(data, value);
    add<<<1, n, 0, side>>>(data + n, value + 1);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    multiply<<<1, n, 0, stream>>>(data + n, 2);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    return graph;
}

void capture_and_update(Report& report, cudaStream_t stream, cudaStream_t side) {
    cudaGraph_t graph = captured(stream, side, 4, cudaStreamCaptureModeGlobal);
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    report.exact("captured_nodes", (long long)nodes);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.bytes("captured", to_host(data, 2 * n));

    cudaGraph_t changed = captured(stream, side, 40, cudaStreamCaptureModeRelaxed);
    cudaGraphExecUpdateResultInfo info = {};
    CHECK(cudaGraphExecUpdate(exec, changed, &info));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    auto result = to_host(data, 2 * n);
    report.expect("updated", result[0] == 40 && result[n] == 82);

    // Another shape cannot be updated to, and says why.
    cudaGraph_t empty;
    CHECK(cudaGraphCreate(&empty, 0));
    report.exact("update_refused", cudaGraphExecUpdate(exec, empty, &info));
    report.exact("update_reason", info.result);
    cudaGetLastError();

    // What may not be done while capturing ends the capture.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    report.exact("capturing", status);
    report.exact("synchronize_in_capture", cudaStreamSynchronize(stream));
    cudaGetLastError();
    cudaGraph_t broken = nullptr;
    report.exact("broken_capture", cudaStreamEndCapture(stream, &broken));
    cudaGetLastError();
    report.expect("stream_works_again", cudaStreamSynchronize(stream) == cudaSuccess);

    std::vector<double> samples;
    for (int i = 0; i < 20; i++) {
        double started = now_us();
        for (int j = 0; j < 50; j++) CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        samples.push_back((now_us() - started) / 50);
    }
    report.extra("graph_launch_us", samples[10]);
    CHECK(cudaGraphExecDestroy(exec));
    for (auto each : {graph, changed, empty}) CHECK(cudaGraphDestroy(each));
}

void conditional(Report& report, cudaStream_t stream) {
    int start = 7, *counter = device_array<int>(1);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams parameters = {};
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = handle;
    parameters.conditional.type = cudaGraphCondTypeWhile;
    parameters.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters));
    cudaGraph_t body = parameters.conditional.phGraph_out[0];
    CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    add<<<1, n, 0, stream>>>(data, 1);
    count_down<<<1, 1, 0, stream>>>(counter, handle);
    cudaGraph_t same;
    CHECK(cudaStreamEndCapture(stream, &same));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaMemset(data, 0, n * sizeof(int)));
    CHECK(cudaMemcpy(counter, &start, sizeof start, cudaMemcpyHostToDevice));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("while_node", to_host(data, n)[3] == 7 && to_host(counter, 1)[0] == 0);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(counter));
}

void memory_nodes(Report& report, cudaStream_t stream) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    int* scratch;
    CHECK(cudaMallocAsync(&scratch, n * sizeof(int), stream));
    CHECK(cudaMemsetAsync(scratch, 0, n * sizeof(int), stream));
    add<<<1, n, 0, stream>>>(scratch, 9);
    CHECK(cudaMemcpyAsync(data, scratch, n * sizeof(int), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaFreeAsync(scratch, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("memory_nodes", to_host(data, n)[5] == 9);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(0));
}

void host_node(Report& report, cudaStream_t stream) {
    static int called;
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaHostNodeParams parameters = {};
    parameters.fn = [](void* pointer) { ++*static_cast<int*>(pointer); };
    parameters.userData = &called;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddHostNode(&node, graph, nullptr, 0, &parameters));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("host_node", called == 3);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

int main() {
    Report report("graphs_cuda");
    data = device_array<int>(2 * n);
    cudaStream_t stream, side;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&side));
    explicit_nodes(report, stream);
    capture_and_update(report, stream, side);
    memory_nodes(report, stream);
    host_node(report, stream);
    conditional(report, stream);
    return report.finish();
}
