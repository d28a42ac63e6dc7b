/* OpenACC that GCC offloads to a GPU. Prints PASS, or what is wrong.
   Built by: gcc -O2 -fopenacc -foffload=nvptx-none -foffload-options=-lm openacc.c -lm */
#include <math.h>
#include <openacc.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 400, STEPS = 20 };

static int wrong;

static void expect(const char *what, double found, double expected) {
    if (fabs(found - expected) <= 1e-6 * (1 + fabs(expected))) return;
    printf("FAIL %s: %g instead of %g\n", what, found, expected);
    wrong++;
}

#pragma acc routine seq
static float mean(const float *x, int i, int j) {
    return 0.25f * (x[i * N + j - 1] + x[i * N + j + 1] + x[(i - 1) * N + j] + x[(i + 1) * N + j]);
}

/* Heat from one edge, on the device or on the host. */
static float spread(float *x, float *y, int on_device) {
    float change = 0;
    for (int j = 0; j < N; j++) x[j] = 1;
    #pragma acc data copy(x[0 : N * N]) create(y[0 : N * N]) if(on_device)
    for (int step = 0; step < STEPS; step++) {
        change = 0;
        #pragma acc parallel loop collapse(2) reduction(max : change) if(on_device)
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++) {
                y[i * N + j] = mean(x, i, j);
                change = fmaxf(change, fabsf(y[i * N + j] - x[i * N + j]));
            }
        #pragma acc parallel loop gang vector async(1) if(on_device)
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++) x[i * N + j] = y[i * N + j];
        #pragma acc wait(1)
    }
    return change;
}

int main(void) {
    float *x = calloc(N * N, 4), *y = calloc(N * N, 4), *host = calloc(N * N, 4), *other = calloc(N * N, 4);
    expect("the device is NVIDIA's", acc_get_device_type(), acc_device_nvidia);
    int on_host = 1;
    #pragma acc parallel copyout(on_host)
    on_host = acc_on_device(acc_device_host);
    expect("the region is on it", on_host, 0);
    expect("the last change", spread(x, y, 1), spread(host, other, 0));
    for (int i = 0; i < N * N; i++) expect("heat", x[i], host[i]);

    long sum = 0;
    #pragma acc parallel loop gang worker vector reduction(+ : sum) num_gangs(32) num_workers(4) vector_length(32)
    for (int i = 0; i < 1000000; i++) sum += i;
    expect("a sum", sum, 499999500000.0);

    if (!wrong) printf("PASS\n");
    return wrong > 0;
}
