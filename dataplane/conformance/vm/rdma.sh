#!/usr/bin/env bash
# Sessions over RDMA, in a virtual machine with Soft-RoCE: few machines have a device, and most kernels of containers
# cannot make one.
#   rdma.sh [PART…]    carrier: what oriond's carrier suite has for RDMA; pipe: the stream below it; facts: the driver's
#                      facts through Orion; programs: some that nvcc has built; attack: the hostile client and the
#                      hostile device, over RDMA alone; all of these by default (ORION_VM_FILTER, ORION_VM_FACTS,
#                      ORION_ATTACK_SECONDS: other tests, other options of orion-facts, other than 60 seconds);
#                      paging: ranges whose pages a device finds by itself, and a hostile device there
#                      (ORION_ATTACK_PAGED_SECONDS, other than 10), which takes ORION_VM_SUITE=trixie-backports
# ORION_VM_SUITE names the suite of Debian whose kernel is taken: Soft-RoCE finds pages by itself from Linux 6.15 on. On
# 7.3 it is right for packets that begin with a page alone, so for paging the network has large ones, and it is trusted.
# What ./test.sh has built is taken as it is, if RDMA is in it (ORION_BUILT_FEATURES names its features).
# An idle session costs an engine a look each millisecond on a kernel before 6.7, over TCP too, so that is not asked
# there; nor is what takes an emulated core minutes: twenty thousand threads.
# Needs what boot.sh does, and Debian's ibverbs-providers, librdmacm1, iproute2, cmake and libclang. What it finds says
# nothing about how fast a device is.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$root"
parts=" ${*:-pipe carrier facts programs attack} "
for part in $parts; do
    [[ " pipe carrier facts programs attack paging " == *" $part "* ]] || { echo "vm: $part is no part" >&2; exit 2; }
done
tests=${ORION_VM_FILTER:-rdma --skip an_idle_session}
# Three of them take an emulated core longer than the minute that each has elsewhere, over whichever carrier.
facts=${ORION_VM_FACTS:---quiet --timeout-s 300 --skip twenty_thousand_use_it_one_after_the_other,shared_file}

fail() { echo "vm: $*" >&2; exit 1; }

provider=$(compgen -G "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so") ||
    fail "Soft-RoCE's library is missing; install Debian's ibverbs-providers"

# With the same features everywhere, so that nothing is built twice.
features=oriond/rdma,orion-shim/rdma,orion-transport/rdma
log=$(mktemp)
trap 'rm -f "$log"' EXIT
build() { cargo "$@" --features "$features" >>"$log" 2>&1 || { cat "$log"; fail "cargo $* failed"; }; }
if [[ "${ORION_BUILT_FEATURES:-}" == *oriond/rdma* ]]; then
    features=$ORION_BUILT_FEATURES
    build test --workspace --no-run --test carrier --lib
else
    build build -p oriond -p orion-shim -p orion-run -p orion-conformance -p orion-transport -p orion-attack
    build test -p oriond --test carrier -p orion-transport --lib -p orion-shim --no-run
fi
built() { sed -n "s,.*Executable $1 (\(.*\))$,\1,p" "$log"; }
carrier=$(built tests/carrier/main.rs)
pipe=$(built "unittests src/lib.rs" | grep orion_transport)
target=$(dirname "$(dirname "$(realpath "$carrier")")")
# Those that take seconds where all is emulated, and use the carrier in different ways.
programs="vector_add memory streams graphs graph_host reduce print"
cuda=()
if [[ "$parts" == *" programs "* ]]; then
    dataplane/conformance/cuda/build.sh "$target/cuda-programs" $programs
    for program in $programs; do cuda+=(--program "$target/cuda-programs/$program.static"); done
fi

dataplane/conformance/vm/boot.sh --seconds "${ORION_VM_SECONDS:-3600}" --memory 3000 \
    ${ORION_VM_SUITE:+--suite "$ORION_VM_SUITE"} \
    --module 'crc32_generic?' --module dummy --module ib_uverbs --module rdma_rxe \
    --program ip --program rdma --program "$carrier=carrier" --program "$pipe=pipe" --program "$target/oriond" \
    --program "$target/orion-run" --program "$target/orion-attack" --program "$target/orion-facts" \
    ${cuda[@]+"${cuda[@]}"} \
    --file "$target/libcuda.so=/bin/libcuda.so.1" \
    --library libibverbs.so.1 --library librdmacm.so.1 \
    --library "$provider" --file /etc/libibverbs.d/rxe.driver - <<END
/bin/ip link show dummy0 >/dev/null 2>&1 || /bin/ip link add dummy0 type dummy
/bin/ip addr add 10.9.0.1/24 dev dummy0
/bin/ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0 || exit
mkdir -p "$target"
ln -s /bin/oriond "$target/oriond"
export ORION_TEST_LINK=dummy0 ORION_QUIET=1
status=0
asked() { case "$parts" in *" \$1 "*) ;; *) return 1 ;; esac }
if asked pipe; then pipe --test-threads 1 --ignored over_rdma of_rdma 2>&1 || status=1; fi
if asked carrier; then carrier --test-threads 1 --ignored $tests 2>&1 || status=1; fi
if asked paging; then
    ip link set dummy0 mtu 9000
    export ORION_SOFT_PAGING_TRUSTED=1
    carrier --test-threads 1 --ignored paged what_is_read_beside 2>&1 || status=1
    orion-attack run --oriond /bin/oriond --transport rdma --seconds ${ORION_ATTACK_PAGED_SECONDS:-10} -- \\
        --rdma 10.9.0.1:0 2>&1 || status=1
    unset ORION_SOFT_PAGING_TRUSTED
    ip link set dummy0 mtu 1500
fi
if asked facts; then
    # Small ranges too are read by devices there, so that many are.
    ORION_SOFT_SHOWN_FROM=4096 orion-run --software-gpu --no-preload --transport rdma -- orion-facts $facts \\
        2>&1 || status=1
fi
if asked programs; then
    passed=0 failed=0
    for program in $programs; do
        if ORION_VERBOSE=1 ORION_QUIET= orion-run --software-gpu --no-preload --transport rdma -- \$program.static \
            >/tmp/out 2>&1 && grep -q 'PASS ' /tmp/out && grep -q 'transport rdma' /tmp/out &&
            ! grep -q 'FAIL ' /tmp/out; then
            passed=\$((passed + 1))
        else
            failed=\$((failed + 1))
            echo "\$program:"
            cat /tmp/out
        fi
    done
    echo "$programs: built by nvcc, over RDMA"
    echo "\$passed passed, \$failed failed"
    [ \$failed -eq 0 ] || status=1
fi
if asked attack; then
    orion-attack run --oriond /bin/oriond --transport rdma --seconds ${ORION_ATTACK_SECONDS:-60} -- --rdma 10.9.0.1:0 \\
        2>&1 || status=1
fi
exit \$status
END
