// Separate compilation: what this file names of another one is found when the two are linked, which the driver does as
// it loads a program that has no machine code for the device. What each has for itself stays apart.
#include "check.h"
#include "separate/both.h"

extern __constant__ int weights[4];
extern __device__ int total;
extern __device__ int scale(int);
extern __device__ void say(int);
extern __global__ void in_the_other_file(int *out);

static __device__ int own = 1;
static __device__ __noinline__ int step(int x) { return x + own; }

__device__ int (*operation)(int) = scale;

__global__ void in_this_file(int *out) {
    out[0] = step(10);
    out[1] = scale(10);
    out[2] = operation(11);
    out[3] = weights[3];
    out[4] = halve(6);
    total += 11;
    printf("PASS this file says %d\n", 41);
    say(42);
}

int main() {
    int *device, out[5] = {}, sum = 0;
    OK(cudaMalloc(&device, sizeof out));
    in_this_file<<<1, 1>>>(device);
    OK(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
    OK(cudaMemcpyFromSymbol(&sum, total, sizeof sum));
    holds("each file has its own static function and variable", out[0] == 11 && out[1] == 50);
    holds("a pointer leads to a function of the other file", out[2] == 55);
    holds("a constant of the other file", out[3] == 4);
    holds("a function that both files define", out[4] == 3);
    holds("a variable of the other file", sum == 111);

    const int seven = 7, weight = 40;
    OK(cudaMemcpyToSymbol(own, &seven, sizeof seven));
    OK(cudaMemcpyToSymbol(weights, &weight, sizeof weight, 3 * sizeof weight));
    in_this_file<<<1, 1>>>(device);
    OK(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
    holds("a static variable set by its own file", out[0] == 17 && out[1] == 50);
    holds("a constant of the other file set by this one", out[3] == 40);

    in_the_other_file<<<1, 1>>>(device);
    OK(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
    holds("a kernel of the other file", out[0] == 35 && out[1] == 42);
    OK(cudaFree(device));
    return verdict();
}
