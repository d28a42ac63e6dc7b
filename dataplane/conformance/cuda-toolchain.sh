#!/usr/bin/env bash
# Prints the folder of a CUDA 13 toolchain (bin/nvcc, include, lib). An nvcc on PATH is taken as it is;
# otherwise NVIDIA's wheels are downloaded once into .cuda/ at the repository's root, which git ignores.
# NVIDIA's EULA lets you download them; it does not let us ship them.
#   cuda-toolchain.sh [WHAT]    prints another folder instead: with nvrtc that of libnvrtc.so.13, with cupti one with
#                               CUPTI's include and lib, with nvml that of nvml.h, with frameworks that of the
#                               packages of a Python with requirements.txt's frameworks, with pytorch that
#                               of a Python 3.7 or 3.8 with PyTorch 1.5.1 (it exits with 3 where there is none), with
#                               pytorch-debian that of a Debian 13 with PyTorch 2.6 (3 where none can be unpacked),
#                               with nvml-tools one with nvidia-smi, bin/nvitop and a Python that has pynvml
set -euo pipefail

root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel 2>/dev/null || (cd "$(dirname "$0")/../.." && pwd))

# what pip is asked: again when a download broke off, as pip itself does only before the first byte has come
pip() {
    local try
    for try in 1 2 3; do
        python3 -m pip "$@" --quiet --disable-pip-version-check --no-deps --only-binary=:all: >&2 && return
        echo "pip $1 failed, try $try of 3" >&2
    done
    return 1
}

# folder wheel…: into the folder, in place of what is there
download() {
    local folder=$1
    shift
    rm -rf "$folder"
    mkdir -p "$folder/wheels"
    pip download --dest "$folder/wheels" "$@"
    for wheel in "$folder"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$folder"
    done
    rm -r "$folder/wheels"
}

nvcc=
if command -v nvcc >/dev/null; then
    nvcc=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
fi

if [ "${1:-}" = nvrtc ]; then
    for folder in ${nvcc:+"$nvcc/lib" "$nvcc/lib64"}; do
        if [ -e "$folder/libnvrtc.so.13" ]; then
            echo "$folder"
            exit 0
        fi
    done
    # Beside the compiler's: both may be wanted at once.
    if [ ! -e "$root/.cuda-nvrtc/complete" ]; then
        echo "downloading NVRTC 13.0 from PyPI into $root/.cuda-nvrtc" >&2
        download "$root/.cuda-nvrtc" 'nvidia-cuda-nvrtc==13.0.*'
        touch "$root/.cuda-nvrtc/complete"
    fi
    echo "$root/.cuda-nvrtc/nvidia/cu13/lib"
    exit 0
fi

if [ "${1:-}" = cupti ]; then
    # One version, since records have its layout.
    if [ ! -e "$root/.cuda-cupti/complete" ]; then
        echo "downloading CUPTI 13.0 from PyPI into $root/.cuda-cupti" >&2
        download "$root/.cuda-cupti" 'nvidia-cuda-cupti==13.0.85'
        touch "$root/.cuda-cupti/complete"
    fi
    echo "$root/.cuda-cupti/nvidia/cu13"
    exit 0
fi

if [ "${1:-}" = nvml ]; then
    # The newest at the time of writing: what it declares is what libnvidia-ml.so.1 has to have.
    if [ ! -e "$root/.cuda-nvml/complete" ]; then
        echo "downloading NVML's header from PyPI into $root/.cuda-nvml" >&2
        download "$root/.cuda-nvml" 'nvidia-nvml-dev==13.5.37'
        touch "$root/.cuda-nvml/complete"
    fi
    echo "$root/.cuda-nvml/nvidia/cu13/include"
    exit 0
fi

if [ "${1:-}" = nvml-tools ]; then
    # The nvidia-smi of Debian 12, of its non-free part, into a folder: nothing is installed.
    folder="$root/.nvml-tools"
    # Several tests ask at once.
    exec 9<"$0"
    flock 9
    if [ ! -e "$folder/complete" ]; then
        echo "downloading nvidia-smi from Debian, nvitop and pynvml from PyPI into $folder" >&2
        rm -rf "$folder"
        python3 -m venv --without-pip "$folder"
        mkdir -p "$folder"/apt/{parts,lists/partial,archives/partial}
        key=/usr/share/keyrings/debian-archive-keyring.gpg
        echo "deb [signed-by=$key] http://deb.debian.org/debian bookworm non-free" >"$folder/apt/sources.list"
        apt=(apt-get -qq -o "Dir::Etc::SourceList=$folder/apt/sources.list"
            -o "Dir::Etc::SourceParts=$folder/apt/parts" -o "Dir::State::Lists=$folder/apt/lists"
            -o "Dir::Cache=$folder/apt" -o APT::Sandbox::User=root)
        "${apt[@]}" update >&2
        (cd "$folder/apt" && "${apt[@]}" download nvidia-smi >&2)
        dpkg -x "$folder"/apt/nvidia-smi_*.deb "$folder/apt/unpacked"
        cp "$folder/apt/unpacked/usr/lib/nvidia/current/nvidia-smi" "$folder/nvidia-smi"
        packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        pip install --no-cache-dir --target "$packages" nvidia-ml-py==13.580.82 nvitop==1.5.3 \
            psutil==7.1.0 blessed==1.22.0 wcwidth==0.2.14
        printf '#!/bin/sh\nexec "%s" -m nvitop "$@"\n' "$folder/bin/python" >"$folder/bin/nvitop"
        chmod +x "$folder/bin/nvitop"
        rm -r "$folder/apt"
        touch "$folder/complete"
    fi
    echo "$folder"
    exit 0
fi

if [ "${1:-}" = frameworks ]; then
    # Again when the list has changed. Packages are installed where Python itself looks for them: some look at where
    # others are, and some have .pth files.
    list="$root/dataplane/conformance/frameworks/requirements.txt"
    if ! cmp -s "$list" "$root/.frameworks/complete"; then
        echo "downloading TensorFlow, JAX, CuPy, Triton, numba, Taichi, Warp, Dr.Jit, XGBoost and CUDA's libraries" \
            "into $root/.frameworks, 4 GB" >&2
        rm -rf "$root/.frameworks"
        python3 -m venv --without-pip "$root/.frameworks"
    fi
    packages=$("$root/.frameworks/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if [ ! -e "$root/.frameworks/complete" ]; then
        pip install --no-cache-dir --target "$packages" -r "$list"
        cp "$list" "$root/.frameworks/complete"
    fi
    echo "$packages"
    exit 0
fi

if [ "${1:-}" = pytorch ]; then
    # The last release whose wheels carry PTX, for a Python that has such wheels.
    folder="$root/.pytorch"
    if [ ! -e "$folder/complete" ]; then
        python=
        for candidate in python3.8 python3.7 "$HOME"/.pyenv/versions/3.[78].*/bin/python; do
            [ -n "$python" ] || ! "$candidate" --version >/dev/null 2>&1 || python=$candidate
        done
        if [ -z "$python" ]; then
            echo "PyTorch 1.5.1 has wheels for Python 3.7 and 3.8, and neither is here as python3.7 or python3.8" >&2
            exit 3
        fi
        echo "downloading PyTorch 1.5.1 into $folder, 0.7 GB" >&2
        rm -rf "$folder"
        "$python" -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --no-cache-dir --only-binary=:all: --no-deps torch==1.5.1 numpy >&2
        touch "$folder/complete"
    fi
    echo "$folder"
    exit 0
fi

if [ "${1:-}" = pytorch-debian ]; then
    # Debian builds PyTorch with PTX of its kernels. Its packages are unpacked and not installed: nothing in them has to
    # be set up for Python to run. Two that they want are not taken: NVIDIA's driver, whose place Orion has, and a
    # downloader of cuDNN, which is a wheel here.
    folder="$root/.pytorch-debian"
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ ! -e "$folder/complete" ]; then
        for need in apt-get:apt dpkg-deb:dpkg "$key:debian-archive-keyring"; do
            [ -e "${need%:*}" ] || command -v "${need%:*}" >/dev/null ||
                { echo "Debian 13 is unpacked by ${need#*:}, which is not here" >&2; exit 3; }
        done
        echo "downloading Debian 13 with PyTorch 2.6 into $folder, 1.4 GB, and cuDNN" >&2
        rm -rf "$folder"
        mkdir -p "$folder"/{apt/parts,apt/lists/partial,apt/archives/partial}
        mirror=${ORION_DEBIAN_MIRROR:-http://deb.debian.org/debian}
        echo "deb [signed-by=$key] $mirror trixie main contrib non-free" >"$folder/apt/sources.list"
        for package in "libcuda1 550" "nvidia-cudnn 9.0.0.312~cuda12"; do
            printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nStatus: install ok installed\n' $package
            printf 'Maintainer: none\nDescription: not taken\n\n'
        done >"$folder/apt/status"
        apt=(apt-get -qq -o "Dir::Etc::SourceList=$folder/apt/sources.list"
            -o "Dir::Etc::SourceParts=$folder/apt/parts" -o "Dir::Etc::PreferencesParts=$folder/apt/parts"
            -o "Dir::State=$folder/apt" -o "Dir::State::Lists=$folder/apt/lists"
            -o "Dir::State::Status=$folder/apt/status" -o "Dir::Cache=$folder/apt"
            -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Install-Recommends=false
            -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3)
        "${apt[@]}" update >&2
        "${apt[@]}" install --yes --download-only \
            base-files libc-bin bash coreutils libopenblas0-pthread python3-torch-cuda >&2
        packages=$(echo "$root"/.frameworks/lib/python3.*/site-packages)
        if [ ! -e "$root/.frameworks/complete" ] || [ ! -e "$packages/nvidia/cudnn" ]; then
            packages="$folder/wheels"
            download "$packages" "$(grep nvidia-cudnn "$root/dataplane/conformance/frameworks/requirements.txt")"
        fi
        # First the package that makes /bin and /lib links, then the great ones, as many at a time as there are cores.
        dpkg-deb -x "$folder"/apt/archives/base-files_*.deb "$folder"
        ls -S "$folder"/apt/archives/*.deb | xargs -P "$(nproc)" -I '{}' dpkg-deb -x '{}' "$folder"
        libraries="$folder/usr/lib/x86_64-linux-gnu"
        cp -l "$packages"/nvidia/cudnn/lib/libcudnn*.so.9 "$libraries"
        # What update-alternatives would do.
        ln -s openblas-pthread/lib{openblas.so.0,blas.so.3,lapack.so.3} "$libraries"
        PATH=$PATH:/usr/sbin:/sbin ldconfig -r "$folder"
        rm -rf "$folder/apt" "$folder/wheels"
        touch "$folder/complete"
    fi
    echo "$folder"
    exit 0
fi

if [ -n "$nvcc" ]; then
    echo "$nvcc"
    exit 0
fi

cu="$root/.cuda/nvidia/cu13"
if [ ! -e "$root/.cuda/complete" ]; then
    echo "downloading the CUDA 13.0 compiler and runtime from PyPI into $root/.cuda" >&2
    download "$root/.cuda" 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' \
        'nvidia-cuda-runtime==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-cccl==13.0.*'
    # Wheels carry no symbolic links and may lose the right to be executed.
    chmod -R a+x "$cu/bin" "$cu/nvvm/bin"
    ln -sf libcudart.so.13 "$cu/lib/libcudart.so"
    touch "$root/.cuda/complete"
fi
echo "$cu"
