// Errors: those of a launch reported at once, those of a kernel later; sticky ones in processes of their own.
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>

#include "report.h"

__global__ void nothing(int* x) {
    if (x) *x = 1;
}

__global__ void __launch_bounds__(128) bounded(int* x) { x[threadIdx.x] = 1; }

__global__ void bad_address(int* x) { *x = 1; }
__global__ void misaligned(char* x) { *reinterpret_cast<int*>(x + 1) = 1; }
__global__ void asserts(int n) { assert(threadIdx.x < n); }
__global__ void traps() { asm("trap;"); }

__global__ void shared_overrun(int n) {
    extern __shared__ int shared[];
    *(volatile int*)(shared + n) = 1;
}

template <typename... A>
std::string launched(void (*kernel)(A...), dim3 grid, dim3 block, size_t shared, A... arguments) {
    kernel<<<grid, block, shared>>>(arguments...);
    return cudaGetErrorName(cudaGetLastError());
}

// Runs this program again in a role of its own and tells what it said. What it breaks stays broken only there.
std::string in_a_child(const char* program, const char* role) {
    fflush(stdout);
    std::string command = std::string("'") + program + "' " + role;
    FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    char buffer[1024];
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
    int status = pclose(pipe);
    return text + "exit " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

int sticky(const std::string& role) {
    int* x = device_array<int>(64);
    if (role == "bad_address") bad_address<<<1, 1>>>(reinterpret_cast<int*>(0x10));
    if (role == "misaligned") misaligned<<<1, 1>>>(reinterpret_cast<char*>(x));
    if (role == "assert") asserts<<<1, 4>>>(2);
    if (role == "trap") traps<<<1, 1>>>();
    if (role == "shared") shared_overrun<<<1, 1, 16>>>(1 << 20);
    printf("launch %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("synchronize %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    printf("peek %s\n", cudaGetErrorName(cudaPeekAtLastError()));
    printf("get %s\n", cudaGetErrorName(cudaGetLastError()));
    // Every call after it says so again: the context is lost.
    int* y = nullptr;
    printf("malloc %s\n", cudaGetErrorName(cudaMalloc(&y, 64)));
    printf("copy %s\n", cudaGetErrorName(cudaMemcpy(&y, x, 4, cudaMemcpyDeviceToHost)));
    nothing<<<1, 1>>>(nullptr);
    printf("launch %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("free %s\n", cudaGetErrorName(cudaFree(x)));
    // A reset gives a new context.
    printf("reset %s\n", cudaGetErrorName(cudaDeviceReset()));
    printf("malloc %s\n", cudaGetErrorName(cudaMalloc(&y, 64)));
    fflush(stdout);
    return 0;
}

int main(int count, char** arguments) {
    if (count > 1 && arguments[1][0] != '-') return sticky(arguments[1]);
    Report report("errors");
    int *x = device_array<int>(1024), *none = nullptr;

    report.exact("block_too_large", launched(nothing, 1, 2048, 0, none));
    report.exact("block_z_too_large", launched(nothing, 1, dim3(1, 1, 65), 0, none));
    report.exact("block_of_none", launched(nothing, 1, 0, 0, none));
    report.exact("grid_of_none", launched(nothing, 0, 1, 0, none));
    report.exact("grid_y_too_large", launched(nothing, dim3(1, 65536), 1, 0, none));
    report.exact("past_launch_bounds", launched(bounded, 1, 256, 0, x));
    report.exact("too_much_shared", launched(nothing, 1, 1, 64 << 10, none));
    report.exact("after_them", launched(nothing, 1, 1, 0, none));
    CHECK(cudaDeviceSynchronize());

    report.exact("shared_attribute_too_large",
                 cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 10 << 20));
    cudaGetLastError();
    CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 << 10));
    report.exact("more_shared_when_asked", launched(nothing, 1, 1, 96 << 10, none));
    CHECK(cudaDeviceSynchronize());

    report.exact("free_of_nonsense", cudaFree(reinterpret_cast<void*>(0x1234)));
    report.exact("free_of_the_middle", cudaFree(x + 16));
    report.exact("copy_of_nothing", cudaMemcpy(nullptr, x, 0, cudaMemcpyDeviceToHost));
    report.exact("memset_of_null", cudaMemset(nullptr, 0, 16));
    report.exact("null_result", cudaMalloc((void**)nullptr, 16));
    report.exact("too_much_memory", cudaMalloc(&none, 1ull << 45));
    report.exact("last_error", cudaGetLastError());
    report.exact("bad_symbol", cudaMemcpyToSymbol("no such symbol", x, 4));
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    float ms = 0;
    report.exact("event_never_recorded", cudaEventElapsedTime(&ms, event, event));
    report.exact("bad_attribute", cudaDeviceGetAttribute(reinterpret_cast<int*>(&ms), cudaDeviceAttr(100000), 0));
    report.exact("string", std::string(cudaGetErrorString(cudaErrorIllegalAddress)));
    cudaGetLastError();
    report.exact("still_works", launched(nothing, 1, 1, 0, x));
    report.expect("result", to_host(x, 1)[0] == 1);

    for (const char* role : {"bad_address", "misaligned", "assert", "trap", "shared"})
        report.exact(std::string("sticky_") + role, in_a_child(arguments[0], role));
    report.expect("unharmed", to_host(x, 1)[0] == 1);
    return report.finish();
}
