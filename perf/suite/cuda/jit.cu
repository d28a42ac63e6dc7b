// Code that comes at run time: PTX linked and compiled by the driver, libraries, and NVRTC where it is found.
#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstring>

#include "report.h"

// Loaded by name, as NVRTC and most frameworks load it.
void* driver = dlopen("libcuda.so.1", RTLD_NOW);

template <typename F> F symbol(void* library, const char* name) {
    void* address = library ? dlsym(library, name) : nullptr;
    if (!address) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    return reinterpret_cast<F>(address);
}

// cuda.h renames some functions to their _v2; both steps of the macro are needed for the name to follow.
#define NAME_OF(name) #name
#define DRIVER(name) symbol<decltype(&name)>(driver, NAME_OF(name))
#define DRIVER_CHECK(call)                                                                  \
    do {                                                                                    \
        CUresult result_ = (call);                                                          \
        if (result_ != CUDA_SUCCESS) {                                                      \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, int(result_));    \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

const char* HEAD = ".version 7.0\n.target sm_75\n.address_size 64\n";

const char* CALLER = R"(
.extern .func (.param .b32 r) twice(.param .b32 x);
.visible .global .align 4 .u32 bias = 100;
.visible .entry use_twice(.param .u64 out) {
    .reg .b32 %r<8>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); ld.param.b32 %r2, [b]; }
    ld.global.u32 %r3, [bias];
    add.s32 %r4, %r2, %r3;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r4;
    ret;
})";

const char* CALLEE = R"(
.visible .func (.param .b32 r) twice(.param .b32 x) {
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [x];
    shl.b32 %r2, %r1, 1;
    st.param.b32 [r], %r2;
    ret;
})";

const char* SIMPLE = R"(
.visible .entry simple(.param .u64 out, .param .u32 value) {
    .reg .b32 %r<3>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r1;
    ret;
})";

const char* SOURCE = R"(
template <typename T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }
extern "C" __global__ void plain(int* x) { x[threadIdx.x] += 3; }
)";

int* out;
const int n = 64;

void link(Report& report) {
    char info[4096] = "", errors[4096] = "";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
    void* values[] = {info, (void*)sizeof info, errors, (void*)sizeof errors, (void*)1};
    CUlinkState state;
    DRIVER_CHECK(symbol<decltype(&cuLinkCreate)>(driver, "cuLinkCreate_v2")(5, options, values, &state));
    auto add_data = symbol<decltype(&cuLinkAddData)>(driver, "cuLinkAddData_v2");
    std::string caller = std::string(HEAD) + CALLER, callee = std::string(HEAD) + CALLEE;
    DRIVER_CHECK(
        add_data(state, CU_JIT_INPUT_PTX, (void*)caller.c_str(), caller.size() + 1, "caller", 0, nullptr, nullptr));
    DRIVER_CHECK(
        add_data(state, CU_JIT_INPUT_PTX, (void*)callee.c_str(), callee.size() + 1, "callee", 0, nullptr, nullptr));
    void* image;
    size_t size;
    DRIVER_CHECK(DRIVER(cuLinkComplete)(state, &image, &size));
    report.expect("cubin", size > 100 && memcmp(image, "\177ELF", 4) == 0);
    report.expect("errors_are_empty", errors[0] == 0);
    report.extra("info", std::string(info).substr(0, 300));
    CUmodule module;
    CUfunction function;
    DRIVER_CHECK(DRIVER(cuModuleLoadData)(&module, image));
    DRIVER_CHECK(DRIVER(cuLinkDestroy)(state));
    DRIVER_CHECK(DRIVER(cuModuleGetFunction)(&function, module, "use_twice"));
    CUdeviceptr bias;
    size_t bias_bytes;
    DRIVER_CHECK(
        symbol<decltype(&cuModuleGetGlobal)>(driver, "cuModuleGetGlobal_v2")(&bias, &bias_bytes, module, "bias"));
    report.exact("bias_bytes", (long long)bias_bytes);
    int value = 500;
    CHECK(cudaMemcpy(reinterpret_cast<void*>(bias), &value, 4, cudaMemcpyDefault));
    void* arguments[] = {&out};
    DRIVER_CHECK(DRIVER(cuLaunchKernel)(function, 1, 1, 1, n, 1, 1, 0, nullptr, arguments, nullptr));
    auto got = to_host(out, n);
    report.expect("linked", got[0] == 500 && got[10] == 520);
    report.exact("no_such_function", DRIVER(cuModuleGetFunction)(&function, module, "nothing"));
    DRIVER_CHECK(DRIVER(cuModuleUnload)(module));
}

void load(Report& report) {
    std::string ptx = std::string(HEAD) + SIMPLE;
    CUmodule module;
    CUfunction function;
    DRIVER_CHECK(DRIVER(cuModuleLoadData)(&module, ptx.c_str()));
    DRIVER_CHECK(DRIVER(cuModuleGetFunction)(&function, module, "simple"));
    // Arguments as one packed buffer.
    struct {
        void* out;
        int value;
    } packed = {out, 42};
    size_t size = 12;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    DRIVER_CHECK(DRIVER(cuLaunchKernel)(function, 1, 1, 1, n, 1, 1, 0, nullptr, nullptr, extra));
    report.expect("packed_arguments", to_host(out, n)[63] == 42);
    DRIVER_CHECK(DRIVER(cuModuleUnload)(module));

    char errors[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {errors, (void*)sizeof errors};
    std::string bad = std::string(HEAD) + ".visible .entry broken() { frobnicate; }";
    report.exact("bad_ptx", DRIVER(cuModuleLoadDataEx)(&module, bad.c_str(), 2, options, values));
    report.expect("bad_ptx_has_a_log", errors[0] != 0);
    report.exact("not_an_image", DRIVER(cuModuleLoadData)(&module, "hello, this is no image"));

    // A library that no context owns, and its kernel.
    CUlibrary library;
    CUkernel kernel;
    DRIVER_CHECK(DRIVER(cuLibraryLoadData)(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    DRIVER_CHECK(DRIVER(cuLibraryGetKernel)(&kernel, library, "simple"));
    int value = 77;
    void* arguments[] = {&out, &value};
    DRIVER_CHECK(DRIVER(cuLaunchKernel)((CUfunction)kernel, 1, 1, 1, n, 1, 1, 0, nullptr, arguments, nullptr));
    report.expect("library", to_host(out, n)[1] == 77);
    size_t offset = 0, bytes = 0;
    DRIVER_CHECK(DRIVER(cuKernelGetParamInfo)(kernel, 1, &offset, &bytes));
    report.exact("parameter", (long long)(offset * 100 + bytes));
    report.exact("no_third_parameter", DRIVER(cuKernelGetParamInfo)(kernel, 2, &offset, &bytes));
    DRIVER_CHECK(DRIVER(cuLibraryUnload)(library));
}

void compile(Report& report) {
    void* nvrtc = dlopen("libnvrtc.so.13", RTLD_NOW);
    if (!nvrtc) nvrtc = dlopen("/usr/local/cuda/lib64/libnvrtc.so.13", RTLD_NOW);
    report.exact("nvrtc", nvrtc ? "found" : "not found");
    if (!nvrtc) return;
    nvrtcProgram program;
    symbol<decltype(&nvrtcCreateProgram)>(nvrtc, "nvrtcCreateProgram")(&program, SOURCE, "source.cu", 0, nullptr,
                                                                       nullptr);
    symbol<decltype(&nvrtcAddNameExpression)>(nvrtc, "nvrtcAddNameExpression")(program, "scale<double>");
    int major = 0, minor = 0;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    std::string arch = "-arch=sm_" + std::to_string(major * 10 + minor);
    const char* options[] = {arch.c_str(), "-std=c++17"};
    report.exact("compiled", symbol<decltype(&nvrtcCompileProgram)>(nvrtc, "nvrtcCompileProgram")(program, 2, options));
    size_t size = 0;
    symbol<decltype(&nvrtcGetCUBINSize)>(nvrtc, "nvrtcGetCUBINSize")(program, &size);
    std::vector<char> cubin(size);
    symbol<decltype(&nvrtcGetCUBIN)>(nvrtc, "nvrtcGetCUBIN")(program, cubin.data());
    const char* mangled = nullptr;
    symbol<decltype(&nvrtcGetLoweredName)>(nvrtc, "nvrtcGetLoweredName")(program, "scale<double>", &mangled);
    CUmodule module;
    CUfunction plain, scale;
    DRIVER_CHECK(DRIVER(cuModuleLoadData)(&module, cubin.data()));
    DRIVER_CHECK(DRIVER(cuModuleGetFunction)(&plain, module, "plain"));
    DRIVER_CHECK(DRIVER(cuModuleGetFunction)(&scale, module, mangled));
    CHECK(cudaMemset(out, 0, n * sizeof(int)));
    void* arguments[] = {&out};
    DRIVER_CHECK(DRIVER(cuLaunchKernel)(plain, 1, 1, 1, n, 1, 1, 0, nullptr, arguments, nullptr));
    report.expect("plain", to_host(out, n)[7] == 3);
    std::vector<double> numbers(n, 1.5);
    double *device = device_array<double>(n), by = 4;
    CHECK(cudaMemcpy(device, numbers.data(), n * 8, cudaMemcpyHostToDevice));
    void* scaled[] = {&device, &by};
    DRIVER_CHECK(DRIVER(cuLaunchKernel)(scale, 1, 1, 1, n, 1, 1, 0, nullptr, scaled, nullptr));
    report.expect("template", to_host(device, n)[9] == 6.0);
    DRIVER_CHECK(DRIVER(cuModuleUnload)(module));
}

int main() {
    Report report("jit");
    out = device_array<int>(n);
    link(report);
    load(report);
    compile(report);
    return report.finish();
}
