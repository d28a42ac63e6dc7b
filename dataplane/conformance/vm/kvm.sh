#!/usr/bin/env bash
# Programs in a Linux machine under KVM use the software GPU of its host, by ivshmem both ways and by the kernel's own
# vhost_vsock: the facts about copies, a program of nvcc, and the ends of oriond and of the machine in a copy.
#   vm/kvm.sh [FOLDER]      FOLDER has what cargo has built; without one it is built. No root, and no /dev/kvm.
# Few machines lend out /dev/kvm, and fewer /dev/vhost-vsock, so the host is a machine of boot.sh's as well: QEMU
# emulates AMD's virtualization (SVM), and the kernel there has both. KVM and vhost are as they are everywhere, and how
# fast it is says nothing. How QEMU is given its devices is what oriond's README has.
# What it needs: boot.sh; and nvcc, or PyPI to have it from.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
if [ $# -eq 0 ]; then
    (cd "$root" && cargo build --quiet -p oriond -p orion-shim -p orion-run -p orion-conformance -p orion-ctl &&
        cargo build --quiet -p orion-conformance --example lose_worker)
fi
built=$(cd "${1:-${CARGO_TARGET_DIR:-$root/target}/debug}" && pwd)
boot=$root/dataplane/conformance/vm/boot.sh
"$root/dataplane/conformance/cuda/build.sh" "$built/cuda-programs" vector_add
facts=${ORION_VM_FACTS:---quiet --only copy::}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(umask 077; od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >"$work/token")

# What README says behind COMMAND where the line has WORD in it, up to its comment.
typed() {
    local rest
    rest=$(sed -n "\\,$2, s,^$1 \([^#]*\).*,\1,p" "$root/dataplane/oriond/README.md")
    [ "$(wc -l <<<"$rest")" -eq 1 ] && [ -n "$rest" ] || { echo "kvm: README has no line $1 with $2" >&2; exit 1; }
    echo "$rest"
}
# There is no other user than root.
shm=$(typed orion-shm '-i ' | sed 's, --user.*,,')
bell=$(typed 'oriond serve' '--guest-socket' | sed 's, --guest-group [^ ]*,,')
plain=$(typed 'oriond serve' '--guest /')
vsock=$(typed 'oriond serve' '--vsock [0-9]' | sed 's,--token-file.*,,')
devices=
for device in ivshmem-doorbell ivshmem-plain vhost-vsock-pci; do
    devices+=" $(typed 'qemu-system-x86_64 …' "-device $device")"
done

cat >"$work/inside" <<END
dmesg | grep -o 'Hypervisor detected: KVM' || exit 9
export LD_LIBRARY_PATH=/lib/orion ORION_TOKEN_FILE=/orion/token ORION_SERVER
$(cat "$root/dataplane/conformance/vm/devices.sh")
for server in \$bell \$plain vsock:2:7411; do
    ORION_VERBOSE=1 orion-run --server \$server -- /bin/vector_add.static >/tmp/printed 2>&1 ||
        { cat /tmp/printed; exit 10; }
    grep -o "transport \${server%%:*}" /tmp/printed && grep PASS /tmp/printed || { cat /tmp/printed; exit 11; }
    ORION_SERVER=\$server orion-facts $facts || exit 12
done
# Who is not there, in words.
ORION_SERVER=vsock:2:4711 lose_worker </dev/null 2>&1 | grep -o 'nobody listens on port 4711 .*' || exit 13
# NAME SERVER: a program that is in the midst of a copy.
copy() {
    touch /tmp/\$1
    ORION_SERVER=\$2 lose_worker copy >/tmp/\$1 2>&1 &
    until grep -q copying /tmp/\$1; do kill -0 \$! || { cat /tmp/\$1; exit 14; }; sleep 0.1; done
}
copy killed vsock:2:7411
echo kill its oriond
wait \$!
cat /tmp/killed
# The kernel tells it at once; a program that was not told would have said that nothing was heard for 11 s.
grep -q 'the session is lost: the worker has ended or closed the connection' /tmp/killed || exit 15
copy bell \$bell
copy plain \$plain
copy vsock vsock:2:7412
echo end the machine
sleep 600
END

cat >"$work/outside" <<END
export QEMU_MODULE_DIR=/usr/lib/x86_64-linux-gnu/qemu
fail() {
    echo "kvm: \$*"
    tail -n 30 /tmp/*.log
    exit 1
}
ls /dev/kvm /dev/vhost-vsock || fail "the kernel has no virtualization"
orion-shm $shm || fail "there is no memory"
serve() {
    name=\$1
    shift
    touch /tmp/\$name.ready
    oriond serve "\$@" --driver soft --warm 1 --socket none --ready-fd 9 9>/tmp/\$name.ready 2>/tmp/\$name.log &
    eval \$name=\$!
    until [ -s /tmp/\$name.ready ]; do
        kill -0 \$! || fail "oriond does not serve \$name"
        sleep 0.1
    done
}
serve bell $bell
serve plain $plain
serve vsock $vsock --token-file /orion/token
serve second --vsock 7412 --token-file /orion/token
touch /tmp/console
tail -f /tmp/console | tr -d '\r' &
# One processor: of two, one had hung in its kernel for ever.
qemu-system-x86_64 -L /firmware -accel kvm -cpu host -smp 1 -m 1024 -nographic -no-reboot -nodefaults -serial stdio \
    -kernel /inside/vmlinuz -initrd /inside/initrd.gz -append "\$(cat /inside/append)" \
    $devices </dev/null >/tmp/console 2>&1 &
qemu=\$!
# PATTERN SECONDS WHAT: of what the machine says.
await() {
    tries=0
    until grep -q "\$1" /tmp/console; do
        tries=\$((tries + 1))
        [ \$tries -lt \$((10 * \$2)) ] && kill -0 \$qemu || fail "\$3"
        sleep 0.1
    done
}
await 'kill its oriond' 400 "it does not hold in the machine"
kill -9 \$vsock
await 'end the machine' 120 "the end of oriond is not seen in the machine"
kill -9 \$qemu
wait \$qemu
killed=\$(date +%s)
# NAME SECONDS
ended() {
    until [ \$(grep -c 'session over' /tmp/\$1.log) = \$(grep -c 'session begins' /tmp/\$1.log) ]; do
        [ \$((\$(date +%s) - killed)) -le \$2 ] || fail "\$1: the sessions of a machine that has ended do not end"
        sleep 0.1
    done
    echo "\$1: the machine's end is seen, \$((\$(date +%s) - killed)) s"
}
ended second 8
ended bell 8
ended plain 25
grep -q "nothing was heard of a guest's program for 11 s" /tmp/plain.log || fail "plain's session ended otherwise"
END

mkdir "$work/machine"
programs=()
for program in cuda-programs/vector_add.static orion-facts orion-run examples/lose_worker; do
    programs+=(--program "$built/$program")
done
"$boot" --into "$work/machine" "${programs[@]}" --file "$built/libcuda.so=/lib/orion/libcuda.so.1" \
    --file "$work/token=/orion/token" --module virtio_pci --module vmw_vsock_virtio_transport "$work/inside"
files=()
for file in "$work"/machine/*; do files+=(--file "$file=/inside/$(basename "$file")"); done
for file in seabios/bios-256k.bin qemu/linuxboot_dma.bin qemu/kvmvapic.bin; do
    files+=(--file "/usr/share/$file=/firmware/$(basename "$file")")
done
"$boot" --seconds "${ORION_VM_SECONDS:-900}" --memory 4000 --module kvm_amd --module vhost_vsock \
    --qemu -cpu --qemu max,-vgif,-v-vmsave-vmload --program qemu-system-x86_64 --program "$built/oriond" \
    --program "$built/orion-shm" "${files[@]}" --file "$work/token=/orion/token" "$work/outside"
echo "kvm: passed in $SECONDS s"
