#!/usr/bin/env bash
# Builds Orion and puts it into a folder, under the names by which programs ask for it:
#   FOLDER/bin        orion-run, oriond, and orion-ptxas, by which compilers in a program reach the software GPU
#   FOLDER/lib/orion  libcuda.so.1, libcuda.so, libcupti.so.13, libnvidia-ml.so.1, and python, for JAX and numba
# The folder may be moved or copied. What runs from it keeps the files that it has loaded when they are replaced.
#   ./install.sh FOLDER              for this machine and those whose C library is not older
#   ./install.sh --portable FOLDER   orion-run and the libraries for any x86-64 Linux with glibc 2.17 or newer (CentOS
#                                    7, Ubuntu 16.04); oriond for this machine. Needs python3 with pip and readelf, and
#                                    downloads zig and cargo-zigbuild from PyPI, once, into .zig/ (420 MB)
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)

portable=
if [ "${1:-}" = --portable ]; then
    portable=yes
    shift
fi
if [ $# -ne 1 ] || [[ "$1" == -* ]]; then
    sed -n '2,/^set/{/^set/!s/^# \?//p}' "$0" >&2
    exit 2
fi
mkdir -p "$1/bin" "$1/lib/orion"
folder=$(cd "$1" && pwd)

target=${CARGO_TARGET_DIR:-$root/target}
users=(-p orion-shim -p orion-cupti -p orion-nvml -p orion-run)
built=$target/release

# Each version that a symbol has in the C library is younger or older; zig knows which were there at which time.
zig=$root/.zig
tools=(ziglang==0.17.1 cargo-zigbuild==0.24.0)
fetch_zig() {
    [ "$(cat "$zig/complete" 2>/dev/null)" != "${tools[*]}" ] || return 0
    for tool in "python3 -m pip --version" "readelf --version"; do
        $tool >/dev/null 2>&1 || { echo "install: \`$tool\` fails; --portable needs it" >&2; return 1; }
    done
    echo "downloading ${tools[*]} from PyPI into $zig" >&2
    rm -rf "$zig"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --target "$zig" "${tools[@]}"
    echo "${tools[*]}" >"$zig/complete"
}

if [ -n "$portable" ]; then
    fetch_zig
    (
        cd "$root"
        export CARGO_ZIGBUILD_ZIG_PATH=$zig/ziglang/zig CARGO_ZIGBUILD_CACHE_DIR=$target/zigbuild
        export ZIG_GLOBAL_CACHE_DIR=$target/zig ZIG_LOCAL_CACHE_DIR=$target/zig
        "$zig/bin/cargo-zigbuild" zigbuild --release --quiet --target x86_64-unknown-linux-gnu.2.17 "${users[@]}"
        cargo build --release --quiet -p oriond
    )
    built=$target/x86_64-unknown-linux-gnu/release
    libraries=("$built"/lib{cuda,cupti,nvidia_ml}.so)
    "$root/dataplane/conformance/glibc-version.sh" 2.17 "$built"/orion-{run,ptxas} "${libraries[@]}"
else
    (cd "$root" && cargo build --release --quiet "${users[@]}" -p oriond)
fi

# mode file place: by a name of its own first, for a file that is in use must not change.
put() {
    install -m "$1" "$2" "$folder/$3.new"
    mv -f "$folder/$3.new" "$folder/$3"
}
put 755 "$built/orion-run" bin/orion-run
put 755 "$built/orion-ptxas" bin/orion-ptxas
put 755 "$target/release/oriond" bin/oriond
put 644 "$built/libcuda.so" lib/orion/libcuda.so.1
put 644 "$built/libcupti.so" lib/orion/libcupti.so.13
put 644 "$built/libnvidia_ml.so" lib/orion/libnvidia-ml.so.1
for module in jax_plugins/orion/__init__.py orion_numba.py; do
    install -D -m 644 "$root/control/run/python/$module" "$folder/lib/orion/python/$module"
done
ln -sfn libcuda.so.1 "$folder/lib/orion/libcuda.so"
echo "installed into $folder: bin/orion-run, bin/oriond, lib/orion/libcuda.so.1 and what goes with it"
[ -z "$portable" ] || echo "all but bin/oriond runs with glibc 2.17 and newer"
