#!/usr/bin/env bash
# Attaches the programs in a virtual machine with Debian's own kernel: an older one than most, and one that was built by
# others, so that what the programs know of the kernel's structs has to come from its BTF. Runs tests/attached.rs there.
#   bpf/vm.sh     what the machine is and needs: dataplane/conformance/vm/boot.sh. No root.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# The test as cargo has built it.
test=$(cd "$root" && cargo test -p orion-bpf --features orion-bpf/libbpf --test attached --no-run 2>&1 |
    sed -n 's/.*Executable.*(\(.*\))$/\1/p')
[ -n "$test" ] || { echo "vm: cargo test -p orion-bpf --features orion-bpf/libbpf does not build" >&2; exit 1; }
# One after the other: an emulated core is slow.
(cd "$root" && dataplane/conformance/vm/boot.sh --program "$test=attached" --program bash --memory 768 - \
    <<<"attached --test-threads 1 2>&1")
