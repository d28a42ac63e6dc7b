#!/usr/bin/env bash
# A virtual machine that libvirt starts where AppArmor confines its QEMU uses the software GPU of its host, by the three
# devices of oriond's README as they stand there: ivshmem both ways and the kernel's vhost_vsock. The facts about copies
# hold by each, and the end of the machine is seen by each. What a machine that runs can be given is as README says.
#   vm/libvirt-vm.sh [FOLDER]   FOLDER has what cargo has built; without one it is built. As root, for debootstrap.
#                               (ORION_VM_FACTS: other options of orion-facts; ORION_DEBIAN_MIRROR: another place than
#                               deb.debian.org)
# Few kernels of containers have AppArmor or vhost_vsock, so the host is an emulated Debian that systemd boots on
# Debian's kernel, with KVM as in kvm.sh. It is made once, in .vm/, where it takes half a GB, and what a run writes
# there is forgotten. Needs what boot.sh does, and Debian's debootstrap and e2fsprogs.
# Beside builds that wanted all cores it has failed: a session over vsock did not begin, or one of ivshmem-plain ended
# early, and it says which. Whether that is more than a machine that stands still for seconds is not known.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
boot=$root/dataplane/conformance/vm/boot.sh
readme=$root/dataplane/oriond/README.md
vm=${ORION_VM:-$root/.vm}
mirror=${ORION_DEBIAN_MIRROR:-http://deb.debian.org/debian}
stop() { echo "libvirt-vm: $*" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || stop "only root makes a Debian"
for tool in debootstrap mke2fs qemu-system-x86_64; do
    command -v "$tool" >/dev/null ||
        stop "$tool is missing; install Debian's debootstrap, e2fsprogs and qemu-system-x86"
done
# What is built here is to run there.
suite=$(. /etc/os-release && echo "${ID}-${VERSION_CODENAME:-}")
[[ "$suite" == debian-?* ]] || stop "this is ${suite%-*}, and what was built here is to run in the same Debian"
suite=${suite#debian-}
if [ $# -eq 0 ]; then
    (cd "$root" && cargo build --quiet -p oriond -p orion-shim -p orion-run -p orion-conformance -p orion-ctl &&
        cargo build --quiet -p orion-conformance --example lose_worker)
fi
built=$(cd "${1:-${CARGO_TARGET_DIR:-$root/target}/debug}" && pwd)
for file in oriond orion-shm orion-facts libcuda.so examples/lose_worker; do
    [ -e "$built/$file" ] || stop "$built has no $file"
done

work=$(mktemp -d)
# debootstrap that was interrupted may have left /proc and /sys there.
trap 'umount "$work"/debian/{proc,sys} 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

# Named by what is in it, so that another list makes another. Two that begin together make it once.
packages=systemd,systemd-sysv,libpam-systemd,dbus,udev,apparmor,libvirt-daemon-system,libvirt-daemon-driver-qemu
packages+=,libvirt-clients,qemu-system-x86
debian=$vm/libvirt-$suite-$(cksum <<<"$packages" | cut -d ' ' -f 1).ext4
mkdir -p "$vm"
exec 9>"$vm/libvirt-lock"
flock 9
if [ ! -e "$debian" ]; then
    echo "making Debian $suite in $debian"
    rm -f "$vm"/libvirt-*.ext4*
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/debian" "$mirror" >"$work/debootstrap" 2>&1 ||
        { tail -n 20 "$work/debootstrap" "$work/debian/debootstrap/debootstrap.log" >&2; stop "debootstrap failed"; }
    rm -rf "$work"/debian/var/cache/apt/archives/*.deb "$work"/debian/var/lib/apt/lists/*
    truncate -s 2G "$debian.part"
    mke2fs -q -t ext4 -d "$work/debian" "$debian.part"
    rm -rf "$work/debian"
    mv "$debian.part" "$debian"
fi
exec 9>&-

# What README says behind COMMAND where the line has WORD in it, up to its comment.
typed() {
    local rest
    rest=$(sed -n "\\,$2, s,^$1 \([^#]*\).*,\1,p" "$readme")
    [ "$(wc -l <<<"$rest")" -eq 1 ] && [ -n "$rest" ] ||
        { echo "libvirt-vm: README has no line, or several, $1 with $2" >&2; exit 1; }
    echo "$rest"
}
shm=$(typed orion-shm '-i ')
bell=$(typed 'oriond serve' '--guest-socket')
plain=$(typed 'oriond serve' '--guest /')
vsock=$(typed 'oriond serve' '--vsock [0-9]')
devices=$(sed -n "/^In libvirt's XML/,/^\`\`\`$/ s/^ *<.*/&/p" "$readme")
for device in ivshmem-doorbell ivshmem-plain '<vsock'; do
    [[ "$devices" == *"$device"* ]] || { echo "libvirt-vm: README has no $device for libvirt" >&2; exit 1; }
done
rule='/dev/vhost-vsock rw,' rules=/etc/apparmor.d/local/abstractions/libvirt-qemu
grep -qF "\`$rule\` in \`$rules\`" "$readme" || { echo "libvirt-vm: README has no $rule in $rules" >&2; exit 1; }
mkdir "$work/orion" "$work/inner"
(umask 077; od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >"$work/orion/token")

# In libvirt's machine.
cat >"$work/script" <<END
dmesg | grep -o 'Hypervisor detected: KVM' || exit 9
export LD_LIBRARY_PATH=/lib/orion ORION_TOKEN_FILE=/orion/token ORION_SERVER
$(cat "$root/dataplane/conformance/vm/devices.sh")
echo "doorbell is \$bell, plain is \$plain"
for server in \$bell \$plain vsock:2:7411; do
    ORION_SERVER=\$server
    ORION_VERBOSE=1 lose_worker </dev/null >/tmp/said 2>&1 || { cat /tmp/said; exit 10; }
    grep -o "transport \${server%%:*}" /tmp/said || { cat /tmp/said; exit 11; }
    orion-facts ${ORION_VM_FACTS:---quiet --timeout-s 300 --only copy::} || exit 12
done
for server in \$bell \$plain vsock:2:7411; do
    touch /tmp/copy
    ORION_SERVER=\$server lose_worker copy >/tmp/copy 2>&1 &
    until grep -q copying /tmp/copy; do kill -0 \$! || { cat /tmp/copy; exit 13; }; sleep 0.1; done
    rm /tmp/copy
done
echo in the midst of copies
sleep 600
END
programs=()
for program in orion-facts examples/lose_worker; do programs+=(--program "$built/$program"); done
"$boot" --into "$work/inner" "${programs[@]}" --file "$built/libcuda.so=/lib/orion/libcuda.so.1" \
    --file "$work/orion/token=/orion/token" --module virtio_pci --module vmw_vsock_virtio_transport "$work/script"

# On its host. One processor, as in kvm.sh.
uuid=$(cat /proc/sys/kernel/random/uuid)
cat >"$work/orion/domain.xml" <<END
<domain type='kvm'>
  <name>orion</name><uuid>$uuid</uuid><memory unit='MiB'>1024</memory><vcpu>1</vcpu><cpu mode='host-passthrough'/>
  <os>
    <type>hvm</type><kernel>/orion/vmlinuz</kernel><initrd>/orion/initrd.gz</initrd>
    <cmdline>$(cat "$work/inner/append")</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <serial type='file'><source path='/orion/console'/></serial>
    $devices
  </devices>
</domain>
END
cat >"$work/orion/host" <<END
uuid=$uuid rule='$rule' rules=$rules
shm() { /orion/orion-shm $shm; }
serve_bell() { serve bell $bell; }
serve_plain() { serve plain $plain; }
serve_vsock() { serve vsock $vsock; }
END
cat >>"$work/orion/host" <<'END'
exec >/dev/ttyS0 2>&1 </dev/null
cd /orion
has_ended() {
    local status=$?
    echo "out of the machine with status $status"
    sync
    systemctl poweroff --force --force
}
trap has_ended EXIT
refused() { dmesg | grep -o 'apparmor="DENIED".*' | grep "$@"; }
fail() {
    echo "libvirt-vm: $*"
    refused . || true
    tail -n 30 /orion/*.log /var/log/libvirt/qemu/orion.log 2>/dev/null
    journalctl --no-pager -n 40 -u libvirtd
    exit 1
}
said() { echo "$((SECONDS / 60)):$(printf %02d $((SECONDS % 60))) $*"; }
profiles=/sys/kernel/security/apparmor/profiles
[ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ] || fail "AppArmor is not on"
systemctl is-active --quiet apparmor || fail "no profiles were loaded: $(systemctl status apparmor)"
grep '^libvirtd (enforce)' $profiles || fail "libvirtd has no profile: $(cat $profiles)"
ls /dev/kvm /dev/vhost-vsock || fail "the kernel has no virtualization"
# Without it libvirt would go on without AppArmor where there is none.
echo 'security_driver = "apparmor"' >>/etc/libvirt/qemu.conf
virsh --quiet version >/orion/version.log 2>&1 || fail "libvirtd does not start"
grep -E 'libvirt|QEMU' /orion/version.log
virsh capabilities | grep -o '<model>apparmor</model>' || fail "libvirt's security driver is not AppArmor"
said "libvirtd runs as $(cat /proc/$(pidof libvirtd)/attr/current)"

serve() {
    local name=$1
    shift
    touch $name.ready
    ./oriond serve "$@" --driver soft --warm 1 --socket none --ready-fd 9 9>$name.ready 2>$name.log &
    local pid=$!
    until [ -s $name.ready ]; do
        kill -0 $pid || fail "oriond does not serve $name"
        sleep 0.1
    done
}
shm || fail "there is no memory"
serve_bell
serve_plain
serve_vsock
said "oriond serves"

virsh --quiet define --validate domain.xml || fail "libvirt does not take README's devices"
virsh --quiet start orion || fail "libvirt does not start the machine"
qemu=$(cat /run/libvirt/qemu/orion.pid)
echo "QEMU is user $(stat -c %U /proc/$qemu), and in AppArmor's profile $(cat /proc/$qemu/attr/current)"
grep -x "libvirt-$uuid (enforce)" $profiles || fail "AppArmor does not enforce the machine's profile"
[ "$(cat /proc/$qemu/attr/current)" = "libvirt-$uuid (enforce)" ] || fail "QEMU is not in the machine's profile"
# What else is there is refused, and the kernel says so.
touch /dev/shm/another
confined() { aa-exec -p "libvirt-$uuid" -- dd if=$1 of=/dev/null count=1 2>&1; }
confined /dev/shm/orionsock0 >aa.log || fail "the profile refuses the memory of the machine: $(cat aa.log)"
! confined /dev/shm/another >aa.log || fail "the profile refuses nothing"
refused -o 'name="/dev/shm/another".*' || fail "the kernel does not say what is refused: $(cat aa.log)"
# The last line is to be this system's own.
tail -F console 2>/dev/null | sed -u 's,\r$,,; s,^out of the machine,guest: &,' &
# PATTERN SECONDS WHAT: of what the machine says.
await() {
    local until=$((SECONDS + $2))
    until grep -q "$1" console 2>/dev/null; do
        [ $SECONDS -lt $until ] && kill -0 $qemu 2>/dev/null || fail "$3"
        ! grep -q '^out of the machine with status' console || fail "$3"
        sleep 0.2
    done
}
await '^in the midst of copies' 900 "it does not hold in the machine"
said "it holds in the machine"
# NAME: how many of its sessions have not ended.
open_sessions() { echo $(($(grep -c 'session begins' $1.log) - $(grep -c 'session over' $1.log))); }
for name in bell plain vsock; do
    [ $(open_sessions $name) = 1 ] || fail "$name: $(open_sessions $name) sessions copy, not one"
done
virsh destroy orion
destroyed=$SECONDS
# NAME SECONDS
ended() {
    until [ $(open_sessions $1) = 0 ]; do
        [ $((SECONDS - destroyed)) -le $2 ] || fail "$1: the sessions of a machine that has ended do not end"
        sleep 0.1
    done
    echo "$1: the machine's end is seen, $((SECONDS - destroyed)) s, $(grep -c 'session over' $1.log) sessions"
}
ended vsock 8
ended bell 8
ended plain 25
grep -q "its virtual machine has ended" bell.log || fail "bell's session ended otherwise"
grep -q "nothing was heard of a guest's program for 11 s" plain.log || fail "plain's session ended otherwise"
! refused -v 'name="/dev/shm/another"' || fail "AppArmor has refused more"

# What a machine that runs is given.
attach() { virsh --quiet attach-device orion $1.xml >attach.log 2>&1; }
start_bare() { virsh --quiet start --paused orion || fail "libvirt does not start a machine without devices"; }
grep -v 'shmem\|<vsock' domain.xml >bare.xml
grep -v ivshmem-plain domain.xml | grep shmem >bell.xml
grep ivshmem-plain domain.xml >plain.xml
grep '<vsock' domain.xml >vsock.xml
virsh --quiet define bare.xml || fail "libvirt does not take a machine without devices"
start_bare
attach bell || fail "ivshmem-doorbell cannot be attached"
! attach plain && refused -o 'name="/dev/shm/orionsock0"' || fail "AppArmor does not refuse ivshmem-plain"
! attach vsock && refused -o 'name="/dev/vhost-vsock"' || fail "AppArmor does not refuse vsock"
virsh --quiet destroy orion
echo "$rule" >>$rules
start_bare
attach vsock || fail "vsock cannot be attached, with $rule in $rules"
virsh --quiet destroy orion
said "what is attached is let through or refused as README has it"
END
mkdir -p "$work/orion/system/multi-user.target.wants"
cat >"$work/orion/system/orion.service" <<END
[Unit]
After=apparmor.service libvirtd.service
[Service]
ExecStart=/bin/bash /orion/host
END
ln -s ../orion.service "$work/orion/system/multi-user.target.wants/orion.service"
# What nobody asks there, and takes an emulated processor its time.
for unit in serial-getty@ttyS0 getty@tty1 cron e2scrub_reap libvirt-guests; do
    ln -s /dev/null "$work/orion/system/$unit.service"
done
for unit in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim logrotate; do
    ln -s /dev/null "$work/orion/system/$unit.timer"
done
for program in oriond orion-shm; do
    cp "$built/$program" "$work/orion"
    strip --strip-debug "$work/orion/$program"
done
mv "$work"/inner/* "$work/orion"
chmod 755 "$work/orion"
truncate -s 512M "$work/orion.ext4"
mke2fs -q -t ext4 -d "$work/orion" "$work/orion.ext4"

cat >"$work/mount" <<'END'
mkdir /debian
mount -t ext4 /dev/vda /debian || exit 9
mkdir /debian/orion
mount -t ext4 /dev/vdb /debian/orion || exit 9
cp -a /debian/orion/system/. /debian/etc/systemd/system/
END
disks=()
for disk in "$debian" "$work/orion.ext4"; do
    disks+=(--qemu -drive --qemu "file=$disk,format=raw,if=virtio,snapshot=on")
done
run() {
    "$boot" --seconds "${ORION_VM_SECONDS:-1500}" --memory 4000 --append 'apparmor=1 security=apparmor' \
        --next /debian --module autofs4 --module crc32c_generic --module ext4 --module virtio_pci \
        --module virtio_blk --module kvm_amd --module vhost_vsock --qemu -cpu --qemu max,-vgif,-v-vmsave-vmload \
        "${disks[@]}" "$work/mount" | tee "$work/console"
}
# QEMU's SVM once left the host's kernel without a stack as it came back from the guest, one run of nine.
if ! run; then
    grep -q 'Kernel panic' "$work/console" || exit 1
    echo "libvirt-vm: the emulated host's own kernel has panicked; once more"
    run
fi
echo "libvirt-vm: passed in $SECONDS s"
