// Copies of every shape and direction: 2D and 3D, host and device, arrays, peer, direction found by address.
#include "report.h"

struct Rows {
    int width, height;
    std::vector<int> data;
    Rows(int w, int h, int first) : width(w), height(h), data(w * h) {
        for (int i = 0; i < w * h; i++) data[i] = first + i;
    }
};

__device__ int table[256];
__constant__ int constants[256];

__global__ void use_constants(int* out) { out[threadIdx.x] = constants[threadIdx.x] + table[threadIdx.x]; }

int main() {
    Report report("shapes");
    const int width = 61, height = 37, depth = 5;
    Rows host(width, height, 1000);
    std::vector<int> back(width * height);
    int *a, *b;
    size_t pitch_a, pitch_b;
    CHECK(cudaMallocPitch(&a, &pitch_a, width * 4, height));
    CHECK(cudaMallocPitch(&b, &pitch_b, width * 4, height));
    CHECK(cudaMemset2D(b, pitch_b, 0x5a, width * 4, height));

    // A part of the rows, at an offset, host to device to device to host.
    CHECK(cudaMemcpy2D(a, pitch_a, host.data.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D((char*)b + 3 * pitch_b + 8, pitch_b, (char*)a + pitch_a + 4, pitch_a, 40 * 4, 20,
                       cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2D(back.data(), width * 4, b, pitch_b, width * 4, height, cudaMemcpyDeviceToHost));
    report.expect("part", back[3 * width + 2] == 1000 + width + 1 && back[0] == 0x5a5a5a5a);
    report.bytes("part_bytes", back);

    // Only the rows' own bytes are written: what lies between them in host memory stays.
    std::vector<int> wide(100 * height, -1);
    CHECK(cudaMemcpy2D(wide.data(), 400, a, pitch_a, width * 4, height, cudaMemcpyDeviceToHost));
    report.expect("gaps_untouched", wide[width] == -1 && wide[100] == 1000 + width);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    int* pinned;
    CHECK(cudaMallocHost(&pinned, width * height * 4));
    CHECK(cudaMemcpy2DAsync(pinned, width * 4, a, pitch_a, width * 4, height, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("pinned_2d", std::vector<int>(pinned, pinned + width * height) == host.data);
    report.exact("pitch_too_small", cudaMemcpy2D(b, 8, a, pitch_a, width * 4, height, cudaMemcpyDeviceToDevice));
    cudaGetLastError();

    // 3D with positions.
    std::vector<int> volume(width * height * depth), volume_back(width * height * depth);
    for (size_t i = 0; i < volume.size(); i++) volume[i] = int(i * 7);
    cudaPitchedPtr cube;
    CHECK(cudaMalloc3D(&cube, make_cudaExtent(width * 4, height, depth)));
    CHECK(cudaMemset3D(cube, 0x33, make_cudaExtent(width * 4, height, depth)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(volume.data(), width * 4, width, height);
    copy.srcPos = make_cudaPos(4, 2, 1);
    copy.dstPtr = cube;
    copy.dstPos = make_cudaPos(8, 1, 2);
    copy.extent = make_cudaExtent(30 * 4, 20, 3);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy = {};
    copy.srcPtr = cube;
    copy.dstPtr = make_cudaPitchedPtr(volume_back.data(), width * 4, width, height);
    copy.extent = make_cudaExtent(width * 4, height, depth);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3DAsync(&copy, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect("cube", volume_back[(2 * height + 1) * width + 2] == volume[(1 * height + 2) * width + 1]);
    report.bytes("cube_bytes", volume_back);

    // Direction from the addresses alone, in all four ways; and to a peer, here the same device.
    std::vector<int> plain(256, 9), plain_back(256);
    CHECK(cudaMemcpy(a, plain.data(), 1024, cudaMemcpyDefault));
    CHECK(cudaMemcpy(b, a, 1024, cudaMemcpyDefault));
    CHECK(cudaMemcpy(plain_back.data(), b, 1024, cudaMemcpyDefault));
    report.expect("by_address", plain_back == plain);
    CHECK(cudaMemcpy(plain_back.data(), host.data.data(), 1024, cudaMemcpyDefault));
    report.expect("host_to_host", plain_back[5] == 1005);
    CHECK(cudaMemcpyPeer(b, 0, cube.ptr, 0, 1024));
    CHECK(cudaMemcpyPeerAsync(a, 0, b, 0, 1024, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.bytes("peer", to_host(a, 256));
    int devices = 0, access = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        CHECK(cudaDeviceCanAccessPeer(&access, 0, 1));
        int* far;
        CHECK(cudaSetDevice(1));
        CHECK(cudaMalloc(&far, 1024));
        CHECK(cudaMemcpyPeer(far, 1, a, 0, 1024));
        CHECK(cudaSetDevice(0));
        CHECK(cudaMemcpy(plain_back.data(), far, 1024, cudaMemcpyDefault));
        report.bytes("other_device", plain_back);
    }
    report.exact("peer_access", access);
    report.exact("peer_of_itself", cudaDeviceEnablePeerAccess(0, 0));
    cudaGetLastError();

    // Symbols, in global and in constant memory.
    CHECK(cudaMemcpyToSymbol(table, host.data.data(), 1024));
    CHECK(cudaMemcpyToSymbolAsync(constants, host.data.data(), 512, 512, cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    use_constants<<<1, 256>>>(a);
    auto sums = to_host(a, 256);
    report.expect("symbols", sums[0] == 1000 && sums[128] == 2128);
    size_t bytes = 0;
    CHECK(cudaGetSymbolSize(&bytes, table));
    report.exact("symbol_bytes", (long long)bytes);

    // Sets of every width, and copies of many sizes, odd ones too.
    CHECK(cudaMemset(a, 0xab, 999));
    CHECK(cudaMemsetAsync(a, 0, 3, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.bytes("memset", to_host(a, 250));
    std::vector<unsigned char> bulk(9 << 20), bulk_back(9 << 20);
    for (size_t i = 0; i < bulk.size(); i++) bulk[i] = (unsigned char)(i * 31 + (i >> 12));
    unsigned char* device = device_array<unsigned char>(bulk.size());
    bool equal = true;
    for (size_t size : {1ul, 2ul, 3ul, 4ul, 63ul, 64ul, 4095ul, 65535ul, 65536ul, 65537ul, 1048575ul, 9437184ul}) {
        size_t offset = size < 9437184ul ? 1 : 0;
        CHECK(cudaMemcpy(device + offset, bulk.data() + offset, size, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(bulk_back.data(), device + offset, size, cudaMemcpyDeviceToHost));
        equal &= std::equal(bulk_back.begin(), bulk_back.begin() + size, bulk.begin() + offset);
    }
    report.expect("sizes", equal);
    return report.finish();
}
