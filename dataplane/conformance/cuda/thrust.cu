// Thrust's algorithms, each compared with what the host computes from the same input. Most rest on CUB's decoupled
// look-back, where blocks read each other's partial results while they run: they are run over and over, since a fault
// in the order of memory shows in some runs only.
//   thrust [ROUNDS]
#include "check.h"
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/extrema.h>
#include <thrust/find.h>
#include <thrust/gather.h>
#include <thrust/inner_product.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>
#include <vector>

template <class T> using Host = std::vector<T>;
template <class T> using Device = thrust::device_vector<T>;

struct IsOdd {
    template <class T> __host__ __device__ bool operator()(T x) const { return x & 1; }
};

struct After {
    template <class T> __host__ __device__ bool operator()(T x, T y) const { return y < x; }
};

struct Square {
    __host__ __device__ int64_t operator()(int x) const { return int64_t(x) * x; }
};

// What a round works on: values with no order, keys in runs, values in order.
struct Input {
    Host<int> values, keys, low, high;
    Host<int64_t> wide;

    Input(int n, unsigned seed) {
        auto next = [&seed] { return seed = seed * 1664525u + 1013904223u, seed >> 8; };
        for (int i = 0, key = 0; i < n; i++) {
            values.push_back(next() % 1000);
            wide.push_back(int64_t(next()) << 20 | i);
            key += next() % 3 == 0;
            keys.push_back(key);
            low.push_back(next() % (2 * n));
            high.push_back(n + next() % (2 * n));
        }
        std::sort(low.begin(), low.end());
        std::sort(high.begin(), high.end());
    }
};

template <class T> static bool same(const Device<T> &got, const Host<T> &want, size_t count) {
    Host<T> back(got.size());
    thrust::copy(got.begin(), got.end(), back.begin());
    return count == want.size() && count <= back.size() && std::equal(want.begin(), want.end(), back.begin());
}

template <class T> static bool same(const Device<T> &got, const Host<T> &want) { return same(got, want, got.size()); }

static int wrong = 0;

static void agrees(const char *what, int round, bool yes) {
    if (!yes) {
        std::printf("FAIL %s, round %d\n", what, round);
        wrong++;
    }
}

template <class T> static void scans(const char *what, int round, const Host<T> &h, const Host<int> &keys) {
    Device<T> d(h), out(h.size());
    Device<int> k(keys);
    Host<T> want(h.size());
    std::partial_sum(h.begin(), h.end(), want.begin());
    thrust::inclusive_scan(d.begin(), d.end(), out.begin());
    agrees("inclusive_scan", round, same(out, want));
    for (size_t i = h.size(); i-- > 0;) want[i] = i ? want[i - 1] + 7 : 7;
    thrust::exclusive_scan(d.begin(), d.end(), out.begin(), T(7));
    agrees("exclusive_scan", round, same(out, want));
    thrust::inclusive_scan_by_key(k.begin(), k.end(), d.begin(), out.begin());
    for (size_t i = 0; i < h.size(); i++) want[i] = h[i] + (i && keys[i] == keys[i - 1] ? want[i - 1] : 0);
    agrees("inclusive_scan_by_key", round, same(out, want));
    thrust::exclusive_scan_by_key(k.begin(), k.end(), d.begin(), out.begin());
    for (size_t i = 0; i < h.size(); i++) want[i] -= h[i];
    agrees("exclusive_scan_by_key", round, same(out, want));

    Host<int> run_keys;
    Host<T> run_sums;
    for (size_t i = 0; i < h.size(); i++) {
        if (i == 0 || keys[i] != keys[i - 1]) {
            run_keys.push_back(keys[i]);
            run_sums.push_back(0);
        }
        run_sums.back() += h[i];
    }
    Device<int> out_keys(h.size());
    auto ends = thrust::reduce_by_key(k.begin(), k.end(), d.begin(), out_keys.begin(), out.begin());
    agrees("reduce_by_key, keys", round, same(out_keys, run_keys, ends.first - out_keys.begin()));
    agrees("reduce_by_key, sums", round, same(out, run_sums, ends.second - out.begin()));
    agrees(what, round, thrust::reduce(d.begin(), d.end(), T(0)) == std::accumulate(h.begin(), h.end(), T(0)));
}

template <class T> static void selections(int round, const Host<T> &h, const Host<int> &keys) {
    Device<T> d(h), out(h.size());
    Host<T> odd, even, want;
    for (T x : h) (IsOdd()(x) ? odd : even).push_back(x);
    auto end = thrust::copy_if(d.begin(), d.end(), out.begin(), IsOdd());
    agrees("copy_if", round, same(out, odd, end - out.begin()));
    end = thrust::remove_copy_if(d.begin(), d.end(), out.begin(), IsOdd());
    agrees("remove_copy_if", round, same(out, even, end - out.begin()));
    Device<T> some(d);
    agrees("remove_if", round, same(some, even, thrust::remove_if(some.begin(), some.end(), IsOdd()) - some.begin()));
    some = d;
    thrust::stable_partition(some.begin(), some.end(), IsOdd());
    want = odd;
    want.insert(want.end(), even.begin(), even.end());
    agrees("stable_partition", round, same(some, want));
    Device<T> rest(h.size());
    auto ends = thrust::partition_copy(d.begin(), d.end(), out.begin(), rest.begin(), IsOdd());
    agrees("partition_copy", round,
           same(out, odd, ends.first - out.begin()) && same(rest, even, ends.second - rest.begin()));

    Host<int> unique_keys(keys);
    unique_keys.erase(std::unique(unique_keys.begin(), unique_keys.end()), unique_keys.end());
    Device<int> k(keys);
    agrees("unique", round, same(k, unique_keys, thrust::unique(k.begin(), k.end()) - k.begin()));
    k = keys;
    some = d;
    want.clear();
    for (size_t i = 0; i < h.size(); i++)
        if (i == 0 || keys[i] != keys[i - 1]) want.push_back(h[i]);
    auto pair = thrust::unique_by_key(k.begin(), k.end(), some.begin());
    agrees("unique_by_key", round,
           same(some, want, pair.second - some.begin()) && same(k, unique_keys, pair.first - k.begin()));
}

static void sets(int round, const Input &in) {
    Device<int> a(in.low), b(in.high), out(in.low.size() + in.high.size());
    Host<int> want;
    auto to = std::back_inserter(want);
    std::set_union(in.low.begin(), in.low.end(), in.high.begin(), in.high.end(), to);
    auto end = thrust::set_union(a.begin(), a.end(), b.begin(), b.end(), out.begin());
    agrees("set_union", round, same(out, want, end - out.begin()));
    want.clear();
    std::set_intersection(in.low.begin(), in.low.end(), in.high.begin(), in.high.end(), to);
    end = thrust::set_intersection(a.begin(), a.end(), b.begin(), b.end(), out.begin());
    agrees("set_intersection", round, same(out, want, end - out.begin()));
    want.clear();
    std::set_difference(in.low.begin(), in.low.end(), in.high.begin(), in.high.end(), to);
    end = thrust::set_difference(a.begin(), a.end(), b.begin(), b.end(), out.begin());
    agrees("set_difference", round, same(out, want, end - out.begin()));
    want.clear();
    std::merge(in.low.begin(), in.low.end(), in.high.begin(), in.high.end(), to);
    thrust::merge(a.begin(), a.end(), b.begin(), b.end(), out.begin());
    agrees("merge", round, same(out, want));
    Host<int> found(in.low.size());
    Device<int> places(in.low.size());
    for (size_t i = 0; i < found.size(); i++)
        found[i] = int(std::lower_bound(in.high.begin(), in.high.end(), in.low[i]) - in.high.begin());
    thrust::lower_bound(b.begin(), b.end(), a.begin(), a.end(), places.begin());
    agrees("lower_bound", round, same(places, found));
}

template <class T> static void sorts(int round, const Host<T> &h) {
    Device<T> d(h);
    Device<int> order(h.size());
    Host<T> want(h);
    Host<int> by(h.size());
    std::iota(by.begin(), by.end(), 0);
    thrust::copy(by.begin(), by.end(), order.begin());
    std::stable_sort(by.begin(), by.end(), [&](int x, int y) { return h[x] < h[y]; });
    std::stable_sort(want.begin(), want.end());
    thrust::stable_sort_by_key(d.begin(), d.end(), order.begin());
    agrees("stable_sort_by_key", round, same(d, want) && same(order, by));
    d = h;
    // A comparison that Thrust does not know sorts by merging.
    thrust::sort(d.begin(), d.end(), After());
    std::reverse(want.begin(), want.end());
    agrees("sort by a comparison", round, same(d, want));
}

static void folds(int round, const Input &in) {
    const Host<int> &h = in.values;
    Device<int> d(h), out(h.size());
    Host<int> want(h.size());
    agrees("count_if", round,
           thrust::count_if(d.begin(), d.end(), IsOdd()) == std::count_if(h.begin(), h.end(), IsOdd()));
    agrees("find", round,
           thrust::find(d.begin(), d.end(), 999) - d.begin() == std::find(h.begin(), h.end(), 999) - h.begin());
    auto ends = thrust::minmax_element(d.begin(), d.end());
    agrees("minmax_element", round,
           ends.first - d.begin() == std::min_element(h.begin(), h.end()) - h.begin() &&
               *ends.second == *std::max_element(h.begin(), h.end()));
    agrees("inner_product", round,
           thrust::inner_product(d.begin(), d.end(), d.begin(), int64_t(0)) ==
               std::inner_product(h.begin(), h.end(), h.begin(), int64_t(0)));
    int64_t squares = 0;
    for (int x : h) squares += Square()(x);
    agrees("transform_reduce", round,
           thrust::transform_reduce(d.begin(), d.end(), Square(), int64_t(0), thrust::plus<int64_t>()) == squares);
    std::adjacent_difference(h.begin(), h.end(), want.begin());
    thrust::adjacent_difference(d.begin(), d.end(), out.begin());
    agrees("adjacent_difference", round, same(out, want));
    Device<int> where(h.size());
    for (size_t i = 0; i < h.size(); i++) want[i] = int(i * 7919 % h.size());
    where = want;
    thrust::gather(where.begin(), where.end(), d.begin(), out.begin());
    for (int &i : want) i = h[i];
    agrees("gather", round, same(out, want));
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 12;
    for (int round = 0; round < rounds && !wrong; round++) {
        // Lengths of one tile, of a few and of many.
        Input in(round % 4 == 3 ? 60000 : 2000 + 977 * (round % 12), 1 + round);
        scans("reduce", round, in.values, in.keys);
        scans("reduce of 64 bits", round, in.wide, in.keys);
        selections(round, in.values, in.keys);
        selections(round, in.wide, in.keys);
        sets(round, in);
        sorts(round, in.values);
        sorts(round, in.wide);
        folds(round, in);
    }
    OK(cudaDeviceSynchronize());
    holds("Thrust computes what the host does", !wrong);
    return verdict();
}
