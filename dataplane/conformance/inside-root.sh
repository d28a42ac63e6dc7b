#!/usr/bin/env bash
# Runs a command in another userland, with this machine's /proc, /dev and /sys, an empty /tmp, and folders of this one
# where they are here. It takes root; status 125 says that this is missing.
#   inside-root.sh ROOT FOLDER… -- COMMAND ARGUMENT…
set -euo pipefail

unshare --mount chroot / true 2>/dev/null || { echo "another userland is entered by root alone" >&2; exit 125; }
exec unshare --mount --propagation private bash -ceu '
    root=$1
    shift
    mkdir -p "$root/proc" "$root/dev" "$root/sys" "$root/tmp"
    for folder in proc dev sys; do mount --rbind "/$folder" "$root/$folder"; done
    mount -t tmpfs tmpfs "$root/tmp"
    # Behind the others: a folder may lie in /tmp.
    while [ "$1" != -- ]; do
        mkdir -p "$root$1"
        mount --bind "$1" "$root$1"
        shift
    done
    shift
    exec chroot "$root" "$@"
' inside "$@"
