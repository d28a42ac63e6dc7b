/* Does with registered memory what nobody should, and what is no harm on a GPU of one's own. Says "right", or what is
   not.

   registered changed   unmaps it, forbids it, or maps something else there, before it is unregistered
   registered grown     has realloc make it larger while it is registered
   registered beside    registers pieces of one page, as an allocator gives them out, and has a kernel write to them
   registered variables registers those of this program
   registered many      registers twelve thousand ranges at a time
   registered WAY old   the same on a kernel that is asked what is mapped by reading all of it (Linux before 6.11) */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { PAGE = 4096, BYTES = 1 << 20 };

static int (*copy_up)(uint64_t, const void *, size_t), (*copy_down)(void *, uint64_t, size_t);
static int (*pin)(void **, size_t, unsigned), (*register_)(void *, size_t, unsigned), (*unregister)(void *);
static int (*device_pointer)(uint64_t *, void *, unsigned), (*synchronize)(void);
static uint64_t place;

static void want(int is_right, const char *what, int which) {
    if (!is_right) {
        printf("%s (%d) is wrong\n", what, which);
        exit(3);
    }
}

static char *mapped(size_t bytes, int fd, void *at) {
    int flags = (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | (at ? MAP_FIXED : 0);
    char *found = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    want(found != MAP_FAILED, "mmap", errno);
    return found;
}

static int all(const char *bytes, char value, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}

/* Through the device and back. */
static int copies(const char *from) {
    static char back[PAGE];
    memset(back, 0, PAGE);
    return copy_up(place, from, PAGE) == 0 && copy_down(back, place, PAGE) == 0 && memcmp(from, back, PAGE) == 0;
}

static void changed(void) {
    enum { GONE, PART_GONE, PART_FORBIDDEN, READ_ONLY, REPLACED, PART_REPLACED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        char *memory = mapped(BYTES, -1, NULL);
        memset(memory, 9, BYTES);
        want(register_(memory, BYTES, 0) == 0, "registering", way);
        int file = memfd_create("registered", MFD_CLOEXEC);
        want(file >= 0 && ftruncate(file, BYTES) == 0, "a file in memory", errno);
        size_t part = way == GONE || way == READ_ONLY || way == REPLACED ? 0 : 3 * PAGE;
        size_t bytes = part ? 2 * PAGE : BYTES;
        switch (way) {
        case GONE: case PART_GONE: munmap(memory + part, bytes); break;
        case PART_FORBIDDEN: mprotect(memory + part, bytes, PROT_NONE); break;
        case READ_ONLY: mprotect(memory, bytes, PROT_READ); break;
        default: mapped(bytes, file, memory + part); break;
        }
        if (way == REPLACED || way == PART_REPLACED) {
            /* What a child writes to a file that it shares with this process is seen here. */
            pid_t child = fork();
            if (child == 0) {
                memory[part + 1] = 5;
                _exit(0);
            }
            waitpid(child, NULL, 0);
            want(memory[part + 1] == 5, "the child's byte", way);
        }
        want(unregister(memory) == 0, "unregistering", way);
        if (way == REPLACED || way == PART_REPLACED) {
            char byte = 0;
            memory[part + 2] = 6;
            want(pread(file, &byte, 1, 2) == 1 && byte == 6, "the file's byte", way);
            want(memory[part + 1] == 5, "the byte before", way);
        }
        if (way == READ_ONLY) {
            int zero = open("/dev/zero", 0);
            want(read(zero, memory, 1) == -1 && errno == EFAULT, "what may only be read", way);
            close(zero);
        }
        if (way == PART_FORBIDDEN) {
            mprotect(memory, BYTES, PROT_READ | PROT_WRITE);
            want(all(memory, 9, BYTES), "what was forbidden", way);
        }
        if (part) {
            want(all(memory, 9, part) && all(memory + part + bytes, 9, BYTES - part - bytes), "the rest", way);
            want(copies(memory), "copying the rest", way);
        }
        close(file);
        munmap(memory, BYTES);
    }
}

static void grown(void) {
    enum { LARGER = 8 << 20, NEIGHBOURS = 8 };
    /* Of whole pages, with what the allocator has before it, and of few. */
    for (int way = 0; way < 2; way++) {
        char *memory = way == 0 ? malloc(BYTES) : mapped(2 * PAGE, -1, NULL);
        size_t bytes = way == 0 ? BYTES : 2 * PAGE;
        memset(memory, 9, bytes);
        want(register_(memory, bytes, 0) == 0, "registering", way);
        char *neighbours[NEIGHBOURS];
        for (int i = 0; i < NEIGHBOURS; i++) {
            want(pin((void **)&neighbours[i], BYTES, 0) == 0, "pinning", i);
            memset(neighbours[i], 20 + i, BYTES);
        }
        char *larger = way == 0 ? realloc(memory, LARGER) : mremap(memory, bytes, LARGER, MREMAP_MAYMOVE);
        if (larger != MAP_FAILED) {
            want(all(larger, 9, bytes), "what was there before", way);
            memset(larger, 3, LARGER);
            for (int i = 0; i < NEIGHBOURS; i++)
                want(all(neighbours[i], 20 + i, BYTES), "a neighbour", i);
            for (int i = 0; i < NEIGHBOURS; i++)
                memset(neighbours[i], 0, BYTES);
            want(copies(larger) && all(larger, 3, LARGER), "what is larger now", way);
        }
        want(unregister(memory) == 0, "unregistering", way);
        if (larger != MAP_FAILED) {
            want(all(larger, 3, LARGER), "what is larger, afterwards", way);
        }
    }
}

static const char *const IMAGE =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry add(.param .u64 at, .param .u32 more) {\n"
    "  .reg .u64 %p; .reg .u32 %a, %b;\n"
    "  ld.param.u64 %p, [at]; ld.param.u32 %a, [more];\n"
    "  ld.u32 %b, [%p]; add.u32 %b, %b, %a; st.u32 [%p], %b; ret;\n}\n";

/* Adds to the word at an address. */
static int add(uint64_t at, unsigned more) {
    static void *kernel;
    int (*load)(void **, const void *) = function("cuModuleLoadData");
    int (*find)(void **, void *, const char *) = function("cuModuleGetFunction");
    int (*launch)() = function("cuLaunchKernel");
    void *module, *arguments[] = {&at, &more};
    want(kernel || (load(&module, IMAGE) == 0 && find(&kernel, module, "add") == 0), "loading", 0);
    return launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static void beside(void) {
    enum { PIECES = 8, PIECE_BYTES = 400 };
    char *page = mapped(PAGE, -1, NULL);
    unsigned *piece[PIECES];
    /* They come and go in another order each time; what is between them is nobody's. */
    for (unsigned round = 0; round < PIECES; round++) {
        memset(page, 9, PAGE);
        for (unsigned i = 0; i < PIECES; i++) {
            piece[i] = (unsigned *)(page + 100 + 480 * i);
            *piece[i] = 1000 * i;
        }
        for (unsigned i = 0; i < PIECES; i++) {
            unsigned *at = piece[(3 * i + round) % PIECES];
            want(register_(at, PIECE_BYTES, 2) == 0, "registering", i);
        }
        for (unsigned gone = 0; gone < PIECES; gone++) {
            for (unsigned i = gone; i < PIECES; i++) {
                unsigned *at = piece[(5 * i + round) % PIECES], more = i + 1;
                uint64_t found = 0;
                want(device_pointer(&found, at, 0) == 0 && found == (uintptr_t)at, "a device pointer", i);
                want(add(found, more) == 0, "launching", i);
            }
            want(synchronize() == 0, "synchronizing", gone);
            want(unregister(piece[(5 * gone + round) % PIECES]) == 0, "unregistering", gone);
        }
        for (unsigned i = 0; i < PIECES; i++) {
            unsigned which = (5 * i + round) % PIECES;
            want(*piece[which] == 1000 * which + (i + 1) * (i + 1), "what kernels added", i);
            want(all((char *)(piece[which] + 1), 9, 476), "what is beside it", i);
        }
    }
}

static unsigned with_values[3 * PAGE] = {1, 2, 3}, without[3 * PAGE];

/* One kernel, of which it is told why it cannot be. */
static void variables(void) {
    unsigned *all_of[] = {without, with_values};
    for (unsigned i = 0; i < 2; i++) {
        unsigned *at = all_of[i] + PAGE;
        want(register_(at, PAGE, 2) == 0 && copies((char *)at), "registering", i);
        want(add((uintptr_t)at, 5) == 0, "a kernel", i);
        int code = synchronize();
        want((code == 0 && at[0] == 5) || (code == 700 && at == with_values + PAGE), "what came of it", code);
    }
}

static void *ends(void *argument) { return argument; }

static void many(void) {
    enum { RANGES = 12000, APART = 3 * PAGE, MORE = 1000 };
    char *memory = mapped((size_t)RANGES * APART, -1, NULL);
    for (size_t i = 0; i < (size_t)RANGES * 3; i++)
        memset(memory + i * PAGE, i, PAGE);
    for (int i = 0; i < RANGES; i++)
        want(register_(memory + (size_t)i * APART, 2 * PAGE, 0) == 0, "registering", i);
    /* The program still has memory and threads. */
    for (int i = 0; i < MORE; i++)
        mprotect(mapped(3 * PAGE, -1, NULL) + PAGE, PAGE, PROT_NONE);
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        want(pthread_create(&thread, NULL, ends, NULL) == 0 && pthread_join(thread, NULL) == 0, "a thread", i);
    }
    for (int i = 0; i < RANGES; i += RANGES / 50)
        want(copies(memory + (size_t)i * APART + PAGE), "copying", i);
    /* The first is where the device finds it. */
    uint64_t found = 0;
    want(device_pointer(&found, memory, 0) == 0 && found == (uintptr_t)memory, "its device pointer", 0);
    for (int i = 0; i < RANGES; i++)
        want(unregister(memory + (size_t)i * APART) == 0, "unregistering", i);
    for (size_t i = 0; i < (size_t)RANGES * 3; i++)
        want(all(memory + i * PAGE, i, PAGE), "the bytes of a page", i);
}

/* PROCMAP_QUERY is no ioctl of such a kernel's. */
static void make_old(void) {
    enum { QUERY = (int)0xc0686611 };
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)QUERY, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof lines / sizeof *lines, lines};
    want(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl", errno);
    want(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "a filter", errno);
    want(ioctl(0, QUERY, NULL) == -1 && errno == ENOTTY, "the filter", errno);
}

int main(int count, char **words) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library && count == 3 && !strcmp(words[2], "old"))
        make_old();
    else if (!library || count != 2) {
        fprintf(stderr, "%s\n", library ? "registered changed|grown|beside|variables|many [old]" : dlerror());
        return 2;
    }
    int (*init)(unsigned) = function("cuInit");
    int (*retain)(void **, int) = function("cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = function("cuCtxSetCurrent");
    int (*allocate)(uint64_t *, size_t) = function("cuMemAlloc_v2");
    copy_up = function("cuMemcpyHtoD_v2");
    copy_down = function("cuMemcpyDtoH_v2");
    pin = function("cuMemHostAlloc");
    register_ = function("cuMemHostRegister_v2");
    unregister = function("cuMemHostUnregister");
    device_pointer = function("cuMemHostGetDevicePointer_v2");
    synchronize = function("cuCtxSynchronize");
    void *context = NULL;
    if (init(0) || retain(&context, 0) || set_current(context) || allocate(&place, PAGE))
        return 4;
    if (!strcmp(words[1], "changed")) changed();
    else if (!strcmp(words[1], "grown")) grown();
    else if (!strcmp(words[1], "beside")) beside();
    else if (!strcmp(words[1], "variables")) variables();
    else many();
    puts("right");
    return 0;
}
