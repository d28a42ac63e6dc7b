// More mapped memory than can be kept in step over a network: a kernel uses it rightly, or is refused, and then the
// program is told so by every call that follows. In no case does it run on bytes that the host does not have.
#include "check.h"

#include <cstring>

__global__ void add_one(int *at) { *at += 1; }

int main() {
    const size_t bytes = size_t(260) << 20;
    int *words = nullptr;
    OK(cudaHostAlloc(&words, bytes, cudaHostAllocMapped));
    words[0] = 41;
    add_one<<<1, 1>>>(words);
    const cudaError_t launched = cudaGetLastError();
    if (launched == cudaSuccess) {
        OK(cudaDeviceSynchronize());
        holds("the kernel has added to what the host wrote", words[0] == 42);
        OK(cudaMemset(words, 0, 4));
        holds("a memset reaches it", words[0] == 0);
        return verdict();
    }
    answers("the launch is refused", cudaErrorNotSupported, launched);
    holds("and nothing was written", words[0] == 41);
    void *at = nullptr;
    answers("and so is all that follows", cudaErrorNotSupported, cudaMalloc(&at, 64));
    return verdict();
}
