#!/usr/bin/env bash
# Programs in a virtual machine use the software GPU of its host, by shared memory and by TCP: the facts, programs that
# nvcc has built and orion-run starts, one with more to copy than its memory holds, one that is killed, and the ends of
# oriond and of the machine, each in the midst of a copy.
#   vm/guest.sh [FOLDER]    FOLDER has what cargo has built; without one it is built. No root.
#                           (ORION_VM_FACTS: other options of orion-facts)
# What takes an emulated core a minute or two is left out: twenty thousand threads. It held.
# What the machine is and needs: boot.sh; and nvcc, or PyPI to have it from.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
if [ $# -eq 0 ]; then
    (cd "$root" && cargo build --quiet -p oriond -p orion-shim -p orion-run -p orion-conformance &&
        cargo build --quiet -p orion-conformance --example small_heap --example lose_worker)
fi
built=$(cd "${1:-${CARGO_TARGET_DIR:-$root/target}/debug}" && pwd)
boot=$root/dataplane/conformance/vm/boot.sh
# One of each way to the driver: cudart in the program or beside it, machine code with PTX that is compressed.
programs=(vector_add.static vector_add.zstd memory.shared graphs.shared streams.per-thread)
"$root/dataplane/conformance/cuda/build.sh" "$built/cuda-programs" vector_add memory graphs streams

facts=${ORION_VM_FACTS:---quiet --skip twenty_thousand_use_it_one_after_the_other,shared_file}

work=$(mktemp -d /dev/shm/orion-guest.XXXXXX)
pids=()
trap '{ [ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}"; wait; } 2>/dev/null || true; rm -rf "$work"' EXIT
fail() {
    echo "guest: $*" >&2
    tail -n 30 "$work"/*.log >&2 || true
    exit 1
}

umask 077
(od -An -tx1 -N16 /dev/urandom | tr -d ' \n') >"$work/token"
truncate -s 128M "$work/plain"

# NAME ARGUMENT…: puts its pid behind `pids`, and where it serves into `addresses`.
serve() {
    local name=$1
    shift
    mkfifo "$work/$name.ready"
    "$built/oriond" serve --driver soft --warm 1 --socket none "$@" --ready-fd 9 9>"$work/$name.ready" \
        2>"$work/$name.log" &
    pids+=($!)
    read -r addresses <"$work/$name.ready" || fail "oriond does not serve $name"
}
# Both kinds of device, each of an oriond of its own, for one of them is killed.
serve bell --guest-socket "$work/bell.sock" --guest-memory "1 GiB" --guest-sessions 3
bell=${pids[0]}
serve plain --guest "$work/plain"
serve tcp --listen 127.0.0.1:0 --token-file "$work/token"
port=${addresses##*:}

cat >"$work/script" <<END
export LD_LIBRARY_PATH=/lib/orion ORION_SERVER
bell=ivshmem:0000:00:05.0 plain=ivshmem:0000:00:04.0
# Two devices, and no name: that is refused, with the names.
ORION_SERVER=ivshmem: lose_worker </dev/null 2>&1 | grep -o "name the one.*" || exit 10
ORION_SERVER=\$bell orion-facts $facts >/tmp/facts 2>&1 &
facts=\$!
ORION_SERVER=\$plain
ORION_VERBOSE=1 small_heap 2>/tmp/said || { cat /tmp/said; exit 11; }
grep -o 'transport ivshmem' /tmp/said || exit 12
# Killed in a copy, and the only session that there is: others are told, until the host has missed it.
touch /tmp/killed
lose_worker copy >/tmp/killed &
until grep -q copying /tmp/killed; do sleep 0.1; done
killall -9 lose_worker
lose_worker </dev/null 2>&1 | grep -o 'all 1 sessions .* are taken' || exit 13
# Without such a device there is TCP.
ifconfig eth0 10.0.2.15 up
ORION_SERVER=tcp:10.0.2.2:$port ORION_TOKEN_FILE=/orion/token ORION_VERBOSE=1 lose_worker </dev/null >/tmp/tcp 2>&1
grep -o 'transport tcp (encrypted by TLS 1.3)' /tmp/tcp || { cat /tmp/tcp; exit 14; }
wait \$facts || { cat /tmp/facts; exit 15; }
cat /tmp/facts
# The host kills its oriond when it is asked to.
touch /tmp/out
ORION_SERVER=\$bell lose_worker copy >/tmp/out 2>/tmp/said &
asks=\$!
until grep -q copying /tmp/out; do sleep 0.1; done
echo kill it >/dev/ttyS1
# What this takes is enough for the host to have missed the one that was killed above.
tries=0
until echo | lose_worker 2>/tmp/last; do
    sleep 0.5
    tries=\$((tries + 1))
    [ \$tries -lt 60 ] || { cat /tmp/last; exit 16; }
done
for program in ${programs[*]}; do
    orion-run --server \$plain -- /bin/\$program >/tmp/printed 2>&1 || { cat /tmp/printed; exit 17; }
    ! grep FAIL /tmp/printed && grep -c PASS /tmp/printed >/tmp/count || { cat /tmp/printed; exit 18; }
    echo "\$program: \$(cat /tmp/count) passed"
done
wait \$asks
cat /tmp/out /tmp/said
grep -q "nothing was heard of the host's oriond for 11 s" /tmp/said || exit 19
# What runs when the machine ends.
touch /tmp/last
lose_worker copy >/tmp/last &
until grep -q copying /tmp/last; do sleep 0.1; done
END

touch "$work/asked"
(
    until grep -q 'kill it' "$work/asked"; do sleep 0.1; done
    kill -9 "$bell"
) &
killer=$!
pids+=("$killer")
arguments=()
for program in "${programs[@]}"; do arguments+=(--program "$built/cuda-programs/$program"); done
for program in orion-facts orion-run examples/small_heap examples/lose_worker; do
    arguments+=(--program "$built/$program")
done
"$boot" "${arguments[@]}" --file "$built/libcuda.so=/lib/orion/libcuda.so.1" \
    --file "$work/token=/orion/token" --module virtio_pci --module virtio_net --memory 2048 \
    --qemu -serial --qemu "file:$work/asked" \
    --qemu -object --qemu "memory-backend-file,id=plain,size=128M,share=on,mem-path=$work/plain" \
    --qemu -device --qemu ivshmem-plain,memdev=plain,addr=4 \
    --qemu -chardev --qemu "socket,path=$work/bell.sock,id=bell" \
    --qemu -device --qemu ivshmem-doorbell,vectors=4,chardev=bell,addr=5 \
    --qemu -netdev --qemu user,id=net --qemu -device --qemu virtio-net-pci,netdev=net,romfile=,addr=6 \
    "$work/script" || fail "it does not hold in the machine"
# Of the machine that ended in the midst of a copy.
for _ in $(seq 200); do
    ended=$(grep -c 'session over' "$work/plain.log" || true)
    [ "$ended" -lt "$(grep -c 'session begins' "$work/plain.log")" ] || break
    sleep 0.1
done
[ "$ended" -ge $((4 + ${#programs[@]})) ] || fail "the sessions of a machine that has ended do not end"
grep -c "nothing was heard of a guest's program for 11 s" "$work/plain.log" | grep -qx 2 ||
    fail "a killed program and a machine that has ended are not missed"
echo "guest: passed in $SECONDS s"
