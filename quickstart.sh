#!/usr/bin/env bash
# From a fresh clone to a CUDA program running through Orion: builds Orion, fetches NVIDIA's compiler where there is
# none, compiles CUDA programs and runs them. With an NVIDIA driver they run on the GPU, else on the software GPU.
#   ./quickstart.sh                       the built-in programs
#   ./quickstart.sh PROGRAM [ARGUMENT…]   any CUDA program of yours
# Needs Rust, a C++ compiler, and for the built-in programs python3 with pip where nvcc is not on PATH.
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)

for tool in cargo g++; do
    command -v "$tool" >/dev/null || { echo "quickstart: $tool is not on PATH; install it and run again" >&2; exit 1; }
done

echo "== building Orion"
packages=(-p orion-shim -p orion-cupti -p orion-nvml -p oriond -p orion-run -p orion-soft)
(cd "$root" && cargo build --release --quiet "${packages[@]}")
run=("$root/target/release/orion-run" --verbose)

if [ $# -gt 0 ]; then
    exec "${run[@]}" -- "$@"
fi

echo "== compiling CUDA programs with nvcc"
"$root/dataplane/conformance/cuda/build.sh" "$root/target/quickstart" device_query vector_add tiles
for program in device_query vector_add tiles; do
    echo "== orion-run -- $program"
    "${run[@]}" -- "$root/target/quickstart/$program.static"
done
