// Says whether it runs with more rights than who has started it, and what cuInit answers.

#include <dlfcn.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int code = init(0);
    printf("%s %d\n", getauxval(AT_SECURE) ? "privileged" : "plain", code);
    return 0;
}
