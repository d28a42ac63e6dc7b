// Of what both files define, one definition stays.
#pragma once

inline __device__ __noinline__ int halve(int x) { return x / 2; }
