#!/usr/bin/env bash
# Attaches the programs in a virtual machine with Debian's own kernel: an older one than most, and one that was built by
# others, so that what the programs know of the kernel's structs has to come from its BTF. Runs tests/attached.rs there.
#   bpf/vm.sh     needs Debian's qemu-system-x86, busybox-static, cpio, and root for none of it; downloads a kernel once
#                 into .vm/ (70 MB). The machine is emulated (TCG): /dev/kvm is not needed and not used.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
vm=$root/.vm
for tool in qemu-system-x86_64 busybox cpio gzip bash dpkg-deb; do
    command -v "$tool" >/dev/null || { echo "vm: $tool is missing; install Debian's qemu-system-x86, busybox-static" \
        "and cpio" >&2; exit 1; }
done

mkdir -p "$vm"
if ! compgen -G "$vm/linux/boot/vmlinuz-*" >/dev/null; then
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    echo "downloading $package into $vm"
    (cd "$vm" && apt-get download -qq "$package" && dpkg-deb -x linux-image-*.deb linux && rm linux-image-*.deb)
fi

# The test as cargo has built it, and everything that it and the guest's shells are linked with.
test=$(cd "$root" && cargo test -p orion-bpf --features orion-bpf/libbpf --test attached --no-run 2>&1 |
    sed -n 's/.*Executable.*(\(.*\))$/\1/p')
[ -n "$test" ] || { echo "vm: cargo test -p orion-bpf --features orion-bpf/libbpf does not build" >&2; exit 1; }
guest=$(mktemp -d)
trap 'rm -rf "$guest"' EXIT
mkdir -p "$guest"/{bin,proc,sys,dev,tmp}
(cd "$root" && cp "$test" "$guest/attached")
cp "$(command -v busybox)" "$(command -v bash)" "$guest/bin/"
for name in sh mount mkfifo rm poweroff cat ifconfig uname; do ln -s busybox "$guest/bin/$name"; done
for program in "$guest/attached" "$guest/bin/bash"; do
    ldd "$program" | grep -oE '/[^ )]+' | while read -r library; do
        mkdir -p "$guest$(dirname "$library")"
        cp -nL "$library" "$guest$library"
    done
done
cat >"$guest/init" <<'END'
#!/bin/sh
export PATH=/bin RUST_BACKTRACE=0
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
ifconfig lo 127.0.0.1 up
echo "in the machine: Linux $(uname -r)"
# One after the other: an emulated core is slow.
/attached --test-threads 1 2>&1
poweroff -f
END
chmod 755 "$guest/init"
(cd "$guest" && find . | cpio -o -H newc --quiet | gzip -1 >"$vm/initrd.gz")

# The kernel's own lines go with carriage returns.
timeout 170 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 768 -smp 2 -nographic -no-reboot -nodefaults \
    -serial stdio -kernel "$vm"/linux/boot/vmlinuz-* -initrd "$vm/initrd.gz" \
    -append "console=ttyS0 panic=-1 quiet" </dev/null | tr -d '\r' | tee "$vm/log"
grep -q '^test result: ok' "$vm/log"
