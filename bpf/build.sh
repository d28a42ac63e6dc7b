#!/usr/bin/env bash
# Compiles the programs into FOLDER, objects/ unless one is named, and says there which clang has made them.
#   bpf/build.sh [FOLDER]      needs clang (CLANG, clang-19) and llvm-strip (LLVM_STRIP, llvm-strip-19)
set -euo pipefail
cd "$(dirname "$0")"
to=${1:-objects}
clang=${CLANG:-clang-19}
strip=${LLVM_STRIP:-llvm-strip-19}
# libbpf's headers have to be those of the libbpf that loads: the struct in which it describes the arguments of USDT
# probes differs between its versions.
metadata=(cargo metadata --format-version 1 --features orion-bpf/libbpf
    --filter-platform x86_64-unknown-linux-gnu)
manifest=$("${metadata[@]}" | grep -oE '"manifest_path":"[^"]*/libbpf-sys-[^"]*"' | cut -d'"' -f4)
headers=${manifest%/*}/libbpf/src

mkdir -p "$to"
for source in *.bpf.c; do
    object=$to/${source%.c}.o
    # Paths in the objects are these, wherever the repository lies. v3 has 32-bit arithmetic, which Linux 5.8 can.
    "$clang" -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_x86 -Wall -Werror -Iinclude -isystem "$headers" \
        -ffile-prefix-map="$PWD"=. -ffile-prefix-map="$headers"=libbpf -idirafter /usr/include/x86_64-linux-gnu \
        -c "$source" -o "$object"
    # Types (BTF) stay, what debuggers want goes.
    "$strip" -g "$object"
done
"$clang" --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p' >"$to/clang-version"
