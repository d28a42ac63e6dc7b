// printf in a kernel comes out of this process, each line whole.
#include "check.h"

__global__ void speak(int number, double ratio, const char *) {
    printf("PASS thread %d of block %d says %d, %.3f, %s, %c, %5u|%-5d|%x, %lld, %%\n", threadIdx.x, blockIdx.x, number,
           ratio, "text", 'c', 42u, 7, 255, -12345678901ll);
}

int main() {
    speak<<<2, 2>>>(-3, 0.125, nullptr);
    OK(cudaDeviceSynchronize());
    return verdict();
}
