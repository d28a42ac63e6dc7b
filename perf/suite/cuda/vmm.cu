// Virtual memory management, as PyTorch's expandable segments use it: reserve, create, map, grow, remap.
#include <cuda.h>

#include "report.h"

#define DRIVER(name) auto name##_ = driver_function<decltype(&name)>(#name)
#define DRIVER_CHECK(call)                                                       \
    do {                                                                         \
        CUresult result_ = (call);                                               \
        if (result_ != CUDA_SUCCESS) {                                           \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

__global__ void fill(int* x, size_t n, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value + int(i);
}

int main() {
    Report report("vmm");
    CHECK(cudaFree(nullptr));
    DRIVER(cuMemAddressReserve);
    DRIVER(cuMemAddressFree);
    DRIVER(cuMemCreate);
    DRIVER(cuMemRelease);
    DRIVER(cuMemMap);
    DRIVER(cuMemUnmap);
    DRIVER(cuMemSetAccess);
    DRIVER(cuMemGetAccess);
    DRIVER(cuMemGetAllocationGranularity);
    DRIVER(cuMemGetAllocationPropertiesFromHandle);
    DRIVER(cuMemRetainAllocationHandle);
    DRIVER(cuPointerGetAttribute);

    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    size_t granularity = 0, recommended = 0;
    DRIVER_CHECK(cuMemGetAllocationGranularity_(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    DRIVER_CHECK(cuMemGetAllocationGranularity_(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    report.exact("granularity", (long long)granularity);
    report.exact("recommended", (long long)recommended);

    const int parts = 4;
    CUdeviceptr base = 0;
    DRIVER_CHECK(cuMemAddressReserve_(&base, 16 * granularity, 0, 0, 0));
    report.expect("aligned", base % granularity == 0);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handles[parts];
    for (int i = 0; i < parts; i++) {
        DRIVER_CHECK(cuMemCreate_(&handles[i], granularity, &properties, 0));
        DRIVER_CHECK(cuMemMap_(base + i * granularity, granularity, 0, handles[i], 0));
        DRIVER_CHECK(cuMemSetAccess_(base + i * granularity, granularity, &access, 1));
    }
    size_t n = parts * granularity / sizeof(int), per_part = granularity / sizeof(int);
    fill<<<256, 256>>>(reinterpret_cast<int*>(base), n, 3);
    CHECK(cudaDeviceSynchronize());
    auto host = to_host(reinterpret_cast<int*>(base), n);
    report.expect("filled_across_parts", host[0] == 3 && host[n - 1] == int(n) + 2);
    std::vector<int> sent(per_part * 2, 77);
    CHECK(cudaMemcpy(reinterpret_cast<int*>(base) + per_part / 2, sent.data(), sent.size() * 4,
                     cudaMemcpyHostToDevice));
    host = to_host(reinterpret_cast<int*>(base), n);
    report.expect("copied_across_parts", host[per_part / 2] == 77 && host[per_part] == 77 && host[per_part * 3] != 77);

    unsigned long long flags = 0;
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    DRIVER_CHECK(cuMemGetAccess_(&flags, &location, base));
    report.exact("access", (long long)flags);
    CUmemGenericAllocationHandle retained;
    DRIVER_CHECK(cuMemRetainAllocationHandle_(&retained, reinterpret_cast<void*>(base + granularity)));
    CUmemAllocationProp got = {};
    DRIVER_CHECK(cuMemGetAllocationPropertiesFromHandle_(&got, retained));
    report.exact("properties", got.type * 100 + got.location.type);
    DRIVER_CHECK(cuMemRelease_(retained));
    cudaPointerAttributes where;
    CHECK(cudaPointerGetAttributes(&where, reinterpret_cast<void*>(base + 100)));
    report.exact("pointer_type", where.type);

    // The memory of one part, moved to another address, keeps what is in it.
    DRIVER_CHECK(cuMemUnmap_(base, granularity));
    DRIVER_CHECK(cuMemMap_(base + 8 * granularity, granularity, 0, handles[0], 0));
    DRIVER_CHECK(cuMemSetAccess_(base + 8 * granularity, granularity, &access, 1));
    auto moved = to_host(reinterpret_cast<int*>(base + 8 * granularity), 16);
    report.expect("remapped", moved[5] == 8);
    // And one allocation at two addresses is the same memory.
    DRIVER_CHECK(cuMemMap_(base, granularity, 0, handles[1], 0));
    DRIVER_CHECK(cuMemSetAccess_(base, granularity, &access, 1));
    CHECK(cudaMemset(reinterpret_cast<void*>(base), 0x11, 64));
    CHECK(cudaDeviceSynchronize());
    report.expect("aliased", to_host(reinterpret_cast<int*>(base + granularity), 4)[0] == 0x11111111);

    report.exact("map_twice", cuMemMap_(base, granularity, 0, handles[2], 0));
    report.exact("odd_size", cuMemCreate_(&retained, granularity + 1, &properties, 0));
    report.exact("unmap_nothing", cuMemUnmap_(base + 12 * granularity, granularity));
    DRIVER_CHECK(cuMemUnmap_(base, granularity));
    for (int i = 1; i < parts; i++) DRIVER_CHECK(cuMemUnmap_(base + i * granularity, granularity));
    DRIVER_CHECK(cuMemUnmap_(base + 8 * granularity, granularity));
    for (auto handle : handles) DRIVER_CHECK(cuMemRelease_(handle));
    DRIVER_CHECK(cuMemAddressFree_(base, 16 * granularity));
    return report.finish();
}
