/* Fills memory of the device and reads it back. A sanitizer says by how it ends what it thinks of that. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

int main(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int (*init)(unsigned) = function("cuInit");
    int (*retain)(void **, int) = function("cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = function("cuCtxSetCurrent");
    int (*allocate)(uint64_t *, size_t) = function("cuMemAlloc_v2");
    int (*fill)(uint64_t, unsigned char, size_t) = function("cuMemsetD8_v2");
    int (*copy)(void *, uint64_t, size_t) = function("cuMemcpyDtoH_v2");
    int (*give_back)(uint64_t) = function("cuMemFree_v2");

    enum { BYTES = 1 << 20 };
    void *context = NULL;
    uint64_t place = 0;
    unsigned char *read = calloc(1, BYTES);
    if (init(0) || retain(&context, 0) || set_current(context) || allocate(&place, BYTES) || fill(place, 7, BYTES)
        || copy(read, place, BYTES) || give_back(place)) {
        return 3;
    }
    for (size_t i = 0; i < BYTES; i++) {
        if (read[i] != 7) {
            return 4;
        }
    }
    free(read);
    puts("right");
    return 0;
}
