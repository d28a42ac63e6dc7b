// printf from kernels reaches the client's stdout, at the times CUDA says it does.
#include <unistd.h>

#include "report.h"

__global__ void speak(int round) {
    printf("round %d block %d thread %d: %5.2f %s %c %llx\n", round, blockIdx.x, threadIdx.x, 1.5 * threadIdx.x, "text",
           'c', 0x123456789abcull);
}

__global__ void speak_much(int lines) {
    for (int i = 0; i < lines; i++) printf("line %d\n", i);
}

// What a piece of the program prints, caught in a file in place of stdout.
template <typename F> std::string printed(F piece) {
    fflush(stdout);
    int saved = dup(1);
    FILE* file = tmpfile();
    dup2(fileno(file), 1);
    piece();
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    std::string text;
    rewind(file);
    char buffer[4096];
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, got);
    fclose(file);
    return text;
}

long long lines(const std::string& text) {
    long long count = 0;
    for (char c : text) count += c == '\n';
    return count;
}

int main() {
    Report report("printf");
    CHECK(cudaFree(nullptr));
    auto text = printed([] {
        speak<<<1, 4>>>(1);
        CHECK(cudaDeviceSynchronize());
    });
    report.exact("text", text);
    report.expect("lines", lines(text) == 4);
    text = printed([] {
        cudaStream_t stream;
        CHECK(cudaStreamCreate(&stream));
        speak<<<2, 32, 0, stream>>>(2);
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamDestroy(stream));
    });
    report.expect("stream_synchronize", lines(text) == 64);
    text = printed([] {
        speak<<<1, 1>>>(3);
        int* x = device_array<int>(1);
        to_host(x, 1);
        CHECK(cudaFree(x));
        CHECK(cudaDeviceSynchronize());
    });
    report.expect("blocking_copy", lines(text) == 1);
    report.exact("count", lines(printed([] {
                     speak_much<<<1, 1>>>(2000);
                     CHECK(cudaDeviceSynchronize());
                 })));
    // A buffer that is too small loses the oldest lines, natively too; how many depends on its size alone.
    size_t size = 0;
    CHECK(cudaDeviceGetLimit(&size, cudaLimitPrintfFifoSize));
    report.exact("fifo_bytes", (long long)size);
    // Left for the runner to see on the real stdout, too.
    speak<<<1, 1>>>(4);
    CHECK(cudaDeviceSynchronize());
    return report.finish();
}
