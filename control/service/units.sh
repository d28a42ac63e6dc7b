#!/usr/bin/env bash
# Boots a Debian with what ./install.sh --system puts there, and holds that its units do what they should: they start,
# facts hold through them as root and as an ordinary user, what is restarted keeps what others listen on, a worker that
# is killed ends nothing else, and nothing is left when they are taken away. Ends with "N passed, N failed".
# Takes root, debootstrap and systemd-nspawn (Debian's systemd-container); without them it says so and ends with 0.
#   units.sh [FACTS]      the orion-facts that are asked; ORION_DEBIAN_MIRROR names another place than deb.debian.org
# The Debian is made once, in the target folder, and each time a copy of it is booted.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mirror=${ORION_DEBIAN_MIRROR:-http://deb.debian.org/debian}
target=${CARGO_TARGET_DIR:-$root/target}
PATH=$PATH:/usr/sbin:/sbin

missing=
[ "$(id -u)" -eq 0 ] || missing="root"
for tool in debootstrap systemd-nspawn; do
    command -v "$tool" >/dev/null || missing+="${missing:+, }$tool"
done
if [ -n "$missing" ]; then
    echo "the units of systemd are not booted: there is no $missing (Debian's debootstrap and systemd-container)"
    exit 0
fi

base=$target/booted-bookworm
if [ ! -e "$base/complete" ]; then
    echo "making Debian bookworm in $base"
    rm -rf "$base"
    mkdir -p "$target"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$base" "$mirror" \
        >"$target/booted-bookworm.log" 2>&1 || { tail -n 20 "$target/booted-bookworm.log" >&2; exit 1; }
    touch "$base/complete"
fi

facts=${1:-}
if [ -z "$facts" ]; then
    (cd "$root" && cargo build --quiet -p orion-conformance --bin orion-facts)
    facts=$target/debug/orion-facts
fi

# Not below the target folder, whose path may be longer than a socket's.
place=$(mktemp -d /tmp/orion-units-XXXXXX)
trap 'rm -rf "$place"' EXIT
system=$place/system
mkdir "$system"
cp -a "$base/." "$system"
before=$place/before after=$place/after
# But for what a running system writes of its own accord.
listed() {
    (cd "$system" && find usr etc opt srv home -not -path 'etc/systemd/system/*' -not -path 'etc/*-' | LC_ALL=C sort)
}

listed >"$before"
DESTDIR=$system "$root/install.sh" --system >"$place/installed"
install -m 755 "$facts" "$system/usr/local/bin/orion-facts"
install -m 755 "$here/units-inside.sh" "$system/usr/local/bin/units-inside"
# What it takes to uninstall.
install -D -t "$system/root/orion" "$root/install.sh"
install -D -t "$system/root/orion/control/service" "$here/server.conf"
# A pool of one machine, whose node keeps a reserve: the agent listens for who asks for that.
cat >"$system/root/pool.conf" <<END
[server]
    driver = soft
    pool = /run/orion/pool.sock
    socket = /run/orion/oriond.sock
    bind_addr = 127.0.0.1
    listen_port = 9960
    vgpu_count = 4
    reserve = 1
[controller]
    controller_addr = 127.0.0.1:9123
[server-log]
    log_to_screen = true
END
cat >"$system/etc/systemd/system/units-inside.service" <<END
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/local/bin/units-inside
StandardOutput=file:/units.said
StandardError=inherit
[Install]
WantedBy=multi-user.target
END
mkdir -p "$system/etc/systemd/system/multi-user.target.wants"
ln -s ../units-inside.service "$system/etc/systemd/system/multi-user.target.wants/"

# --keep-unit, as there may be no systemd outside to make one; no network, so that nothing here is in the way.
timeout 300 systemd-nspawn --quiet --register=no --keep-unit --private-network --boot --directory="$system" \
    --console=pipe </dev/null >"$place/console" 2>&1 || true
if ! grep -qx end "$system/units.said" 2>/dev/null; then
    echo "the system did not come to its end; it said:" >&2
    cat "$system/units.said" "$place/console" >&2 2>/dev/null || true
    exit 1
fi
cat "$system/units.said"
passed=$(grep -c '^passed: ' "$system/units.said" || true)
failed=$(grep -c '^FAILED: ' "$system/units.said" || true)

rm "$system/usr/local/bin"/{orion-facts,units-inside}
listed >"$after"
if diff "$before" "$after" >"$place/left"; then
    echo "passed: nothing is left when it is uninstalled"
    passed=$((passed + 1))
else
    echo "FAILED: nothing is left when it is uninstalled"
    cat "$place/left"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
