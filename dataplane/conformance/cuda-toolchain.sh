#!/usr/bin/env bash
# Prints the folder of a CUDA 13 toolchain (bin/nvcc, include, lib). An nvcc on PATH is taken as it is;
# otherwise NVIDIA's wheels are downloaded once into .cuda/ at the repository's root, which git ignores.
# NVIDIA's EULA lets you download them; it does not let us ship them.
set -euo pipefail

root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel 2>/dev/null || (cd "$(dirname "$0")/../.." && pwd))

if command -v nvcc >/dev/null; then
    dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")"
    exit 0
fi

cu="$root/.cuda/nvidia/cu13"
if [ ! -e "$root/.cuda/complete" ]; then
    rm -rf "$root/.cuda"
    mkdir -p "$root/.cuda/wheels"
    echo "downloading the CUDA 13.0 compiler and runtime from PyPI into $root/.cuda" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$root/.cuda/wheels" \
        'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*' \
        'nvidia-nvvm==13.0.*' 'nvidia-cuda-cccl==13.0.*' >&2
    for wheel in "$root"/.cuda/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$root/.cuda"
    done
    rm -r "$root/.cuda/wheels"
    # Wheels carry no symbolic links and may lose the right to be executed.
    chmod -R a+x "$cu/bin" "$cu/nvvm/bin"
    ln -sf libcudart.so.13 "$cu/lib/libcudart.so"
    touch "$root/.cuda/complete"
fi
echo "$cu"
