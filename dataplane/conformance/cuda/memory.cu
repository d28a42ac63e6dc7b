// Memory in every shape the runtime offers.
#include "check.h"
#include <cstring>
#include <vector>

__global__ void increment(int *data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i]++;
}

int main() {
    const int width = 13, height = 9;
    std::vector<int> in(width * height), out(width * height);
    for (int i = 0; i < width * height; i++) in[i] = i;
    int *pitched;
    size_t pitch;
    OK(cudaMallocPitch(&pitched, &pitch, width * 4, height));
    OK(cudaMemcpy2D(pitched, pitch, in.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(out.data(), width * 4, pitched, pitch, width * 4, height, cudaMemcpyDeviceToHost));
    holds("two dimensions there and back", in == out && pitch >= width * 4);

    cudaExtent extent = make_cudaExtent(20, 5, 3);
    cudaPitchedPtr cube;
    OK(cudaMalloc3D(&cube, extent));
    std::vector<char> box(20 * 5 * 3), back(20 * 5 * 3);
    for (size_t i = 0; i < box.size(); i++) box[i] = i * 7;
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(box.data(), 20, 20, 5);
    copy.dstPtr = cube;
    copy.extent = extent;
    copy.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&copy));
    copy.srcPtr = cube;
    copy.dstPtr = make_cudaPitchedPtr(back.data(), 20, 20, 5);
    copy.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&copy));
    holds("three dimensions there and back", box == back);

    int *mapped, *seen;
    OK(cudaHostAlloc(&mapped, 400, cudaHostAllocMapped));
    for (int i = 0; i < 100; i++) mapped[i] = i;
    OK(cudaHostGetDevicePointer(&seen, mapped, 0));
    increment<<<1, 128>>>(seen, 100);
    OK(cudaDeviceSynchronize());
    bool equal = true;
    for (int i = 0; i < 100; i++) equal = equal && mapped[i] == i + 1;
    holds("a kernel writes mapped memory", equal);
    OK(cudaFreeHost(mapped));

    std::vector<int> own(5000, 3);
    int *device;
    OK(cudaMalloc(&device, 20000));
    OK(cudaHostRegister(own.data(), 20000, cudaHostRegisterDefault));
    OK(cudaMemcpyAsync(device, own.data(), 20000, cudaMemcpyHostToDevice));
    increment<<<20, 256>>>(device, 5000);
    OK(cudaMemcpyAsync(own.data(), device, 20000, cudaMemcpyDeviceToHost));
    OK(cudaDeviceSynchronize());
    OK(cudaHostUnregister(own.data()));
    holds("registered memory", own == std::vector<int>(5000, 4));

    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, device));
    holds("a device pointer is one", attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    OK(cudaPointerGetAttributes(&attributes, &own));
    holds("any other pointer is unregistered", attributes.type == cudaMemoryTypeUnregistered);

    cudaStream_t stream;
    int *ordered, word = 0;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocAsync(&ordered, 4, stream));
    OK(cudaMemsetAsync(ordered, 1, 4, stream));
    OK(cudaMemcpyAsync(&word, ordered, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(ordered, stream));
    OK(cudaStreamSynchronize(stream));
    holds("memory in stream order", word == 0x01010101);

    OK(cudaMemset(device, 0x22, 20000));
    OK(cudaMemcpy(device + 10, device + 100, 40, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(&word, device + 19, 4, cudaMemcpyDefault));
    holds("a copy without a direction", word == 0x22222222);

    size_t before, during, after, total;
    OK(cudaMemGetInfo(&before, &total));
    char *big;
    OK(cudaMalloc(&big, 32 << 20));
    OK(cudaMemGetInfo(&during, &total));
    OK(cudaFree(big));
    OK(cudaMemGetInfo(&after, &total));
    holds("free memory is accounted", before - during >= 32 << 20 && after == before);
    return verdict();
}
