// CUB's algorithms with values of 1 to 32 bytes: the width decides how blocks hand each other partial results, in one
// word, in one vector or behind a fence. Each is compared with what the host computes.
//   cub [ROUNDS]
#include "check.h"
#include <algorithm>
#include <cstdint>
#include <cub/cub.cuh>
#include <vector>

template <class T> struct Buffer {
    T *at = nullptr;
    size_t count;
    explicit Buffer(size_t n) : count(n) { OK(cudaMalloc(&at, (n ? n : 1) * sizeof(T))); }
    explicit Buffer(const std::vector<T> &v) : Buffer(v.size()) {
        OK(cudaMemcpy(at, v.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~Buffer() { cudaFree(at); }
    Buffer(const Buffer &) = delete;
    std::vector<T> read(size_t n) const {
        std::vector<T> v(n);
        OK(cudaMemcpy(v.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
    std::vector<T> read() const { return read(count); }
};

// Words that are summed apart: two are a vector, four are more than one.
template <int Words> struct Sums {
    uint64_t word[Words];
    __host__ __device__ Sums(unsigned x = 0) {
        for (int i = 0; i < Words; i++) word[i] = x * (i + 1ull);
    }
    __host__ __device__ Sums operator+(const Sums &o) const {
        Sums r;
        for (int i = 0; i < Words; i++) r.word[i] = word[i] + o.word[i];
        return r;
    }
    __host__ __device__ bool operator==(const Sums &o) const {
        bool same = true;
        for (int i = 0; i < Words; i++) same = same && word[i] == o.word[i];
        return same;
    }
};

struct Plus {
    template <class T> __host__ __device__ T operator()(const T &a, const T &b) const { return T(a + b); }
};

// A composition of x -> a * x + b, which does not commute.
struct Affine {
    uint32_t a, b;
    __host__ __device__ bool operator==(const Affine &o) const { return a == o.a && b == o.b; }
};

struct Then {
    __host__ __device__ Affine operator()(const Affine &f, const Affine &g) const {
        return {f.a * g.a, f.b * g.a + g.b};
    }
};

// Runs a call of CUB twice: once to learn the memory it needs, once for its result.
template <class F> static void with_storage(F call) {
    size_t bytes = 0;
    OK(call(nullptr, bytes));
    Buffer<char> storage(bytes);
    OK(call(storage.at, bytes));
}

static int wrong = 0;

static void agrees(const char *what, int round, bool yes) {
    if (!yes) {
        std::printf("FAIL %s, round %d\n", what, round);
        wrong++;
    }
}

template <class T, class Op> static void scan(const char *what, int round, const std::vector<T> &in, Op op) {
    Buffer<T> d(in), out(in.size());
    std::vector<T> want(in);
    for (size_t i = 1; i < want.size(); i++) want[i] = op(want[i - 1], in[i]);
    with_storage([&](void *s, size_t &n) {
        return cub::DeviceScan::InclusiveScan(s, n, d.at, out.at, op, int(in.size()));
    });
    agrees(what, round, out.read() == want);
}

static void runs(int round, const std::vector<unsigned> &keys) {
    Buffer<unsigned> d(keys), unique(keys.size());
    Buffer<int> lengths(keys.size()), count(1);
    std::vector<unsigned> want;
    std::vector<int> want_lengths;
    for (unsigned k : keys) {
        if (want.empty() || want.back() != k) {
            want.push_back(k);
            want_lengths.push_back(0);
        }
        want_lengths.back()++;
    }
    with_storage([&](void *s, size_t &n) {
        return cub::DeviceRunLengthEncode::Encode(s, n, d.at, unique.at, lengths.at, count.at, int(keys.size()));
    });
    size_t n = count.read()[0];
    agrees("run lengths", round, n == want.size() && unique.read(n) == want && lengths.read(n) == want_lengths);
}

struct Odd {
    __host__ __device__ bool operator()(unsigned x) const { return x & 1; }
};

static void choices(int round, const std::vector<unsigned> &in) {
    Buffer<unsigned> d(in), out(in.size());
    Buffer<int> count(1);
    std::vector<unsigned> odd, even;
    for (unsigned x : in) (x & 1 ? odd : even).push_back(x);
    with_storage([&](void *s, size_t &n) {
        return cub::DeviceSelect::If(s, n, d.at, out.at, count.at, int(in.size()), Odd());
    });
    agrees("select", round, size_t(count.read()[0]) == odd.size() && out.read(odd.size()) == odd);
    with_storage([&](void *s, size_t &n) {
        return cub::DevicePartition::If(s, n, d.at, out.at, count.at, int(in.size()), Odd());
    });
    std::reverse(even.begin(), even.end());
    odd.insert(odd.end(), even.begin(), even.end());
    agrees("partition", round, out.read() == odd);
}

static void sort_and_sum(int round, const std::vector<unsigned> &in) {
    Buffer<unsigned> d(in), out(in.size());
    Buffer<unsigned> sum(1);
    std::vector<unsigned> want(in);
    std::sort(want.begin(), want.end());
    with_storage([&](void *s, size_t &n) {
        return cub::DeviceRadixSort::SortKeys(s, n, d.at, out.at, int(in.size()));
    });
    agrees("radix sort", round, out.read() == want);
    unsigned total = 0;
    for (unsigned x : in) total += x;
    with_storage([&](void *s, size_t &n) {
        return cub::DeviceReduce::Reduce(s, n, d.at, sum.at, int(in.size()), Plus(), 0u);
    });
    agrees("reduce", round, sum.read()[0] == total);
    Buffer<int> bins(64);
    std::vector<int> want_bins(64);
    for (unsigned x : in)
        if (x < 65536) want_bins[x / 1024]++;
    with_storage([&](void *s, size_t &n) {
        return cub::DeviceHistogram::HistogramEven(s, n, d.at, bins.at, 65, 0u, 65536u, int(in.size()));
    });
    agrees("histogram", round, bins.read() == want_bins);
}

template <class T> static std::vector<T> as(const std::vector<unsigned> &v) {
    return std::vector<T>(v.begin(), v.end());
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 12;
    for (int round = 0; round < rounds && !wrong; round++) {
        int n = round % 4 == 3 ? 60000 : 2000 + 977 * (round % 12);
        unsigned seed = 1 + round, key = 0;
        std::vector<unsigned> in, keys;
        std::vector<Affine> maps;
        for (int i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            in.push_back(seed >> 15);
            keys.push_back(key += seed >> 30 == 0);
            maps.push_back({seed | 1, seed >> 3});
        }
        scan("scan of 1 byte", round, as<uint8_t>(in), Plus());
        scan("scan of 2 bytes", round, as<uint16_t>(in), Plus());
        scan("scan of 4 bytes", round, in, Plus());
        scan("scan of 8 bytes", round, as<unsigned long long>(in), Plus());
        scan("scan of 16 bytes", round, as<Sums<2>>(in), Plus());
        scan("scan of 32 bytes", round, as<Sums<4>>(in), Plus());
        scan("scan that does not commute", round, maps, Then());
        runs(round, keys);
        choices(round, in);
        sort_and_sum(round, in);
    }
    OK(cudaDeviceSynchronize());
    holds("CUB computes what the host does", !wrong);
    return verdict();
}
