#!/usr/bin/env bash
# Builds Orion and puts it into a folder, under the names by which programs ask for it:
#   FOLDER/bin        orion-run, oriond, and orion-ptxas, by which compilers in a program reach the software GPU
#   FOLDER/lib/orion  libcuda.so.1, libcuda.so, libcupti.so.13, libnvidia-ml.so.1, and python, for JAX and numba
#   FOLDER/share      man pages, and completions for bash, zsh and fish
#   with --system also server.conf, units of systemd and a rule for logrotate, at their places under /
# The folder may be moved or copied. What runs from it keeps the files that it has loaded when they are replaced.
# Root is refused a folder that another user owns, or everybody may write to, but of the user whose this checkout is.
#   ./install.sh FOLDER              for this machine and those whose C library is not older
#   ./install.sh --portable FOLDER   orion-run and the libraries for any x86-64 Linux with glibc 2.17 or newer (CentOS
#                                    7, Ubuntu 16.04); oriond for this machine. Needs python3 with pip and readelf, and
#                                    downloads zig and cargo-zigbuild from PyPI, once, into .zig/ (420 MB)
#   ./install.sh --system            into /usr, with oriond and orion-controller as services, which it does not start.
#                                    A server.conf that is there stays. DESTDIR is put before every path
#   ./install.sh --uninstall [--purge]  removes what --system has put, but a server.conf that was changed, logs and
#                                    what a controller keeps (/var/log/orion, /var/lib/orion); with --purge these too
#   ./install.sh --deb FILE          the same as a Debian package, which dpkg installs and removes
set -euo pipefail
# With it `cd` may lead elsewhere, and says so where a folder's name is taken down.
unset CDPATH
root=$(cd "$(dirname "$0")" && pwd)

usage() {
    sed -n '2,/^set/{/^set/!s/^# \?//p}' "$0" >&2
    exit 2
}
mode=folder
case "${1:-}" in
    --portable | --deb) mode=${1#--}; shift; [ $# -eq 1 ] || usage ;;
    --uninstall) [ $# -eq 1 ] || { [ $# -eq 2 ] && [ "$2" = --purge ]; } || usage; mode=uninstall purge=${2:-} ;;
    --system) [ $# -eq 1 ] || usage; mode=system ;;
    *) [ $# -eq 1 ] || usage ;;
esac
[ "$mode" = system ] || [ "$mode" = uninstall ] || [[ "$1" != -* ]] || usage
service=$root/control/service
# what --system puts, but for the libraries' folder
files=(usr/bin/orion-run usr/bin/orion-ptxas usr/bin/oriond usr/bin/orion-controller usr/bin/orion-agent
    usr/bin/orion-check usr/bin/orion-smi usr/bin/orionctl usr/bin/orion-shm usr/bin/orion-top usr/bin/orion-probe
    etc/orion/server.conf etc/logrotate.d/orion
    usr/lib/systemd/system/oriond.service usr/lib/systemd/system/orion-controller.service
    usr/lib/systemd/system/orion-agent.service)

uninstall() {
    local root=${DESTDIR:-}/ kept= file program folder stays=
    if [ -z "${DESTDIR:-}" ] && command -v systemctl >/dev/null; then
        systemctl disable --now orion-agent oriond orion-controller 2>/dev/null || true
    fi
    if [ -z "$purge" ] && [ -e "$root"etc/orion/server.conf ] &&
        ! cmp -s "$service/server.conf" "$root"etc/orion/server.conf; then
        kept=${root}etc/orion/server.conf
    fi
    for file in "${files[@]}"; do
        [ "$root$file" = "$kept" ] || rm -f "$root$file"
    done
    rm -rf "${root}usr/lib/orion"
    # pages: all that is called after one of the programs, and not what other programs called orion-… have there
    for file in "${files[@]}"; do
        [[ "$file" == usr/bin/* ]] || continue
        program=${file##*/}
        rm -f "$root"usr/share/man/man[18]/"$program"{,-*}.[18] \
            "$root"usr/share/bash-completion/completions/"$program" \
            "$root"usr/share/zsh/site-functions/_"$program" \
            "$root"usr/share/fish/vendor_completions.d/"$program".fish
    done
    for folder in etc/orion etc/logrotate.d etc usr/bin usr/lib/systemd/system usr/lib/systemd usr/lib \
        usr/share/man/man{1,8} usr/share/man usr/share/bash-completion{/completions,} usr/share/zsh{/site-functions,} \
        usr/share/fish{/vendor_completions.d,} usr/share usr; do
        rmdir "$root$folder" 2>/dev/null || true
    done
    for folder in var/log/orion var/lib/orion; do
        [ -z "$purge" ] || { rm -rf "${root:?}$folder" && rmdir "$root${folder%/*}" "${root}var" 2>/dev/null || true; }
        [ ! -e "$root$folder" ] || stays+="${stays:+ and }$root$folder"
    done
    if [ -z "${DESTDIR:-}" ] && [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
        systemctl daemon-reload
    fi
    echo "uninstalled from $root${kept:+, but for $kept, which was changed}"
    [ -z "$kept$stays" ] ||
        echo "what stays: ${kept:+$kept${stays:+, }}$stays; \`install.sh --uninstall --purge\` removes it too"
}
if [ "$mode" = uninstall ]; then
    uninstall
    exit
fi

case "$mode" in
    system) prefix=${DESTDIR:-}/usr ;;
    deb) DESTDIR=$(mktemp -d) && chmod 755 "$DESTDIR" && trap 'rm -rf "$DESTDIR"' EXIT && prefix=${DESTDIR:-}/usr ;;
    *) prefix=$1 ;;
esac
# A system's files are for all of its users, whatever the umask of whoever installs. Nobody else writes to them, nor to
# those of a folder: programs load what is in lib/orion.
case "$mode" in
    system | deb) umask 022 ;;
    *) umask g-w,o-w ;;
esac
# Root writes into nobody else's folders: whoever owns one on the way may lead what is written to a place of his choice,
# the system's own libcuda.so.1 for one. Whose this checkout is, is believed: what he has written is built and run here.
# His group is left out, for /usr/local is writable to one in Debian.
no_stranger_s() {
    local path=$1 owner mode
    while :; do
        if [ -e "$path" ] && read -r owner mode < <(stat -L -c '%u %a' -- "$path"); then
            if [[ " 0 $(stat -c %u -- "$root") " != *" $owner "* ]]; then
                echo "install: $path belongs to user $owner, who could lead what root writes there to another place;" \
                    "install as that user, or into a folder of root's" >&2
                exit 1
            elif [ -d "$path" ] && (((8#$mode & 8#1002) == 2)); then
                echo "install: everybody may write to $path, and could lead what root writes there to another place;" \
                    "take that from it (chmod o-w), or install into another folder" >&2
                exit 1
            fi
        fi
        [ "$path" != / ] || return 0
        path=$(dirname -- "$path")
    done
}
if [ "$(id -u)" = 0 ]; then
    for path in "$prefix"{,/bin,/lib/orion,/share/man/man{1,8},/share/{zsh,fish,bash-completion}}; do
        no_stranger_s "$(realpath -sm -- "$path")"
        no_stranger_s "$(realpath -m -- "$path")"
    done
fi
mkdir -p "$prefix/bin" "$prefix/lib/orion"
[ "$mode" != system ] || chmod 755 "$prefix/lib/orion"
folder=$(cd "$prefix" && pwd)

target=${CARGO_TARGET_DIR:-$root/target}
users=(-p orion-shim -p orion-cupti -p orion-nvml -p orion-run)
built=$target/release
probe=()

# Each version that a symbol has in the C library is younger or older; zig knows which were there at which time.
zig=$root/.zig
tools=(ziglang==0.17.1 cargo-zigbuild==0.24.0)
fetch_zig() {
    [ "$(cat "$zig/complete" 2>/dev/null)" != "${tools[*]}" ] || return 0
    for tool in "python3 -m pip --version" "readelf --version"; do
        $tool >/dev/null 2>&1 || { echo "install: \`$tool\` fails; --portable needs it" >&2; return 1; }
    done
    echo "downloading ${tools[*]} from PyPI into $zig" >&2
    rm -rf "$zig"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --target "$zig" "${tools[@]}"
    echo "${tools[*]}" >"$zig/complete"
}

if [ "$mode" = portable ]; then
    fetch_zig
    (
        cd "$root"
        export CARGO_ZIGBUILD_ZIG_PATH=$zig/ziglang/zig CARGO_ZIGBUILD_CACHE_DIR=$target/zigbuild
        export ZIG_GLOBAL_CACHE_DIR=$target/zig ZIG_LOCAL_CACHE_DIR=$target/zig
        "$zig/bin/cargo-zigbuild" zigbuild --release --quiet --target x86_64-unknown-linux-gnu.2.17 "${users[@]}"
        cargo build --release --quiet -p oriond
    )
    built=$target/x86_64-unknown-linux-gnu/release
    libraries=("$built"/lib{cuda,cupti,nvidia_ml}.so)
    "$root/dataplane/conformance/glibc-version.sh" 2.17 "$built"/orion-{run,ptxas} "${libraries[@]}"
else
    # What belongs to a pool is built after it and for itself: cargo chooses the features of what packages need by all
    # that it builds at once, so that together with them all that ./quickstart.sh has built would be built again.
    (cd "$root" && cargo build --release --quiet "${users[@]}" -p oriond)
    pool=(-p orion-controller -p orion-agent -p orion-check -p orion-ctl -p orion-top)
    # The loader of its BPF programs is C: bpf/Cargo.toml.
    if [ "$mode" != folder ]; then
        if [ -e /usr/include/libelf.h ] && [ -e /usr/include/zlib.h ] &&
            command -v make >/dev/null && command -v pkg-config >/dev/null; then
            probe=(orion-probe)
            pool+=(-p orion-bpf --features orion-bpf/libbpf)
        else
            echo "orion-probe is left out, for it takes libelf-dev, zlib1g-dev, make and pkg-config to build" >&2
        fi
        (cd "$root" && cargo build --release --quiet "${pool[@]}")
    fi
fi

# mode file place: by a name of its own first, for a file that is in use must not change. A folder of that name stays,
# and is an error.
put() {
    install -T -m "$1" "$2" "$folder/$3.new" && mv -fT "$folder/$3.new" "$folder/$3" && return
    rm -f "$folder/$3.new" || true
    echo "install: $folder/$3 could not be put; what is in $folder is not whole" >&2
    exit 1
}
put 755 "$built/orion-run" bin/orion-run
put 755 "$built/orion-ptxas" bin/orion-ptxas
put 755 "$target/release/oriond" bin/oriond
put 644 "$built/libcuda.so" lib/orion/libcuda.so.1
put 644 "$built/libcupti.so" lib/orion/libcupti.so.13
put 644 "$built/libnvidia_ml.so" lib/orion/libnvidia-ml.so.1
for module in jax_plugins/orion/__init__.py orion_numba.py; do
    install -D -m 644 "$root/control/run/python/$module" "$folder/lib/orion/python/$module"
done
ln -sfT libcuda.so.1 "$folder/lib/orion/libcuda.so"

# What was built, for what was put may be another program's by now where the folder is not this user's alone.
"$built/orion-run" --write-pages "$folder"
"$target/release/oriond" --write-pages "$folder"

if [ "$mode" = system ] || [ "$mode" = deb ]; then
    put 755 "$built/orion-controller" bin/orion-controller
    for tool in orion-{agent,check,smi,shm,top} orionctl "${probe[@]}"; do put 755 "$built/$tool" "bin/$tool"; done
    for program in orion-{controller,agent,check,smi,shm,top} orionctl "${probe[@]}"; do
        "$built/$program" --write-pages "$folder"
    done
    install -d "${DESTDIR:-}"/{usr/lib/systemd/system,etc/logrotate.d,etc/orion}
    install -m 644 "$service"/*.service "${DESTDIR:-}/usr/lib/systemd/system/"
    install -m 644 "$service/orion.logrotate" "${DESTDIR:-}/etc/logrotate.d/orion"
    conf=${DESTDIR:-}/etc/orion/server.conf
    [ -e "$conf" ] || install -m 644 "$service/server.conf" "$conf"
fi

# dpkg-deb over the same files: cargo-deb would want a second list of them.
package() {
    local version glibc control=$DESTDIR/DEBIAN
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
    glibc=$(LC_ALL=C readelf --version-info --wide "$built"/{oriond,orion-controller,orion-run,libcuda.so} |
        grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
    mkdir "$control"
    cat >"$control/control" <<END
Package: orion
Version: $version
Architecture: amd64
Maintainer: Orion
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1${probe:+, libelf1, zlib1g}
Section: admin
Priority: optional
Description: pools GPUs and lends them to programs here and elsewhere
END
    printf '/etc/orion/server.conf\n/etc/logrotate.d/orion\n' >"$control/conffiles"
    cat >"$control/postinst" <<'END'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
END
    cat >"$control/prerm" <<'END'
#!/bin/sh
set -e
[ "$1" != remove ] || [ ! -d /run/systemd/system ] ||
    systemctl disable --now orion-agent oriond orion-controller || true
END
    cat >"$control/postrm" <<'END'
#!/bin/sh
set -e
[ "$1" != purge ] || rm -rf /var/log/orion /var/lib/orion
[ ! -d /run/systemd/system ] || systemctl daemon-reload
END
    chmod 755 "$control"/{postinst,prerm,postrm}
    dpkg-deb --root-owner-group --build "$DESTDIR" "$1"
}

case "$mode" in
    deb) package "$1" ;;
    system)
        echo "installed under ${DESTDIR:-/}: \`systemctl daemon-reload && systemctl enable --now oriond\` serves; see" \
            "${DESTDIR:-}/etc/orion/server.conf"
        ;;
    *)
        echo "installed into $folder: bin/orion-run, bin/oriond, lib/orion/libcuda.so.1 and what goes with it"
        [ "$mode" = folder ] || echo "all but bin/oriond runs with glibc 2.17 and newer"
        ;;
esac
