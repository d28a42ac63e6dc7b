#!/bin/bash
# What units.sh runs as root in the Debian that it has booted. Each line of what it says is "passed: WHAT" or
# "FAILED: WHAT" with the reason behind it; the last one is "end".
set -u
units=(oriond orion-controller orion-agent)

# what command…: true if it succeeds
holds() {
    local what=$1 said
    shift
    local began=$SECONDS
    if said=$("$@" 2>&1); then
        echo "passed: $what ($((SECONDS - began)) s)"
    else
        echo "FAILED: $what"
        sed 's/^/    /' <<<"$said"
    fi
}

# command…: as often as it takes, for 30 s
comes() {
    local i
    for ((i = 0; i < 150; i++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    "$@"
}

main_pid() { systemctl show --property=MainPID --value "$1"; }
are_active() { systemctl is-active "${units[@]}"; }

# Somebody who is nobody in particular. Who does not run oriond needs its token.
useradd --create-home --shell /bin/bash somebody
(umask 077; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >/etc/orion/token)
install -m 600 -o somebody -g somebody /etc/orion/token /home/somebody/token
cp /etc/orion/server.conf /root/server.conf
sed -i 's/^; *\(token_file = \)/    \1/' /etc/orion/server.conf

# --- the units as they are installed

holds "systemd finds nothing wrong with the units" bash -c '
    said=$(systemd-analyze verify /usr/lib/systemd/system/{oriond,orion-controller,orion-agent}.service 2>&1)
    echo "$said"
    ! grep -E "oriond|orion-" <<<"$said"'
# 10 is exposed, 0 is not. oriond starts workers as other users, in namespaces and cgroups of their own.
is_below() {
    local exposure
    exposure=$(systemd-analyze security --no-pager "$1.service" |
        sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
    echo "$1 is exposed at $exposure, and may be at $2"
    [ -n "$exposure" ] && awk -v is="$exposure" -v most="$2" 'BEGIN { exit !(is <= most) }'
}
systemctl daemon-reload
holds "oriond is not exposed more than it has to be" is_below oriond 6.9
holds "orion-controller is exposed little" is_below orion-controller 2.0
holds "orion-agent is exposed little" is_below orion-agent 2.0

# --- oriond by itself, as server.conf says

holds "oriond starts" systemctl start oriond
holds "it says when it serves" systemctl is-active oriond
facts=/usr/local/bin/orion-facts
export LD_LIBRARY_PATH=/usr/lib/orion
holds "facts hold as root" bash -c "$facts --quiet 2>&1 | tail -n 20; exit \${PIPESTATUS[0]}"
# Of a file without a name an ordinary user's library has to have a descriptor: two facts expect the refusal then.
as_one="LD_LIBRARY_PATH=/usr/lib/orion ORION_TOKEN_FILE=/home/somebody/token"
as_somebody() {
    su somebody -c "$as_one $facts --quiet" >/tmp/facts-said 2>&1 && tail -n 1 /tmp/facts-said && return
    tail -n 20 /tmp/facts-said
    return 1
}
holds "facts hold as an ordinary user" as_somebody
has_logs() { ls /var/log/orion/session/* && [ -s /var/log/orion/server.log ]; }
holds "logs are where they should be" has_logs

# Below the unit's own; where systemd hands out no memory controller (cgroup v1) there are none, and oriond says so.
hands_out_memory() { grep -q -w memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; }
have_groups() {
    local worker
    if ! hands_out_memory; then
        grep "layer=memory" /var/log/orion/server.log
        return
    fi
    worker=$(grep -l -x oriond-worker /proc/[0-9]*/comm 2>/dev/null | head -n 1) || return 1
    worker=${worker#/proc/} worker=${worker%/comm}
    grep -E "/oriond\.service/orion-[0-9]+/worker-[0-9]+$" "/proc/$worker/cgroup" ||
        { cat "/proc/$worker/cgroup"; return 1; }
    ! grep "layer=memory" /var/log/orion/server.log
}
holds "each worker has a memory cgroup of its own, or it is said why not" comes have_groups
starts_again() {
    local before
    before=$(main_pid oriond)
    kill -KILL "$before" || return 1
    is_another() { systemctl is-active oriond && [ "$(main_pid oriond)" != "$before" ]; }
    comes is_another && comes have_groups
}
holds "oriond is started again when it was killed, and its workers have what they had" starts_again

# A worker that is killed, as where memory runs out, ends its session and nothing else.
kills_a_worker() {
    local oriond worker began begun=/tmp/begun
    oriond=$(main_pid oriond)
    began=$(grep -c "session begins" /var/log/orion/server.log)
    su somebody -c "$as_one exec $facts --quiet" >/dev/null 2>&1 &
    new() {
        grep "session begins" /var/log/orion/server.log | tail -n "+$((began + 1))" >$begun
        grep -q worker= $begun
    }
    comes new || { echo "no session has begun"; return 1; }
    worker=$(sed -n '1s/.*worker=\([0-9]*\).*/\1/p' $begun)
    kill -KILL "$worker" || return 1
    # Its program hears of it, and ends.
    wait "$!"
    comes grep -q "worker died.*worker=$worker\|worker=$worker.*worker died" /var/log/orion/server.log ||
        { grep "$worker" /var/log/orion/server.log; return 1; }
    [ "$(main_pid oriond)" = "$oriond" ] && systemctl is-active oriond
}
holds "a worker that is killed ends neither oriond nor its unit" kills_a_worker
holds "there are sessions after it" $facts --quiet --only what_a_kernel

# --- a pool of one machine

cp /root/pool.conf /etc/orion/server.conf
holds "oriond is restarted into a pool" systemctl restart oriond
holds "a controller and an agent start" systemctl start orion-controller orion-agent
# As the original's controller.yaml has log_file, in the mounts that the unit gives it.
may_log() { nsenter -t "$(main_pid orion-controller)" -m sh -c ': >>/var/log/orion/controller.log'; }
holds "a controller may write a log beside oriond's" may_log
reports() { /usr/bin/orionctl devices | grep -q "Orion software GPU"; }
holds "the node is in the pool" comes reports
in_pool() { ORION_CONTROLLER=127.0.0.1 ORION_WAIT=30 $facts --quiet --only copies_reach_it; }
holds "a program gets a vGPU of it" in_pool
socket=/run/orion/reserve.sock
holds "the agent listens for who asks for the reserve" comes test -S $socket
inode=$(stat -c %i $socket)
holds "oriond is restarted beside the agent" systemctl restart oriond
keeps() { [ "$(stat -c %i $socket)" = "$inode" ] && systemctl is-active orion-agent; }
holds "the agent's socket is still there" keeps
holds "the node is in the pool again" comes reports
holds "a program gets a vGPU again" comes in_pool
holds "all of them are well" are_active

holds "they stop" systemctl stop orion-agent orion-controller oriond
has_ended() { ! pgrep -x 'oriond|orion-controll|orion-agent'; }
holds "nothing of theirs runs on" has_ended
cp /root/server.conf /etc/orion/server.conf
rm /etc/orion/token

# --- and away

holds "they can be enabled, to start with the system" systemctl enable --now "${units[@]}"
holds "install.sh takes them away" /root/orion/install.sh --uninstall
are_gone() { has_ended && ! systemctl list-unit-files --no-legend 'orion*' | grep .; }
systemctl daemon-reload
holds "no unit is left, and nothing runs" comes are_gone
userdel --remove somebody 2>/dev/null
rm -rf /root/orion /root/pool.conf /root/server.conf
echo end
sync
# At once, whatever else there is to be stopped.
systemctl poweroff --force --force
