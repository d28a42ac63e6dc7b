#!/usr/bin/env bash
# Builds the programs beside this script into a folder, in the variants that reach the driver differently:
# how cudart is linked, what the fat binary holds, and how it is compressed; and, as NAME.suite, those of the GPU suite.
# Prints nothing when all is well.
#   build.sh OUT-FOLDER [PROGRAM…]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
suite=../../../perf/suite/cuda
out=${1:?the folder to build into}
shift
cuda=$("$here/../cuda-toolchain.sh")
cupti=
case " $* " in "  " | *" profile "*) cupti=$("$here/../cuda-toolchain.sh" cupti) ;; esac
mkdir -p "$out"

ptx="-gencode arch=compute_75,code=compute_75"
both="-gencode arch=compute_75,code=sm_75 $ptx"

# program variant flags; a shared cudart is found again by its rpath
variants() {
    for source in "$here"/*.cu; do
        local program
        program=$(basename "$source" .cu)
        # Their instructions are those of compute capability 9.0.
        if [ "$program" = tensor ] || [ "$program" = scalar ]; then
            echo "$program static -gencode arch=compute_90,code=compute_90 -cudart static"
            continue
        fi
        echo "$program static $ptx -cudart static"
        # These two take as long to build as all the others together, and how cudart is linked is none of their matter.
        if [ "$program" != thrust ] && [ "$program" != cub ]; then
            echo "$program shared $ptx -cudart shared"
        fi
    done
    echo "vector_add sass $both -cudart static"
    echo "vector_add zstd $both -cudart static --compress-mode=size"
    echo "vector_add lz4 $both -cudart static --compress-mode=speed"
    echo "vector_add plain $both -cudart static --compress-mode=none"
    echo "tiles zstd $ptx -cudart shared --compress-mode=size"
    echo "values lz4 $ptx -cudart static --compress-mode=speed"
    echo "reduce debug $ptx -cudart static -G"
    echo "values debug $ptx -cudart static -G"
    echo "streams per-thread $ptx -cudart static --default-stream per-thread"
    echo "print debug $ptx -cudart shared -G"
    echo "separate sass $both -cudart static"
    echo "separate debug $ptx -cudart static -G"
    for source in "$here/$suite"/*.cu; do
        # It includes NVRTC's header, which does not come with the compiler.
        if [ "$(basename "$source")" != jit.cu ]; then
            echo "$suite/$(basename "$source" .cu) suite -gencode arch=compute_90,code=compute_90 -cudart static"
        fi
    done
}

build() {
    local program=$1 variant=$2
    shift 2
    local source="$here/$program.cu" target newer
    target="$out/$(basename "$program").$variant"
    # Up to date: newer than its source, the headers beside that and this script.
    if [ -e "$target" ]; then
        newer=$(find "$source" "$(dirname "$source")"/*.h "$here/separate" "$here/build.sh" -newer "$target")
        if [ -z "$newer" ]; then
            return
        fi
    fi
    # NVIDIA's library is what it is linked with, and has in its own path, as PyTorch does.
    if [ "$program" = profile ]; then
        set -- "$@" -I "$cupti/include" -L "$cupti/lib" -l:libcupti.so.13 \
            -Xlinker "--disable-new-dtags,-rpath,$cupti/lib"
    fi
    if [ "$program" = separate ]; then
        set -- "$@" -rdc=true "$here"/separate/*.cu
    fi
    "$cuda/bin/nvcc" -std=c++17 -O2 -Wno-deprecated-gpu-targets -L "$cuda/lib" -L "$cuda/lib64" \
        -Xlinker "-rpath,$cuda/lib:$cuda/lib64" "$@" -o "$target" "$source"
}

wanted=" $* "
jobs=$(nproc)
while read -r program variant flags; do
    if [ "$wanted" != "  " ] && [[ "$wanted" != *" $program "* ]]; then
        continue
    fi
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    # shellcheck disable=SC2086 # flags are words
    build "$program" "$variant" $flags &
done < <(variants)
while [ "$(jobs -p | wc -l)" -gt 0 ]; do
    wait -n
    jobs >/dev/null
done
