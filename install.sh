#!/usr/bin/env bash
# Builds Orion and puts it into a folder, under the names by which programs ask for it:
#   FOLDER/bin        orion-run, oriond
#   FOLDER/lib/orion  libcuda.so.1, libcuda.so, libcupti.so.13, libnvidia-ml.so.1, and python, a plugin for JAX
# The folder may be moved or copied. What runs from it keeps the files that it has loaded when they are replaced.
#   ./install.sh FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)

if [ $# -ne 1 ] || [[ "$1" == -* ]]; then
    sed -n '2,/^set/{/^set/!s/^# \?//p}' "$0" >&2
    exit 2
fi
mkdir -p "$1/bin" "$1/lib/orion"
folder=$(cd "$1" && pwd)

(cd "$root" && cargo build --release --quiet -p orion-shim -p orion-cupti -p orion-nvml -p oriond -p orion-run)
built=${CARGO_TARGET_DIR:-$root/target}/release

# mode file place: by a name of its own first, for a file that is in use must not change.
put() {
    install -m "$1" "$built/$2" "$folder/$3.new"
    mv -f "$folder/$3.new" "$folder/$3"
}
put 755 orion-run bin/orion-run
put 755 oriond bin/oriond
put 644 libcuda.so lib/orion/libcuda.so.1
put 644 libcupti.so lib/orion/libcupti.so.13
put 644 libnvidia_ml.so lib/orion/libnvidia-ml.so.1
plugin=python/jax_plugins/orion
install -D -m 644 "$root/control/run/$plugin/__init__.py" -t "$folder/lib/orion/$plugin"
ln -sfn libcuda.so.1 "$folder/lib/orion/libcuda.so"
echo "installed into $folder: bin/orion-run, bin/oriond, lib/orion/libcuda.so.1 and what goes with it"
