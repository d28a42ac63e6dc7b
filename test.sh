#!/usr/bin/env bash
# Every test of Orion that needs no GPU. Ends with "N passed, N failed" and a failing status if anything failed.
#   ./test.sh            all steps
#   ./test.sh STEP…      some of: format lint generated unit suite loom facts programs fuzz
set -uo pipefail
cd "$(dirname "$0")"

passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs one step, shows its output, and counts: what the step itself counted, or the step as one.
step() {
    local name=$1 began=$SECONDS status
    shift
    if [ "$wanted" != "  " ] && [[ "$wanted" != *" $name "* ]]; then
        return
    fi
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
    echo "== $name: $ok passed, $bad failed, $((SECONDS - began)) s"
}

# The sum of cargo's "test result: … N passed; N failed" lines, and of the "N passed, N failed" lines with which facts
# and programs end.
counted() {
    grep -E '^test result:|^[0-9]+ passed, [0-9]+ failed$' "$log" | grep -oE "[0-9]+ $1" |
        awk '{ sum += $1 } END { print sum + 0 }'
}

loom() {
    RUSTFLAGS="--cfg loom" cargo test -p orion-ring --release --target-dir target/loom
}

fuzz() {
    ORION_FUZZ_SECONDS=${ORION_FUZZ_SECONDS:-30} ORION_FUZZ_SEED=${ORION_FUZZ_SEED:-$(date +%s)} \
        cargo test -p orion-conformance --test hostile_bytes -- --nocapture
}

wanted=" $* "
step format cargo fmt --all --check
step lint cargo clippy --workspace --all-targets --quiet -- -D warnings
step generated cargo api --check
step unit cargo test --workspace --exclude orion-conformance --no-fail-fast
step unit cargo test -p orion-conformance --bins --test tidy --no-fail-fast
step suite python3 perf/suite/test_suite.py
step loom loom
step facts cargo test -p orion-conformance --test facts -- --nocapture
step programs cargo test -p orion-conformance --test programs -- --nocapture
step fuzz fuzz

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
