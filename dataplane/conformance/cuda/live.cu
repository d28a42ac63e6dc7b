// The host and a running kernel talk to each other through mapped memory: neither waits for the other to end.
#include <chrono>
#include <cstring>

#include "check.h"

// Requests and answers on lines of their own, the words of each in the order in which they are read: data, then flag.
struct Mailbox {
    unsigned question[8];
    unsigned asked;
    unsigned pad[7];
    unsigned answer[8];
    unsigned answered;
};

// Answers what the host asks until it is told to stop, or gives up.
__global__ void serve(volatile Mailbox *box, unsigned stop) {
    __shared__ unsigned asked;
    long long start = clock64();
    for (unsigned round = 1;; round++) {
        if (threadIdx.x == 0) {
            while (box->asked != round && box->asked != stop && clock64() - start < 17179869184ll) {
            }
            asked = box->asked;
            __threadfence_system();
        }
        __syncthreads();
        if (asked != round) return;
        box->answer[threadIdx.x] = box->question[threadIdx.x] * 3 + threadIdx.x;
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) box->answered = round;
        __syncthreads();
    }
}

// Counts while the host looks on, and ends when the host says so.
__global__ void count(volatile unsigned *counter, volatile unsigned char *enough) {
    long long start = clock64();
    while (!*enough && clock64() - start < 17179869184ll) counter[0] = counter[0] + 1;
}

template <typename Condition> bool soon(Condition condition) {
    auto start = std::chrono::steady_clock::now();
    while (!condition()) {
        if (std::chrono::steady_clock::now() - start > std::chrono::seconds(10)) return false;
    }
    return true;
}

static void conversation(const char *what, void *memory) {
    const unsigned stop = 1u << 31;
    auto *box = static_cast<volatile Mailbox *>(memory);
    std::memset(memory, 0, sizeof(Mailbox));
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    serve<<<1, 8, 0, stream>>>(box, stop);
    OK(cudaGetLastError());
    bool right = true;
    for (unsigned round = 1; round <= 20 && right; round++) {
        for (unsigned i = 0; i < 8; i++) box->question[i] = round * 0x10203 + i;
        __sync_synchronize();
        box->asked = round;
        right = soon([&] { return box->answered == round; });
        for (unsigned i = 0; i < 8; i++) right = right && box->answer[i] == (round * 0x10203 + i) * 3 + i;
    }
    holds(what, right && cudaStreamQuery(stream) == cudaErrorNotReady);
    box->asked = stop;
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
}

int main() {
    void *mapped, *registered = aligned_alloc(4096, 4096);
    OK(cudaHostAlloc(&mapped, 4096, cudaHostAllocMapped));
    conversation("a kernel answers through mapped memory while it runs", mapped);
    OK(cudaHostRegister(registered, 4096, cudaHostRegisterMapped));
    conversation("a kernel answers through registered memory while it runs", registered);
    OK(cudaHostUnregister(registered));
    free(registered);

    // The counter and the byte that ends it lie in one word of eight bytes.
    auto *counter = static_cast<volatile unsigned *>(mapped);
    auto *enough = reinterpret_cast<volatile unsigned char *>(counter + 1) + 3;
    counter[0] = counter[1] = 0;
    count<<<1, 1>>>(counter, enough);
    OK(cudaGetLastError());
    unsigned first = 0, second = 0;
    holds("the host sees a kernel count", soon([&] { return (first = counter[0]) != 0; }));
    holds("and go on counting", soon([&] { return (second = counter[0]) > first; }));
    *enough = 1;
    OK(cudaDeviceSynchronize());
    holds("the last count arrives, and the neighbour keeps the host's byte",
          counter[0] >= second && counter[1] == 1u << 24);
    OK(cudaFreeHost(mapped));
    return verdict();
}
