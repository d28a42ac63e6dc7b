#!/usr/bin/env bash
# Fails if a program or library needs a version of glibc that is newer than the one named, and says which symbols do.
#   glibc-version.sh 2.17 FILE…
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/{/^set/!s/^# \?//p}' "$0" >&2; exit 2; }
newest=$1
shift

# Whether version $1 is newer than $2. Names that are no numbers (GLIBC_ABI_DT_RELR, GLIBC_PRIVATE) are.
newer() {
    [[ "$1" =~ ^[0-9.]+$ ]] || return 0
    [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]
}

status=0
for file; do
    # What a file needs of others; its own versions stand in another section.
    needs=$(LC_ALL=C readelf --version-info --wide "$file" |
        awk '/^Version needs section/ { on = 1 } /^Version (definition|symbols) section/ { on = 0 }
             on && match($0, /Name: GLIBC_[^ ]+/) { print substr($0, RSTART + 12, RLENGTH - 12) }' | sort -uV)
    if [ -z "$needs" ]; then
        echo "$file needs no version of glibc at all, so it is not what this test is for" >&2
        status=1
    fi
    for version in $needs; do
        if newer "$version" "$newest"; then
            symbols=$(LC_ALL=C readelf --dyn-syms --wide "$file" | awk -v at="@GLIBC_$version" '
                { n = index($8, "@") } n && substr($8, n) == at { print substr($8, 1, n - 1) }')
            echo "$file needs GLIBC_$version, newer than $newest:" ${symbols:-the file as a whole} >&2
            status=1
        fi
    done
done
exit "$status"
