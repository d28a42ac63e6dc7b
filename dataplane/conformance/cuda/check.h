// What every program here uses to judge itself: a PASS line for each thing that holds, and an exit status.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static int failures = 0;

// A runtime call that must succeed; the program cannot go on without it.
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        cudaError_t code = (call);                                                                                     \
        if (code != cudaSuccess) {                                                                                     \
            std::printf("FAIL %s:%d %s: %s (%d)\n", __FILE__, __LINE__, #call, cudaGetErrorString(code), (int)code);   \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

// Something that must hold.
static void holds(const char *what, bool yes) {
    std::printf("%s %s\n", yes ? "PASS" : "FAIL", what);
    failures += !yes;
}

// A call that must answer exactly this code. The error is taken back, so that it does not surface later.
static void answers(const char *what, cudaError_t expected, cudaError_t got) {
    if (got != expected) {
        std::printf("  answered %s, expected %s\n", cudaGetErrorName(got), cudaGetErrorName(expected));
    }
    holds(what, got == expected);
    cudaGetLastError();
}

static int verdict() {
    std::fflush(stdout);
    return failures ? 1 : 0;
}
