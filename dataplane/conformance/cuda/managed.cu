// Managed memory: __managed__ variables, which the driver places, and what cudaMallocManaged gives. Host and device use
// them in turns, by every way in which the host learns that it is its turn, and copies know them in both roles.
#include "check.h"

#include <cstring>
#include <thread>
#include <vector>

struct Pair {
    int *list;
    int length;
};

__managed__ int counter = 5;
__managed__ char text[14] = "as it was set";
__managed__ double large[3000] = {1.5, 2.5};
__managed__ Pair pair;
__managed__ unsigned char flags[5] = {1, 2, 3, 4, 5};
__managed__ int cells[16];
__device__ int own = 11;

__global__ void count() { counter += 1; }

__global__ void add(int n) {
    for (int i = 0; i < pair.length; i++) {
        pair.list[i] += n;
    }
    own += counter;
}

__global__ void scale(double by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 3000) {
        large[i] *= by;
    }
}

__global__ void second_flag() { flags[1] += 10; }

static int seen_by_host = 0;
static void CUDART_CB look(void *) {
    seen_by_host = counter;
    counter = 1000;
}

static void variables() {
    holds("a variable has its value before any kernel", counter == 5);
    holds("and a text", std::memcmp(text, "as it was set", 13) == 0);
    holds("and an array of several pages", large[0] == 1.5 && large[1] == 2.5 && large[2] == 0 && large[2999] == 0);
    count<<<1, 1>>>();
    OK(cudaDeviceSynchronize());
    holds("what a kernel has counted is seen", counter == 6);
    bool all = true;
    for (int i = 0; i < 200; i++) {
        counter = 10 * i;
        count<<<1, 1>>>();
        count<<<1, 1>>>();
        OK(cudaStreamSynchronize(nullptr));
        all = all && counter == 10 * i + 2;
    }
    holds("host and kernel count in turns", all);

    for (int i = 0; i < 3000; i++) {
        large[i] = i;
    }
    scale<<<12, 256>>>(2);
    OK(cudaDeviceSynchronize());
    all = true;
    for (int i = 0; i < 3000; i++) {
        all = all && large[i] == 2.0 * i;
    }
    holds("an array of several pages goes there and back", all);

    flags[0] = 100;
    second_flag<<<1, 1>>>();
    OK(cudaDeviceSynchronize());
    holds("neighbouring bytes are changed by both", flags[0] == 100 && flags[1] == 12 && flags[2] == 3);
}

static void ways_to_wait() {
    cudaStream_t stream;
    cudaEvent_t event;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaEventCreate(&event));
    counter = 0;
    bool all = true;
    for (int i = 0; i < 50; i++) {
        count<<<1, 1, 0, stream>>>();
        OK(cudaEventRecord(event, stream));
        while (cudaEventQuery(event) == cudaErrorNotReady) {
        }
        all = all && counter == 2 * i + 1;
        count<<<1, 1, 0, stream>>>();
        while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        }
        all = all && counter == 2 * i + 2;
    }
    holds("a query tells of it", all);
    counter = 7;
    count<<<1, 1, 0, stream>>>();
    OK(cudaLaunchHostFunc(stream, look, nullptr));
    count<<<1, 1, 0, stream>>>();
    OK(cudaStreamSynchronize(stream));
    holds("a host function sees what was before it", seen_by_host == 8);
    holds("and what it writes is seen behind it", counter == 1001);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    count<<<1, 1, 0, stream>>>();
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    counter = 0;
    all = true;
    for (int i = 0; i < 100; i++) {
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        all = all && counter == 2 * i + 1;
        counter += 1;
    }
    holds("a graph and the host count together", all);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}

static void copies() {
    int value = 0, *device = nullptr, *at = nullptr;
    OK(cudaMalloc(&device, 16));
    counter = 31;
    OK(cudaMemcpyFromSymbol(&value, counter, 4));
    holds("a copy from a variable has what the host wrote", value == 31);
    value = 32;
    OK(cudaMemcpyToSymbol(counter, &value, 4));
    OK(cudaDeviceSynchronize());
    holds("a copy to a variable is seen by the host", counter == 32);
    counter = 33;
    OK(cudaMemcpy(device, &counter, 4, cudaMemcpyDefault));
    OK(cudaMemcpy(&value, device, 4, cudaMemcpyDefault));
    holds("a variable is the source of any copy", value == 33);
    counter = 34;
    OK(cudaMemcpy(device, &counter, 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(&value, device, 4, cudaMemcpyDeviceToHost));
    holds("also as the host's", value == 34);
    count<<<1, 1>>>();
    OK(cudaMemcpyAsync(device, &counter, 4, cudaMemcpyHostToDevice, nullptr));
    OK(cudaMemcpy(&value, device, 4, cudaMemcpyDeviceToHost));
    holds("and behind a kernel that writes it", value == 35);
    value = 36;
    OK(cudaMemcpy(device, &value, 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(&counter, device, 4, cudaMemcpyDeviceToHost));
    holds("it is the target of a copy to the host", counter == 36);
    count<<<1, 1>>>();
    OK(cudaDeviceSynchronize());
    holds("which kernels see", counter == 37);
    OK(cudaGetSymbolAddress((void **)&at, counter));
    holds("its address is one for both", at == &counter);
    OK(cudaMemset(at, 1, 4));
    OK(cudaDeviceSynchronize());
    holds("a memset of it is seen", counter == 0x01010101);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, &counter));
    holds("it says that it is managed", attributes.type == cudaMemoryTypeManaged);
    // One of them lies where what the driver has allocated for all begins.
    void *variables[] = {&counter, text, large, &pair, flags, cells};
    for (void *variable : variables) {
        answers("a variable is not freed", cudaErrorInvalidValue, cudaFree(variable));
    }
    counter = 38;
    count<<<1, 1>>>();
    OK(cudaDeviceSynchronize());
    holds("and goes on", counter == 39);
    OK(cudaFree(device));
}

static void allocations() {
    int *list = nullptr;
    OK(cudaMallocManaged(&list, 1000 * sizeof(int)));
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, list));
    holds("an allocation says that it is managed", attributes.type == cudaMemoryTypeManaged);
    pair = {list, 1000};
    counter = 3;
    bool all = true;
    for (int i = 0; i < 1000; i++) {
        list[i] = i;
    }
    add<<<1, 1>>>(5);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 1000; i++) {
        all = all && list[i] == i + 5;
    }
    holds("a kernel follows a pointer in a variable", all);
    int value = 0;
    OK(cudaMemcpyFromSymbol(&value, own, 4));
    holds("and reads one variable beside another", value == 14);
    OK(cudaFree(list));
}

__global__ void count_cell(int i) { cells[i] += 1; }

// While one thread's cell is the host's, its neighbours are the device's. Where concurrentManagedAccess is 0 a program
// is not promised that; here it holds, as natively where it is 1.
static void threads() {
    std::vector<std::thread> all;
    int wrong[16] = {};
    for (int i = 0; i < 16; i++) {
        all.emplace_back([i, &wrong] {
            cudaStream_t stream;
            OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int round = 0; round < 200; round++) {
                count_cell<<<1, 1, 0, stream>>>(i);
                OK(cudaStreamSynchronize(stream));
                wrong[i] += cells[i] != 2 * round + 1;
                cells[i] += 1;
            }
            OK(cudaStreamDestroy(stream));
        });
    }
    int sum = 0;
    for (int i = 0; i < 16; i++) {
        all[i].join();
        sum += wrong[i];
    }
    holds("threads have neighbouring variables in turns of their own", sum == 0);
}

static void devices() {
    int count_of_devices = 0;
    OK(cudaGetDeviceCount(&count_of_devices));
    counter = 0;
    for (int device = 0; device < count_of_devices; device++) {
        OK(cudaSetDevice(device));
        count<<<1, 1>>>();
        OK(cudaDeviceSynchronize());
    }
    std::printf("devices: %d\n", count_of_devices);
    holds("a variable is one for all devices", counter == count_of_devices);
    OK(cudaSetDevice(0));
    // What the runtime loads is a library, which no context takes along.
    counter = 70;
    OK(cudaDeviceReset());
    count<<<1, 1>>>();
    OK(cudaDeviceSynchronize());
    holds("and outlives each device's context", counter == 71);
}

int main() {
    variables();
    ways_to_wait();
    copies();
    allocations();
    threads();
    devices();
    return verdict();
}
