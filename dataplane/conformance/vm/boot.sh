#!/usr/bin/env bash
# Boots Debian's own kernel in a virtual machine and runs a script in it. The machine is emulated (TCG), for a machine
# that lends out /dev/kvm is rare: slow, the same everywhere, and without root.
#   boot.sh [OPTION…] SCRIPT      SCRIPT is run by busybox's sh, as root; - is the standard input. Where busybox has an
#                               applet of a program's name, say /bin/NAME
#     --program FILE[=NAME]       a program, by name or path, into /bin, with every library that it is linked with
#     --library NAME              a library that a program opens by itself (libibverbs.so.1, or a path, which it keeps)
#     --file FILE[=PATH]          any other file, to the same path or to PATH
#     --module NAME               a kernel module, loaded before SCRIPT runs, in this order, after what it depends on;
#                               NAME? where the kernel has one
#     --suite NAME                the kernel of that suite of Debian's (trixie-backports) instead of this machine's, for
#                               what Linux has learnt since
#     --append WORDS              more for the kernel's command line
#     --next FOLDER               where SCRIPT has mounted another system, whose init follows if SCRIPT ends well; then
#                               it is that system that prints "out of the machine with status N" at its end
#     --memory MIB                1024
#     --seconds N                 what the machine may take, 170
#     --qemu ARGUMENT             one more argument for QEMU
#     --into FOLDER               boots nothing, and puts there what another has to boot: vmlinuz, initrd.gz and, for
#                               the kernel's command line, append
# Prints the machine's console, and has SCRIPT's status for its own. Needs Debian's qemu-system-x86, busybox-static,
# cpio and kmod, and downloads a kernel once into .vm/ of the repository (70 to 120 MB; ORION_VM names another folder).
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
vm=${ORION_VM:-$root/.vm}

fail() { echo "vm: $*" >&2; exit 1; }

usage="see the head of dataplane/conformance/vm/boot.sh"
programs=() libraries=() files=() modules=() qemu=() memory_mib=1024 seconds=170 into= suite= append= next=
while [ $# -gt 1 ]; do
    case $1 in
        --program) programs+=("$2") ;;
        --library) libraries+=("$2") ;;
        --file) files+=("$2") ;;
        --module) modules+=("$2") ;;
        --append) append+=" $2" ;;
        --next) next=$2 ;;
        --memory) memory_mib=$2 ;;
        --seconds) seconds=$2 ;;
        --qemu) qemu+=("$2") ;;
        --into) into=$2 ;;
        --suite) suite=$2 ;;
        *) fail "$1 is no option; $usage" ;;
    esac
    shift 2
done
[ $# -eq 1 ] || fail "the script to run is missing; $usage"
script=$1
# depmod and modprobe are where only root looks.
PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64 busybox cpio gzip dpkg-deb depmod modprobe; do
    command -v "$tool" >/dev/null ||
        fail "$tool is missing; install Debian's qemu-system-x86, busybox-static, cpio and kmod"
done

# Packages that apt is asked for, unpacked into "$linux".
unpack() {
    (
        cd "$linux" && "$@" download -qq "${packages[@]}" || exit
        for file in *.deb; do dpkg-deb -x "$file" . || exit; done
        rm -- *.deb
    )
}

# Of this machine's suite. Modules and kernel are one package.
own_kernel() {
    packages=("$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ && !n++ { print $2 }')")
    [ -n "${packages[0]}" ] || fail "apt knows no linux-image-amd64; run apt-get update"
    unpack apt-get
}

# Of another suite, which apt is asked for with lists of their own. From 7.2 on Debian has modules and kernel apart.
kernel_of_suite() {
    local lists=$linux/apt
    mkdir -p "$lists"/{lists,cache/archives}/partial
    echo "deb http://deb.debian.org/debian $suite main" >"$lists/sources.list"
    local own=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$lists/lists" -o "Dir::Cache=$lists/cache")
    apt-get "${own[@]}" -qq update || fail "apt finds no Debian suite $suite"
    local image
    image=$(apt-cache "${own[@]}" depends linux-image-amd64 | awk '/Depends: linux-image/ && !n++ { print $2 }')
    [ -n "$image" ] || fail "$suite has no linux-image-amd64"
    packages=("$image" $(apt-cache "${own[@]}" depends "$image" |
        awk '/Depends: linux-(base|binary|modules)-/ { print $2 }'))
    unpack apt-get "${own[@]}"
    rm -rf "$lists"
}

linux=$vm/${suite:-linux}
kernel_file() {
    compgen -G "$linux/boot/vmlinuz-*" || compgen -G "$linux/usr/lib/modules/*/vmlinuz" || true
}
# Two that begin together download it once.
mkdir -p "$linux"
exec 9>"$vm/lock"
flock 9
if [ -z "$(kernel_file)" ]; then
    echo "downloading a kernel into $linux"
    if [ -n "$suite" ]; then kernel_of_suite; else own_kernel; fi
    # Where depmod and modprobe look.
    [ -e "$linux/lib" ] || ln -s usr/lib "$linux/lib"
fi
kernel=$(kernel_file)
version=$(basename "$linux"/lib/modules/*)
[ -e "$linux/lib/modules/$version/modules.dep" ] || depmod -b "$linux" "$version"
exec 9>&-

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
guest=$work/guest
mkdir -p "$guest"/{bin,proc,sys,dev,tmp,run,modules}

# FILE as PATH, without what only a debugger reads: it all has to fit into the machine's memory.
place() {
    mkdir -p "$guest$(dirname "$2")"
    [ -e "$guest$2" ] || cp -L "$1" "$guest$2"
    # A kernel is something else to strip, which breaks it.
    ! head -c 4 "$guest$2" | grep -q ELF || strip --strip-debug "$guest$2" 2>/dev/null || true
}

# What the program or library is linked with.
linked() {
    { ldd "$1" 2>/dev/null || true; } | grep -oE '/[^ )]+' | while read -r library; do
        [ -e "$guest$library" ] || place "$library" "$library"
    done
}

place "$(command -v busybox)" /bin/busybox
for program in ${programs[@]+"${programs[@]}"}; do
    file=$(command -v "${program%%=*}") || fail "there is no program ${program%%=*}"
    place "$file" "/bin/$(basename "${program##*=}")"
    linked "$file"
done
for library in ${libraries[@]+"${libraries[@]}"}; do
    file=$library
    [[ "$library" == /* ]] ||
        file=$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ && !n++ { print $NF }')
    [ -e "$file" ] || fail "there is no library $library"
    place "$file" "$file"
    linked "$file"
done
for file in ${files[@]+"${files[@]}"}; do
    [ -e "${file%%=*}" ] || fail "there is no file ${file%%=*}"
    place "${file%%=*}" "$(realpath -sm "/${file##*=}")"
done
# insmod's lines, in order; a module that is built in has none.
for module in ${modules[@]+"${modules[@]}"}; do
    modprobe -d "$linux" -S "$version" --show-depends "${module%\?}" >"$work/depends" 2>"$work/why" ||
        [[ "$module" == *\? ]] || fail "Linux $version has no module $module: $(cat "$work/why")"
    awk '$1 == "insmod" { print $2 }' "$work/depends"
done | awk '!seen[$0]++' >"$work/modules"
while read -r file; do
    name=$(basename "${file%.xz}")
    case $file in
        *.xz) xz -dc "$file" >"$guest/modules/$name" ;;
        *) cp "$file" "$guest/modules/$name" ;;
    esac
    echo "$name" >>"$guest/modules/order"
done <"$work/modules"
if [ "$script" = - ]; then cat; else cat "$script"; fi >"$guest/script"

cat >"$guest/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ RUST_BACKTRACE=0
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
# Where the programs came with something there it is seen.
[ -n "$(ls -A /tmp)" ] || mount -t tmpfs tmp /tmp
chmod 1777 /tmp /dev/shm
mount -t tmpfs run /run
ifconfig lo 127.0.0.1 up
echo "in the machine: Linux $(uname -r)"
[ ! -e /modules/order ] || while read -r module; do insmod "/modules/$module"; done </modules/order
sh /script
status=$?
[ $status != 0 ] || [ ! -e /next ] || exec switch_root "$(cat /next)" /sbin/init
echo "out of the machine with status $status"
poweroff -f
END
[ -z "$next" ] || echo "$next" >"$guest/next"
chmod 755 "$guest/init"
(cd "$guest" && find . | cpio -o -H newc --quiet | gzip -1 >"$work/initrd.gz")
rm -rf "$guest"
append="console=ttyS0 panic=-1 quiet$append"
if [ -n "$into" ]; then
    cp "$kernel" "$into/vmlinuz"
    mv "$work/initrd.gz" "$into"
    echo "$append" >"$into/append"
    exit
fi

# The kernel's own lines go with carriage returns.
set +e
timeout "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m "$memory_mib" -smp 2 -nographic -no-reboot \
    -nodefaults -serial stdio -kernel "$kernel" -initrd "$work/initrd.gz" \
    ${qemu[@]+"${qemu[@]}"} -append "$append" </dev/null | sed -u 's,\r,,g' | tee "$work/log"
ended=${PIPESTATUS[0]}
set -e
[ "$ended" -ne 124 ] || fail "the script had not ended after $seconds s"
status=$(sed -n 's/^out of the machine with status \([0-9]*\)$/\1/p' "$work/log" | tail -1)
[ -n "$status" ] || fail "the machine ended before the script had (QEMU's status is $ended)"
exit "$status"
