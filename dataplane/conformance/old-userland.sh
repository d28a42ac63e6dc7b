#!/usr/bin/env bash
# Installs Orion with `./install.sh --portable` and asks it all facts, over shared memory and over TCP, in the oldest
# userland that can be had, against an oriond outside. Ends with the numbers that orion-facts counted.
# That is Ubuntu 16.04, with glibc 2.23, or, where Ubuntu's archive does not answer, the oldest Debian that its servers
# still have, which a line says. It is made by debootstrap, once, in the target folder; that and entering it take root.
# Where there is no root or no debootstrap the facts are asked in this userland, and a line says so; with
# ORION_TESTS_INSIST=1 that fails.
#   old-userland.sh         ORION_UBUNTU_MIRROR and ORION_DEBIAN_MIRROR name other places than archive.ubuntu.com and
#                           deb.debian.org to have it from
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
ubuntu=${ORION_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
debian=${ORION_DEBIAN_MIRROR:-http://deb.debian.org/debian}

"$root/install.sh" --portable "${CARGO_TARGET_DIR:-$root/target}/portable"
target=$(cd "${CARGO_TARGET_DIR:-$root/target}" && pwd)
"$here/glibc-version.sh" 2.17 "$target"/portable/bin/orion-run "$target"/portable/lib/orion/*.so*
# The facts have to run there too, so they are built in the same way.
(
    cd "$root"
    export CARGO_ZIGBUILD_ZIG_PATH=$root/.zig/ziglang/zig CARGO_ZIGBUILD_CACHE_DIR=$target/zigbuild
    export ZIG_GLOBAL_CACHE_DIR=$target/zig ZIG_LOCAL_CACHE_DIR=$target/zig
    "$root/.zig/bin/cargo-zigbuild" zigbuild --release --quiet --target x86_64-unknown-linux-gnu.2.17 \
        -p orion-conformance --bin orion-facts
)

# Not below the target folder, whose path may be longer than a socket's.
place=$(mktemp -d /tmp/orion-old-XXXXXX)
oriond=
leave() {
    status=$?
    [ -z "$oriond" ] || kill "$oriond" 2>/dev/null || true
    [ "$status" -eq 0 ] || cat "$place/oriond.log" >&2 2>/dev/null || true
    [ -z "$oriond" ] || wait "$oriond" 2>/dev/null || true
    rm -rf "$place"
}
trap leave EXIT

# Ubuntu's keys, whose archive signs with 790BC7277767219C42C86F933B4FE6ACC0B21F32: of this machine, or of Ubuntu's
# package of them as it was when this was written.
ubuntu_keys() {
    local keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg package=ubuntu-keyring_2012.05.19_all.deb
    if [ ! -e "$keys" ]; then
        wget -q -T 30 -t 3 -O "$place/$package" "$ubuntu/pool/main/u/ubuntu-keyring/$package" || return 1
        dpkg-deb -x "$place/$package" "$place/keys" || return 1
        keys=$place/keys$keys
        sha256sum --quiet -c - <<<"46988ea36b75c9653a41ce3ef717c8511478142ab80ec0cba012f5251a1cd4ff  $keys" >&2 ||
            return 1
    fi
    echo "$keys"
}

# suite mirror [keys]: the first stage only unpacks, which is all that the C library and a shell need.
make_userland() {
    old=$target/$1
    [ ! -e "$old/complete" ] || return 0
    echo "making $1 of $2 in $old"
    rm -rf "$old"
    debootstrap --foreign --variant=minbase ${3:+"--keyring=$3"} "$1" "$old" "$2" >"$place/debootstrap.log" 2>&1 ||
        { tail -n 20 "$place/debootstrap.log" >&2; return 1; }
    # In some containers debootstrap makes links of these, which lead outside.
    for folder in proc dev sys tmp; do
        [ ! -L "$old/$folder" ] || rm "$old/$folder"
    done
    touch "$old/complete"
}

if ! command -v debootstrap >/dev/null || ! unshare --mount chroot / true 2>/dev/null; then
    echo "no debootstrap, or not root: the facts are asked in this userland, not in an old one"
    [ "${ORION_TESTS_INSIST:-}" != 1 ] || { echo "with ORION_TESTS_INSIST=1 that is a failure" >&2; exit 1; }
    old=/
elif [ -e "$target/xenial/complete" ]; then
    old=$target/xenial
elif wget -q -T 30 -t 3 -O /dev/null "$ubuntu/dists/xenial/Release" &&
    keys=$(ubuntu_keys) && make_userland xenial "$ubuntu" "$keys"; then
    :
else
    echo "$ubuntu does not answer, or not with what it should: the facts are asked in Debian 11, which is newer than" \
        "Ubuntu 16.04"
    make_userland bullseye "$debian"
fi

mkdir "$place/run"
(umask 077; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$place/run/token")
mkfifo "$place/ready"
"$target/portable/bin/oriond" serve --driver soft --socket "$place/run/socket" --listen 127.0.0.1:0 \
    --token-file "$place/run/token" --ready-fd 3 3>"$place/ready" 2>"$place/oriond.log" &
oriond=$!
read -r addresses <"$place/ready" || { echo "oriond did not start" >&2; exit 1; }
tcp=$(tr ' ' '\n' <<<"$addresses" | grep '^tcp:')

# command…: in the old userland, where this script's folders have the paths that they have here.
inside() {
    if [ "$old" = / ]; then
        "$@"
        return
    fi
    "$here/inside-root.sh" "$old" "$place" "$target" -- "$@"
}

status=0
echo "C library: $(inside ldd --version | head -n 1)"
for library in "$target"/portable/lib/orion/*.so.*; do
    if inside ldd -r "$library" 2>&1 | grep -E 'not found|undefined symbol' >&2; then
        echo "$library does not load" >&2
        status=1
    fi
done
# The server does not know who it is that comes from another root directory, so the token it is.
export ORION_TOKEN_FILE=$place/run/token
facts=$target/x86_64-unknown-linux-gnu/release/orion-facts
for server in "unix:$place/run/socket" "$tcp"; do
    # Files that several programs map are registered where the GPU's host maps them too.
    [[ $server == unix:* ]] && left_out= || left_out=shared_file
    skip=(${left_out:+--skip "$left_out"})
    inside "$target/portable/bin/orion-run" --server "$server" -- "$facts" --quiet "${skip[@]}" 2>"$place/said" ||
        status=1
    # The loader runs a program without a library that it cannot preload.
    ! grep 'cannot be preloaded' "$place/said" >&2 || status=1
    [ "$status" -eq 0 ] || cat "$place/said" >&2
done
exit "$status"
