// Conversions of eight-bit floats, packed integers and halves, and video instructions, as PTX, to every bit. The host
// computes what is expected: of the floats by NVIDIA's own header, of the others from PTX's description.
#include "check.h"
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <string>
#include <vector>

typedef unsigned u32;

static u32 random_word() {
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return u32(state * 0x2545f4914f6cdd1d >> 32);
}

template <class Op> __global__ void apply(const u32 *a, const u32 *b, const u32 *c, u32 *d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    d[i] = Op::device(a[i], b[i], c[i]);
}

// Runs an operation on the words given, in blocks of 256, and compares.
template <class Op> void check(const char *what, const std::vector<u32> (&in)[3]) {
    size_t n = in[0].size(), bytes = n * sizeof(u32);
    u32 *at[4];
    for (auto &p : at) OK(cudaMalloc(&p, bytes));
    for (int i = 0; i < 3; i++) OK(cudaMemcpy(at[i], in[i].data(), bytes, cudaMemcpyHostToDevice));
    apply<Op><<<unsigned(n / 256), 256>>>(at[0], at[1], at[2], at[3]);
    std::vector<u32> out(n);
    OK(cudaMemcpy(out.data(), at[3], bytes, cudaMemcpyDeviceToHost));
    for (auto &p : at) OK(cudaFree(p));
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        u32 want = Op::host(in[0][i], in[1][i], in[2][i]);
        if (out[i] == want) continue;
        if (wrong++ > 3) continue;
        std::printf("  %s of %08x, %08x, %08x is %08x, not %08x\n", what, in[0][i], in[1][i], in[2][i], out[i], want);
    }
    holds(what, wrong == 0);
}

// Words whose parts are edges, or anything.
static void fill(std::vector<u32> (&in)[3], size_t n) {
    static const u32 edges[] = {0,          1,          31,         32,         33,        0x7f80807f,
                                0x7fffffff, 0x80000000, 0x80008000, 0xffffffff, 0x0102fefd};
    for (auto &v : in) {
        v.resize(n);
        for (auto &w : v) w = random_word() & 1 ? random_word() : edges[random_word() % (sizeof edges / sizeof *edges)];
    }
}

// ---- eight-bit floats ----

static u32 narrow(float v, __nv_fp8_interpretation_t kind) { return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, kind); }

static float as_float(u32 bits) {
    float v;
    std::memcpy(&v, &bits, 4);
    return v;
}

static float half_value(u32 bits) {
    __half_raw h;
    h.x = uint16_t(bits);
    return __half2float(__half(h));
}

// Zero for what is not positive and no NaN.
static float relu(float v) { return v <= 0 ? 0.0f : v; }

#define NARROW(NAME, TYPE, KIND, RELU, CLAMP)                                                                          \
    struct NAME {                                                                                                      \
        static __device__ u32 device(u32 a, u32 b, u32) {                                                              \
            unsigned short d;                                                                                          \
            asm("cvt.rn.satfinite" RELU "." TYPE ".f32 %0, %1, %2;"                                                    \
                : "=h"(d)                                                                                              \
                : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));                                                   \
            return d;                                                                                                  \
        }                                                                                                              \
        static u32 host(u32 a, u32 b, u32) {                                                                           \
            return narrow(CLAMP(as_float(a)), KIND) << 8 | narrow(CLAMP(as_float(b)), KIND);                           \
        }                                                                                                              \
    };                                                                                                                 \
    struct NAME##Halves {                                                                                              \
        static __device__ u32 device(u32 a, u32, u32) {                                                                \
            unsigned short d;                                                                                          \
            asm("cvt.rn.satfinite" RELU "." TYPE ".f16x2 %0, %1;" : "=h"(d) : "r"(a));                                 \
            return d;                                                                                                  \
        }                                                                                                              \
        static u32 host(u32 a, u32, u32) {                                                                             \
            return narrow(CLAMP(half_value(a >> 16)), KIND) << 8 | narrow(CLAMP(half_value(a)), KIND);                 \
        }                                                                                                              \
    };
NARROW(E4m3, "e4m3x2", __NV_E4M3, "", float)
NARROW(E5m2, "e5m2x2", __NV_E5M2, "", float)
NARROW(E4m3Relu, "e4m3x2", __NV_E4M3, ".relu", relu)
NARROW(E5m2Relu, "e5m2x2", __NV_E5M2, ".relu", relu)

#define WIDEN(NAME, TYPE, KIND)                                                                                        \
    struct NAME {                                                                                                      \
        static __device__ u32 device(u32 a, u32, u32) {                                                                \
            u32 d;                                                                                                     \
            asm("cvt.rn.f16x2." TYPE " %0, %1;" : "=r"(d) : "h"((unsigned short)a));                                   \
            return d;                                                                                                  \
        }                                                                                                              \
        static u32 host(u32 a, u32, u32) {                                                                             \
            return u32(__nv_cvt_fp8_to_halfraw(uint8_t(a >> 8), KIND).x) << 16 |                                       \
                   __nv_cvt_fp8_to_halfraw(uint8_t(a), KIND).x;                                                        \
        }                                                                                                              \
    };
WIDEN(WidenE4m3, "e4m3x2", __NV_E4M3)
WIDEN(WidenE5m2, "e5m2x2", __NV_E5M2)

// ---- parts of words ----

static int64_t part(u32 v, int bits, int n, bool is_signed) {
    int64_t w = int64_t(v) >> bits * n & ((int64_t(1) << bits) - 1);
    return is_signed && w >> (bits - 1) ? w - (int64_t(1) << bits) : w;
}

template <class F> static u32 each(int bits, F f) {
    u32 d = 0;
    for (int n = 0; n < 32 / bits; n++) d |= u32(f(n) & ((int64_t(1) << bits) - 1)) << bits * n;
    return d;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) { return std::min(std::max(v, low), high); }

#define THREE(NAME, PTX, HOST)                                                                                         \
    struct NAME {                                                                                                      \
        static __device__ u32 device(u32 a, u32 b, u32 c) {                                                            \
            u32 d;                                                                                                     \
            asm(PTX : "=r"(d) : "r"(a), "r"(b), "r"(c));                                                               \
            return d;                                                                                                  \
        }                                                                                                              \
        static u32 host(u32 a, u32 b, u32 c) {                                                                         \
            (void)c;                                                                                                   \
            return u32(HOST);                                                                                          \
        }                                                                                                              \
    };
#define S16(V) part(V, 16, n, true)
#define U16(V) part(V, 16, n, false)
#define S8(V) part(V, 8, n, true)
#define U8(V) part(V, 8, n, false)
THREE(AddHalfwords, "add.s16x2 %0, %1, %2;", each(16, [=](int n) { return S16(a) + S16(b); }))
THREE(MinSigned, "min.s16x2 %0, %1, %2;", each(16, [=](int n) { return std::min(S16(a), S16(b)); }))
THREE(MaxUnsigned, "max.u16x2 %0, %1, %2;", each(16, [=](int n) { return std::max(U16(a), U16(b)); }))
THREE(MaxRelu, "max.relu.s16x2 %0, %1, %2;", each(16, [=](int n) { return clamp(std::max(S16(a), S16(b)), 0, 32767); }))
THREE(MinReluWord, "min.relu.s32 %0, %1, %2;", std::max(0, std::min(int(a), int(b))))
THREE(ShiftAdd, "vshr.u32.u32.u32.clamp.add %0, %1, %2, %3;", (b > 31 ? 0 : a >> b) + c)
THREE(ShiftWrapped, "vshr.s32.s32.u32.wrap.max %0, %1.h1, %2.b0, %3;",
      std::max(part(a, 16, 1, true) >> (part(b, 8, 0, false) & 31), int64_t(int(c))))
THREE(AddClamped, "vadd.s32.s32.s32.sat %0, %1, %2;", clamp(int64_t(int(a)) + int(b), INT32_MIN, INT32_MAX))
THREE(SubMin, "vsub.s32.u32.u32.sat.min %0, %1, %2, %3;",
      std::min(clamp(int64_t(a) - int64_t(b), INT32_MIN, INT32_MAX), int64_t(int(c))))
THREE(DifferenceByte, "vabsdiff.u32.u32.u32.sat %0.b2, %1.h0, %2.h1, %3;",
      (c & 0xff00ffff) | std::min(255u, a % 65536 > b >> 16 ? a % 65536 - (b >> 16) : (b >> 16) - a % 65536) << 16)
THREE(MinHalf, "vmin.s32.s32.u32 %0.h1, %1.b3, %2.b0, %3;",
      // The upper half of the result: ptxas differs from PTX's description.
      (c & 0xffff) | (u32(std::min(part(a, 8, 3, true), part(b, 8, 0, false))) & 0xffff0000))
THREE(MinLowerHalf, "vmin.s32.s32.u32 %0.h0, %1.b3, %2.b0, %3;",
      (c & 0xffff0000) | (u32(std::min(part(a, 8, 3, true), part(b, 8, 0, false))) & 0xffff))
THREE(SumHalf, "vadd.u32.u32.u32 %0.h1, %1, %2, %3;", (c & 0xffff) | ((a + b) & 0xffff0000))
THREE(SetAdd, "vset.u32.s32.lt.add %0, %1, %2, %3;", u32(int64_t(a) < int64_t(int(b))) + c)
THREE(Product, "vmad.s32.s32.s32.sat.shr7 %0, %1, %2, %3;",
      clamp((int64_t(int(a)) * int(b) + int(c)) >> 7, INT32_MIN, INT32_MAX))
THREE(ProductNegated, "vmad.s32.u32.u32.sat.shr15 %0, %1.h0, -%2.h1, %3;",
      clamp((int64_t(int(c)) - part(a, 16, 0, false) * part(b, 16, 1, false)) >> 15, INT32_MIN, INT32_MAX))
THREE(MaxBytes, "vmax4.s32.s32.s32 %0, %1, %2, %3;", each(8, [=](int n) { return std::max(S8(a), S8(b)); }))
THREE(SumOfDifferences, "vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;", [=] {
    int64_t sum = c;
    for (int n = 0; n < 4; n++) sum += U8(a) > U8(b) ? U8(a) - U8(b) : U8(b) - U8(a);
    return sum;
}())
THREE(AverageHalves, "vavrg2.s32.s32.s32 %0, %1, %2, %3;",
      each(16, [=](int n) { return (S16(a) + S16(b) + (S16(a) + S16(b) >= 0)) >> 1; }))
THREE(SubBytes, "vsub4.s32.s32.s32.sat %0, %1, %2, %3;",
      each(8, [=](int n) { return clamp(S8(a) - S8(b), -128, 127); }))
THREE(SetBytes, "vset4.u32.s32.ge %0, %1, %2, %3;", each(8, [=](int n) { return U8(a) >= S8(b); }))
THREE(AddSelected, "vadd2.u32.u32.u32.sat %0.h1, %1.h21, %2.h03, %3;",
      (c & 0xffff) | u32(clamp(int64_t(b & 0xffff) + (a & 0xffff), 0, 65535)) << 16)

// ---- halves ----

// The half next to a number that singles hold exactly, or that is so close that only one is next to it.
static u32 half_of(float v) { return __half_raw(__float2half_rn(v)).x; }

static u32 flushed(u32 h) { return h & 0x7c00 ? h & 0xffff : h & 0x8000; }

static u32 finite(u32 h) { return (h & 0x7fff) == 0x7c00 ? h - 1 : h; }

static u32 is_true(bool lower, bool upper) { return u32(lower) | u32(upper) << 1; }

THREE(AddFlushed, "add.ftz.f16x2 %0, %1, %2;", each(16, [=](int n) {
          return flushed(half_of(half_value(flushed(U16(a))) + half_value(flushed(U16(b)))));
      }))
THREE(ReluHalves, "fma.rn.relu.f16x2 %0, %1, %2, %3;", each(16, [=](int n) {
          // Of 22 bits, a product of halves and its sum with one are exact in double precision.
          double v = double(half_value(U16(a))) * half_value(U16(b)) + half_value(U16(c));
          return __half_raw(__double2half(v != v || v > 0 ? v : 0)).x;
      }))
THREE(ComparePairs, "{ .reg .pred p, q; .reg .b32 t; setp.lt.f16x2 p|q, %1, %2; selp.b32 %0, 1, 0, p; "
                    "selp.b32 t, 2, 0, q; or.b32 %0, %0, t; }",
      is_true(half_value(a) < half_value(b), half_value(a >> 16) < half_value(b >> 16)))
THREE(SatfiniteHalves, "cvt.rn.satfinite.f16x2.f32 %0, %1, %2;",
      finite(half_of(as_float(a))) << 16 | finite(half_of(as_float(b))))

int main() {
    std::vector<u32> singles[3], halves[3], words[3];
    // Singles near the values of eight-bit floats and the middles between them, and others.
    for (auto &v : singles) {
        for (u32 i = 0; i < 1 << 16; i++) {
            u32 near = (random_word() & 0x80780000) | (127 - 20 + i % 40) << 23, step = random_word() % 3 - 1;
            v.push_back(i % 4 == 0 ? random_word() : near + step);
        }
        v[0] = 0x7f800000, v[1] = 0xff800000, v[2] = 0x7fc00000, v[3] = 0xffa00001, v[4] = 0x80000000, v[5] = 1;
    }
    for (u32 k = 0; k < 3; k++) {
        for (u32 i = 0; i < 1 << 16; i++) halves[k].push_back(i << 16 | ((i * 40503 + k) & 0xffff));
    }
    // A sum that is minus zero.
    halves[0][0] = 0x80003c00, halves[1][0] = 0x3c008000, halves[2][0] = 0x80008000;
    fill(words, 1 << 14);
    check<E4m3>("singles to e4m3", singles);
    check<E5m2>("singles to e5m2", singles);
    check<E4m3Relu>("singles to e4m3, relu", singles);
    check<E5m2Relu>("singles to e5m2, relu", singles);
    check<E4m3Halves>("halves to e4m3", halves);
    check<E5m2Halves>("halves to e5m2", halves);
    check<E4m3ReluHalves>("halves to e4m3, relu", halves);
    check<E5m2ReluHalves>("halves to e5m2, relu", halves);
    check<WidenE4m3>("e4m3 to halves", halves);
    check<WidenE5m2>("e5m2 to halves", halves);
    check<AddHalfwords>("add.s16x2", words);
    check<MinSigned>("min.s16x2", words);
    check<MaxUnsigned>("max.u16x2", words);
    check<MaxRelu>("max.relu.s16x2", words);
    check<MinReluWord>("min.relu.s32", words);
    check<ShiftAdd>("vshr.clamp.add", words);
    check<ShiftWrapped>("vshr.wrap.max", words);
    check<AddClamped>("vadd.sat", words);
    check<SubMin>("vsub.sat.min", words);
    check<DifferenceByte>("vabsdiff.sat into a byte", words);
    check<MinHalf>("vmin into an upper half", words);
    check<MinLowerHalf>("vmin into a lower half", words);
    check<SumHalf>("vadd into an upper half", words);
    check<SetAdd>("vset.lt.add", words);
    check<Product>("vmad.sat.shr7", words);
    check<ProductNegated>("vmad of a negated product", words);
    check<MaxBytes>("vmax4", words);
    check<SumOfDifferences>("vabsdiff4.add", words);
    check<AverageHalves>("vavrg2", words);
    check<SubBytes>("vsub4.sat", words);
    check<SetBytes>("vset4.ge", words);
    check<AddSelected>("vadd2.sat of selected halves", words);
    check<AddFlushed>("add.ftz.f16x2", halves);
    check<ReluHalves>("fma.rn.relu.f16x2", halves);
    check<ComparePairs>("setp.lt.f16x2", halves);
    check<SatfiniteHalves>("singles to finite halves", singles);
    return verdict();
}
