#!/usr/bin/env bash
# From a fresh clone to a CUDA program running through Orion: builds Orion, fetches NVIDIA's compiler where there is
# none, compiles a CUDA program and runs it. With an NVIDIA driver it runs on the GPU, without one on the software GPU.
#   ./quickstart.sh                       the built-in programs
#   ./quickstart.sh PROGRAM [ARGUMENT…]   any CUDA program of yours
# Needs Rust, a C++ compiler, and for the built-in programs python3 with pip where nvcc is not on PATH.
set -euo pipefail
cd "$(dirname "$0")"

for tool in cargo g++; do
    command -v "$tool" >/dev/null || { echo "quickstart: $tool is not on PATH; install it and run again" >&2; exit 1; }
done

echo "== building Orion"
cargo build --release --quiet -p orion-shim -p oriond -p orion-run -p orion-soft

run=(target/release/orion-run --verbose)
if ! ldconfig -p | grep -q 'libcuda\.so\.1 '; then
    echo "== no NVIDIA driver here: using the software GPU"
    run+=(--software-gpu)
fi

if [ $# -gt 0 ]; then
    exec "${run[@]}" -- "$@"
fi

echo "== compiling CUDA programs with nvcc"
dataplane/conformance/cuda/build.sh target/quickstart device_query vector_add tiles
for program in device_query vector_add tiles; do
    echo "== ${run[*]} -- target/quickstart/$program.static"
    "${run[@]}" -- "target/quickstart/$program.static"
done
