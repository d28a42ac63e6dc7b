// Two GPUs in one process: each has its own memory, streams, events, symbols and errors, and they reach each other's.
// On a machine with one it says so, and how a second is refused.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "report.h"

// A section that cannot go on says where, and the others still run.
#undef CHECK
#define CHECK(call)                                                                                     \
    do {                                                                                                \
        cudaError_t error_ = (call);                                                                    \
        if (error_ != cudaSuccess) throw std::to_string(__LINE__) + ": " #call ": " + cudaGetErrorName(error_); \
    } while (0)

template <typename Section, typename... Arguments>
static void run(Report& report, const char* name, Section section, Arguments... arguments) {
    try {
        section(report, arguments...);
    } catch (const std::string& where) {
        fprintf(stderr, "%s, line %s\n", name, where.c_str());
        cudaGetLastError();
        report.expect(name, false);
    }
}

__device__ int own;
__constant__ int factor;

__global__ void fill(int* x, int n, int value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value + i;
}

__global__ void add(int* to, const int* from, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] += from[i];
}

__global__ void scale(int* x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = x[i] * factor + own;
}

__global__ void count_up(int* counter) { atomicAdd_system(counter, 1); }

__global__ void say(int device) { printf("device %d says so\n", device); }

const int n = 1 << 16;

static std::vector<int> expected(int first, int times = 1) {
    std::vector<int> v(n);
    for (int i = 0; i < n; i++) v[i] = (first + i) * times;
    return v;
}

// What an error of the second device leaves behind must not be taken for a later call's.
static std::string name_of(cudaError_t error) {
    cudaGetLastError();
    return cudaGetErrorName(error);
}

struct Device {
    int ordinal;
    int *a, *b;
    cudaStream_t stream;
    cudaEvent_t event;

    explicit Device(int which) : ordinal(which) {
        CHECK(cudaSetDevice(which));
        a = device_array<int>(n);
        b = device_array<int>(n);
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&event));
        // The arrays are cleared on another stream.
        CHECK(cudaDeviceSynchronize());
    }
    void use() const { CHECK(cudaSetDevice(ordinal)); }
};

static void alone(Report& report) {
    int can = -1;
    report.exact("second_device", cudaSetDevice(1));
    report.exact("peer_of_no_device", cudaDeviceCanAccessPeer(&can, 0, 1));
    report.exact("enable_no_device", cudaDeviceEnablePeerAccess(1, 0));
}

static void what_they_are(Report& report) {
    cudaDeviceProp zero, one;
    CHECK(cudaGetDeviceProperties(&zero, 0));
    CHECK(cudaGetDeviceProperties(&one, 1));
    report.expect("names", std::string(zero.name) == one.name);
    report.expect("uuids_differ", memcmp(&zero.uuid, &one.uuid, sizeof zero.uuid) != 0);
    report.expect("buses_differ", zero.pciBusID != one.pciBusID || zero.pciDeviceID != one.pciDeviceID ||
                                      zero.pciDomainID != one.pciDomainID);
    char bus[32];
    int by_bus = -1, can = -1, value = -1;
    CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 1));
    CHECK(cudaDeviceGetByPCIBusId(&by_bus, bus));
    report.exact("by_bus", by_bus);
    for (int from = 0; from < 2; from++) {
        for (int to = 0; to < 2; to++) {
            CHECK(cudaDeviceCanAccessPeer(&can, from, to));
            report.exact("can_access_" + std::to_string(from) + std::to_string(to), can);
        }
    }
    const std::pair<const char*, cudaDeviceP2PAttr> attributes[] = {
        {"rank", cudaDevP2PAttrPerformanceRank},
        {"access", cudaDevP2PAttrAccessSupported},
        {"atomics", cudaDevP2PAttrNativeAtomicSupported},
        {"arrays", cudaDevP2PAttrCudaArrayAccessSupported},
    };
    for (auto [name, attribute] : attributes) {
        cudaError_t result = cudaDeviceGetP2PAttribute(&value, attribute, 0, 1);
        report.exact(std::string("p2p_") + name, result == cudaSuccess ? std::to_string(value) : name_of(result));
    }
    report.exact("p2p_of_itself", name_of(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 1, 1)));
    report.exact("no_such_device", name_of(cudaSetDevice(100)));
}

static void each_its_own(Report& report, Device* devices) {
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        int value = 100 * (d + 1), times = d + 2;
        CHECK(cudaMemcpyToSymbol(own, &value, sizeof value));
        CHECK(cudaMemcpyToSymbol(factor, &times, sizeof times));
        fill<<<32, 128, 0, devices[d].stream>>>(devices[d].a, n, d);
        scale<<<1, 256, 0, devices[d].stream>>>(devices[d].a, n);
    }
    for (int d = 1; d >= 0; d--) {
        devices[d].use();
        CHECK(cudaStreamSynchronize(devices[d].stream));
        auto got = to_host(devices[d].a, n);
        report.expect("symbols_" + std::to_string(d), got[7] == (d + 7) * (d + 2) + 100 * (d + 1));
        cudaPointerAttributes where;
        CHECK(cudaPointerGetAttributes(&where, devices[d].a + 5));
        report.exact("ordinal_" + std::to_string(d), where.device * 10 + where.type);
        void *symbol, *other;
        CHECK(cudaGetSymbolAddress(&symbol, own));
        CHECK(cudaSetDevice(1 - d));
        CHECK(cudaGetSymbolAddress(&other, own));
        report.expect("symbol_per_device_" + std::to_string(d), symbol != other);
    }
    // Whose memory it is does not depend on who is current.
    devices[0].use();
    std::vector<int> sent = expected(11);
    CHECK(cudaMemcpy(devices[1].b, sent.data(), n * 4, cudaMemcpyHostToDevice));
    report.expect("copy_from_elsewhere", to_host(devices[1].b, n) == sent);
    // A memset of it needs access, and is refused at once.
    report.exact("memset_from_elsewhere", name_of(cudaMemset(devices[1].a, 0x21, 64)));
    report.exact("memset_async_from_elsewhere", name_of(cudaMemsetAsync(devices[1].a, 0x21, 64, devices[0].stream)));
    report.exact("after_that", name_of(cudaDeviceSynchronize()));
    // cuMemGetInfo is the current device's.
    size_t before[2], after[2], total;
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaMemGetInfo(&before[d], &total));
    }
    void* big;
    CHECK(cudaMalloc(&big, 256 << 20));
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaMemGetInfo(&after[d], &total));
    }
    report.expect("memory_info", before[1] - after[1] >= (256u << 20) && before[0] - after[0] < (128u << 20));
    // Freed while the other is current.
    devices[0].use();
    CHECK(cudaFree(big));
}

static void mistakes(Report& report, Device* devices) {
    devices[0].use();
    fill<<<1, 32, 0, devices[1].stream>>>(devices[1].a, 32, 5);
    report.exact("launch_on_others_stream", name_of(cudaGetLastError()));
    report.exact("and_what_came_of_it", name_of(cudaStreamSynchronize(devices[1].stream)));
    report.exact("record_on_others_stream", name_of(cudaEventRecord(devices[0].event, devices[1].stream)));
    report.exact("query_others_stream", name_of(cudaStreamQuery(devices[1].stream)));
    report.exact("wait_for_others_stream", name_of(cudaStreamSynchronize(devices[1].stream)));
    CHECK(cudaEventRecord(devices[0].event, devices[0].stream));
    devices[1].use();
    CHECK(cudaEventRecord(devices[1].event, devices[1].stream));
    CHECK(cudaEventSynchronize(devices[0].event));
    CHECK(cudaEventSynchronize(devices[1].event));
    float ms = 0;
    report.exact("time_between_devices", name_of(cudaEventElapsedTime(&ms, devices[0].event, devices[1].event)));
    report.exact("no_peer_yet", name_of(cudaDeviceDisablePeerAccess(0)));
    report.exact("peer_of_itself", name_of(cudaDeviceEnablePeerAccess(1, 0)));
    report.exact("peer_flags", name_of(cudaDeviceEnablePeerAccess(0, 1)));
    CHECK(cudaDeviceSynchronize());
}

static void copies(Report& report, Device* devices, const char* when) {
    auto named = [&](const char* what) { return std::string(what) + "_" + when; };
    for (int d = 1; d >= 0; d--) {
        devices[d].use();
        fill<<<32, 128>>>(devices[d].a, n, 1000 * d);
        CHECK(cudaMemset(devices[d].b, 0, n * 4));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaMemcpyPeer(devices[1].b, 1, devices[0].a, 0, n * 4));
    report.expect(named("peer"), to_host(devices[1].b, n) == expected(0));
    CHECK(cudaMemcpy(devices[0].b, devices[1].a, n * 4, cudaMemcpyDefault));
    report.expect(named("by_address"), to_host(devices[0].b, n) == expected(1000));
    CHECK(cudaMemset(devices[0].b, 0, n * 4));
    CHECK(cudaDeviceSynchronize());
    // On a stream of the device that is not current: to and from pinned memory, pageable memory, and as one number.
    const int many = 1 << 20;
    std::vector<int> up(many), down(many, -1);
    for (int i = 0; i < many; i++) up[i] = 3 * i;
    int *there, *pinned;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&there, many * 4));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMallocHost(&pinned, many * 4));
    CHECK(cudaMemcpyAsync(there, up.data(), many * 4, cudaMemcpyHostToDevice, devices[1].stream));
    CHECK(cudaMemcpyAsync(pinned, there, many * 4, cudaMemcpyDeviceToHost, devices[1].stream));
    CHECK(cudaMemcpyAsync(down.data(), there, many * 4, cudaMemcpyDeviceToHost, devices[1].stream));
    CHECK(cudaStreamSynchronize(devices[1].stream));
    report.expect(named("others_stream"), down == up && std::equal(up.begin(), up.end(), pinned));
    CHECK(cudaMemcpyAsync(pinned, there + 7, 4, cudaMemcpyDeviceToHost, devices[1].stream));
    CHECK(cudaStreamSynchronize(devices[1].stream));
    report.exact(named("a_number"), pinned[0]);
    // The device's own wait knows nothing of it, and does no harm.
    CHECK(cudaMemcpyAsync(pinned, there, many * 4, cudaMemcpyDeviceToHost, devices[1].stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamSynchronize(devices[1].stream));
    CHECK(cudaFree(there));
    CHECK(cudaFreeHost(pinned));
    // On a stream of the one that reads, and of the one that writes.
    CHECK(cudaMemcpyPeerAsync(devices[0].b, 0, devices[1].a, 1, n * 4, devices[1].stream));
    CHECK(cudaStreamSynchronize(devices[1].stream));
    report.expect(named("peer_async"), to_host(devices[0].b, n) == expected(1000));
    devices[0].use();
    CHECK(cudaMemset(devices[0].b, 0, n * 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyAsync(devices[0].b, devices[1].a, n * 4, cudaMemcpyDeviceToDevice, devices[0].stream));
    CHECK(cudaStreamSynchronize(devices[0].stream));
    report.expect(named("async_by_address"), to_host(devices[0].b, n) == expected(1000));
    // Rows and boxes.
    CHECK(cudaMemset(devices[0].b, 0, n * 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy2D(devices[0].b, 1024, devices[1].a, 512, 256, 64, cudaMemcpyDefault));
    auto rows = to_host(devices[0].b, n);
    report.expect(named("rows"), rows[256 * 63 + 63] == 1000 + 128 * 63 + 63 && rows[64] == 0);
    cudaMemcpy3DPeerParms box = {};
    box.srcDevice = 1;
    box.srcPtr = make_cudaPitchedPtr(devices[1].a, 256, 64, 16);
    box.srcPos = make_cudaPos(16, 2, 1);
    box.dstDevice = 0;
    box.dstPtr = make_cudaPitchedPtr(devices[0].b, 256, 64, 16);
    box.extent = make_cudaExtent(64, 4, 3);
    CHECK(cudaMemset(devices[0].b, 0, n * 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy3DPeer(&box));
    auto boxes = to_host(devices[0].b, n);
    report.expect(named("box"), boxes[(1 * 16 + 3) * 64 + 15] == 1000 + ((1 + 1) * 16 + 2 + 3) * 64 + 4 + 15);
    report.bytes(named("box_bytes"), boxes);
}

static void streams(Report& report, Device* devices) {
    // A chain that goes to and fro: each step waits for what the other device did before.
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaMemset(devices[d].a, 0, n * 4));
        fill<<<32, 128>>>(devices[d].b, n, d);
        CHECK(cudaDeviceSynchronize());
    }
    for (int step = 0; step < 100; step++) {
        Device &here = devices[step % 2], &there = devices[1 - step % 2];
        here.use();
        if (step > 0) {
            CHECK(cudaStreamWaitEvent(here.stream, there.event, 0));
            CHECK(cudaMemcpyPeerAsync(here.a, here.ordinal, there.a, there.ordinal, n * 4, here.stream));
        }
        add<<<32, 128, 0, here.stream>>>(here.a, here.b, n);
        CHECK(cudaEventRecord(here.event, here.stream));
    }
    CHECK(cudaEventSynchronize(devices[1].event));
    std::vector<int> sum(n);
    for (int i = 0; i < n; i++) sum[i] = 50 * i + 50 * (1 + i);
    report.expect("to_and_fro", to_host(devices[1].a, n) == sum);

    // Pinned memory belongs to no device.
    int *pinned, *device_side;
    CHECK(cudaHostAlloc(&pinned, n * 4, cudaHostAllocPortable));
    std::vector<int> registered(1 << 18, 0);
    CHECK(cudaHostRegister(registered.data(), registered.size() * 4, cudaHostRegisterPortable));
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaHostGetDevicePointer(&device_side, pinned, 0));
        fill<<<32, 128, 0, devices[d].stream>>>(device_side + d * (n / 2), n / 2, 7 + d);
        fill<<<32, 128, 0, devices[d].stream>>>(registered.data() + d * (1 << 17), 1 << 17, 70 + d);
    }
    for (int d = 0; d < 2; d++) CHECK(cudaStreamSynchronize(devices[d].stream));
    report.expect("pinned", pinned[1] == 8 && pinned[n / 2 + 1] == 9);
    report.expect("registered", registered[1] == 71 && registered[(1 << 17) + 1] == 72);
    // Both at once, up and down.
    for (int d = 0; d < 2; d++) {
        CHECK(cudaMemcpyAsync(devices[d].a, pinned, n * 4, cudaMemcpyHostToDevice, devices[d].stream));
    }
    for (int d = 0; d < 2; d++) CHECK(cudaStreamSynchronize(devices[d].stream));
    report.expect("pinned_to_both", to_host(devices[0].a, n) == to_host(devices[1].a, n));
    CHECK(cudaHostUnregister(registered.data()));
    CHECK(cudaFreeHost(pinned));

    int called = 0;
    devices[1].use();
    CHECK(cudaLaunchHostFunc(devices[1].stream, [](void* p) { ++*static_cast<int*>(p); }, &called));
    CHECK(cudaStreamSynchronize(devices[1].stream));
    report.exact("host_function", called);
    say<<<1, 1, 0, devices[1].stream>>>(1);
    CHECK(cudaStreamSynchronize(devices[1].stream));

    // A thread has a device of its own.
    int in_thread[2] = {-1, -1};
    std::vector<int> got[2];
    std::vector<std::thread> threads;
    for (int d = 0; d < 2; d++) {
        threads.emplace_back([&, d] {
            CHECK(cudaGetDevice(&in_thread[d]));
            devices[d].use();
            for (int round = 0; round < 50; round++) {
                fill<<<32, 128, 0, devices[d].stream>>>(devices[d].a, n, round * (d + 1));
                CHECK(cudaStreamSynchronize(devices[d].stream));
            }
            got[d] = to_host(devices[d].a, n);
        });
    }
    for (auto& thread : threads) thread.join();
    report.exact("new_threads_device", in_thread[0] * 10 + in_thread[1]);
    report.expect("threads", got[0] == expected(49) && got[1] == expected(98));
}

static void peers(Report& report, Device* devices) {
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaDeviceEnablePeerAccess(1 - d, 0));
        report.exact("enabled_twice_" + std::to_string(d), name_of(cudaDeviceEnablePeerAccess(1 - d, 0)));
        fill<<<32, 128>>>(devices[d].a, n, 100 * d);
        CHECK(cudaMemset(devices[d].b, 0, n * 4));
        CHECK(cudaDeviceSynchronize());
    }
    // Device 0 reads what device 1 has, and writes into it.
    devices[0].use();
    add<<<32, 128, 0, devices[0].stream>>>(devices[0].b, devices[1].a, n);
    add<<<32, 128, 0, devices[0].stream>>>(devices[1].b, devices[0].a, n);
    CHECK(cudaStreamSynchronize(devices[0].stream));
    report.expect("reads_peer", to_host(devices[0].b, n) == expected(100));
    report.expect("writes_peer", to_host(devices[1].b, n) == expected(0));
    // Both count in one place.
    CHECK(cudaMemset(devices[1].a, 0, 4));
    CHECK(cudaDeviceSynchronize());
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        count_up<<<10, 100, 0, devices[d].stream>>>(devices[1].a);
    }
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaStreamSynchronize(devices[d].stream));
    }
    report.exact("atomics", to_host(devices[1].a, 1)[0]);

    // Now it can be set from here.
    devices[0].use();
    report.exact("memset_of_peer", name_of(cudaMemset(devices[1].a, 0x21, 64)));
    CHECK(cudaDeviceSynchronize());
    report.exact("set", to_host(devices[1].a, 1)[0]);

    // Pools and mapped memory have their own access.
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 1));
    cudaMemLocation zero = {cudaMemLocationTypeDevice, 0};
    cudaMemAccessFlags flags;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &zero));
    report.exact("pool_access_before", flags);
    cudaMemAccessDesc access = {zero, cudaMemAccessFlagsProtReadWrite};
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    CHECK(cudaMemPoolGetAccess(&flags, pool, &zero));
    report.exact("pool_access_after", flags);
    devices[1].use();
    int* pooled;
    CHECK(cudaMallocAsync(&pooled, n * 4, devices[1].stream));
    fill<<<32, 128, 0, devices[1].stream>>>(pooled, n, 5);
    CHECK(cudaEventRecord(devices[1].event, devices[1].stream));
    cudaPointerAttributes where;
    CHECK(cudaPointerGetAttributes(&where, pooled));
    report.exact("pooled_ordinal", where.device);
    devices[0].use();
    CHECK(cudaStreamWaitEvent(devices[0].stream, devices[1].event, 0));
    CHECK(cudaMemsetAsync(devices[0].b, 0, n * 4, devices[0].stream));
    add<<<32, 128, 0, devices[0].stream>>>(devices[0].b, pooled, n);
    CHECK(cudaStreamSynchronize(devices[0].stream));
    report.expect("pooled_by_peer", to_host(devices[0].b, n) == expected(5));
    devices[1].use();
    CHECK(cudaFreeAsync(pooled, devices[1].stream));
    CHECK(cudaStreamSynchronize(devices[1].stream));
}

static void mapped(Report& report, Device* devices) {
    auto create = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
    auto reserve = driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
    auto map = driver_function<decltype(&cuMemMap)>("cuMemMap");
    auto allow = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");
    auto allowed = driver_function<decltype(&cuMemGetAccess)>("cuMemGetAccess");
    auto unmap = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap");
    auto release = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
    auto unreserve = driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree");
    const size_t part = 2 << 20;
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle handles[2];
    report.exact("reserve", reserve(&base, 2 * part, 0, 0, 0));
    CUmemAccessDesc both[2];
    for (int d = 0; d < 2; d++) {
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = d;
        both[d].location = properties.location;
        both[d].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        report.exact("create_" + std::to_string(d), create(&handles[d], part, &properties, 0));
        report.exact("map_" + std::to_string(d), map(base + d * part, part, 0, handles[d], 0));
    }
    report.exact("allow", allow(base, 2 * part, both, 2));
    unsigned long long flags = 0;
    report.exact("allowed", allowed(&flags, &both[0].location, base + part) * 100 + flags);
    // One range, half of it on either device, used by both.
    auto* x = reinterpret_cast<int*>(base);
    int elements = int(2 * part / 4);
    devices[0].use();
    fill<<<64, 256>>>(x, elements, 0);
    CHECK(cudaDeviceSynchronize());
    devices[1].use();
    add<<<64, 256>>>(x, x, elements);
    CHECK(cudaDeviceSynchronize());
    auto got = to_host(x, elements);
    report.expect("across_devices", got[3] == 6 && got[elements - 1] == 2 * (elements - 1));
    cudaPointerAttributes where;
    CHECK(cudaPointerGetAttributes(&where, x + elements - 1));
    report.exact("mapped_ordinal", where.device);
    report.exact("unmap", unmap(base, 2 * part));
    for (auto handle : handles) release(handle);
    report.exact("unreserve", unreserve(base, 2 * part));
}

static void graphs(Report& report, Device* devices) {
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaMemset(devices[d].b, 0, n * 4));
        CHECK(cudaDeviceSynchronize());
    }
    // Captured on one device, and joined by the other's stream.
    devices[0].use();
    cudaEvent_t forked, joined;
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    devices[1].use();
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    devices[0].use();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(devices[0].stream, cudaStreamCaptureModeGlobal));
    fill<<<32, 128, 0, devices[0].stream>>>(devices[0].a, n, 3);
    CHECK(cudaEventRecord(forked, devices[0].stream));
    devices[1].use();
    CHECK(cudaStreamWaitEvent(devices[1].stream, forked, 0));
    CHECK(cudaMemcpyAsync(devices[1].a, devices[0].a, n * 4, cudaMemcpyDeviceToDevice, devices[1].stream));
    add<<<32, 128, 0, devices[1].stream>>>(devices[1].b, devices[1].a, n);
    CHECK(cudaEventRecord(joined, devices[1].stream));
    devices[0].use();
    CHECK(cudaStreamWaitEvent(devices[0].stream, joined, 0));
    add<<<32, 128, 0, devices[0].stream>>>(devices[0].b, devices[0].a, n);
    CHECK(cudaStreamEndCapture(devices[0].stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    report.exact("graph_nodes", (long long)nodes);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 0; launch < 5; launch++) CHECK(cudaGraphLaunch(exec, devices[0].stream));
    CHECK(cudaStreamSynchronize(devices[0].stream));
    report.expect("graph_0", to_host(devices[0].b, n) == expected(3, 5));
    report.expect("graph_1", to_host(devices[1].b, n) == expected(3, 5));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));

    // A copy that names its devices cannot be captured.
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamBeginCapture(devices[0].stream, cudaStreamCaptureModeGlobal));
    cudaError_t refused = cudaMemcpyPeerAsync(devices[1].a, 1, devices[0].a, 0, n * 4, devices[0].stream);
    report.exact("captured_peer_copy", name_of(refused));
    CHECK(cudaStreamIsCapturing(devices[0].stream, &status));
    report.exact("and_the_capture", status);
    report.exact("and_its_end", name_of(cudaStreamEndCapture(devices[0].stream, &graph)));
}

static void ends(Report& report, Device* devices) {
    for (int d = 0; d < 2; d++) {
        devices[d].use();
        CHECK(cudaDeviceDisablePeerAccess(1 - d));
    }
    fill<<<32, 128>>>(devices[1].a, n, 9);
    CHECK(cudaDeviceSynchronize());
    // A reset is the current device's.
    devices[0].use();
    CHECK(cudaDeviceReset());
    devices[1].use();
    report.expect("others_reset", to_host(devices[1].a, n) == expected(9));
    CHECK(cudaStreamSynchronize(devices[1].stream));
    Device again(0);
    fill<<<32, 128, 0, again.stream>>>(again.a, n, 4);
    CHECK(cudaStreamSynchronize(again.stream));
    CHECK(cudaMemcpyPeer(devices[1].b, 1, again.a, 0, n * 4));
    report.expect("after_reset", to_host(devices[1].b, n) == expected(4));
}

int main() {
    Report report("devices");
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    report.exact("two_devices", count >= 2);
    if (count < 2) {
        alone(report);
        return report.finish();
    }
    run(report, "what_they_are", what_they_are);
    Device devices[] = {Device(0), Device(1)};
    run(report, "each_its_own", each_its_own, devices);
    run(report, "mistakes", mistakes, devices);
    run(report, "copies_before_peers", copies, devices, "before_peers");
    run(report, "streams", streams, devices);
    run(report, "peers", peers, devices);
    run(report, "copies_between_peers", copies, devices, "between_peers");
    run(report, "mapped", mapped, devices);
    run(report, "graphs", graphs, devices);
    run(report, "ends", ends, devices);
    return report.finish();
}
