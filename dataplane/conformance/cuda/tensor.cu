// Products of matrices on tensor cores: nvcuda::wmma, and mma, ldmatrix, stmatrix and movmatrix as PTX.
//
// Integers and doubles are exact. Other floats are held to a tolerance, and where the device has compute capability 9.0
// also to the bits of a model of its tensor cores: the products of a step and the old sum are exact, are cut off 25
// binary places below the leading bit of the largest, and are added; the result is cut off to single precision or
// rounded to half precision.
#include "check.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <string>
#include <vector>

using namespace nvcuda;

static bool has_model = false;

static uint64_t random_bits() {
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1d >> 16;
}

template <class T> struct Buffer {
    T *at;
    size_t n;
    explicit Buffer(const std::vector<T> &v) : n(v.size()) {
        OK(cudaMalloc(&at, n * sizeof(T)));
        OK(cudaMemcpy(at, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~Buffer() { cudaFree(at); }
    std::vector<T> read() {
        std::vector<T> v(n);
        OK(cudaMemcpy(v.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

// ---- whole matrices by nvcuda::wmma: C += A B, of 64x64x64, each warp one tile of C ----

constexpr int SIDE = 64;

template <class In, class Storage, class Sum, int M, int N, int K, class OrderA, class OrderB>
__global__ void tiles(const Storage *a, const Storage *b, Sum *c) {
    wmma::fragment<wmma::matrix_a, M, N, K, In, OrderA> x;
    wmma::fragment<wmma::matrix_b, M, N, K, In, OrderB> y;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> z;
    int row = blockIdx.y * M, column = blockIdx.x * N;
    constexpr bool a_rows = std::is_same<OrderA, wmma::row_major>::value;
    constexpr bool b_rows = std::is_same<OrderB, wmma::row_major>::value;
    wmma::load_matrix_sync(z, c + row * SIDE + column, SIDE, wmma::mem_row_major);
    for (int k = 0; k < SIDE; k += K) {
        wmma::load_matrix_sync(x, a + (a_rows ? row * SIDE + k : k * SIDE + row), SIDE);
        wmma::load_matrix_sync(y, b + (b_rows ? k * SIDE + column : column * SIDE + k), SIDE);
        wmma::mma_sync(z, x, y, z);
    }
    // Elementwise work on fragments, whatever their order is.
    for (int i = 0; i < z.num_elements; i++) z.x[i] = z.x[i] + z.x[i];
    wmma::store_matrix_sync(c + row * SIDE + column, z, SIDE, wmma::mem_row_major);
}

template <class In, class Storage, class Sum, int M, int N, int K, class OrderA, class OrderB>
void multiply(const char *what, double tolerance) {
    std::vector<Storage> a(SIDE * SIDE), b(SIDE * SIDE);
    std::vector<Sum> c(SIDE * SIDE);
    constexpr bool is_integer = std::is_same<Sum, int>::value;
    for (auto &v : a) v = Storage(is_integer ? double(int(random_bits() % 256) - 128) : random_bits() % 65 / 32.0 - 1);
    for (auto &v : b) v = Storage(is_integer ? double(int(random_bits() % 256) - 128) : random_bits() % 65 / 32.0 - 1);
    for (auto &v : c) v = Sum(double(int(random_bits() % 17) - 8));
    Buffer<Storage> x(a), y(b);
    Buffer<Sum> z(c);
    tiles<In, Storage, Sum, M, N, K, OrderA, OrderB><<<dim3(SIDE / N, SIDE / M), 32>>>(x.at, y.at, z.at);
    OK(cudaDeviceSynchronize());
    std::vector<Sum> d = z.read();
    double worst = 0;
    constexpr bool a_rows = std::is_same<OrderA, wmma::row_major>::value;
    constexpr bool b_rows = std::is_same<OrderB, wmma::row_major>::value;
    for (int r = 0; r < SIDE; r++) {
        for (int n = 0; n < SIDE; n++) {
            double sum = double(c[r * SIDE + n]);
            for (int k = 0; k < SIDE; k++) {
                double x = double(a[a_rows ? r * SIDE + k : k * SIDE + r]);
                sum += x * double(b[b_rows ? k * SIDE + n : n * SIDE + k]);
            }
            worst = std::max(worst, std::fabs(double(d[r * SIDE + n]) - 2 * sum));
        }
    }
    if (!(worst <= tolerance)) std::printf("  differs by %g\n", worst);
    holds(what, worst <= tolerance);
}

// ---- single instructions, on fragments as PTX lays them out ----

// A format: bits, of which exponent; or an integer, or a double.
struct Format {
    enum Kind { FLOAT, TF32, E4M3, SIGNED, UNSIGNED, DOUBLE } kind;
    int bits, exponent_bits;

    int fraction_bits() const { return bits - 1 - exponent_bits; }
    uint64_t mask() const { return bits == 64 ? ~0ull : (1ull << bits) - 1; }

    double value(uint64_t code) const {
        if (kind == DOUBLE) {
            double v;
            std::memcpy(&v, &code, 8);
            return v;
        }
        if (kind == SIGNED) return double(int64_t(code << (64 - bits)) >> (64 - bits));
        if (kind == UNSIGNED) return double(code);
        if (kind == TF32) code &= ~0x1fffull;
        uint64_t magnitude = code & (mask() >> 1), top = ((1ull << exponent_bits) - 1) << fraction_bits();
        if (kind == E4M3 ? magnitude == mask() >> 1 : magnitude > top) return NAN;
        double v = INFINITY;
        if (kind == E4M3 || magnitude < top) {
            int e = int(magnitude >> fraction_bits()), bias = (1 << (exponent_bits - 1)) - 1;
            double fraction = double(magnitude & ((1ull << fraction_bits()) - 1));
            v = e == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits())
                       : std::ldexp(fraction + double(1ull << fraction_bits()), e - bias - fraction_bits());
        }
        return code >> (bits - 1) & 1 ? -v : v;
    }

    // What a part of a sum is aligned by. Eight-bit floats are multiplied as half precision.
    int exponent(uint64_t code) const {
        double v = value(code);
        return v == 0 ? -100000 : std::max(std::ilogb(v), bits == 32 || exponent_bits == 8 ? -126 : -14);
    }

    // 0: around one; 1: any finite; 2: with infinities and NaNs; 3: zeros, subnormal numbers and the largest.
    uint64_t any(int wildness) const {
        uint64_t all = (random_bits() ^ random_bits() << 40) & mask();
        if (kind == DOUBLE) {
            double v = double(int64_t(all)) * (wildness == 0 ? 1e-18 : 1e80);
            std::memcpy(&all, &v, 8);
            return all;
        }
        if (kind == SIGNED || kind == UNSIGNED) {
            uint64_t edges[] = {1ull << (bits - 1), mask() >> 1, mask()};
            return wildness == 3 ? edges[random_bits() % 3] : all;
        }
        uint64_t fraction = all & ((1ull << fraction_bits()) - 1), top = (1ull << exponent_bits) - 1, e = 0;
        if (wildness == 0) e = top / 2 - 1 + random_bits() % 2;
        if (wildness == 1 || wildness == 2) e = random_bits() % top;
        if (wildness == 2 && random_bits() % 60 == 0) e = top;
        if (wildness == 3) {
            uint64_t edges[] = {0, 0, 1, top - 1};
            int edge = int(random_bits() % 4);
            e = edges[edge];
            if (edge == 0) fraction = 0;
        }
        return (all >> (bits - 1)) << (bits - 1) | e << fraction_bits() | fraction;
    }
};

static const Format F16{Format::FLOAT, 16, 5}, BF16{Format::FLOAT, 16, 8}, F32{Format::FLOAT, 32, 8},
    TF32{Format::TF32, 32, 8}, E4M3{Format::E4M3, 8, 4}, E5M2{Format::FLOAT, 8, 5}, S8{Format::SIGNED, 8, 0},
    U8{Format::UNSIGNED, 8, 0}, S4{Format::SIGNED, 4, 0}, U4{Format::UNSIGNED, 4, 0}, S32{Format::SIGNED, 32, 0},
    F64{Format::DOUBLE, 64, 0};

struct Pair {
    const Format *left, *right;
    uint64_t x, y;
    double product() const { return left->value(x) * right->value(y); }
};

// Rounds to a float of 32 or 16 bits: by cutting off, or to the nearest even.
static uint64_t encode(double v, const Format &to) {
    uint64_t sign = std::signbit(v) ? 1ull << (to.bits - 1) : 0, all = to.mask() >> 1;
    if (std::isnan(v)) return all;
    uint64_t infinity = ((1ull << to.exponent_bits) - 1) << to.fraction_bits();
    if (std::isinf(v)) return sign | infinity;
    int bias = (1 << (to.exponent_bits - 1)) - 1;
    int e = v == 0 ? 1 - bias : std::max(std::ilogb(v), 1 - bias);
    double steps = std::ldexp(std::fabs(v), to.fraction_bits() - e);
    uint64_t n = uint64_t(to.bits == 32 ? std::trunc(steps) : std::nearbyint(steps));
    // A carry goes into the exponent. Of a subnormal number the exponent's field is zero.
    uint64_t code = (uint64_t(e + bias - 1) << to.fraction_bits()) + n;
    return sign | std::min(code, infinity);
}

// One step of an H100's tensor core, rounded.
static uint64_t step(const std::vector<Pair> &pairs, uint64_t old, const Format &sum) {
    double loose = sum.value(old);
    int top = std::max(sum.exponent(old), -126);
    for (auto &p : pairs) {
        loose += p.product();
        top = std::max(top, p.left->exponent(p.x) + p.right->exponent(p.y));
    }
    if (!std::isfinite(loose)) return encode(loose, sum);
    int64_t total = int64_t(std::trunc(std::ldexp(sum.value(old), 25 - top)));
    for (auto &p : pairs) total += int64_t(std::trunc(std::ldexp(p.product(), 25 - top)));
    return encode(std::ldexp(double(total), top - 25), sum);
}

static uint64_t model(const std::vector<Pair> &pairs, uint64_t old, const Format &sum) {
    if (pairs[0].left->bits != 8) return step(pairs, old, sum);
    // Two steps in half precision, each of two products of every four; then the old sum is added.
    std::vector<Pair> halves[2];
    for (size_t k = 0; k < pairs.size(); k++) halves[k % 4 / 2].push_back(pairs[k]);
    uint64_t products = step(halves[1], step(halves[0], 0, sum), sum);
    double v = sum.value(old) + sum.value(products);
    if (sum.bits == 16) return encode(v, sum);
    float single = float(v);
    uint32_t code;
    std::memcpy(&code, &single, 4);
    return std::isnan(v) ? 0x7fffffff : code;
}

template <class Op, class Word> __global__ void fragments(const Word *in, Word *out) {
    Word a[Op::A], b[Op::B], c[Op::C], d[Op::D];
    int lane = threadIdx.x;
    for (int i = 0; i < Op::A; i++) a[i] = in[32 * i + lane];
    for (int i = 0; i < Op::B; i++) b[i] = in[32 * (Op::A + i) + lane];
    for (int i = 0; i < Op::C; i++) c[i] = in[32 * (Op::A + Op::B + i) + lane];
    Op::go(d, a, b, c, unsigned(in[32 * (Op::A + Op::B + Op::C) + lane]));
    for (int i = 0; i < Op::D; i++) out[32 * i + lane] = d[i];
}

// An instruction by the registers of its result, its factors and its old sums.
#define IN1(v) "r"(v[0])
#define IN2(v) IN1(v), "r"(v[1])
#define IN4(v) IN2(v), "r"(v[2]), "r"(v[3])
#define OUT2(v) "=r"(v[0]), "=r"(v[1])
#define OUT4(v) OUT2(v), "=r"(v[2]), "=r"(v[3])
#define INSTRUCTION(NAME, D_, A_, B_, C_, TEXT, OPERANDS)                                                              \
    struct NAME {                                                                                                      \
        enum { D = D_, A = A_, B = B_, C = C_ };                                                                       \
        static __device__ void go(unsigned *d, const unsigned *a, const unsigned *b, const unsigned *c, unsigned m) {  \
            asm volatile(TEXT OPERANDS : OUT##D_(d) : IN##A_(a), IN##B_(b), IN##C_(c), "r"(m));                        \
        }                                                                                                              \
    };
#define O4424 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
#define O4214 " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
#define O2422 " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"
#define O2112 " {%0,%1}, {%2}, {%3}, {%4,%5};"
#define O4444(S) " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%12,%13,%14,%15}, %16, " S ";"
#define O4224(S) " {%0,%1,%2,%3}, {%4,%5}, {%6,%7}, {%8,%9,%10,%11}, %12, " S ";"
#define MMA "mma.sync.aligned."
#define SPARSE "mma.sp::ordered_metadata.sync.aligned."

INSTRUCTION(Half16, 4, 4, 2, 4, MMA "m16n8k16.row.col.f32.f16.f16.f32", O4424)
INSTRUCTION(Half8, 4, 2, 1, 4, MMA "m16n8k8.row.col.f32.f16.f16.f32", O4214)
INSTRUCTION(HalfSums16, 2, 4, 2, 2, MMA "m16n8k16.row.col.f16.f16.f16.f16", O2422)
INSTRUCTION(Brain16, 4, 4, 2, 4, MMA "m16n8k16.row.col.f32.bf16.bf16.f32", O4424)
INSTRUCTION(Brain8, 4, 2, 1, 4, MMA "m16n8k8.row.col.f32.bf16.bf16.f32", O4214)
INSTRUCTION(Short8, 4, 4, 2, 4, MMA "m16n8k8.row.col.f32.tf32.tf32.f32", O4424)
INSTRUCTION(Short4, 4, 2, 1, 4, MMA "m16n8k4.row.col.f32.tf32.tf32.f32", O4214)
INSTRUCTION(Eight32, 4, 4, 2, 4, MMA "m16n8k32.row.col.f32.e4m3.e5m2.f32", O4424)
INSTRUCTION(EightSums32, 2, 4, 2, 2, MMA "m16n8k32.row.col.f16.e5m2.e4m3.f16", O2422)
INSTRUCTION(Eight16, 4, 2, 1, 4, MMA "m16n8k16.row.col.f32.e4m3.e4m3.f32", O4214)
INSTRUCTION(Bytes32, 4, 4, 2, 4, MMA "m16n8k32.row.col.satfinite.s32.s8.u8.s32", O4424)
INSTRUCTION(Bytes16, 2, 1, 1, 2, MMA "m8n8k16.row.col.s32.u8.s8.s32", O2112)
INSTRUCTION(Nibbles64, 4, 4, 2, 4, MMA "m16n8k64.row.col.s32.s4.u4.s32", O4424)
INSTRUCTION(SparseHalf32, 4, 4, 4, 4, SPARSE "m16n8k32.row.col.f32.f16.f16.f32", O4444("1"))
INSTRUCTION(SparseHalf16, 4, 2, 2, 4, SPARSE "m16n8k16.row.col.f32.f16.f16.f32", O4224("2"))
INSTRUCTION(SparseBrain32, 4, 4, 4, 4, SPARSE "m16n8k32.row.col.f32.bf16.bf16.f32", O4444("0"))
INSTRUCTION(SparseShort16, 4, 4, 4, 4, SPARSE "m16n8k16.row.col.f32.tf32.tf32.f32", O4444("1"))
INSTRUCTION(SparseBytes64, 4, 4, 4, 4, SPARSE "m16n8k64.row.col.s32.s8.s8.s32", O4444("0"))
INSTRUCTION(SparseBytes32, 4, 2, 2, 4, SPARSE "m16n8k32.row.col.s32.u8.s8.s32", O4224("1"))

struct Double16 {
    enum { D = 4, A = 8, B = 4, C = 4 };
    typedef uint64_t Word;
    static __device__ void go(Word *d, const Word *a, const Word *b, const Word *c, unsigned) {
        asm volatile(MMA "m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, "
                         "{%12,%13,%14,%15}, {%16,%17,%18,%19};"
                     : "=l"(d[0]), "=l"(d[1]), "=l"(d[2]), "=l"(d[3])
                     : "l"(a[0]), "l"(a[1]), "l"(a[2]), "l"(a[3]), "l"(a[4]), "l"(a[5]), "l"(a[6]), "l"(a[7]),
                       "l"(b[0]), "l"(b[1]), "l"(b[2]), "l"(b[3]), "l"(c[0]), "l"(c[1]), "l"(c[2]), "l"(c[3]));
    }
};

// What is multiplied, and with which selector of sparsity, or none.
struct Form {
    const char *what;
    int m, k;
    Format a, b, sum;
    int selector;
};

static Form dense(const char *what, int m, int k, Format a, Format b, Format sum) {
    return {what, m, k, a, b, sum, -1};
}

template <class Op, class Word> static void check_once(const Form &f, int wildness, int &bits, double &worst) {
    int width = 8 * sizeof(Word), stored = f.selector < 0 ? f.k : f.k / 2;
    std::vector<uint64_t> a(f.m * stored), b(f.k * 8), c(f.m * 8);
    std::vector<int> index(f.m * stored);
    for (auto &v : a) v = f.a.any(wildness);
    for (auto &v : b) v = f.b.any(wildness);
    for (auto &v : c) v = f.sum.any(wildness);
    std::vector<Word> in(32 * (Op::A + Op::B + Op::C + 1));
    // Metadata: two of four, or one of two of 32 bits.
    for (int row = 0; row < f.m; row++) {
        uint64_t code = 0;
        for (int j = 0; j < stored; j++) index[row * stored + j] = j;
        if (f.selector < 0) continue;
        for (int chunk = 0; chunk < f.k / (f.a.bits == 32 ? 2 : 4); chunk++) {
            static const int choices[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
            const int *two = choices[random_bits() % 6];
            if (f.a.bits == 32) {
                two = choices[random_bits() % 2 ? 5 : 0];
                index[row * stored + chunk] = 2 * chunk + two[0] / 2;
            } else {
                for (int i = 0; i < 2; i++) index[row * stored + 2 * chunk + i] = 4 * chunk + two[i];
            }
            code |= uint64_t(two[0] | two[1] << 2) << (4 * chunk);
        }
        Word *metadata = &in[32 * (Op::A + Op::B + Op::C)] + row % 8 * 4;
        int upper = row / 8, is_short = Op::A == 2;
        if (f.a.bits >= 16) {
            int first = is_short ? f.selector : 2 * f.selector;
            metadata[first] |= Word(code & 0xffff) << (16 * upper);
            if (!is_short) metadata[first + 1] |= Word(code >> 16) << (16 * upper);
        } else {
            metadata[(is_short ? 2 * f.selector : 0) + upper] = Word(uint32_t(code));
            if (!is_short) metadata[2 + upper] = Word(code >> 32);
        }
    }
    auto put = [&](int from, int lane, int i, int bits, uint64_t code) {
        int per = width / bits;
        in[32 * (from + i / per) + lane] |= Word(code) << (bits * (i % per));
    };
    int of_a = width / f.a.bits, of_b = width / f.b.bits, of_c = width / f.sum.bits;
    for (int lane = 0; lane < 32; lane++) {
        int group = lane / 4, thread = lane % 4;
        for (int i = 0; i < Op::A * of_a; i++) {
            int row = f.m == 8 ? group : group + 8 * (i / of_a % 2);
            int block = f.m == 8 ? i / of_a : i / of_a / 2;
            put(0, lane, i, f.a.bits, a[row * stored + (4 * block + thread) * of_a + i % of_a]);
        }
        for (int i = 0; i < Op::B * of_b; i++) {
            put(Op::A, lane, i, f.b.bits, b[((4 * (i / of_b) + thread) * of_b + i % of_b) * 8 + group]);
        }
        for (int i = 0; i < Op::C * of_c; i++) {
            put(Op::A + Op::B, lane, i, f.sum.bits, c[(group + i / 2 * 8) * 8 + thread * 2 + i % 2]);
        }
    }
    Buffer<Word> input(in), output(std::vector<Word>(32 * Op::D));
    fragments<Op, Word><<<1, 32>>>(input.at, output.at);
    OK(cudaDeviceSynchronize());
    std::vector<Word> out = output.read();
    for (int i = 0; i < f.m * 8; i++) {
        int row = i / 8, column = i % 8, lane = row % 8 * 4 + column / 2, element = row / 8 * 2 + column % 2;
        uint64_t got = uint64_t(out[32 * (element / of_c) + lane] >> (f.sum.bits * (element % of_c))) & f.sum.mask();
        std::vector<Pair> pairs;
        for (int j = 0; j < stored; j++) {
            pairs.push_back({&f.a, &f.b, a[row * stored + j], b[index[row * stored + j] * 8 + column]});
        }
        uint64_t want;
        if (f.sum.kind == Format::SIGNED) {
            int64_t sum = int64_t(f.sum.value(c[i]));
            for (auto &p : pairs) sum += int64_t(p.product());
            bool saturates = std::strstr(f.what, "saturate");
            want = uint32_t(saturates ? std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX) : sum);
        } else if (f.sum.kind == Format::DOUBLE) {
            double sum = f.sum.value(c[i]);
            for (auto &p : pairs) sum = std::fma(f.a.value(p.x), f.b.value(p.y), sum);
            std::memcpy(&want, &sum, 8);
        } else {
            want = model(pairs, c[i], f.sum);
            double exact = f.sum.value(c[i]), size = std::fabs(exact);
            for (auto &p : pairs) {
                exact += p.product();
                size += std::fabs(p.product());
            }
            // Whatever a device does, it is near the sum of what is finite, and no number where that is none.
            double v = f.sum.value(got), error = std::fabs(v - exact) / size;
            if (wildness == 0) worst = std::max(worst, error);
            if (wildness == 2 && std::isnan(exact) && !std::isnan(v)) worst = INFINITY;
            if (wildness == 2 && std::isinf(exact) && std::isfinite(v)) worst = INFINITY;
        }
        if (got != want && bits++ == 0) {
            std::printf("  wildness %d, %d,%d: %llx, the model has %llx\n", wildness, row, column,
                        (unsigned long long)got, (unsigned long long)want);
        }
    }
}

template <class Op, class Word> static void check(const Form &f) {
    int bits = 0;
    double worst = 0;
    for (int round = 0; round < 40; round++) check_once<Op, Word>(f, round % 4, bits, worst);
    bool is_exact = f.sum.kind == Format::SIGNED || f.sum.kind == Format::DOUBLE;
    if (!is_exact) {
        // 23 and 10 bits of fraction, some of which sums of parts of different sizes lose.
        double tolerance = f.sum.bits == 32 ? 1e-6 : 4e-3;
        if (worst > tolerance) std::printf("  differs by %g of its parts\n", worst);
        holds((std::string(f.what) + " is near the sum of its products").c_str(), worst <= tolerance);
    }
    if (is_exact || has_model) holds((std::string(f.what) + " has every bit").c_str(), bits == 0);
}

// ---- matrices between shared memory and registers ----

__global__ void rows(const unsigned *in, unsigned *out) {
    __shared__ __align__(16) unsigned memory[2][128];
    int lane = threadIdx.x;
    for (int i = 0; i < 4; i++) memory[0][32 * i + lane] = in[32 * i + lane];
    __syncwarp();
    unsigned from = unsigned(__cvta_generic_to_shared(&memory[0][4 * lane]));
    unsigned to = unsigned(__cvta_generic_to_shared(&memory[1][4 * lane]));
    unsigned d[4], t[4], moved;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(from)
                 : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(t[0]), "=r"(t[1]), "=r"(t[2]), "=r"(t[3])
                 : "r"(from)
                 : "memory");
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(moved) : "r"(d[2]));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(t[0]), "r"(t[1]),
                 "r"(t[2]), "r"(t[3])
                 : "memory");
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        out[32 * i + lane] = d[i];
        out[128 + 32 * i + lane] = t[i];
        out[256 + 32 * i + lane] = memory[1][32 * i + lane];
    }
    out[384 + lane] = moved;
}

static void check_rows() {
    std::vector<unsigned> in(128);
    for (auto &v : in) v = unsigned(random_bits());
    Buffer<unsigned> input(in), output(std::vector<unsigned>(416));
    rows<<<1, 32>>>(input.at, output.at);
    OK(cudaDeviceSynchronize());
    std::vector<unsigned> out = output.read();
    auto element = [&](int matrix, int r, int c) { return in[32 * matrix + 4 * r + c / 2] >> (16 * (c % 2)) & 0xffff; };
    bool plain = true, turned = true, stored = true, moved = true;
    for (int i = 0; i < 128; i++) {
        int matrix = i / 32, r = i % 32 / 4, c = i % 4 * 2;
        plain &= out[i] == in[i];
        turned &= out[128 + i] == (element(matrix, c, r) | element(matrix, c + 1, r) << 16);
        stored &= out[256 + i] == in[i];
        if (matrix == 2) moved &= out[384 + i % 32] == (element(2, c, r) | element(2, c + 1, r) << 16);
    }
    holds("ldmatrix gives each thread its part of a row", plain);
    holds("ldmatrix.trans gives each thread its part of a column", turned);
    holds("stmatrix.trans undoes ldmatrix.trans", stored);
    holds("movmatrix turns a matrix over", moved);
}

int main() {
    cudaDeviceProp properties;
    OK(cudaGetDeviceProperties(&properties, 0));
    has_model = properties.major == 9 && properties.minor == 0;
    std::printf("compute capability %d.%d: %s\n", properties.major, properties.minor,
                has_model ? "sums are held to every bit" : "sums are held to a tolerance");
    typedef wmma::row_major Row;
    typedef wmma::col_major Column;
    multiply<half, half, float, 16, 16, 16, Row, Column>("wmma of half precision, 16x16x16", 1e-3);
    multiply<half, half, float, 32, 8, 16, Column, Row>("wmma of half precision, 32x8x16", 1e-3);
    multiply<half, half, half, 8, 32, 16, Row, Row>("wmma of half precision with sums of it, 8x32x16", 0.5);
    multiply<__nv_bfloat16, __nv_bfloat16, float, 16, 16, 16, Column, Column>("wmma of bfloat16", 1e-3);
    multiply<wmma::precision::tf32, float, float, 16, 16, 8, Row, Row>("wmma of TF32", 1e-3);
    multiply<double, double, double, 8, 8, 4, Row, Column>("wmma of doubles", 1e-10);
    multiply<signed char, signed char, int, 16, 16, 16, Row, Column>("wmma of bytes", 0);
    multiply<signed char, signed char, int, 32, 8, 16, Column, Column>("wmma of bytes, 32x8x16", 0);
    check_rows();
    check<Half16, unsigned>(dense("mma of half precision, 16x8x16", 16, 16, F16, F16, F32));
    check<Half8, unsigned>(dense("mma of half precision, 16x8x8", 16, 8, F16, F16, F32));
    check<HalfSums16, unsigned>(dense("mma of half precision with sums of it", 16, 16, F16, F16, F16));
    check<Brain16, unsigned>(dense("mma of bfloat16, 16x8x16", 16, 16, BF16, BF16, F32));
    check<Brain8, unsigned>(dense("mma of bfloat16, 16x8x8", 16, 8, BF16, BF16, F32));
    check<Short8, unsigned>(dense("mma of TF32, 16x8x8", 16, 8, TF32, TF32, F32));
    check<Short4, unsigned>(dense("mma of TF32, 16x8x4", 16, 4, TF32, TF32, F32));
    check<Eight32, unsigned>(dense("mma of e4m3 and e5m2", 16, 32, E4M3, E5M2, F32));
    check<EightSums32, unsigned>(dense("mma of e5m2 and e4m3 with sums of half precision", 16, 32, E5M2, E4M3, F16));
    check<Eight16, unsigned>(dense("mma of e4m3, 16x8x16", 16, 16, E4M3, E4M3, F32));
    check<Bytes32, unsigned>(dense("mma of bytes that saturates", 16, 32, S8, U8, S32));
    check<Bytes16, unsigned>(dense("mma of bytes, 8x8x16", 8, 16, U8, S8, S32));
    check<Nibbles64, unsigned>(dense("mma of four bits", 16, 64, S4, U4, S32));
    check<Double16, uint64_t>(dense("mma of doubles", 16, 16, F64, F64, F64));
    check<SparseHalf32, unsigned>({"sparse mma of half precision, 16x8x32", 16, 32, F16, F16, F32, 1});
    check<SparseHalf16, unsigned>({"sparse mma of half precision, 16x8x16", 16, 16, F16, F16, F32, 2});
    check<SparseBrain32, unsigned>({"sparse mma of bfloat16", 16, 32, BF16, BF16, F32, 0});
    check<SparseShort16, unsigned>({"sparse mma of TF32", 16, 16, TF32, TF32, F32, 1});
    check<SparseBytes64, unsigned>({"sparse mma of bytes, 16x8x64", 16, 64, S8, S8, S32, 0});
    check<SparseBytes32, unsigned>({"sparse mma of bytes, 16x8x32", 16, 32, U8, S8, S32, 1});
    return verdict();
}
