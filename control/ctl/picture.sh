#!/usr/bin/env bash
# Makes README.md's picture of a pool from a real run on this machine: a controller, two nodes with software GPUs, two
# programs of it, and what orion-smi says of them. Needs what `cargo build --release` and
# `cargo build --release -p orion-conformance --example show_vgpus` build, or the same in FOLDER.
#   control/ctl/picture.sh [FOLDER]           prints it
#   control/ctl/picture.sh --write [FOLDER]   puts it into README.md
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
write=
[ "${1:-}" != --write ] || { write=1; shift; }
built=$(cd "${1:-$root/target/release}" && pwd)
folder=$(mktemp -d)
children=()
trap 'kill "${children[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT

# Waits until a command succeeds, half a minute.
await() {
    for _ in $(seq 600); do ! "$@" >/dev/null 2>&1 || return 0; sleep 0.05; done
    echo "picture: waited in vain for: $*" >&2
    return 1
}

printf 'controller:\n  listen_port: 0\ndatabase:\n  data-dir: %s/pool\n' "$folder" >"$folder/controller.yaml"
"$built/orion-controller" start --config-file "$folder/controller.yaml" >"$folder/controller.log" 2>&1 &
children+=($!)
await grep -q 'listening on' "$folder/controller.log"
address=$(sed -n 's/.*listening on //p' "$folder/controller.log")
export ORION_CONTROLLER=$address HOME=$folder
ln -s "$built/libcuda.so" "$folder/libcuda.so.1"
for place in alpha:127.0.0.1 beta:127.0.0.2; do
    node=${place%:*} ip=${place#*:}
    ORION_SOFT_DEVICES=2 ORION_SOFT_MEMORY_MIB=16384 "$built/oriond" serve --driver soft --heap "1 GiB" --warm 1 \
        --pool "$folder/$node" --socket none --listen "$ip:0" >"$folder/$node.log" 2>&1 &
    children+=($!)
    await grep -q serving "$folder/$node.log"
    port=$(sed -n 's/.*tcp:[0-9.]*:\([0-9]*\).*/\1/p' "$folder/$node.log" | head -n 1)
    "$built/orion-agent" --controller "$address" --pool "$folder/$node" --address "tcp:$ip:$port" \
        --node "$node" >"$folder/$node.agent" 2>&1 &
    children+=($!)
done
await sh -c "'$built/orion-smi' --pool | grep -q '^4 GPUs'"
# On a machine of another name, so that this one's is not in the picture. Takes root.
elsewhere() { exec unshare --uts sh -c 'echo trainer >/proc/sys/kernel/hostname && exec "$@"' sh "$@"; }
# The first wants nearly all of two GPUs, so the second is placed on the other node.
mkfifo "$folder/input"
exec 3<>"$folder/input"
for asked in "2 15500" "1 4096"; do
    read -r vgpus gmem <<<"$asked"
    ORION_VGPU=$vgpus ORION_GMEM=$gmem LD_LIBRARY_PATH=$folder elsewhere "$built/examples/show_vgpus" stay \
        <"$folder/input" >"$folder/program.$vgpus" 2>&1 &
    children+=($!)
    await grep -q '^attached' "$folder/program.$vgpus"
done

# What programs use comes with the next heartbeat.
is_known() {
    "$built/orion-smi" >"$folder/smi" && grep -q show_vgpus "$folder/smi" &&
        ! grep -q 'N/A/\|show_vgpus *N/A' "$folder/smi"
}
await is_known

picture() {
    local command
    for command in "orion-smi" "orion-smi --pool"; do
        echo "\$ $command"
        # shellcheck disable=SC2086
        "$built"/$command
    done
}
picture >"$folder/picture"
if [ -z "$write" ]; then
    cat "$folder/picture"
    exit
fi
python3 - "$root/README.md" "$folder/picture" <<'END'
import sys
readme, picture = sys.argv[1:]
text = open(readme).read()
before, rest = text.split("<!-- made by control/ctl/picture.sh -->\n", 1)
_, after = rest.split("```\n", 2)[1:]
block = "<!-- made by control/ctl/picture.sh -->\n```\n" + open(picture).read() + "```\n"
open(readme, "w").write(before + block + after)
END
echo "README.md has the picture"
