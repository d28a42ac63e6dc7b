// What the runtime says of the device: properties, every attribute, limits, versions.
#include <set>

#include "report.h"

int main() {
    Report report("device_query");
    int count = 0, driver = 0, runtime = 0, device = -1;
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaGetDevice(&device));
    report.exact("count", count);
    report.exact("driver_version", driver);
    report.exact("runtime_version", runtime);
    report.exact("current", device);

    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    report.exact("name", std::string(p.name));
    report.exact("capability", p.major * 10 + p.minor);
    report.exact("multiprocessors", p.multiProcessorCount);
    report.exact("shared_per_block", (long long)p.sharedMemPerBlock);
    report.exact("shared_optin", (long long)p.sharedMemPerBlockOptin);
    report.exact("const_bytes", (long long)p.totalConstMem);
    report.exact("l2_bytes", p.l2CacheSize);
    report.exact("grid_x", p.maxGridSize[0]);
    report.exact("texture_pitch_alignment", (long long)p.texturePitchAlignment);
    report.extra("total_bytes", double(p.totalGlobalMem));

    // Some attributes may rightly differ through Orion: the PCI address, managed memory, memory nodes, and what it does
    // not serve. `NOT_SERVED` in shim/src/state/device.rs says which and why. Named apart from the rest.
    const std::set<int> not_served = {103, 104, 105, 110, 112, 114, 116, 117, 118, 119, 121, 124,
                                      128, 135, 136, 137, 138, 141, 142, 143, 144, 145, 146};
    std::string attributes;
    for (int i = 1; i <= 148; i++) {
        int value = 0;
        cudaError_t error = cudaDeviceGetAttribute(&value, cudaDeviceAttr(i), 0);
        std::string said = error == cudaSuccess ? std::to_string(value) : cudaGetErrorName(error);
        bool may_differ = i == cudaDevAttrPciBusId || i == cudaDevAttrPciDeviceId || i == cudaDevAttrPciDomainId ||
                          i == cudaDevAttrManagedMemory || i == cudaDevAttrConcurrentManagedAccess ||
                          i == cudaDevAttrPageableMemoryAccess || i == cudaDevAttrHostNumaId ||
                          not_served.count(i) != 0;
        if (may_differ) {
            report.extra("attribute_" + std::to_string(i), said);
        } else {
            attributes += std::to_string(i) + "=" + said + " ";
        }
    }
    cudaGetLastError();
    report.exact("attributes", attributes);

    for (cudaLimit limit : {cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize}) {
        size_t value = 0;
        CHECK(cudaDeviceGetLimit(&value, limit));
        report.exact("limit_" + std::to_string(limit), (long long)value);
    }
    int least = 0, greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    report.exact("priorities", least * 1000 + greatest);
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    report.expect("free_is_sane", free_bytes > 0 && free_bytes <= total_bytes);
    report.exact("too_high_device", cudaSetDevice(count));
    report.exact("last_error", cudaGetLastError());
    report.exact("last_error_is_cleared", cudaGetLastError());
    char id[32];
    CHECK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
    int by_id = -1;
    CHECK(cudaDeviceGetByPCIBusId(&by_id, id));
    report.exact("device_by_its_pci_id", by_id);
    return report.finish();
}
