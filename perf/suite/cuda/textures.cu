// Arrays, textures and surfaces: filtering, addressing, layers, mipmaps, linear memory.
#include "report.h"

__global__ void sample(cudaTextureObject_t texture, float* out, int width, int height, float scale, float shift) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<float>(texture, x * scale + shift, y * scale + shift);
}

__global__ void sample_layers(cudaTextureObject_t texture, float* out, int n) {
    int i = threadIdx.x;
    for (int layer = 0; layer < 3; layer++) out[layer * n + i] = tex2DLayered<float>(texture, i + 0.5f, 0.5f, layer);
}

__global__ void fetch(cudaTextureObject_t texture, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1Dfetch<float4>(texture, n - 1 - i);
}

__global__ void sample_level(cudaTextureObject_t texture, float* out, float level) {
    out[threadIdx.x] = tex2DLod<float>(texture, 0.3f, 0.3f, level);
}

__global__ void sample_3d(cudaTextureObject_t texture, float* out) {
    out[threadIdx.x] = tex3D<float>(texture, threadIdx.x + 0.5f, 1.25f, 2.5f);
}

__global__ void draw(cudaSurfaceObject_t surface, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        float old;
        surf2Dread(&old, surface, x * 4, y);
        surf2Dwrite(old + x * 1000 + y, surface, x * 4, y);
    }
}

cudaTextureObject_t texture_of(cudaResourceDesc resource, cudaTextureFilterMode filter, cudaTextureAddressMode address,
                               bool normalized) {
    cudaTextureDesc description = {};
    for (auto& mode : description.addressMode) mode = address;
    description.filterMode = filter;
    description.mipmapFilterMode = filter;
    description.maxMipmapLevelClamp = 4;
    description.normalizedCoords = normalized;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    return texture;
}

cudaResourceDesc of_array(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

int main() {
    Report report("textures");
    const int width = 64, height = 48;
    auto format = cudaCreateChannelDesc<float>();
    std::vector<float> host(width * height);
    for (int i = 0; i < width * height; i++) host[i] = float((i * 37) % 101);
    float* out = device_array<float>(width * height);
    dim3 block(16, 16), grid(width / 16, height / 16);

    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, host.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    struct {
        const char* name;
        cudaTextureFilterMode filter;
        cudaTextureAddressMode address;
        bool normalized;
        float scale, shift;
    } cases[] = {
        {"point_clamp", cudaFilterModePoint, cudaAddressModeClamp, false, 1, 0.5f},
        {"linear_clamp", cudaFilterModeLinear, cudaAddressModeClamp, false, 1.1f, 0.25f},
        {"linear_border", cudaFilterModeLinear, cudaAddressModeBorder, false, 1.3f, -4},
        {"linear_wrap", cudaFilterModeLinear, cudaAddressModeWrap, true, 0.021f, 0.1f},
        {"linear_mirror", cudaFilterModeLinear, cudaAddressModeMirror, true, 0.033f, 0.1f},
    };
    for (auto& c : cases) {
        auto texture = texture_of(of_array(array), c.filter, c.address, c.normalized);
        sample<<<grid, block>>>(texture, out, width, height, c.scale, c.shift);
        CHECK(cudaDeviceSynchronize());
        auto result = to_host(out, width * height);
        if (std::string(c.name) == "point_clamp") report.expect("points_are_the_data", result == host);
        report.bytes(c.name, result);
        cudaTextureDesc description;
        CHECK(cudaGetTextureObjectTextureDesc(&description, texture));
        report.exact(std::string(c.name) + "_described", description.filterMode);
        CHECK(cudaDestroyTextureObject(texture));
    }

    auto resource = of_array(array);
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    draw<<<grid, block>>>(surface, width, height);
    CHECK(cudaDeviceSynchronize());
    std::vector<float> drawn(width * height);
    CHECK(cudaMemcpy2DFromArray(drawn.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    report.expect("surface", drawn[5 * width + 3] == host[5 * width + 3] + 3005);
    report.bytes("drawn", drawn);
    CHECK(cudaDestroySurfaceObject(surface));
    cudaChannelFormatDesc got;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&got, &extent, &flags, array));
    report.exact("array_info", (long long)(extent.width * 10000 + extent.height * 10 + flags));

    // Pitched linear memory.
    float* pitched;
    size_t pitch;
    CHECK(cudaMallocPitch(&pitched, &pitch, width * 4, height));
    CHECK(cudaMemcpy2D(pitched, pitch, host.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    cudaResourceDesc linear = {};
    linear.resType = cudaResourceTypePitch2D;
    linear.res.pitch2D = {pitched, format, width, height, pitch};
    auto texture = texture_of(linear, cudaFilterModeLinear, cudaAddressModeClamp, false);
    sample<<<grid, block>>>(texture, out, width, height, 0.7f, 0.25f);
    report.exact("pitch", (long long)pitch);
    report.bytes("pitched", to_host(out, width * height));
    CHECK(cudaDestroyTextureObject(texture));

    // Linear memory of four channels.
    const int quads = width * height / 4;
    float4 *data = device_array<float4>(quads), *fetched = device_array<float4>(quads);
    CHECK(cudaMemcpy(data, host.data(), quads * sizeof(float4), cudaMemcpyHostToDevice));
    linear = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = data;
    linear.res.linear.desc = cudaCreateChannelDesc<float4>();
    linear.res.linear.sizeInBytes = quads * sizeof(float4);
    texture = texture_of(linear, cudaFilterModePoint, cudaAddressModeClamp, false);
    fetch<<<(quads + 127) / 128, 128>>>(texture, fetched, quads);
    report.bytes("fetched", to_host(fetched, quads));
    CHECK(cudaDestroyTextureObject(texture));

    // Layers, and a 3D array filled by one 3D copy.
    cudaArray_t layers, volume;
    CHECK(cudaMalloc3DArray(&layers, &format, make_cudaExtent(32, 4, 3), cudaArrayLayered));
    CHECK(cudaMalloc3DArray(&volume, &format, make_cudaExtent(32, 4, 3), 0));
    for (auto target : {layers, volume}) {
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr(host.data(), 32 * 4, 32, 4);
        copy.dstArray = target;
        copy.extent = make_cudaExtent(32, 4, 3);
        copy.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3D(&copy));
    }
    texture = texture_of(of_array(layers), cudaFilterModePoint, cudaAddressModeClamp, false);
    sample_layers<<<1, 32>>>(texture, out, 32);
    report.bytes("layers", to_host(out, 96));
    CHECK(cudaDestroyTextureObject(texture));
    texture = texture_of(of_array(volume), cudaFilterModeLinear, cudaAddressModeClamp, false);
    sample_3d<<<1, 32>>>(texture, out);
    report.bytes("volume", to_host(out, 32));
    CHECK(cudaDestroyTextureObject(texture));

    // Mipmaps.
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(16, 16, 0), 3));
    for (int level = 0; level < 3; level++) {
        cudaArray_t part;
        CHECK(cudaGetMipmappedArrayLevel(&part, mipmap, level));
        int side = 16 >> level;
        std::vector<float> fill(side * side, float(level * 10));
        CHECK(cudaMemcpy2DToArray(part, 0, 0, fill.data(), side * 4, side * 4, side, cudaMemcpyHostToDevice));
    }
    resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmap;
    texture = texture_of(resource, cudaFilterModeLinear, cudaAddressModeClamp, true);
    for (float level : {0.0f, 1.0f, 1.5f}) {
        sample_level<<<1, 1>>>(texture, out, level);
        report.expect("level_" + std::to_string(int(level * 10)), to_host(out, 1)[0] == level * 10);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeMipmappedArray(mipmap));
    for (auto each : {array, layers, volume}) CHECK(cudaFreeArray(each));
    return report.finish();
}
