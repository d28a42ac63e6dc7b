#!/usr/bin/env bash
# Every test of Orion that needs no GPU. Ends with "N passed, N failed" and a failing status if anything failed.
#   ./test.sh            all steps but install-built, kvm, libvirt, libvirt-vm, pytorch-debian, sanitize, units, vm
#                        and vsock
#   ./test.sh STEP…      some of: format lint generated build unit pool suite loom facts programs readme frameworks
#                        fuzz attack portable guest install-built kvm libvirt libvirt-vm paging pytorch-debian
#                        rdma nodes sanitize units vm vsock
# build makes every program once, and tests that start some then build none; without it each builds those it needs.
# pool is a pool of real processes and its bad days, which wait more than they work, so more of them run at a time.
# readme has install.sh put what was built for tests; install-built has it build what it puts, a quarter of an hour.
# attack is a hostile client for a minute; named, for an hour (ORION_ATTACK_SECONDS, ORION_ATTACK_SEED). Before, what
# makes the server keep ever more, two seconds each (ORION_ATTACK_GROW_SECONDS), and what takes a GPU's time from
# others, three seconds each (ORION_ATTACK_LEASES_SECONDS).
# portable runs the facts in an old Ubuntu with what ./install.sh --portable makes, where there is root and debootstrap.
# Some tests (a worker's user, its namespaces, the old Ubuntu) need root or what not every kernel has. Without it each
# says in a line that it is left out; with ORION_TESTS_INSIST=1, as in continuous integration, it fails.
# units boots a Debian with what ./install.sh --system puts there, where there is root, debootstrap and systemd-nspawn.
# pytorch-debian unpacks a Debian 13 (2 GB to download, once) and has its PyTorch 2.6, with Debian's cuBLAS and PyPI's
# cuDNN, compute and train as on the CPU; root enters that Debian, and for others a line says that nothing was tried.
# sanitize is AddressSanitizer over the unsafe code, and over shim and server while the facts run. It takes a build of
# its own.
# rdma has programs run over RDMA in a virtual machine with Debian's own kernel, queue pairs break at each step, devices
# read what they may and may not, and some facts and the hostile client go over it. nodes is a pool of two such machines
# (dataplane/conformance/vm/rdma.sh, vm/nodes.sh). vm takes longer, an hour: there the whole suite of carriers goes over
# RDMA, all facts and the hostile client for a minute, and bpf's programs are attached (bpf/vm.sh). paging is about
# devices that find pages by themselves, on a newer kernel; named, it has the whole suite of carriers too.
# guest runs the facts and programs of nvcc in such a machine, over memory that it shares with oriond here
# (dataplane/conformance/vm/guest.sh); vsock has a suite and programs over vsock there (vm/vsock.sh); kvm has a Linux
# guest under KVM in one (vm/kvm.sh), and libvirt one that libvirt starts, as root (vm/libvirt.sh). libvirt-vm has a
# Debian where AppArmor confines what libvirt starts, as root (vm/libvirt-vm.sh).
set -uo pipefail
cd "$(dirname "$0")"

passed=0
failed=0
log=$(mktemp)
wrong=$(mktemp)
trap 'rm -f "$log" "$wrong"' EXIT

asked() { [ "$wanted" = "  " ] || [[ "$wanted" == *" $1 "* ]]; }

# Runs one step, shows its output, and counts: what the step itself counted, or the step as one.
step() {
    local name=$1 began=$SECONDS status
    shift
    asked "$name" || return
    echo "== $name: $*"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    local ok bad
    ok=$(counted passed)
    bad=$(counted failed)
    if [ $((ok + bad)) -eq 0 ]; then
        ok=$((status == 0))
    fi
    # A step that failed without naming a test failed to build or to start.
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    [ "$bad" -eq 0 ] || what_failed "$name" >>"$wrong"
    echo "== $name: $ok passed, $bad failed, $((SECONDS - began)) s"
}

# The names of what failed, and what was said of each: a fact's line, or an assertion's and the three lines after it.
what_failed() {
    grep -aE -A3 '^FAILED  |^test .* FAILED$|^error|panicked at|^Traceback|^[A-Za-z]+Error:' "$log" |
        grep -avE '^--$|\.\.\. ok$' | cut -c1-600 | head -n 80 | sed "s/^/$1: /"
}

# The sum of cargo's "test result: … N passed; N failed" lines, and of the "N passed, N failed" lines with which facts
# and programs end.
counted() {
    grep -aE '^test result:|^[0-9]+ passed, [0-9]+ failed$' "$log" | grep -aoE "[0-9]+ $1" |
        awk '{ sum += $1 } END { print sum + 0 }'
}

features=()
# bpf's loader is C: with what it takes to build it its tests are run too.
if [ -e /usr/include/libelf.h ] && [ -e /usr/include/zlib.h ] &&
    command -v make >/dev/null && command -v pkg-config >/dev/null; then
    features+=(orion-bpf/libbpf)
else
    echo "bpf's programs are not attached, for their loader needs libelf-dev, zlib1g-dev, make and pkg-config"
fi
# So are the names that Rust has for InfiniBand's verbs.
has_libclang() {
    compgen -G "/usr/lib/llvm-*/lib/libclang.so*" || compgen -G "/usr/lib/llvm-*/lib/libclang-[0-9]*.so*"
}
if command -v cmake >/dev/null && has_libclang >/dev/null; then
    features+=(oriond/rdma orion-shim/rdma orion-transport/rdma orion-check/rdma)
else
    echo "nothing of RDMA is built, for that needs cmake and libclang"
fi

# All packages are named even where the tests of one are run: cargo chooses the features of what they need by the
# packages that are named, and would build much of it again.
everything=(--workspace --features "${features[*]}")

# Of dataplane/conformance, by their names.
tests() { cargo test "${everything[@]}" --no-fail-fast "${@/#/--test=}" -- --nocapture; }

# Also without what takes libclang and the like: quickstart.sh and whoever has none of that build it so.
lint() {
    cargo clippy "${everything[@]}" --all-targets --quiet -- -D warnings || return 1
    [ ${#features[@]} -eq 0 ] || cargo clippy --workspace --quiet -- -D warnings
}

loom() {
    RUSTFLAGS="--cfg loom" cargo test -p orion-ring --release --target-dir target/loom
}

# A hostile client beside witnesses: see dataplane/attack. Named by itself it runs for an hour.
attack() {
    local seconds=60
    [[ "$wanted" != *" attack "* ]] || seconds=3600
    [ -n "${ORION_BUILT:-}" ] || cargo build -p oriond -p orion-attack || return 1
    local built=${CARGO_TARGET_DIR:-target}/debug
    "$built/orion-attack" canary --oriond "$built/oriond" || return 1
    "$built/orion-attack" grow --oriond "$built/oriond" --seconds "${ORION_ATTACK_GROW_SECONDS:-2}" || return 1
    # Over vsock what is about connections and what is sent on them; run has all carriers.
    "$built/orion-attack" grow --oriond "$built/oriond" --transport vsock --seconds "${ORION_ATTACK_GROW_SECONDS:-2}" \
        replies waits unread lanes || return 1
    "$built/orion-attack" leases --oriond "$built/oriond" --seconds "${ORION_ATTACK_LEASES_SECONDS:-3}" || return 1
    # Sessions move from one engine to the other meanwhile, whatever they do.
    ORION_SOFT_MOVES_US=20000 "$built/orion-attack" run --oriond "$built/oriond" \
        --seconds "${ORION_ATTACK_SECONDS:-$seconds}" ${ORION_ATTACK_SEED:+--seed "$ORION_ATTACK_SEED"}
}

fuzz() {
    ORION_FUZZ_SECONDS=${ORION_FUZZ_SECONDS:-30} ORION_FUZZ_SEED=${ORION_FUZZ_SEED:-$(date +%s)} \
        tests hostile_bytes
}

# rustc has no sanitizer for undefined behaviour; what it has instead is said aloud, whatever the profile: assertions
# (null and misaligned pointers, the standard library's unsafe preconditions) and checks for overflow.
# The target is named so that build scripts and macros are not instrumented. A program exports its symbols because the
# shim has no sanitizer of its own. Stable rustc needs to be told that it may.
sanitize() (
    unset ORION_BUILT
    export RUSTC_BOOTSTRAP=1
    export RUSTFLAGS="--cfg sanitized -Zsanitizer=address -Cdebug-assertions -Coverflow-checks -Clink-arg=-rdynamic"
    export CARGO_BUILD_TARGET=x86_64-unknown-linux-gnu CARGO_PROFILE_DEV_DEBUG=line-tables-only
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/sanitize
    export LSAN_OPTIONS=suppressions=$PWD/.ci/leaks.txt:print_suppressions=0
    # A worker that a report ends is not to look like one whose client broke a rule.
    options=detect_stack_use_after_return=1:strict_string_checks=1:exitcode=86
    status=0
    # A spinlock, 40 s of it.
    ASAN_OPTIONS=$options cargo test --tests --no-fail-fast \
        -p orion-wire -p orion-ring -p orion-transport -p orion-soft -p orion-shim -- \
        --skip locks_inside_a_warp || status=1
    # oriond ends with its threads at work, which reads as leaks. Freed memory is kept back, which reads as growth.
    # So three tests of a worker's memory are left out, one of oriond's, and one of two million lines, for which it
    # takes too long. Another needs engines that get enough of the cores to be busy.
    # Workers are not sealed, or their reports would have nowhere to go.
    ASAN_OPTIONS=$options:detect_leaks=0 cargo test --tests --no-fail-fast -p oriond -- \
        --skip a_thousand_sessions --skip takeover:: --skip cell:: \
        --skip answers_that_nobody_reads --skip what_a_captured_copy_read --skip too_much_host_memory \
        --skip a_worker_that_writes_without_end --skip a_guest_that_asks_without_end \
        --skip sessions_that_become_busy_get_apart || status=1

    # Nothing is preloaded: it would be into what makes names of addresses, too, which then fails.
    cargo build -p orion-attack -p orion-conformance -p orion-run -p orion-shim -p oriond || return 1
    built=$CARGO_TARGET_DIR/$CARGO_BUILD_TARGET/debug
    reports=$(mktemp -d)
    # Workers have a user of their own.
    chmod 777 "$reports"
    for transport in shm tcp; do
        # A child that exits has none of the threads that hold what its parent allocated. Who is in an empty folder
        # (chroot) at its end has no /proc, without which LeakSanitizer waits for itself for ever.
        # Files that several programs map are registered where they run beside their GPU.
        skipped=a_fork_that_exits,where_no_file_can_be_opened
        [ "$transport" = shm ] || skipped+=,shared_file
        ASAN_OPTIONS=$options:log_path=$reports/report:log_exe_name=1 "$built/orion-run" --software-gpu --no-preload \
            --transport "$transport" -- "$built/orion-facts" --quiet --skip "$skipped" || status=1
    done
    # Workers are users of their own.
    chmod 1777 "$reports"
    ASAN_OPTIONS=$options:detect_leaks=0:log_path=$reports/report:log_exe_name=1 "$built/orion-attack" run \
        --oriond "$built/oriond" --seconds "${ORION_ATTACK_SECONDS:-120}" || status=1
    # Not every report makes a fact fail.
    rm -f $(grep -L "ERROR: AddressSanitizer" "$reports"/report.oriond.* 2>/dev/null)
    cat "$reports"/* 2>/dev/null && status=1
    rm -r "$reports"
    return "$status"
)

wanted=" $* "
step format cargo fmt --all --check
step lint lint
step generated cargo api --check
broken=$failed
step build cargo build --lib --bins --examples "${everything[@]}"
if asked build && [ "$failed" -eq "$broken" ]; then
    export ORION_BUILT=1 ORION_BUILT_FEATURES="${features[*]}"
fi
# Tests of the carriers wait for each other's processes more than they work.
step unit env RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" cargo test "${everything[@]}" --exclude orion-conformance \
    --exclude orion-agent --no-fail-fast
step unit tests tidy rows nvml
step unit cargo test "${everything[@]}" --bin orion-rounds --bin orion-limits --bin orion-agent
step pool env RUST_TEST_THREADS="${RUST_TEST_THREADS:-8}" cargo test "${everything[@]}" \
    --test days --test pool --test original --no-fail-fast
step suite python3 perf/suite/test_suite.py
step loom loom
step facts tests facts heap matrix rounds limits lost guest differ
step programs tests programs
step readme tests readme install
step frameworks tests frameworks pytorch coverage
step fuzz fuzz
step attack attack
step portable tests portable
can_boot_units() (
    PATH=$PATH:/usr/sbin:/sbin
    [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null && command -v systemd-nspawn >/dev/null
)
if [[ "$wanted" == *" units "* ]] && ! can_boot_units; then
    echo "the units of systemd are not booted: for that it takes root, and Debian's debootstrap and systemd-container"
elif [[ "$wanted" == *" units "* ]]; then
    step units control/service/units.sh ${ORION_BUILT:+"${CARGO_TARGET_DIR:-target}/debug/orion-facts"}
fi
can_boot() (
    PATH=$PATH:/usr/sbin:/sbin
    for tool in qemu-system-x86_64 busybox cpio modprobe; do command -v "$tool" >/dev/null || exit 1; done
    [ -w /dev/shm ]
)
if [ "$wanted" = "  " ] && ! can_boot; then
    echo "no program runs in a virtual machine:" \
        "for that it takes Debian's qemu-system-x86, busybox-static, cpio and kmod"
else
    step guest dataplane/conformance/vm/guest.sh ${ORION_BUILT:+"${CARGO_TARGET_DIR:-target}/debug"}
fi
has_rdma() (
    [[ " ${features[*]} " == *" oriond/rdma "* ]] && can_boot && command -v rdma >/dev/null &&
        compgen -G "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so" >/dev/null &&
        [ -e /usr/lib/x86_64-linux-gnu/librdmacm.so.1 ]
)
if [ "$wanted" = "  " ] && ! has_rdma; then
    echo "nothing goes over RDMA: for that it takes a virtual machine as above, and cmake, libclang," \
        "Debian's ibverbs-providers, librdmacm1 and iproute2"
else
    # Of what vm has of it: each step at which a queue pair can break, what devices read of each other, copies, and a
    # hostile client for a moment.
    step rdma env ORION_VM_FILTER="${ORION_VM_FILTER:-broken_pair rdma_ranges}" \
        ORION_VM_FACTS="${ORION_VM_FACTS:---quiet --only copy::}" \
        ORION_ATTACK_SECONDS="${ORION_ATTACK_SECONDS:-8}" dataplane/conformance/vm/rdma.sh
    # On a kernel whose device finds pages by itself: what is about that, and the whole suite where it is named.
    paging=paging
    [[ "$wanted" != *" paging "* ]] || paging="paging pipe carrier"
    step paging env ORION_VM_SUITE=trixie-backports dataplane/conformance/vm/rdma.sh $paging
    step nodes dataplane/conformance/vm/nodes.sh
fi
[[ "$wanted" != *" install-built "* ]] || step install-built env ORION_TEST_INSTALL_BUILDS=1 \
    cargo test "${everything[@]}" --test install
[[ "$wanted" != *" pytorch-debian "* ]] || step pytorch-debian tests pytorch_debian
[[ "$wanted" != *" sanitize "* ]] || step sanitize sanitize
[[ "$wanted" != *" vm "* ]] || for script in bpf/vm dataplane/conformance/vm/rdma; do step vm "$script.sh"; done
[[ "$wanted" != *" vsock "* ]] || step vsock dataplane/conformance/vm/vsock.sh
for name in kvm libvirt libvirt-vm; do
    [[ "$wanted" != *" $name "* ]] || step "$name" "dataplane/conformance/vm/$name.sh" \
        ${ORION_BUILT:+"${CARGO_TARGET_DIR:-target}/debug"}
done

if [ -s "$wrong" ]; then
    echo "== what failed"
    cat "$wrong"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
