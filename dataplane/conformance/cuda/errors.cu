// Mistakes are answered as CUDA answers them, and the program goes on.
#include "check.h"
#include <string>

__global__ void touch(int *data) { *data = 1; }

__global__ void __launch_bounds__(64) narrow(int *data) { *data = blockDim.x; }

int main() {
    int *data = nullptr, word = 0;
    answers("more memory than there is", cudaErrorMemoryAllocation, cudaMalloc(&data, (size_t)1 << 50));
    answers("an unknown device", cudaErrorInvalidDevice, cudaSetDevice(1000));
    OK(cudaMalloc(&data, 4));
    touch<<<1, 2048>>>(data);
    answers("a block too large", cudaErrorInvalidValue, cudaGetLastError());
    touch<<<0, 1>>>(data);
    answers("an empty grid", cudaErrorInvalidValue, cudaGetLastError());
    touch<<<1, 1, 1 << 20>>>(data);
    answers("too much shared memory", cudaErrorInvalidValue, cudaGetLastError());
    answers("no such stream", cudaErrorInvalidResourceHandle, cudaStreamDestroy(nullptr));
    answers("freeing what was not allocated", cudaErrorInvalidValue, cudaFree(&word));
    OK(cudaFree(nullptr));
    holds("freeing null", true);
    answers("a copy in no direction", cudaErrorInvalidMemcpyDirection,
            cudaMemcpy(data, &word, 4, (cudaMemcpyKind)9));
    answers("peeking keeps the error", cudaSuccess, cudaPeekAtLastError());
    holds("an error has a name", std::string(cudaGetErrorName(cudaErrorInvalidValue)) == "cudaErrorInvalidValue");
    holds("and a text", std::string(cudaGetErrorString(cudaErrorInvalidValue)) == "invalid argument");
    touch<<<1, 1>>>(data);
    OK(cudaMemcpy(&word, data, 4, cudaMemcpyDeviceToHost));
    holds("after all this a kernel runs", word == 1);
    narrow<<<1, 64>>>(data);
    OK(cudaMemcpy(&word, data, 4, cudaMemcpyDeviceToHost));
    holds("a kernel within its bounds runs", word == 64);

    // The last thing: a fault ends the context, and says so again and again.
    touch<<<1, 1>>>((int *)16);
    answers("an illegal address", cudaErrorIllegalAddress, cudaDeviceSynchronize());
    answers("stays", cudaErrorIllegalAddress, cudaMalloc(&data, 4));
    return verdict();
}
