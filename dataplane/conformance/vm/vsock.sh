#!/usr/bin/env bash
# Sessions over vsock, in a virtual machine: by its kernel's loopback, and with the software GPU of its host.
#   vm/vsock.sh [PART…]    carrier: what oriond's carrier suite has for vsock; loopback: the driver's facts about
#                          copies, TLS, and the end of oriond in a copy, all of it in the machine;
#                          attack: the hostile client over it, and sessions that would have oriond keep ever more;
#                          host: the facts, an nvcc program and the end of oriond in a copy, from the machine to its
#                          host; all of them by default (ORION_VM_FILTER, ORION_VM_FACTS, ORION_ATTACK_SECONDS: other
#                          tests, other options of orion-facts, other than 60 s)
# Needs what boot.sh does; for `host`, nvcc or PyPI to have it from, and vhost-device-vsock, which
# `cargo install vhost-device-vsock` makes: it needs no kernel module of the host, and no root. Without it that part is
# passed over.
# An idle session costs an engine a look each millisecond on a kernel before 6.7, over TCP too, so that is not asked;
# nor is what takes an emulated core minutes: twenty thousand threads.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$root"
parts=" ${*:-carrier loopback attack host} "
for part in $parts; do
    [[ " carrier loopback attack host " == *" $part "* ]] || { echo "vsock: $part is no part" >&2; exit 2; }
done
tests=${ORION_VM_FILTER:-vsock --skip an_idle_session}
facts=${ORION_VM_FACTS:---quiet --skip twenty_thousand_use_it_one_after_the_other,shared_file}
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

log=$(mktemp)
work=$(mktemp -d)
pids=()
trap '{ [ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}"; wait; } 2>/dev/null || true; rm -rf "$work" "$log"' EXIT
fail() {
    echo "vsock: $*" >&2
    tail -n 30 "$work"/*.log >&2 2>/dev/null || true
    exit 1
}

build() { cargo "$@" >>"$log" 2>&1 || { cat "$log"; fail "cargo $* failed"; }; }
build build -p oriond -p orion-shim -p orion-run -p orion-conformance -p orion-attack
build build -p orion-conformance --example lose_worker
build test -p oriond --test carrier --no-run
carrier=$(sed -n 's,.*Executable tests/carrier/main.rs (\(.*\))$,\1,p' "$log")
built=$(dirname "$(dirname "$(realpath "$carrier")")")

(umask 077; od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >"$work/token")
arguments=(--module vsock_loopback --file "$work/token=/orion/token"
    --file "$built/libcuda.so=/lib/orion/libcuda.so.1" --program "$carrier=carrier")
for program in oriond orion-attack orion-facts orion-run examples/lose_worker; do
    arguments+=(--program "$built/$program")
done

# The host's side, where it is to be had.
if [[ "$parts" == *" host "* ]] && ! command -v vhost-device-vsock >/dev/null; then
    [ $# -eq 0 ] || fail "vhost-device-vsock is missing; cargo install vhost-device-vsock"
    echo "vsock between a machine and its host is not tried: vhost-device-vsock is missing (cargo install)"
    parts=${parts/ host / }
fi
if [[ "$parts" == *" host "* ]]; then
    dataplane/conformance/cuda/build.sh "$built/cuda-programs" vector_add
    mkfifo "$work/ready"
    "$built/oriond" serve --driver soft --warm 1 --socket none --token-file "$work/token" \
        --vsock "$work/vm0.vsock_7411" --ready-fd 9 9>"$work/ready" 2>"$work/oriond.log" &
    oriond=$!
    pids+=("$oriond")
    read -r addresses <"$work/ready" || fail "oriond does not serve"
    [ "$addresses" = vsock:2:7411 ] || fail "oriond serves $addresses"
    vhost-device-vsock --guest-cid=3 --socket="$work/vhost.sock" --uds-path="$work/vm0.vsock" >"$work/vhost.log" 2>&1 &
    pids+=("$!")
    for _ in $(seq 100); do [ ! -e "$work/vhost.sock" ] || break; sleep 0.1; done
    touch "$work/asked"
    (
        until grep -q 'kill it' "$work/asked"; do sleep 0.1; done
        kill -9 "$oriond"
    ) &
    pids+=("$!")
    arguments+=(--module virtio_pci --module vmw_vsock_virtio_transport)
    arguments+=(--program "$built/cuda-programs/vector_add.static")
    for argument in -object memory-backend-memfd,id=memory,size=2048M,share=on -machine memory-backend=memory \
        -chardev "socket,id=vsock,path=$work/vhost.sock" -device vhost-user-vsock-pci,chardev=vsock \
        -serial "file:$work/asked"; do
        arguments+=(--qemu "$argument")
    done
fi

dataplane/conformance/vm/boot.sh --seconds "${ORION_VM_SECONDS:-900}" --memory 2048 "${arguments[@]}" - <<END
export LD_LIBRARY_PATH=/lib/orion ORION_TOKEN_FILE=/orion/token ORION_SERVER
asked() { case "$parts" in *" \$1 "*) ;; *) return 1 ;; esac }
status=0
# Its workers are made of the oriond that was built.
mkdir -p "$built"
ln -s /bin/oriond "$built/oriond"
if asked carrier; then ORION_QUIET=1 carrier --test-threads 1 --ignored $tests 2>&1 || status=1; fi
# Who is not there, in words.
ORION_SERVER=vsock:1:4711 lose_worker </dev/null 2>&1 |
    grep -o 'nobody listens on port 4711 of the machine with CID 1' || exit 20
if asked loopback; then
    oriond serve --driver soft --warm 1 --socket none --token-file /orion/token --vsock 7500 2>/tmp/oriond.log &
    oriond=\$!
    until grep -qs vsock:.*:7500 /tmp/oriond.log; do
        kill -0 \$oriond || { cat /tmp/oriond.log; exit 31; }
        sleep 0.1
    done
    ORION_SERVER=vsock:1:7500 ORION_TRANSPORT=vsock orion-facts ${ORION_VM_FACTS:---quiet --only copy} || exit 21
    ORION_SERVER=vsock:1:7500 ORION_TLS=1 ORION_VERBOSE=1 lose_worker </dev/null 2>&1 |
        grep -o 'transport vsock (encrypted by TLS 1.3)' || exit 22
    grep -q 'vsock:cid=1' /tmp/oriond.log || { cat /tmp/oriond.log; exit 23; }
    touch /tmp/out
    ORION_SERVER=vsock:1:7500 lose_worker copy >/tmp/out 2>/tmp/said &
    asks=\$!
    until grep -q copying /tmp/out; do kill -0 \$asks || { cat /tmp/said; exit 32; }; sleep 0.1; done
    kill -9 \$oriond
    wait \$asks
    cat /tmp/out /tmp/said
    grep -q 'the session is lost' /tmp/said || exit 29
fi
if asked attack; then
    ORION_QUIET=1 orion-attack run --oriond /bin/oriond --seconds ${ORION_ATTACK_SECONDS:-60} -- --vsock 7501 2>&1 ||
        exit 30
    ORION_QUIET=1 orion-attack grow --oriond /bin/oriond --transport vsock --seconds 3 -- --vsock 7502 2>&1 || exit 34
fi
if asked host; then
    ORION_SERVER=vsock:2:7411 ORION_VERBOSE=1 lose_worker </dev/null >/tmp/said 2>&1
    grep -o 'transport vsock' /tmp/said || { cat /tmp/said; exit 24; }
    ORION_SERVER=vsock:2:7411 orion-facts $facts || exit 25
    orion-run --server vsock:2:7411 -- /bin/vector_add.static || exit 26
    touch /tmp/out
    # vhost-device-vsock 0.3 keeps its connections to who has ended in a copy, and says nothing: the program is told by
    # oriond's silence.
    ORION_SERVER=vsock:2:7411 lose_worker copy >/tmp/out 2>/tmp/said &
    asks=\$!
    until grep -q copying /tmp/out; do kill -0 \$asks || { cat /tmp/said; exit 33; }; sleep 0.1; done
    echo kill it >/dev/ttyS1
    wait \$asks
    cat /tmp/out /tmp/said
    grep -q 'the session is lost' /tmp/said || exit 27
    ORION_SERVER=vsock:2:7411 lose_worker </dev/null >/tmp/said 2>&1
    grep -oE 'nobody listens on port 7411 .*|did not answer within 5 s: .*' /tmp/said || { cat /tmp/said; exit 28; }
fi
exit \$status
END
echo "vsock: passed in $SECONDS s"
