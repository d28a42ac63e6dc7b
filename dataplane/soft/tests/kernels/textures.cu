// Textures and surfaces, see tests/textures.rs. Thread i of one block works on place i.
#include <cuda_runtime.h>

using Texture = cudaTextureObject_t;
using Surface = cudaSurfaceObject_t;

#define PLACE const int i = threadIdx.x; const float4 p = at[i]

extern "C" __global__ void sample_1d(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex1D<float4>(t, p.x);
}
extern "C" __global__ void sample_2d(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex2D<float4>(t, p.x, p.y);
}
extern "C" __global__ void sample_3d(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex3D<float4>(t, p.x, p.y, p.z);
}
extern "C" __global__ void layers_1d(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex1DLayered<float4>(t, p.x, int(p.w));
}
extern "C" __global__ void layers_2d(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex2DLayered<float4>(t, p.x, p.y, int(p.w));
}
extern "C" __global__ void cube(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = texCubemap<float4>(t, p.x, p.y, p.z);
}
extern "C" __global__ void cubes(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = texCubemapLayered<float4>(t, p.x, p.y, p.z, int(p.w));
}
extern "C" __global__ void levels(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex2DLod<float4>(t, p.x, p.y, p.z);
}
extern "C" __global__ void gradients(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex2DGrad<float4>(t, p.x, p.y, make_float2(p.z, 0), make_float2(0, p.w));
}
extern "C" __global__ void fetches(Texture t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex1Dfetch<float4>(t, int(p.x));
}
extern "C" __global__ void integers(Texture t, const float4* at, int4* out) {
    PLACE;
    out[i] = tex2D<int4>(t, p.x, p.y);
}
extern "C" __global__ void gather(Texture t, const float4* at, float4* out) {
    PLACE;
    out[4 * i] = tex2Dgather<float4>(t, p.x, p.y, 0);
    out[4 * i + 1] = tex2Dgather<float4>(t, p.x, p.y, 1);
    out[4 * i + 2] = tex2Dgather<float4>(t, p.x, p.y, 2);
    out[4 * i + 3] = tex2Dgather<float4>(t, p.x, p.y, 3);
}
extern "C" __global__ void halves(Texture t, const float4* at, unsigned* out) {
    PLACE;
    asm("tex.2d.v2.f16x2.f32 {%0, %1}, [%2, {%3, %4}];"
        : "=r"(out[2 * i]), "=r"(out[2 * i + 1]) : "l"(t), "f"(p.x), "f"(p.y));
}
// Texels by number, and the first level by name.
extern "C" __global__ void numbers(Texture t, const float4* at, float4* out) {
    PLACE;
    const int x = p.x, y = p.y;
    float4 v, w;
    asm("tex.2d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "l"(t), "r"(x), "r"(y));
    asm("tex.base.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
        : "=f"(w.x), "=f"(w.y), "=f"(w.z), "=f"(w.w)
        : "l"(t), "f"(p.z), "f"(p.w));
    out[i] = make_float4(v.x, w.x, v.y, w.y);
}
// Each thread has a texture of its own.
extern "C" __global__ void many(const Texture* t, const float4* at, float4* out) {
    PLACE;
    out[i] = tex2D<float4>(t[i], p.x, p.y);
}

#define ASK(n, what) asm(what " %0, [%1];" : "=r"(out[n]) : "l"(object))
extern "C" __global__ void ask_texture(Texture object, unsigned* out) {
    ASK(0, "txq.width.b32");
    ASK(1, "txq.height.b32");
    ASK(2, "txq.depth.b32");
    ASK(3, "txq.channel_data_type.b32");
    ASK(4, "txq.channel_order.b32");
    ASK(5, "txq.normalized_coords.b32");
    ASK(6, "txq.array_size.b32");
    ASK(7, "txq.num_mipmap_levels.b32");
}
extern "C" __global__ void ask_surface(Surface object, unsigned* out) {
    ASK(0, "suq.width.b32");
    ASK(1, "suq.height.b32");
    ASK(2, "suq.depth.b32");
    ASK(3, "suq.channel_data_type.b32");
    ASK(4, "suq.channel_order.b32");
    ASK(5, "suq.array_size.b32");
}

#define SPOT const int i = threadIdx.x; const int4 p = at[i]
extern "C" __global__ void read_zero(Surface s, const int4* at, unsigned* out) {
    SPOT;
    out[i] = surf2Dread<unsigned>(s, p.x, p.y, cudaBoundaryModeZero);
}
extern "C" __global__ void read_clamp(Surface s, const int4* at, unsigned* out) {
    SPOT;
    out[i] = surf2Dread<unsigned>(s, p.x, p.y, cudaBoundaryModeClamp);
}
extern "C" __global__ void read_trap(Surface s, const int4* at, unsigned* out) {
    SPOT;
    out[i] = surf2Dread<unsigned>(s, p.x, p.y);
}
extern "C" __global__ void write_zero(Surface s, const int4* at) {
    SPOT;
    surf2Dwrite(p.w, s, p.x, p.y, cudaBoundaryModeZero);
}
extern "C" __global__ void write_clamp(Surface s, const int4* at) {
    SPOT;
    surf2Dwrite(p.w, s, p.x, p.y, cudaBoundaryModeClamp);
}
extern "C" __global__ void write_trap(Surface s, const int4* at) { SPOT; surf2Dwrite(p.w, s, p.x, p.y); }
extern "C" __global__ void write_bytes(Surface s, const int4* at) {
    SPOT;
    surf2Dwrite(make_uchar4(p.w, p.w + 1, p.w + 2, p.w + 3), s, p.x, p.y);
}
extern "C" __global__ void move_3d(Surface from, Surface to, const int4* at) {
    SPOT;
    surf3Dwrite(surf3Dread<float2>(from, p.x, p.y, p.z), to, p.x, p.y, p.z);
}
extern "C" __global__ void move_layers(Surface from, Surface to, const int4* at) {
    SPOT;
    surf2DLayeredwrite(surf2DLayeredread<short2>(from, p.x, p.y, p.z), to, p.x, p.y, p.z);
}
extern "C" __global__ void formatted(Surface s, const int4* at, const unsigned* v) {
    SPOT;
    asm volatile("sust.p.2d.v4.b32.trap [%0, {%1, %2}], {%3, %4, %5, %6};"
                 ::"l"(s), "r"(p.x), "r"(p.y), "r"(v[4 * i]), "r"(v[4 * i + 1]), "r"(v[4 * i + 2]), "r"(v[4 * i + 3]));
}
extern "C" __global__ void reduce(Surface s, const int4* at) {
    SPOT;
    asm volatile("sured.b.add.2d.u32.trap [%0, {%1, %2}], %3;" ::"l"(s), "r"(p.x), "r"(p.y), "r"(p.w));
    asm volatile("sured.b.max.2d.s32.clamp [%0, {%1, %2}], %3;" ::"l"(s), "r"(p.x + 4), "r"(p.y), "r"(p.w));
    asm volatile("sured.b.and.2d.b32.zero [%0, {%1, %2}], %3;" ::"l"(s), "r"(p.x + 8), "r"(p.y), "r"(p.w));
}
