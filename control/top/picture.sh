#!/usr/bin/env bash
# Makes README.md's picture of sessions from a real run on this machine: an oriond with the software GPU, three
# programs, and what orion-top says of them. Needs what `cargo build --release` and
# `cargo build --release -p orion-top --example load` build, or the same in FOLDER.
#   control/top/picture.sh [FOLDER]           prints it
#   control/top/picture.sh --write [FOLDER]   puts it into README.md, and what a terminal shows beside this script (SVG)
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

# On a machine of another name, so that this one's is not in the picture. Takes root.
elsewhere() { exec unshare --uts sh -c 'echo gpu-node >/proc/sys/kernel/hostname && exec "$@"' sh "$@"; }
elsewhere "$built/oriond" serve --driver soft --heap "1 GiB" --warm 2 --memory-limit "2 GiB" \
    --socket "$folder/oriond.sock" >"$folder/log" 2>&1 &
children+=($!)
await grep -q serving "$folder/log"
ln -s "$built/libcuda.so" "$folder/libcuda.so.1"
mkfifo "$folder/input"
exec 3<>"$folder/input"
for program in train:gpu upload:copies notebook:idle; do
    name=${program%:*} what=${program#*:}
    ln -s "$built/examples/load" "$folder/$name"
    LD_LIBRARY_PATH=$folder ORION_SERVER=unix:$folder/oriond.sock "$folder/$name" "$what" \
        <"$folder/input" >"$folder/$name.log" 2>&1 &
    children+=($!)
    await grep -q ready "$folder/$name.log"
done
{
    echo "\$ orion-top --once"
    "$built/orion-top" --stats "$folder/oriond.stats.sock" --interval 3 --once
} >"$folder/picture"
if [ -z "$write" ]; then
    cat "$folder/picture"
    exit
fi
# Live, in a terminal of its own, for as many looks as a trend has bars.
TERM=xterm timeout 12 script --quiet --command \
    "'$built/orion-top' --stats '$folder/oriond.stats.sock' --interval 0.5 --record '$folder/looks'" /dev/null \
    >/dev/null </dev/null || [ $? -eq 124 ]
svg() { "$built/orion-top" --replay "$folder/looks" --once --svg "$@"; }
svg "$root/control/top/picture.svg"
svg "$root/control/top/depth.svg" --session 2
python3 - "$root/README.md" "$folder/picture" <<'END'
import sys
readme, picture = sys.argv[1:]
text = open(readme).read()
mark = "<!-- made by control/top/picture.sh -->\n"
before, rest = text.split(mark, 1)
_, after = rest.split("```\n", 2)[1:]
open(readme, "w").write(before + mark + "```\n" + open(picture).read() + "```\n" + after)
END
echo "README.md has the picture, and control/top/ those of a terminal"
