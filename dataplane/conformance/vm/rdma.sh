#!/usr/bin/env bash
# Sessions over RDMA, in a virtual machine with Soft-RoCE: few machines have a device, and most kernels of containers
# cannot make one.
#   rdma.sh [FILTER]   names of tests of oriond's carrier suite to run; all of them over RDMA by default
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$root"
filter=${1:-::rdma}

built() {
    cargo test "$@" --features rdma --no-run 2>&1 | tee /dev/stderr | sed -n 's/.*Executable.*(\(.*\))$/\1/p'
}
carrier=$(built -p oriond --test carrier 2>/dev/null)
[ -n "$carrier" ] || { echo "vm: cargo test -p oriond --features rdma does not build" >&2; exit 1; }
target=$(dirname "$(dirname "$(realpath "$carrier")")")

dataplane/conformance/vm/boot.sh --seconds "${ORION_VM_SECONDS:-600}" --memory 3000 \
    --module crc32_generic --module dummy --module ib_uverbs --module rdma_rxe \
    --program ip --program rdma --program "$carrier=carrier" --program "$target/oriond" \
    --library libibverbs.so.1 --library librdmacm.so.1 \
    --library "$(echo /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so)" --file /etc/libibverbs.d/rxe.driver \
    - <<END
set -e
/bin/ip link show dummy0 >/dev/null 2>&1 || /bin/ip link add dummy0 type dummy
/bin/ip addr add 10.9.0.1/24 dev dummy0
/bin/ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
mkdir -p "$target"
ln -s /bin/oriond "$target/oriond"
carrier --test-threads 1 --ignored "$filter" 2>&1
END
