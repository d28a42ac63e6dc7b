// What a program asks about the device before it does anything.
#include "check.h"
#include <cstring>

__global__ void nothing() {}

int main() {
    int count = 0, runtime = 0, driver = 0, device = -1;
    OK(cudaGetDeviceCount(&count));
    holds("there is a device", count >= 1);
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaDriverGetVersion(&driver));
    holds("the driver is as new as the runtime's major version", driver / 1000 >= runtime / 1000);
    OK(cudaGetDevice(&device));
    holds("device 0 is current", device == 0);
    cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, 0));
    std::printf("  %s, capability %d.%d, %zu MiB, %d processors\n", p.name, p.major, p.minor, p.totalGlobalMem >> 20,
                p.multiProcessorCount);
    holds("it has a name", std::strlen(p.name) > 0);
    holds("a warp has 32 threads", p.warpSize == 32);
    holds("a block has up to 1024", p.maxThreadsPerBlock == 1024);
    size_t free = 0, total = 0;
    OK(cudaMemGetInfo(&free, &total));
    holds("free memory is at most all of it", free <= total && total == p.totalGlobalMem);
    int value = 0;
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    holds("attributes agree with properties", value == p.multiProcessorCount && value > 0);
    cudaFuncAttributes f;
    OK(cudaFuncGetAttributes(&f, nothing));
    holds("a kernel has attributes", f.maxThreadsPerBlock == 1024 && f.sharedSizeBytes == 0);
    int blocks = 0, grid = 0, block = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 128, 0));
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, nothing));
    holds("occupancy is positive", blocks > 0 && grid > 0 && block > 0);
    size_t stack = 0;
    OK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    holds("there is a stack", stack > 0);
    char bus[32];
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    OK(cudaDeviceGetByPCIBusId(&device, bus));
    holds("its bus id leads back", device == 0);
    OK(cudaDeviceReset());
    nothing<<<1, 1>>>();
    OK(cudaDeviceSynchronize());
    holds("it works after a reset", true);
    return verdict();
}
