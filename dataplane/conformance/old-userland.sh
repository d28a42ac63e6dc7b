#!/usr/bin/env bash
# Installs Orion with `./install.sh --portable` and asks it all facts, over shared memory and over TCP, in the oldest
# Debian that its servers still have, against an oriond outside. Ends with the numbers that orion-facts counted.
# The old Debian is made by debootstrap, once, in the target folder; that and entering it take root. Where there is no
# root or no debootstrap the facts are asked in this userland, and a line says so.
#   old-userland.sh         ORION_DEBIAN_MIRROR names another place than deb.debian.org to have it from
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
suite=bullseye
mirror=${ORION_DEBIAN_MIRROR:-http://deb.debian.org/debian}

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

# The first stage only unpacks, which is all that the C library and a shell need.
old=$target/$suite
if ! command -v debootstrap >/dev/null || ! unshare --mount chroot / true 2>/dev/null; then
    echo "no debootstrap, or not root: the facts are asked in this userland, not in Debian $suite"
    old=/
elif [ ! -e "$old/complete" ]; then
    echo "making Debian $suite in $old"
    rm -rf "$old"
    debootstrap --foreign --variant=minbase "$suite" "$old" "$mirror" >"$place/debootstrap.log" 2>&1 ||
        { tail -n 20 "$place/debootstrap.log" >&2; exit 1; }
    # In some containers debootstrap makes links of these, which lead outside.
    for folder in proc dev sys tmp; do
        [ ! -L "$old/$folder" ] || rm "$old/$folder"
    done
    touch "$old/complete"
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
    [[ $server == unix:* ]] && skip=() || skip=(--skip shared_file)
    inside "$target/portable/bin/orion-run" --server "$server" -- "$facts" --quiet "${skip[@]}" 2>"$place/said" ||
        status=1
    # The loader runs a program without a library that it cannot preload.
    ! grep 'cannot be preloaded' "$place/said" >&2 || status=1
    [ "$status" -eq 0 ] || cat "$place/said" >&2
done
exit "$status"
