// What a program has to say, as one JSON object on its last line of output. See workloads/report.py.
#pragma once
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// For calls that must succeed: says which did not, and ends the program.
#define CHECK(call)                                                                                      \
    do {                                                                                                 \
        cudaError_t error_ = (call);                                                                     \
        if (error_ != cudaSuccess) {                                                                     \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(error_));     \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

class Report {
  public:
    explicit Report(std::string workload) : workload_(std::move(workload)) {}

    void exact(const std::string& name, long long value) { add(name, std::to_string(value)); }
    void exact(const std::string& name, const std::string& value) { add(name, quoted(value)); }
    void exact(const std::string& name, cudaError_t error) { exact(name, std::string(cudaGetErrorName(error))); }

    // A result the program knows itself: it fails natively too when it is wrong.
    void expect(const std::string& name, bool right) {
        add(name, right ? "true" : "false");
        if (!right) {
            fprintf(stderr, "%s: %s is wrong\n", workload_.c_str(), name.c_str());
            failed_ = true;
        }
    }

    template <typename T> void bytes(const std::string& name, const std::vector<T>& data) {
        uint64_t hash = 14695981039346656037ull;  // FNV-1a
        auto* byte = reinterpret_cast<const unsigned char*>(data.data());
        for (size_t i = 0; i < data.size() * sizeof(T); i++) hash = (hash ^ byte[i]) * 1099511628211ull;
        char text[20];
        snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
        exact(name, std::string(text));
    }

    void extra(const std::string& name, double value) {
        char text[40];
        snprintf(text, sizeof text, "%.9g", value);
        extra_ += (extra_.empty() ? "" : ", ") + quoted(name) + ": " + text;
    }
    void extra(const std::string& name, const std::string& value) {
        extra_ += (extra_.empty() ? "" : ", ") + quoted(name) + ": " + quoted(value);
    }

    void steady_ms(double value) { steady_ms_ = std::to_string(value); }

    int finish() {
        fflush(stderr);
        printf("{\"workload\": %s, \"checks\": {%s}, \"steady_ms\": %s, \"extra\": {%s}%s}\n",
               quoted(workload_).c_str(), checks_.c_str(), steady_ms_.c_str(), extra_.c_str(),
               failed_ ? ", \"errors\": {\"expect\": \"\"}" : "");
        fflush(stdout);
        return failed_ ? 1 : 0;
    }

  private:
    void add(const std::string& name, const std::string& json) {
        checks_ += (checks_.empty() ? "" : ", ") + quoted(name) + ": {\"v\": " + json + ", \"tol\": 0}";
    }

    static std::string quoted(const std::string& text) {
        std::string out = "\"";
        for (unsigned char c : text) {
            if (c == '"' || c == '\\') out += '\\';
            if (c < 32) {
                char escape[8];
                snprintf(escape, sizeof escape, "\\u%04x", c);
                out += escape;
            } else {
                out += char(c);
            }
        }
        return out + "\"";
    }

    std::string workload_, checks_, extra_, steady_ms_ = "null";
    bool failed_ = false;
};

inline double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

template <typename T> std::vector<T> to_host(const T* device, size_t count) {
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

template <typename T> T* device_array(size_t count) {
    T* pointer = nullptr;
    CHECK(cudaMalloc(&pointer, count * sizeof(T)));
    CHECK(cudaMemset(pointer, 0, count * sizeof(T)));
    return pointer;
}

// A driver function by way of the runtime, so that the program need not be linked with libcuda.
template <typename F> F driver_function(const char* name) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion(name, &address, CUDART_VERSION, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    return reinterpret_cast<F>(address);
}
