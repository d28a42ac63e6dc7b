/* OpenMP that GCC offloads to a GPU: its own PTX, linked by the driver with that of its libraries. Prints PASS, or what
   is wrong. Built by: gcc -O2 -fopenmp -foffload=nvptx-none -foffload-options=-lm openmp.c -lm */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 100000 };

#pragma omp declare target
static double root(double x) { return sqrt(x) + 1; }
#pragma omp end declare target

static int wrong;

static void expect(const char *what, double found, double expected) {
    if (fabs(found - expected) <= 1e-9 * fabs(expected)) return;
    printf("FAIL %s: %g instead of %g\n", what, found, expected);
    wrong++;
}

int main(void) {
    double *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b), sum = 0, expected = 0;
    int on_host = 1, threads = 0, counted = 0;
    for (int i = 0; i < N; i++) a[i] = i;

    #pragma omp target map(from : on_host)
    on_host = omp_is_initial_device();
    expect("the target is a device", on_host, 0);

    #pragma omp target teams distribute parallel for map(to : a[0 : N]) map(from : b[0 : N])
    for (int i = 0; i < N; i++) b[i] = 2 * root(a[i]);
    for (int i = 0; i < N; i++) expect("a map", b[i], 2 * (sqrt(i) + 1));

    #pragma omp target teams distribute parallel for reduction(+ : sum) map(to : a[0 : N])
    for (int i = 0; i < N; i++) sum += a[i];
    for (int i = 0; i < N; i++) expected += i;
    expect("a sum", sum, expected);

    /* What waits for each other: an atomic, a barrier, a critical section. */
    #pragma omp target parallel map(tofrom : counted) map(from : threads)
    {
        #pragma omp atomic
        counted++;
        #pragma omp barrier
        #pragma omp critical
        counted += 100;
        #pragma omp single
        threads = omp_get_num_threads();
    }
    expect("threads that count themselves", counted, 101 * threads);

    /* A target region whose threads are not many from the first: those of its first warp alone, then all. */
    int *seen = calloc(64, sizeof *seen), all = 0;
    #pragma omp target map(tofrom : seen[0 : 64], all)
    {
        int here = 7;
        #pragma omp parallel num_threads(4) firstprivate(here)
        seen[omp_get_thread_num()] += here;
        for (int i = 0; i < 64; i++) all += seen[i];
    }
    expect("a parallel region in a serial one", all > 0 && all % 7 == 0, 1);

    #pragma omp target enter data map(to : a[0 : N])
    #pragma omp target teams distribute parallel for simd map(alloc : a[0 : N]) nowait depend(out : a)
    for (int i = 0; i < N; i++) a[i] *= 3;
    #pragma omp target update from(a[0 : N]) depend(in : a)
    #pragma omp taskwait
    #pragma omp target exit data map(delete : a[0 : N])
    for (int i = 0; i < N; i++) expect("data that stays", a[i], 3.0 * i);

    void *there = omp_target_alloc(N, omp_get_default_device());
    char *text = malloc(N), *back = malloc(N);
    for (int i = 0; i < N; i++) text[i] = i * 7;
    omp_target_memcpy(there, text, N, 0, 0, omp_get_default_device(), omp_get_initial_device());
    omp_target_memcpy(back, there, N, 0, 0, omp_get_initial_device(), omp_get_default_device());
    for (int i = 0; i < N; i++) expect("bytes that were copied", back[i], text[i]);
    omp_target_free(there, omp_get_default_device());

    if (!wrong) printf("PASS\n");
    return wrong > 0;
}
