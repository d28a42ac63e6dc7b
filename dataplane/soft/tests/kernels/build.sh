#!/bin/sh
# Rebuilds the fixtures; needs nvcc 13.0 on the path and its headers in $CUDA_INCLUDE.
set -e
cd "$(dirname "$0")"
flags="-I${CUDA_INCLUDE:-/usr/local/cuda/include}"
nvcc $flags -ptx -arch=compute_80 kernels.cu -o kernels.ptx
nvcc $flags -ptx -arch=compute_80 wide.cu -o wide.ptx
nvcc $flags -ptx -arch=compute_80 conditional.cu -o conditional.ptx
nvcc $flags -ptx -arch=compute_80 textures.cu -o textures.ptx
nvcc $flags -std=c++17 -ptx -arch=compute_90 cluster.cu -o cluster.ptx
nvcc $flags -fatbin -G --compress-mode=size -gencode arch=compute_80,code=compute_80 kernels.cu -o debug_zstd.fatbin
nvcc $flags -fatbin --compress-mode=speed -gencode 'arch=compute_80,code=[compute_80,sm_80]' kernels.cu -o lz4.fatbin
nvcc $flags -fatbin --compress-mode=none -gencode arch=compute_80,code=sm_80 kernels.cu -o sass_only.fatbin
