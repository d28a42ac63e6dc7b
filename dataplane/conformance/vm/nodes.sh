#!/usr/bin/env bash
# Two virtual machines as two nodes. One has the software GPU, an oriond that offers RDMA beside TCP, its agent and the
# pool's controller; the other one has no GPU, and programs there ask the pool for RDMA. Between them is an Ethernet of
# QEMU's, and Soft-RoCE on either end. At last the link goes down, and the node's machine is killed.
#   nodes.sh           ORION_VM_FACTS: other options of orion-facts
# Needs what rdma.sh does. How fast it is says nothing about a device; that who is cut off is told within 11 s does.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$root"
facts=${ORION_VM_FACTS:---quiet --only event::,stream::}

fail() { echo "vm: $*" >&2; exit 1; }

provider=$(compgen -G "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so") ||
    fail "Soft-RoCE's library is missing; install Debian's ibverbs-providers"
work=$(mktemp -d)
# The machine that is left ends by its pid, and boot.sh with it.
end() {
    { [ ! -s "$work/node.pid" ] || kill -9 "$(cat "$work/node.pid")"; wait; } 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

# As rdma.sh, so that nothing is built twice.
features=oriond/rdma,orion-shim/rdma,orion-transport/rdma
build() { cargo build "$@" >"$work/build" 2>&1 || { cat "$work/build"; fail "cargo build $* failed"; }; }
if [[ "${ORION_BUILT_FEATURES:-}" != *oriond/rdma* ]]; then
    build -p orion-controller -p orion-agent -p orion-ctl
    build -p orion-conformance --example show_vgpus
    build -p oriond -p orion-shim -p orion-run -p orion-conformance -p orion-transport -p orion-attack \
        --features "$features"
fi
target=${CARGO_TARGET_DIR:-$root/target}/debug
dataplane/conformance/cuda/build.sh "$target/cuda-programs" vector_add
"$target/orionctl" certificate ca --folder "$work/trust" >/dev/null
"$target/orionctl" certificate server controller 10.9.0.1 --folder "$work/trust" >/dev/null

# NAME MAC OPTION… SCRIPT, with this machine's end of the link.
boot() {
    local name=$1 mac=$2 other=node ends
    shift 2
    [ "$name" != node ] || other=user
    ends="local.type=unix,local.path=$work/$name.link,remote.type=unix,remote.path=$work/$other.link"
    dataplane/conformance/vm/boot.sh --seconds "${ORION_VM_SECONDS:-600}" --memory 2000 \
        --qemu -pidfile --qemu "$work/$name.pid" --qemu -netdev --qemu "dgram,id=link,$ends" \
        --qemu -device --qemu "virtio-net-pci,netdev=link,mac=$mac,romfile=" \
        --module crc32_generic --module virtio_pci --module virtio_net --module ib_uverbs --module rdma_rxe \
        --program ip --program rdma --library libibverbs.so.1 --library librdmacm.so.1 --library "$provider" \
        --file /etc/libibverbs.d/rxe.driver --file "$work/trust/ca.pem=/trust/ca.pem" "$@"
}

# A machine's address, and a device on it.
link='/bin/ip addr add "$address/24" dev eth0 && /bin/ip link set eth0 up || exit
rdma link add rxe0 type rxe netdev eth0 || exit'

cat >"$work/node" <<END
address=10.9.0.1
$link
cat >/controller.yaml <<YAML
controller:
  listen_ip: 0.0.0.0
  certificate: /trust/controller.pem
  key: /trust/controller.key
database:
  data-dir: /tmp/data
YAML
chmod 600 /trust/controller.key
orion-controller start --config-file /controller.yaml >/tmp/controller 2>&1 &
oriond serve --driver soft --warm 1 --heap "512 MiB" --socket none --listen 10.9.0.1:7411 --rdma 10.9.0.1:7412 \
    --pool /run/pool.sock &
orion-agent --pool /run/pool.sock --controller 10.9.0.1 --ca /trust/ca.pem --node gpu-node --vgpu-count 2 \
    --address tcp:10.9.0.1:7411,rdma:10.9.0.1:7412 &
wait
END

cat >"$work/user" <<END
address=10.9.0.2
$link
facts="$facts"
END
cat >>"$work/user" <<'END'
export ORION_CONTROLLER=10.9.0.1 ORION_CA=/trust/ca.pem ORION_TRANSPORT=rdma ORION_WAIT=200 LD_LIBRARY_PATH=/orion
fail() { echo "FAILED: $*"; exit 1; }
now() { cut -d' ' -f1 /proc/uptime; }

# A program built by nvcc, in the pool, by orion-run.
if ! ORION_VERBOSE=1 orion-run --no-preload -- vector_add.static >/tmp/out 2>/tmp/said; then
    cat /tmp/out /tmp/said
    fail nvcc
fi
grep 'PASS ' /tmp/out
grep -o 'transport rdma.*' /tmp/said || { cat /tmp/said; fail "another carrier"; }
orion-run --no-preload -- orion-facts $facts || fail facts
# Over TCP too, for who asks for that; and no other way for who asks for what there is not.
ORION_TRANSPORT=tcp ORION_VERBOSE=1 show_vgpus 2>&1 | grep -o 'transport tcp' || fail "no TCP"
ORION_TRANSPORT=shm ORION_WAIT=0 show_vgpus 2>&1 | grep -o 'no node of it is reached by shm' || fail "not said"

# Both vGPUs, so that what a lost program had is seen to be free again.
attached() {
    rm -f /tmp/in
    mkfifo /tmp/in
    ORION_VGPU=2 ORION_GMEM=100 show_vgpus work </tmp/in >/tmp/out 2>/tmp/said &
    exec 3>/tmp/in
    until grep -q attached /tmp/out; do
        kill -0 $! 2>/dev/null || { cat /tmp/out /tmp/said; fail "no session"; }
        sleep 0.2
    done
}
# How long it takes until the program says so, 11 s at most.
told() {
    local began=$(now)
    until grep -q 'the session is lost' /tmp/said; do
        awk -v began="$began" -v now="$(now)" 'BEGIN { exit !(now - began > 11) }' &&
            fail "$1: nothing was said in 11 s"
        sleep 0.1
    done
    awk -v what="$1" -v began="$began" -v now="$(now)" 'BEGIN { printf "%s: told after %.1f s\n", what, now - began }'
    cat /tmp/said
    exec 3>&-
    wait
}
attached
/bin/ip link set eth0 down
told "link down"
/bin/ip link set eth0 up
attached
echo "the node is to be killed"
told "node killed"
END

boot node 52:54:00:00:00:01 --file "$work/trust/controller.pem=/trust/controller.pem" \
    --file "$work/trust/controller.key=/trust/controller.key" --program "$target/oriond" \
    --program "$target/orion-controller" --program "$target/orion-agent" "$work/node" >"$work/node.log" 2>&1 &
status=0
boot user 52:54:00:00:00:02 --program "$target/orion-run" --program "$target/orion-facts" \
    --program "$target/examples/show_vgpus" --program "$target/cuda-programs/vector_add.static" \
    --file "$target/libcuda.so=/bin/libcuda.so.1" --file "$target/libcuda.so=/orion/libcuda.so.1" "$work/user" |
    while IFS= read -r line; do
        echo "$line"
        if [ "$line" = "the node is to be killed" ]; then kill -9 "$(cat "$work/node.pid")"; fi
    done || status=$?
[ "$status" -eq 0 ] || { echo "--- the node's machine"; cat "$work/node.log"; }
exit "$status"
