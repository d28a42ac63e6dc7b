#!/usr/bin/env bash
# From a fresh clone to a CUDA program running through Orion: builds Orion, fetches NVIDIA's compiler where there is
# none, compiles CUDA programs and runs them, and trains a small network with CuPy as it comes from PyPI. With an NVIDIA
# driver all of it runs on the GPU, else on the software GPU.
#   ./quickstart.sh                       the built-in programs
#   ./quickstart.sh PROGRAM [ARGUMENT…]   any CUDA program of yours
# Needs Rust, a C++ compiler, and for the built-in programs python3 with pip where nvcc is not on PATH. CuPy is put
# into target/quickstart/python, 1 GB; where Python 3.10, pip or PyPI is missing it is left out.
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

# What CuPy needs of CUDA comes with it. Prints why there is none, if there is none.
install_cupy() {
    local list=$root/dataplane/conformance/frameworks/cupy.txt log=$root/target/quickstart/pip.log packages
    cmp -s "$list" "$python/complete" && return
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        echo "there is no python3 on PATH of version 3.10 or newer"
        return 1
    fi
    rm -rf "$python"
    # A pip inside is what Debian's Python lacks; the one outside serves.
    if ! python3 -m venv --without-pip "$python" >"$log" 2>&1; then
        echo "\`python3 -m venv\` fails: $(tail -n 1 "$log")"
        return 1
    fi
    packages=$("$python/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if ! python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: \
        --target "$packages" -r "$list" >"$log" 2>&1; then
        echo "\`python3 -m pip\` fails: $(grep -m 1 -E 'ERROR|No module' "$log" || tail -n 1 "$log")"
        return 1
    fi
    cp "$list" "$python/complete"
}

python=$root/target/quickstart/python
echo "== installing CuPy and NVIDIA's libraries for it from PyPI into $python, once: 600 MB to download"
if ! why=$(install_cupy); then
    echo "quickstart: CuPy is left out: $why"
    exit
fi
# A server of the user's own has a transport of its own.
if [ -n "${ORION_SERVER:-}${ORION_TRANSPORT:-}" ]; then
    transports=("")
else
    transports=("--transport=shm" "--transport=tcp")
fi
# cuBLAS has machine code for each GPU that it knows, and PTX for those that it does not: 13.0 is none of NVIDIA's. A
# real GPU has its own.
export ORION_SOFT_CAPABILITY=${ORION_SOFT_CAPABILITY:-13.0}
for transport in "${transports[@]}"; do
    echo "== orion-run ${transport:+$transport }-- python cupy_training.py"
    "${run[@]}" ${transport:+"$transport"} -- "$python/bin/python" \
        "$root/dataplane/conformance/frameworks/cupy_training.py"
done
