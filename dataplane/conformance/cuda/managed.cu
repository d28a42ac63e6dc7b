// Managed memory is not forwarded: a kernel of a program with `__managed__` variables is refused when it is launched,
// not run on variables that the host does not see.
#include "check.h"

__managed__ int counter = 5;

__global__ void count() { counter += 1; }

int main() {
    count<<<1, 1>>>();
    answers("the launch is refused", cudaErrorNotSupported, cudaGetLastError());
    answers("and so is the wait for it", cudaErrorNotSupported, cudaDeviceSynchronize());
    void *at = nullptr;
    answers("and all that follows", cudaErrorNotSupported, cudaMalloc(&at, 64));
    return verdict();
}
