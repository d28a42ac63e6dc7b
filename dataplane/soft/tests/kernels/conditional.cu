// Kernels that decide what conditional graph nodes do. The order in which they run is kept in a log: a count, then
// what was written.

#define KERNEL extern "C" __global__ void

__device__ void put(int* log, int what) { log[1 + log[0]++] = what; }

KERNEL note(int* log, int what) { put(log, what); }

// Sets the condition to a value.
KERNEL choose(const unsigned* value, cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, *value); }

// Notes, counts down, and goes on until the count is 0.
KERNEL count_down(int* log, int what, int* counter, cudaGraphConditionalHandle handle) {
    put(log, what);
    cudaGraphSetConditional(handle, --*counter != 0);
}

// Sets a counter and a condition that is to follow it.
KERNEL restart(int* counter, int value, cudaGraphConditionalHandle handle) {
    *counter = value;
    cudaGraphSetConditional(handle, value != 0);
}

// Goes on while the word is 0.
KERNEL until_set(const volatile int* word, cudaGraphConditionalHandle handle) {
    cudaGraphSetConditional(handle, *word == 0);
}

KERNEL stop() { asm volatile("trap;"); }
