// What separate.cu is linked with. Its own `own` and `step` are not those of this file.
#include <cstdio>

#include "both.h"

__constant__ int weights[4] = {1, 2, 3, 4};
__device__ int total = 100;

static __device__ int own = 5;
static __device__ __noinline__ int step(int x) { return x * own; }

__device__ int scale(int x) { return step(x); }

__device__ void say(int number) { printf("PASS the other file says %d\n", number); }

__global__ void in_the_other_file(int *out) {
    out[0] = step(7);
    out[1] = halve(84);
}
