#!/usr/bin/env bash
# A virtual machine that libvirt starts uses the software GPU of its host. Its devices, and the commands that offer it
# memory, are those of oriond's README as they stand there: what is tried is what a user types.
#   vm/libvirt.sh [FOLDER]  FOLDER has what cargo has built; without one it is built. As root.
# QEMU is libvirt's user, as it is on any Debian. The machine is emulated, and boots what boot.sh has made; a libvirtd
# that runs is asked for it, and where none does one is started, without systemd too. Needs what boot.sh does, Debian's
# libvirt-daemon-system and libvirt-clients, and nvcc or PyPI to have it from.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" -eq 0 ] || { echo "libvirt: only root offers memory to libvirt's user" >&2; exit 2; }
for tool in libvirtd virtlogd virsh; do
    command -v "$tool" >/dev/null ||
        { echo "libvirt: $tool is missing; install Debian's libvirt-daemon-system and libvirt-clients" >&2; exit 2; }
done
if [ $# -eq 0 ]; then
    (cd "$root" && cargo build --quiet -p oriond -p orion-shim -p orion-run -p orion-conformance -p orion-ctl &&
        cargo build --quiet -p orion-conformance --example lose_worker)
fi
built=$(cd "${1:-${CARGO_TARGET_DIR:-$root/target}/debug}" && pwd)
"$root/dataplane/conformance/cuda/build.sh" "$built/cuda-programs" vector_add
readme=$root/dataplane/oriond/README.md
memory=/dev/shm/orionsock0 socket=/run/orion/guest0.sock name=orion-$$
for theirs in "$memory" "$socket"; do
    [ ! -e "$theirs" ] || { echo "libvirt: $theirs is there already, and is not touched" >&2; exit 2; }
done

work=$(mktemp -d)
# libvirt's user reads the kernel there.
chmod 711 "$work"
has_folder=$([ ! -d /run/orion ] || echo yes)
pids=()
virsh() { command virsh --quiet --connect qemu:///system "$@"; }
end() {
    {
        virsh destroy "$name"
        virsh undefine "$name"
        [ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}"
        for daemon in libvirtd virtlogd; do [ ! -s "$work/$daemon.pid" ] || kill "$(cat "$work/$daemon.pid")"; done
        wait
        rm -f "$memory" "$socket"
        [ -n "$has_folder" ] || rmdir /run/orion
    } >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
fail() {
    echo "libvirt: $*" >&2
    tail -n 40 "$work"/*.log "$work/console" "/var/log/libvirt/qemu/$name.log" >&2 2>/dev/null || true
    exit 1
}
# FILE TIMES PATTERN SECONDS WHAT
await() {
    for _ in $(seq $((10 * $4))); do
        [ "$(grep -c "$3" "$1" 2>/dev/null)" -lt "$2" ] || return 0
        ! grep -q '^out of the machine with status [1-9]' "$work/console" 2>/dev/null || break
        sleep 0.1
    done
    fail "$5"
}

# What README says behind COMMAND, from BEGIN on and up to its comment.
typed() {
    local rest
    rest=$(sed -n "s,^$1 \($2[^#]*\).*,\1,p" "$readme")
    [ -n "$rest" ] && [ "$(wc -l <<<"$rest")" -eq 1 ] || fail "README has no line, or several, with $1 $2"
    eval "arguments=($rest)"
}
serve() {
    typed "oriond serve" "$2"
    mkfifo "$work/$1.ready"
    "$built/oriond" serve "${arguments[@]}" --driver soft --warm 1 --socket none --ready-fd 9 9>"$work/$1.ready" \
        2>"$work/$1.log" &
    pids+=($!)
    read -r _ <"$work/$1.ready" || fail "oriond does not serve $1"
}
typed orion-shm "-i "
"$built/orion-shm" "${arguments[@]}" >"$work/shm.log" || fail "there is no $memory"
serve bell "--guest-socket "
serve plain "--guest /"

cat >"$work/script" <<END
export LD_LIBRARY_PATH=/lib/orion ORION_SERVER ORION_VERBOSE=1
$(cat "$root/dataplane/conformance/vm/devices.sh")
echo "doorbell is \$bell, plain is \$plain"
for server in \$bell \$plain; do
    orion-run --server \$server -- /bin/vector_add.static >/tmp/printed 2>&1 || { cat /tmp/printed; exit 10; }
    grep -q 'transport ivshmem' /tmp/printed && grep PASS /tmp/printed || { cat /tmp/printed; exit 11; }
done
grep -q again /proc/cmdline && exit 0
ORION_SERVER=\$bell
ORION_VERBOSE=0 orion-facts ${ORION_VM_FACTS:---quiet --only copy::} || exit 12
touch /tmp/bell /tmp/plain
lose_worker copy >/tmp/bell 2>&1 &
ORION_SERVER=\$plain lose_worker copy >/tmp/plain 2>&1 &
until grep -q copying /tmp/bell && grep -q copying /tmp/plain; do sleep 0.1; done
echo in the midst of copies
sleep 600
END
programs=()
for program in cuda-programs/vector_add.static orion-facts orion-run examples/lose_worker; do
    programs+=(--program "$built/$program")
done
"$root/dataplane/conformance/vm/boot.sh" --into "$work" "${programs[@]}" --module virtio_pci \
    --file "$built/libcuda.so=/lib/orion/libcuda.so.1" "$work/script"

if ! virsh version >/dev/null 2>&1; then
    virtlogd --daemon --pid-file "$work/virtlogd.pid"
    libvirtd --daemon --pid-file "$work/libvirtd.pid" || fail "libvirtd does not start"
fi
devices=$(sed -n "/^In libvirt's XML/,/^\`\`\`$/ s/^ *<.*/&/p" "$readme")
if [ ! -e /dev/vhost-vsock ]; then
    devices=$(grep -v '<vsock' <<<"$devices")
    echo "README's <vsock> is left out: this kernel has no vhost_vsock"
fi
uuid=$(cat /proc/sys/kernel/random/uuid)
# One more word for the kernel's command line.
define() {
    cat >"$work/domain.xml" <<END
<domain type='qemu'>
  <name>$name</name><uuid>$uuid</uuid><memory unit='MiB'>1536</memory><vcpu>2</vcpu><cpu mode='maximum'/>
  <os>
    <type>hvm</type><kernel>$work/vmlinuz</kernel><initrd>$work/initrd.gz</initrd>
    <cmdline>$(cat "$work/append") $1</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <serial type='file'><source path='$work/console'/></serial>
    $devices
  </devices>
</domain>
END
    virsh define --validate "$work/domain.xml" >/dev/null || fail "libvirt does not take README's devices"
}
define once
# Where AppArmor is on, QEMU opens what its profile names.
if [ -x /usr/lib/libvirt/virt-aa-helper ]; then
    virsh dumpxml "$name" >"$work/full.xml"
    /usr/lib/libvirt/virt-aa-helper --dryrun --replace --uuid "libvirt-$uuid" <"$work/full.xml" \
        >"$work/apparmor" 2>&1 || fail "virt-aa-helper makes no profile"
    for path in "$memory" "$socket"; do
        grep -qF "\"$path\" rw" "$work/apparmor" || fail "AppArmor's profile does not name $path"
    done
    echo "AppArmor's profile has both"
fi

virsh start "$name" || fail "libvirt does not start the machine"
qemu=$(pgrep -f -- "-name guest=$name,")
[ "$(stat -c %U "/proc/$qemu")" != root ] || fail "QEMU is root"
echo "QEMU is user $(stat -c %U "/proc/$qemu")"
await "$work/console" 1 '^in the midst of copies' 240 "it does not hold in the machine"
sed 's,\r$,,' "$work/console"
virsh destroy "$name"
destroyed=$SECONDS
# Of the facts' sessions each has ended.
ended() { await "$work/$1.log" "$(grep -c 'session begins' "$work/$1.log")" 'session over' "$2" "$3"; }
await "$work/bell.log" 1 'its virtual machine has ended' 5 "the end of the machine is not seen by ivshmem-doorbell"
ended bell 5 "the sessions of a machine that has ended do not end"
echo "ivshmem-doorbell: its sessions are over within $((SECONDS - destroyed + 1)) s"
ended plain 20 "the machine's end is not seen by ivshmem-plain"
grep -q "nothing was heard of a guest's program for 11 s" "$work/plain.log" || fail "plain's session ended otherwise"
echo "ivshmem-plain: its session is over after $((SECONDS - destroyed)) s"

# The same machine once more, with the same memory.
rm "$work/console"
define again
virsh start "$name" || fail "libvirt does not start the machine again"
await "$work/console" 1 '^out of the machine with status 0' 120 "it does not hold in the machine that is started again"
sed 's,\r$,,' "$work/console"
echo "libvirt: passed in $SECONDS s"
