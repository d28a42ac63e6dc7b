// A profiler as PyTorch has one: what CUPTI's users see of calls, kernels, copies and graphs.
#include "check.h"
#include <algorithm>
#include <cstring>
#include <cuda.h>
#include <cupti.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>
#include <x86intrin.h>

#define FINE(call)                                                                                                     \
    do {                                                                                                               \
        CUptiResult code = (call);                                                                                     \
        if (code != CUPTI_SUCCESS) {                                                                                   \
            const char *text = "?";                                                                                    \
            cuptiGetResultString(code, &text);                                                                         \
            std::printf("FAIL %s:%d %s: %s\n", __FILE__, __LINE__, #call, text);                                       \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

__global__ void scale(float *data, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= factor;
}

__global__ void shift(float *data, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += by;
}

// Small, so that several are needed; several of them come back in one run.
static const size_t BUFFER = 4096;
static std::vector<std::pair<uint8_t *, size_t>> done;
static int outstanding = 0;

static void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *records) {
    *buffer = (uint8_t *)aligned_alloc(8, BUFFER);
    *size = BUFFER;
    *records = 0;
    outstanding++;
}

static void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    done.push_back({buffer, valid});
    outstanding--;
}

// As kineto's clock: the processor's, which counts neither nanoseconds nor from an epoch.
static uint64_t ticks() { return __rdtsc(); }

struct Seen {
    std::vector<CUpti_ActivityAPI> runtime, driver;
    std::vector<CUpti_ActivityKernel10> kernels;
    std::vector<CUpti_ActivityMemcpy6> copies;
    std::vector<CUpti_ActivityMemset4> sets;
    std::vector<CUpti_ActivityExternalCorrelation> external;
    bool aligned = true, known = true, external_first = true;

    const CUpti_ActivityAPI *call(uint32_t correlation) const {
        for (auto &c : runtime)
            if (c.correlationId == correlation) return &c;
        for (auto &c : driver)
            if (c.correlationId == correlation) return &c;
        return nullptr;
    }
    uint64_t outer(uint32_t correlation, CUpti_ExternalCorrelationKind kind) const {
        for (auto &e : external)
            if (e.correlationId == correlation && e.externalKind == kind) return e.externalId;
        return 0;
    }
    int calls(uint32_t cbid) const {
        int n = 0;
        for (auto &c : runtime) n += c.cbid == cbid;
        return n;
    }
};

// Everything that was handed over.
static Seen collect() {
    Seen seen;
    for (auto &[buffer, valid] : done) {
        CUpti_Activity *record = nullptr;
        CUptiResult code;
        while ((code = cuptiActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS) {
            seen.aligned &= (uintptr_t)record % 8 == 0;
            switch (record->kind) {
            case CUPTI_ACTIVITY_KIND_RUNTIME: seen.runtime.push_back(*(CUpti_ActivityAPI *)record); break;
            case CUPTI_ACTIVITY_KIND_DRIVER: seen.driver.push_back(*(CUpti_ActivityAPI *)record); break;
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
                seen.kernels.push_back(*(CUpti_ActivityKernel10 *)record);
                break;
            case CUPTI_ACTIVITY_KIND_MEMCPY: seen.copies.push_back(*(CUpti_ActivityMemcpy6 *)record); break;
            case CUPTI_ACTIVITY_KIND_MEMSET: seen.sets.push_back(*(CUpti_ActivityMemset4 *)record); break;
            case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
                auto *e = (CUpti_ActivityExternalCorrelation *)record;
                seen.external_first &= seen.call(e->correlationId) == nullptr;
                seen.external.push_back(*e);
                break;
            }
            default: seen.known = false;
            }
        }
        seen.known &= code == CUPTI_ERROR_MAX_LIMIT_REACHED;
        free(buffer);
    }
    done.clear();
    return seen;
}

static const CUpti_ActivityKind KINDS[] = {
    CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_OVERHEAD};

static void start() {
    FINE(cuptiActivityRegisterTimestampCallback(ticks));
    FINE(cuptiActivityRegisterCallbacks(requested, completed));
    for (auto kind : KINDS) FINE(cuptiActivityEnable(kind));
    FINE(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, 0));
    FINE(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent, 0));
}

static Seen stop() {
    OK(cudaDeviceSynchronize());
    FINE(cuptiActivityFlushAll(0));
    holds("a flush that is not the last leaves a buffer out", outstanding == 1 && !done.empty());
    for (auto kind : KINDS) FINE(cuptiActivityDisable(kind));
    FINE(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    holds("every buffer comes back", outstanding == 0);
    Seen seen = collect();
    holds("records are aligned and of known kinds", seen.aligned && seen.known);
    return seen;
}

static bool near(uint64_t start, uint64_t end, uint64_t from, uint64_t to) {
    return start <= end && from <= start && end <= to;
}

// On a node without CUPTI.
static int refused() {
    FINE(cuptiActivityRegisterCallbacks(requested, completed));
    FINE(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    FINE(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
    OK(cudaFree(nullptr));
    holds("a kind that the node cannot record is refused",
          cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) == CUPTI_ERROR_NOT_SUPPORTED);
    holds("one asked for before there was a node can be given up",
          cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
    holds("and the other one", cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY) == CUPTI_SUCCESS);
    float *data, there = 0;
    OK(cudaMalloc(&data, 4));
    OK(cudaMemset(data, 0, 4));
    shift<<<1, 1>>>(data, 1, 3.0f);
    OK(cudaMemcpy(&there, data, 4, cudaMemcpyDeviceToHost));
    holds("the program goes on", there == 3.0f);
    FINE(cuptiActivityFlushAll(0));
    Seen seen = collect();
    holds("without a record", seen.known && seen.kernels.empty() && seen.copies.empty() && seen.sets.empty());
    return verdict();
}

// What a subscriber is told of calls and graphs.
struct Told {
    std::vector<std::string> calls;
    std::string kernel;
    int paired = 0, graphs = 0, nodes = 0, clones = 0, execs = 0, ended = 0;
    uint32_t graph_id = 0, exec_id = 0, launched = 0, launch_correlation = 0;
    uint64_t node_id = 0;
    bool sound = true;
};

struct Watcher {
    int events[32];
    Told told;
};

static void resource(Told &told, CUpti_CallbackId id, const CUpti_ResourceData *data) {
    auto *graph = (const CUpti_GraphData *)data->resourceDescriptor;
    switch (id) {
    case CUPTI_CBID_RESOURCE_GRAPH_CREATED:
        told.graphs++;
        FINE(cuptiGetGraphId(graph->graph, &told.graph_id));
        break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
        told.nodes++;
        told.sound &= graph->graph && graph->nodeType == CU_GRAPH_NODE_TYPE_KERNEL;
        FINE(cuptiGetGraphNodeId(graph->node, &told.node_id));
        break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
        told.clones++;
        told.sound &= graph->node && graph->originalNode && graph->node != graph->originalNode;
        break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
        told.execs++;
        FINE(cuptiGetGraphExecId(graph->graphExec, &told.exec_id));
        break;
    case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING:
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING: told.ended++; break;
    }
}

static void api(Told &told, CUpti_CallbackDomain domain, const CUpti_CallbackData *data) {
    if (data->callbackSite == CUPTI_API_ENTER) {
        *data->correlationData = data->correlationId + 7ull;
        std::string name = data->functionName;
        told.calls.push_back(name);
        if (domain == CUPTI_CB_DOMAIN_DRIVER_API && name.find("cuLaunchKernel") == 0) {
            told.kernel = data->symbolName ? data->symbolName : "";
            told.launch_correlation = data->correlationId;
            // cudart 13 launches by cuLaunchKernelEx, whose first argument points to the grid.
            auto *ex = (const cuLaunchKernelEx_params *)data->functionParams;
            auto *plain = (const cuLaunchKernel_params *)data->functionParams;
            told.launched = name.find("Ex") != name.npos ? ex->config->gridDimX : plain->gridDimX;
        }
        told.sound &= data->functionParams && data->context;
    } else {
        told.paired += *data->correlationData == data->correlationId + 7ull;
        told.sound &= *(int *)data->functionReturnValue == 0;
    }
    // What the subscriber calls does not call back.
    int device;
    OK(cudaGetDevice(&device));
}

static void called_back(CUpti_SubscriberHandle subscriber, Told &told, float *data) {
    const CUpti_CallbackId graphs[] = {
        CUPTI_CBID_RESOURCE_GRAPH_CREATED,       CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
        CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,   CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
        CUPTI_CBID_RESOURCE_GRAPH_CLONED,        CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING,
        CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
    };
    const CUpti_CallbackId launches[] = {
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
        CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    };
    for (auto id : graphs) FINE(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id));
    for (auto id : launches) FINE(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id));
    const CUpti_CallbackId wait = CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020;
    FINE(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, wait));
    holds("a number that is no function is refused",
          cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, 100000) == CUPTI_ERROR_INVALID_PARAMETER);
    auto modules = cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED);
    holds("modules do not call back", modules == CUPTI_ERROR_NOT_SUPPORTED);
    FINE(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MARKER));
    FINE(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MARKER));

    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    told.sound = true;
    scale<<<5, 32, 0, stream>>>(data, 100, 1.0f);
    OK(cudaStreamSynchronize(stream));
    holds("a launch calls back with its kernel and its grid",
          told.kernel.find("scale") != std::string::npos && told.launched == 5);
    holds("a call of the runtime calls back",
          std::count(told.calls.begin(), told.calls.end(), "cudaStreamSynchronize") == 1);
    holds("entry and exit share a word", told.paired == 2 && told.calls.size() == 2);
    uint32_t correlation = told.launch_correlation;

    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    scale<<<6, 32, 0, stream>>>(data, 100, 1.0f);
    cudaGraph_t graph, clone;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphClone(&clone, graph));
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(clone));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    holds("graphs call back from beginning to end",
          told.graphs == 1 && told.nodes == 1 && told.clones == 1 && told.execs == 1 && told.ended == 3);
    holds("and have numbers", told.graph_id && told.exec_id && told.node_id && told.graph_id != told.exec_id);
    holds("what a callback is told is sound", told.sound);

    for (auto id : graphs) FINE(cuptiEnableCallback(0, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id));
    FINE(cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
    FINE(cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    size_t calls = told.calls.size();
    scale<<<5, 32>>>(data, 100, 1.0f);
    OK(cudaDeviceSynchronize());
    holds("nobody calls back who was not chosen", told.calls.size() == calls && correlation != 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "refused")) return refused();
    uint32_t version = 0;
    FINE(cuptiGetVersion(&version));
    holds("the version is the headers'", version == CUPTI_API_VERSION);
    CUpti_SubscriberHandle subscriber = nullptr, second = nullptr;
    auto callback = [](void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
        auto *watcher = (Watcher *)user;
        if (domain != CUPTI_CB_DOMAIN_RESOURCE) return api(watcher->told, domain, (const CUpti_CallbackData *)data);
        watcher->events[((const CUpti_ResourceData *)data)->context ? id : 0]++;
        resource(watcher->told, id, (const CUpti_ResourceData *)data);
    };
    Watcher watcher = {};
    int *events = watcher.events;
    FINE(cuptiSubscribe(&subscriber, (CUpti_CallbackFunc)callback, &watcher));
    FINE(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED));
    FINE(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING));
    holds("what never calls back is refused", cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_SYNCHRONIZE, 1) ==
                                                  CUPTI_ERROR_NOT_SUPPORTED);
    holds("and remembered once", cuptiGetLastError() == CUPTI_ERROR_NOT_SUPPORTED && cuptiGetLastError() == 0);
    FINE(cuptiEnableCallback(0, subscriber, CUPTI_CB_DOMAIN_SYNCHRONIZE, 1));
    holds("a second subscriber is refused", cuptiSubscribe(&second, (CUpti_CallbackFunc)callback, nullptr) ==
                                                CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    FINE(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));

    // Before there is a context, or even a driver.
    start();
    const int n = 100 * 256;
    std::vector<float> host(n, 1.0f);
    float *data;
    OK(cudaMalloc(&data, n * sizeof(float)));
    int device;
    OK(cudaGetDevice(&device));
    holds("the first call brings a buffer out", outstanding == 1);
    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));

    uint64_t from = ticks();
    FINE(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 41));
    FINE(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, 7));
    OK(cudaMemcpyAsync(data, host.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));
    FINE(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 42));
    scale<<<100, 256, 0, stream>>>(data, n, 2.0f);
    OK(cudaGetLastError());
    uint64_t last = 0;
    FINE(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last));
    holds("the innermost id is popped", last == 42);
    OK(cudaMemsetAsync(data, 0, 1000, stream));
    FINE(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, nullptr));
    FINE(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, nullptr));
    holds("an empty stack says so", cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                                          &last) == CUPTI_ERROR_QUEUE_EMPTY);
    OK(cudaMemcpyAsync(host.data(), data, n * sizeof(float), cudaMemcpyDeviceToHost, stream));

    // A call of the driver's, as Triton makes them.
    cudaFunction_t function;
    OK(cudaGetFuncBySymbol(&function, (const void *)shift));
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    OK(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &entry, 12000, cudaEnableDefault, &found));
    int count = n;
    float by = 1.0f;
    void *parameters[] = {&data, &count, &by};
    auto launch = (decltype(&cuLaunchKernel))entry;
    holds("the driver launches", launch(function, 10, 2, 1, 128, 1, 1, 0, stream, parameters, nullptr) == CUDA_SUCCESS);
    OK(cudaStreamSynchronize(stream));
    uint64_t to = ticks();
    Seen seen = stop();

    holds("every kernel is there", seen.kernels.size() == 2);
    holds("every copy is there", seen.copies.size() == 2);
    holds("the memset is there", seen.sets.size() == 1);
    for (auto &k : seen.kernels) {
        bool scaled = k.name && std::strstr(k.name, "scale");
        const CUpti_ActivityAPI *call = seen.call(k.correlationId);
        holds(scaled ? "kernel scale: its launch is there" : "kernel shift: its launch is there", call != nullptr);
        if (!call) continue;
        if (scaled) {
            holds("scale: the runtime launched it", call->kind == CUPTI_ACTIVITY_KIND_RUNTIME &&
                                                        call->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
            holds("scale: geometry", k.gridX == 100 && k.gridY == 1 && k.blockX == 256 && k.blockZ == 1);
            holds("scale: its ids", seen.outer(k.correlationId, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) == 42 &&
                                        seen.outer(k.correlationId, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1) == 7);
        } else {
            holds("shift: the driver launched it", k.name && std::strstr(k.name, "shift") &&
                                                       call->kind == CUPTI_ACTIVITY_KIND_DRIVER &&
                                                       call->cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
            holds("shift: geometry", k.gridX == 10 && k.gridY == 2 && k.blockX == 128);
            holds("shift: no ids", seen.outer(k.correlationId, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) == 0);
        }
        holds("kernel: runs after its launch began and before the wait ended", near(k.start, k.end, call->start, to));
    }
    for (auto &c : seen.copies) {
        bool in = c.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
        const CUpti_ActivityAPI *call = seen.call(c.correlationId);
        holds(in ? "copy in: kind and bytes" : "copy out: kind and bytes",
              (in || c.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH) && c.bytes == n * sizeof(float));
        holds("copy: its call", call && call->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
        holds("copy: its id", seen.outer(c.correlationId, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) == (in ? 41 : 0));
        holds("copy: time", near(c.start, c.end, from, to));
    }
    for (auto &s : seen.sets) {
        const CUpti_ActivityAPI *call = seen.call(s.correlationId);
        holds("memset: bytes and value", s.bytes == 1000 && s.value == 0);
        holds("memset: its call", call && call->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
        holds("memset: its id", seen.outer(s.correlationId, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) == 41);
    }
    bool ordered = true, mine = true;
    for (auto *calls : {&seen.runtime, &seen.driver}) {
        for (auto &c : *calls) {
            ordered &= c.start <= c.end && c.start > 0;
            mine &= c.processId == (uint32_t)getpid() && c.threadId == (uint32_t)syscall(SYS_gettid);
        }
    }
    holds("calls end after they begin", ordered);
    holds("calls are of this thread", mine);
    holds("calls are seen once", seen.calls(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020) == 1 &&
                                     seen.calls(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020) == 2 &&
                                     seen.calls(CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020) == 1);
    // Of what it does before it says that it was called (it starts, and finds a kernel) the driver's calls are seen.
    int launches = 0, inside = 0;
    for (auto &c : seen.driver) {
        launches += c.cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
        inside += c.cbid == CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2 || c.cbid == CUPTI_DRIVER_TRACE_CBID_cuStreamCreate ||
                  c.cbid == CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2 ||
                  c.cbid == CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize;
    }
    holds("what the runtime does inside is its own", launches == 1 && inside == 0);
    holds("a call that was chosen out is not seen", seen.calls(CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020) == 0);
    holds("ids come before their calls", seen.external_first);

    // Nothing while it is off.
    scale<<<1, 1, 0, stream>>>(data, 1, 2.0f);
    OK(cudaStreamSynchronize(stream));

    // Again, in a session that is there, with more than fits a buffer.
    start();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    scale<<<3, 32, 0, stream>>>(data, 96, 2.0f);
    shift<<<5, 32, 0, stream>>>(data, 96, 1.0f);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphLaunch(executable, stream));
    for (int i = 0; i < 200; i++) scale<<<1, 32, 0, stream>>>(data, 32, 1.0f);
    answers("a call that fails", cudaErrorInvalidValue, cudaMemcpy(nullptr, nullptr, 4, cudaMemcpyHostToDevice));
    seen = stop();
    int nodes = 0, plain = 0;
    for (auto &k : seen.kernels) {
        const CUpti_ActivityAPI *call = seen.call(k.correlationId);
        nodes += call && call->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 &&
                 (k.gridX == 3 || k.gridX == 5) && call->start <= k.start;
        plain += call && call->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 && call->start <= k.start;
    }
    holds("a graph's kernels belong to its launch", nodes == 2);
    holds("all kernels of many buffers are there", plain == 200 && seen.kernels.size() == 202);
    bool failed = false;
    for (auto &c : seen.runtime) {
        failed |= c.cbid == CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020 && c.returnValue == cudaErrorInvalidValue;
    }
    holds("a failed call has its result", failed);
    size_t dropped = 1;
    FINE(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped));
    holds("nothing is dropped", dropped == 0);

    called_back(subscriber, watcher.told, data);

    holds("a context began", events[CUPTI_CBID_RESOURCE_CONTEXT_CREATED] == 1);
    OK(cudaDeviceReset());
    holds("and ended", events[CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING] == 1 && events[0] == 0);
    FINE(cuptiUnsubscribe(subscriber));

    // Without a callback, and finalised before it is unsubscribed, as JAX's Mosaic does.
    FINE(cuptiSubscribe(&subscriber, nullptr, nullptr));
    FINE(cuptiFinalize());
    FINE(cuptiUnsubscribe(subscriber));
    const char *words = nullptr;
    FINE(cuptiGetErrorMessage(CUPTI_ERROR_INVALID_KIND, &words));
    holds("an error has words", words && strlen(words) > 8);
    holds("what is no error has none", cuptiGetErrorMessage((CUptiResult)12345, &words) ==
                                           CUPTI_ERROR_INVALID_PARAMETER);
    return verdict();
}
