// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Log-linear histograms: src/histogram.rs reads them.

#ifndef ORION_HISTOGRAM_H
#define ORION_HISTOGRAM_H

#include "kernel.h"
#include "numbers.h"

struct histogram {
    __u64 sum;
    __u64 buckets[ORION_BUCKETS];
};

_Static_assert(ORION_BUCKETS == (ORION_TOP_BIT - ORION_SUB_BITS + 1) << ORION_SUB_BITS, "as many as there are");

static __always_inline __u32 bucket_of(__u64 value)
{
    __u32 shift = 0;
    __u64 rest = value >> ORION_SUB_BITS;

    if (value >> ORION_TOP_BIT)
        return ORION_BUCKETS - 1;
    if (!rest)
        return value;
    // The place of the highest bit: there is no instruction for it.
    for (int step = 32; step > 0; step >>= 1) {
        if (rest >> step) {
            rest >>= step;
            shift += step;
        }
    }
    return ((shift + 1) << ORION_SUB_BITS) + ((value >> shift) & ((1 << ORION_SUB_BITS) - 1));
}

static __always_inline void record(struct histogram *histogram, __u64 value)
{
    __u32 bucket = bucket_of(value);

    // The verifier does not see it.
    if (bucket >= ORION_BUCKETS)
        bucket = ORION_BUCKETS - 1;
    __sync_fetch_and_add(&histogram->buckets[bucket], 1);
    __sync_fetch_and_add(&histogram->sum, value);
}

#endif
