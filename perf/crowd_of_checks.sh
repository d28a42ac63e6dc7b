#!/usr/bin/env bash
# What has to hold on a GPU that many use at once: memory is taken in every way under a limit, while programs check over
# TCP that what a completion covers is there. Then, alone, graphs that find no memory, contexts, and the facts.
#
#   perf/crowd_of_checks.sh --bin FOLDER [--seconds N] [--programs N] [--out FOLDER]
#
# FOLDER has oriond and orion-run as install.sh puts them, or as cargo builds them, and the conformance programs
# orion-limits, orion-matrix and orion-facts: `cargo build --release` and target/release. --seconds (500) is the time of
# the first part, --programs (6) how many check over TCP, two to a server. Ends with 1 if anything did not hold.
set -uo pipefail
bin= seconds=500 programs=6 out=
while [ $# -gt 0 ]; do
    case $1 in
    --bin) bin=$2 && shift 2 ;;
    --seconds) seconds=$2 && shift 2 ;;
    --programs) programs=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2 && exit 2 ;;
    esac
done
if [ ! -x "$bin/orion-run" ] || [ ! -x "$bin/orion-limits" ]; then
    echo "crowd_of_checks: --bin names no folder with orion-run and orion-limits: \"$bin\"; cargo build --release" >&2
    exit 2
fi
out=${out:-$(mktemp -d)}
mkdir -p "$out"
scratch=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null; wait; rm -rf "$scratch"' EXIT
status=0

# Keeps what a command prints and says how it ended.
check() {
    local name=$1
    shift
    if "$@" >"$out/$name.txt" 2>&1; then
        echo "$name: $(tail -n 1 "$out/$name.txt")"
    else
        echo "$name FAILED ($?): $(tail -n 1 "$out/$name.txt")"
        return 1
    fi
}

# NVIDIA's driver rounds pools to 32 MiB, and itself crashes in `orphan`, as natively.
limits=("$bin/orion-run" --transport shm --memory-limit "4 GiB" -- "$bin/orion-limits" --operations 1000000000
    --rounding $((32 << 20)))
ways=(memory pitch array mipmapped physical mapped pool graph module context)

checks=()
check limits "${limits[@]}" --threads 4 --seconds "$seconds" "${ways[@]/#/--only=}" &
checks+=($!)
for ((i = 0; i < programs; i++)); do
    if ((i % 2 == 0)); then
        port=$((7420 + i))
        "$bin/oriond" serve --socket "$scratch/$i" --listen "127.0.0.1:$port" --insecure --warm 0 --engines 2 \
            --ready-fd 3 3>"$scratch/ready" 2>"$out/oriond$i.log" &
        servers+=($!)
        until [ -s "$scratch/ready" ] || ! kill -0 $!; do sleep 0.1; done
        rm -f "$scratch/ready"
    fi
    check "matrix$i" "$bin/orion-run" --server "tcp:127.0.0.1:$port" -- "$bin/orion-matrix" --threads 6 \
        --count 1000000000 --seconds "$seconds" --seed "$((i + 1))" &
    checks+=($!)
done
for one in "${checks[@]}"; do wait "$one" || status=1; done
kill "${servers[@]}" 2>/dev/null
sum='/ completions, /{all += $1; bad += $3} END {print all ", " bad " wrong"}'
echo "completions over TCP: $(cat "$out"/matrix*.txt | awk "$sum")"

check graphs "${limits[@]}" --threads 4 --seconds 20 --only graph || status=1
check contexts "${limits[@]}" --threads 1 --seconds 10 --only context || status=1
for transport in shm tcp; do
    # Files that several programs map are registered where they run beside their GPU.
    facts=("$bin/orion-facts" --quiet)
    [[ $transport == shm ]] || facts+=(--skip shared_file)
    check "facts-$transport" "$bin/orion-run" --transport "$transport" -- "${facts[@]}" || status=1
done
echo "what was printed is in $out"
exit "$status"
