#!/usr/bin/env bash
# What a worker calls: for writing the list of system calls that workers may make, for a new driver.
#
#   perf/worker-trace.sh [--driver PATH|soft] [--bin FOLDER] [--strace PATH] [--transport shm|tcp]
#                        [--oriond-args "…"] --out FOLDER -- COMMAND…
#
# Starts an oriond under strace, runs COMMAND through orion-run on it, and writes to FOLDER:
#   after.txt   each system call that workers made after their START, with counts, and with what arguments
#   before.txt  the same for the time before: loading the driver and warming up
#   raw/        strace's own files, one for each thread
# COMMAND runs at a tenth of its speed, or less. Needs strace, python3 and the right to trace (root, as a rule).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
driver=soft bin=$root/target/release strace=strace transport=shm out= extra=()
while [ $# -gt 0 ]; do
    case $1 in
    --driver) driver=$2 && shift 2 ;;
    --bin) bin=$2 && shift 2 ;;
    --strace) strace=$2 && shift 2 ;;
    --transport) transport=$2 && shift 2 ;;
    --oriond-args) read -r -a extra <<<"$2" && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --) shift && break ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2 && exit 2 ;;
    esac
done
if [ -z "$out" ] || [ $# -eq 0 ]; then
    echo "worker-trace: --out FOLDER and a command behind -- are needed" >&2
    exit 2
fi
mkdir -p "$out" && rm -rf "$out/raw" && mkdir "$out/raw"
folder=$(mktemp -d)
chmod 700 "$folder"
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/token"
chmod 600 "$folder/token"

mkfifo "$folder/ready"
# Workers have numbers of their own for processes and threads; the files' names are this machine's.
"$strace" -ff -ttt -y -s 64 --decode-pids=pidns -o "$out/raw/t" "$bin/oriond" serve --driver "$driver" \
    --socket "$folder/oriond.sock" --listen 127.0.0.1:0 --token-file "$folder/token" --warm 1 \
    --ready-fd 9 ${extra[@]+"${extra[@]}"} 9>"$folder/ready" 2>"$out/oriond.log" &
tracer=$!
trap 'kill "$tracer" 2>/dev/null || true; rm -rf "$folder"' EXIT
addresses=$(timeout 60 head -n 1 "$folder/ready") || addresses=
if [ -z "$addresses" ]; then
    cat "$out/oriond.log" >&2
    echo "worker-trace: oriond did not start" >&2
    exit 1
fi
case $transport in
shm) server=unix:$folder/oriond.sock ;;
tcp) server=$(tr ' ' '\n' <<<"$addresses" | grep '^tcp:') ;;
*) echo "worker-trace: --transport is shm or tcp" >&2 && exit 2 ;;
esac
status=0
ORION_TOKEN_FILE=$folder/token "$bin/orion-run" --server "$server" -- "$@" >"$out/program.log" 2>&1 || status=$?
# strace passes SIGTERM on to nobody; oriond is its child.
pkill -TERM -P "$tracer" || true
wait "$tracer" || true

python3 - "$out" "$status" <<'PYTHON'
import collections, pathlib, re, sys

out = pathlib.Path(sys.argv[1])
LINE = re.compile(r"^(\d+\.\d+) (\w+)\((.*?)\)?\s*= (-?\w+|\?)(.*)$")
SIGNAL = re.compile(r"^\d+\.\d+ (--- SIG.*|\+\+\+ killed.*)$")
threads = {int(f.name.rsplit(".", 1)[1]): f.read_text(errors="replace").splitlines() for f in (out / "raw").iterdir()}
made_by = {}
for tid, lines in threads.items():
    for line in lines:
        m = LINE.match(line)
        if m and m[2] in ("clone", "clone3", "fork", "vfork") and m[4].isdigit():
            here = re.match(r" /\* (\d+) in strace's PID NS \*/", m[5])
            made_by[int(here[1] if here else m[4])] = tid


def is_worker(tid):
    return any('execve("/proc/self/exe"' in l and "oriond-worker" in l for l in threads.get(tid, []))


def worker_of(tid):
    while tid is not None and not is_worker(tid):
        tid = made_by.get(tid)
    return tid


def started_at(lines):
    """When STARTED was sent: the first message behind the one that took the session's memory to the client."""
    greeted = False
    for line in lines:
        m = LINE.match(line)
        if m and m[2] == "sendmsg":
            if greeted:
                return float(m[1])
            greeted = "SCM_RIGHTS" in m[3]
    return None


def shape(name, rest):
    """What of the arguments matters to a filter."""
    argument = [a.strip() for a in rest.split(",")]
    paths = re.findall(r"<([^>]*)>", rest)
    if name in ("openat", "open", "readlink", "readlinkat", "stat", "newfstatat", "access", "faccessat", "execve",
                "unlink", "statfs", "mkdir", "chdir"):
        quoted = re.search(r'"([^"]*)"', rest)
        flags = " ".join(a for a in argument if re.match(r"^[OFR]_", a))
        return f"{quoted[1] if quoted else '?'} {flags}".strip()
    if name == "ioctl":
        where = re.sub(r"\d{3,}", "N", paths[0]) if paths else "?"
        return f"{where} {argument[1]}"
    if name == "mmap":
        where = paths[0] if paths else "anonymous"
        where = re.sub(r"/memfd:([^ ]*).*", r"memfd:\1", where)
        return f"{argument[2]} {argument[3]} {where}" if "EXEC" in argument[2] else f"{argument[2]} {argument[3]}"
    if name in ("mprotect", "pkey_mprotect", "madvise", "msync"):
        return argument[2]
    if name in ("prctl", "arch_prctl", "rt_sigaction", "rt_sigprocmask", "personality", "setpriority", "kill"):
        return argument[0]
    if name in ("fcntl", "futex", "epoll_ctl", "shmctl", "mremap"):
        return argument[1]
    if name in ("prlimit64", "getrlimit", "setrlimit"):
        return " ".join(argument[:3])
    if name in ("clone", "clone3"):
        return (re.search(r"flags=([A-Z_|0-9x]*)", rest) or [0, "?"])[1]
    if name in ("socket", "socketpair", "bind", "connect", "getsockopt", "setsockopt"):
        return " ".join(argument[:3])
    if name in ("memfd_create", "tgkill"):
        return argument[-1]
    return ""


calls = {"before": collections.defaultdict(collections.Counter), "after": collections.defaultdict(collections.Counter)}
failed = {"before": collections.Counter(), "after": collections.Counter()}
signals = {"before": collections.Counter(), "after": collections.Counter()}
workers = {tid for tid in threads if is_worker(tid)}
served = {w: started_at(threads[w]) for w in workers}
for tid, lines in threads.items():
    worker = worker_of(tid)
    if worker is None:
        continue
    since = served[worker]
    for line in lines:
        m = LINE.match(line)
        if not m:
            s = SIGNAL.match(line)
            if s:
                when = "after" if since is not None and float(line.split()[0]) > since else "before"
                signals[when][s[1][:100]] += 1
            continue
        when = "after" if since is not None and float(m[1]) > since else "before"
        calls[when][m[2]][shape(m[2], m[3])] += 1
        if m[4] == "-1":
            failed[when][(m[2], m[5].split()[0] if m[5].split() else "")] += 1

attached = sum(t is not None for t in served.values())
for when in ("after", "before"):
    with open(out / f"{when}.txt", "w") as f:
        print(f"# {len(workers)} workers, {attached} with a session; the program ended with {sys.argv[2]}", file=f)
        print(f"# system calls {when} START:", " ".join(sorted(calls[when])), file=f)
        for name, shapes in sorted(calls[when].items()):
            print(f"{name} {sum(shapes.values())}", file=f)
            for what, count in shapes.most_common(400):
                if what:
                    print(f"    {count:7} {what}", file=f)
        for (name, code), count in sorted(failed[when].items()):
            print(f"failed {name} {code} {count}", file=f)
        for what, count in signals[when].most_common(50):
            print(f"signal {count} {what}", file=f)
print(f"worker-trace: {attached} sessions; {len(calls['after'])} system calls after START; see {out}/after.txt")
if not attached:
    sys.exit("worker-trace: no worker had a session; see oriond.log and program.log")
PYTHON
exit "$status"
