#!/usr/bin/env python3
"""Runs every workload natively and through Orion over shm and tcp, and prints one table of whether they agree.

    python3 perf/suite/run.py                              # everything
    python3 perf/suite/run.py --only mnist,jit --modes native,shm
    python3 perf/suite/run.py --jobs 4 --out results.json  # several workloads at once: times then mean nothing
    python3 perf/suite/run.py --continue results.json      # what its time budget was too short for

Exits 1 when a row is unequal. See README.md beside this file.
"""

import argparse
import concurrent.futures
import functools
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gate
from table import SPEED_ONLY, WORKLOADS

SUITE = Path(__file__).resolve().parent
BUILD = SUITE / "build"
REPOSITORY = SUITE.parent.parent
MODES = ("native", "shm", "tcp")
#: Ends the name of a mode in which another build of Orion runs: see `speed.py --before`.
BEFORE = "-before"
TAIL_CHARS = 6000
#: Further native runs, at most, of a row whose results differ.
NATIVE_AGAIN = 4

ENVIRONMENT = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


#: Where the time budget was used up; `--continue` runs it.
NOT_RUN = "not run: the time budget was used up"


def main():
    options = parse_options()
    rows = finished_rows(options.earlier) if options.earlier else {}
    workloads = select(options.only, options.skip, leave_out=SPEED_ONLY)
    workloads = [workload for workload in workloads if workload.name not in rows]
    started = time.monotonic()
    unbuilt = build(workloads, options)
    rows |= {workload.name: {"title": workload.title, "runs": {}} for workload in workloads}
    rows = {workload.name: rows[workload.name] for workload in WORKLOADS if workload.name in rows}
    lock = threading.Lock()

    def run_task(task):
        workload, mode = task
        if options.budget_s and time.monotonic() - started > options.budget_s:
            result = {"status": NOT_RUN}
        elif workload.name in unbuilt:
            result = {"status": "not built", "stderr": unbuilt[workload.name]}
        else:
            result = run_workload(workload, mode, options)
        with lock:
            rows[workload.name]["runs"][mode] = result
            print(f"{time.monotonic() - started:6.1f} s  {workload.name} {mode}: {result['status']}", file=sys.stderr)
            write_json(options.out, rows, options)

    tasks = [(workload, mode) for workload in workloads for mode in options.modes]
    if options.jobs > 1:
        tasks.sort(key=lambda task: -task[0].seconds)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run_task, tasks))

    for workload in workloads:
        judge(workload, rows[workload.name], options)
    write_json(options.out, rows, options)
    print(table(rows, options.modes))
    print(summary(rows, options.modes, time.monotonic() - started))
    print(details(rows, options.modes))
    sys.exit(0 if all(row["equal"] in ("yes", "refused", "skipped") for row in rows.values()) else 1)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser)
    add_continue(parser)
    parser.add_argument("--jobs", type=int, default=1, help="workloads at once; the times then mean nothing")
    parser.add_argument("--quick", action="store_true", help="fewer steps in each workload")
    parser.add_argument("--strict", action="store_true", help="a refused function or a new warning also fails a row")
    options = parser.parse_args()
    options.scale = "quick" if options.quick else "correct"
    finish_options(parser, options)
    if options.earlier:
        now = {**machine(), "modes": options.modes, "scale": options.scale}
        options.earlier = earlier_run(parser, options.earlier, now, finished_rows)
    return options


def add_continue(parser):
    parser.add_argument(
        "--continue",
        dest="earlier",
        type=Path,
        metavar="FILE",
        help="the --out of an earlier run here: its runs count, and what it lacks is run",
    )


def finished_rows(earlier):
    rows = earlier["rows"].items()
    return {name: row for name, row in rows if "equal" in row and not is_missing(row)}


def is_missing(row):
    return any(run["status"] == NOT_RUN for run in row["runs"].values())


def earlier_run(parser, path, now, read):
    """What an earlier run wrote with --out, and `read` can read. One table is of one machine and one commit."""
    try:
        earlier = json.loads(path.read_text())
        before = {**earlier, **earlier["machine"]}
        read(earlier)
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        parser.error(f"--continue {path} is not what {Path(sys.argv[0]).name} wrote with --out: {error!r}")
    for key in ("gpu", "cpus", "kernel", "commit", "modes", "scale"):
        if key in now and before.get(key) != now[key]:
            parser.error(
                f"--continue {path}: its {key} is {before.get(key)!r} and here it is {now[key]!r}; "
                "what runs now needs a table of its own"
            )
    return earlier


def add_common_options(parser):
    parser.add_argument("--only", default="", help="comma-separated names of workloads")
    parser.add_argument("--skip", default="", help="comma-separated names of workloads to leave out")
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated, of native, shm, tcp")
    parser.add_argument("--orion-run", default=REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--orion-args", default="", help='more options for orion-run, e.g. "--server host:port"')
    parser.add_argument("--python", default=sys.executable, help="the Python that holds PyTorch and the others")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run of one workload")
    parser.add_argument("--budget-s", type=float, default=0, help="start nothing new after this many seconds")
    parser.add_argument("--out", type=Path, metavar="FILE", help="everything, as JSON")
    parser.add_argument("--nvcc", default=find_nvcc())
    parser.add_argument("--arch", default="native", help="what nvcc builds for, e.g. sm_90")
    parser.add_argument("--no-build", action="store_true", help="use the CUDA programs in build/ as they are")
    parser.add_argument("--list", action="store_true", help="list the workloads and exit")


def finish_options(parser, options):
    if options.list:
        for workload in WORKLOADS:
            print(f"{workload.name:26} {workload.title}")
        sys.exit(0)
    options.modes = options.modes.split(",")
    unknown = set(options.modes) - set(MODES)
    if unknown:
        parser.error(f"unknown modes {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")
    options.orion_run = options.orion_run.resolve()
    if set(options.modes) != {"native"} and not os.access(options.orion_run, os.X_OK):
        parser.error(f"{options.orion_run} is not there: build Orion first, or say --orion-run PATH")
    options.orion_args = shlex.split(options.orion_args)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    return options


def select(only, skip, leave_out=()):
    """The workloads named, in the table's order. What is left out by default runs when it is named."""
    only, skip = (set(filter(None, names.split(","))) for names in (only, skip))
    unknown = (only | skip) - {workload.name for workload in WORKLOADS}
    if unknown:
        sys.exit(f"unknown workloads {', '.join(sorted(unknown))}; --list names them")
    wanted = only or {workload.name for workload in WORKLOADS} - set(leave_out)
    return [workload for workload in WORKLOADS if workload.name in wanted - skip]


# Building


def find_nvcc():
    beside_cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
    return shutil.which("nvcc") or str(beside_cuda)


def build(workloads, options):
    """Builds the CUDA programs that are older than their sources. Returns what nvcc said of those it could not."""
    stale = [workload for workload in workloads if workload.is_cuda and not options.no_build and is_stale(workload)]
    if not stale:
        return {}
    BUILD.mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        failures = dict(pool.map(functools.partial(build_one, options=options), stale))
    for name, failure in failures.items():
        if failure:
            print(f"{name} was not built:\n{failure}", file=sys.stderr)
    return {name: failure for name, failure in failures.items() if failure}


def is_stale(workload):
    program = BUILD / workload.name
    sources = [SUITE / workload.source, SUITE / "cuda/report.h"]
    return not program.exists() or program.stat().st_mtime < max(source.stat().st_mtime for source in sources)


def build_one(workload, options):
    arch = [] if any("arch" in flag for flag in workload.nvcc) else [f"-arch={options.arch}"]
    command = [options.nvcc, "-std=c++17", "-O2", "-o", BUILD / workload.name, SUITE / workload.source]
    # nvcc from PyPI keeps its libraries in lib, where its own profile does not look.
    libraries = Path(options.nvcc).resolve().parent.parent / "lib"
    if libraries.is_dir():
        command.append(f"-L{libraries}")
    try:
        done = subprocess.run([*command, *arch, *workload.nvcc], capture_output=True, text=True)
    except OSError as error:
        return workload.name, f"{options.nvcc}: {error}"
    return workload.name, done.stderr[-TAIL_CHARS:] if done.returncode else ""


# Running


def run_workload(workload, mode, options):
    """One process, natively or through Orion."""
    return Process(workload, mode, options).result(options.timeout)


class Process:
    """A workload under way. Its output goes to files, which a server that stays on cannot hold open."""

    def __init__(self, workload, mode, options, server=None, **environment):
        self.scratch = tempfile.TemporaryDirectory(prefix="orion-suite-", ignore_cleanup_errors=True)
        scratch = Path(self.scratch.name)
        cold = "cold" in workload.args
        program = [BUILD / workload.name] if workload.is_cuda else [options.python, SUITE / workload.source]
        arguments = [*workload.args] if options.scale == "correct" else [*workload.args, f"--{options.scale}"]
        command = [*orion_prefix(mode, options, server), *program, *arguments]
        self.stdout, self.stderr = scratch / "stdout", scratch / "stderr"
        environment = {
            **os.environ,
            **ENVIRONMENT,
            **caches(scratch if cold else BUILD / "cache" / mode, options.scale),
            # For the one workload that asks nvidia-smi, which must not be answered by what Orion puts in front.
            "SUITE_LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
            **workload.env,
            **environment,
        }
        self.started = time.monotonic()
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                cwd=scratch,
                start_new_session=True,
            )

    def result(self, timeout_s):
        """Waits for the end, and brings it about when the time is up."""
        try:
            self.process.wait(timeout_s)
            timed_out = False
        except subprocess.TimeoutExpired:
            gate.end(self.process)
            timed_out = True
        wall_s = time.monotonic() - self.started
        said, complained = (path.read_text(errors="replace") for path in (self.stdout, self.stderr))
        self.scratch.cleanup()
        result = {
            "rc": self.process.returncode,
            "wall_s": round(wall_s, 3),
            "report": last_json(said),
            "refused": refused(complained),
            "stdout": said[-TAIL_CHARS:],
            "stderr": complained[-TAIL_CHARS:],
            "lines": notable_lines(complained),
        }
        result["status"] = status(result, timed_out, timeout_s)
        return result

    def abandon(self):
        gate.end(self.process)
        self.scratch.cleanup()


def orion_prefix(mode, options, server=None):
    if mode == "native":
        return []
    address = ["--server", server] if server else []
    transport = mode.removesuffix(BEFORE)
    return [orion_run(mode, options), "--transport", transport, *address, *options.orion_args, "--"]


def orion_run(mode, options):
    return options.before / "orion-run" if mode.endswith(BEFORE) else options.orion_run


def caches(root, scale):
    """Compiled kernels are kept apart by mode, or Orion would load what native compiled and compile nothing."""
    root.mkdir(parents=True, exist_ok=True)
    names = {"TORCHINDUCTOR": "inductor", "TRITON": "triton"}
    variables = {f"{variable}_CACHE_DIR": str(root / folder) for variable, folder in names.items()}
    variables |= {"CUPY_CACHE_DIR": str(root / "cupy"), "CUDA_CACHE_PATH": str(root / "cuda")}
    if scale == "speed":
        # XLA keeps nothing unless told to, and what is asked here is the speed of what it compiled.
        variables["JAX_COMPILATION_CACHE_DIR"] = str(root / "jax")
        variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        variables["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return variables


def last_json(output):
    for line in reversed(output.splitlines()):
        if line.startswith('{"workload"'):
            try:
                return json.loads(line)
            except ValueError:
                return None
    return None


def status(result, timed_out, timeout_s):
    report = result["report"]
    if timed_out:
        return f"no end after {timeout_s:g} s"
    if result["rc"] != 0:
        failed = ", ".join((report or {}).get("errors", {}))
        return f"failed, rc {result['rc']}" + (f": {failed}" if failed else "")
    if report is None:
        return "no result"
    return "skipped" if "skipped" in report else "ok"


def refused(stderr):
    return sorted(set(re.findall(r"^orion\S*?:? .*?(\w+) refused\b", stderr, re.MULTILINE)))


def notable_lines(stderr):
    """What was said, without what differs from run to run: addresses, numbers, paths of scratch folders."""
    lines = {}
    for line in stderr.splitlines():
        key = re.sub(r"orion-suite-\w+", "", line)
        key = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", key).strip()
        if key and not re.search(r"^orion\b.*\brefused\b", key):
            lines.setdefault(key, line.strip()[:300])
    return lines


# Judging


def judge(workload, row, options):
    runs = row["runs"]
    native = runs.get("native")
    row["unequal"], row["varies_natively"], row["new_warnings"], row["notes"] = {}, [], {}, []
    row["refusals"] = {}
    for mode in (mode for mode in options.modes if mode != "native" and native):
        row["unequal"][mode] = differences(native, runs[mode])
        row["refusals"][mode] = refusals(native, runs[mode])
        if row["refusals"][mode]:
            row["unequal"][mode] = []
        row["new_warnings"][mode] = sorted(
            text for key, text in runs[mode].get("lines", {}).items() if key not in native.get("lines", {})
        )
    if native and any(names_exact(native, unequal) for unequal in row["unequal"].values()):
        forgive_native_variation(workload, row, options)
    row["equal"] = verdict(row, options)
    for mode in options.modes:
        if runs[mode].get("refused"):
            row["notes"].append(f"{mode} refused {', '.join(runs[mode]['refused'])}")
        if row["new_warnings"].get(mode):
            row["notes"].append(f"{mode} +{len(row['new_warnings'][mode])} lines on stderr")
        if row["refusals"].get(mode):
            row["notes"].append(f"{mode} lacks {', '.join(row['refusals'][mode])}")
    if row["varies_natively"]:
        row["notes"].append(f"varies natively: {', '.join(row['varies_natively'])}")
    for run in runs.values():
        run.pop("lines", None)


def differences(native, other):
    """The names of the checks that differ; a run that gave no result differs in that."""
    if native["status"] != other["status"] or native["status"] not in ("ok", "skipped"):
        return [f"[{other['status'] if other['status'] != 'ok' else 'native ' + native['status']}]"]
    ours, theirs = native["report"]["checks"], other["report"]["checks"]
    return [name for name in {**ours, **theirs} if not agree(ours.get(name), theirs.get(name))]


def refusals(native, other):
    """What a program found refused in clear words, and so left out, where native has it."""
    ours, theirs = ((run.get("report") or {}).get("checks", {}) for run in (native, other))
    return [name for name, check in theirs.items() if value_of(check) == "refused" != value_of(ours.get(name))]


def value_of(check):
    return check.get("v") if isinstance(check, dict) else check


def agree(ours, theirs):
    if ours is None or theirs is None:
        return False
    tolerance = ours if isinstance(ours, dict) else {}
    return near(value_of(ours), value_of(theirs), tolerance.get("rtol", 0), tolerance.get("atol", 0))


def near(a, b, rtol, atol):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(near(x, y, rtol, atol) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if (rtol or atol) and all(isinstance(x, (int, float)) for x in (a, b)):
        return a == b or abs(a - b) <= atol + rtol * max(abs(a), abs(b))
    return a == b


def is_exact(check):
    return not isinstance(check, dict) or not (check.get("rtol") or check.get("atol"))


def names_exact(native, names):
    checks = (native.get("report") or {}).get("checks", {})
    return [name for name in names if name in checks and is_exact(checks[name])]


def forgive_native_variation(workload, row, options):
    """Bit for bit is asked only where native agrees with itself, so native runs again before Orion is blamed: more than
    once, for what varies now and then (cuSPARSE's products) may agree by chance."""
    native, varies = row["runs"]["native"], set()
    blamed = {name for names in row["unequal"].values() for name in names_exact(native, names)}
    for _ in range(NATIVE_AGAIN):
        if blamed <= varies:
            break
        again = run_workload(workload, "native", options)
        if again["status"] == "ok":
            varies.update(names_exact(native, differences(native, again)))
    row["varies_natively"] = sorted(varies)
    row["unequal"] = {mode: [n for n in names if n not in varies] for mode, names in row["unequal"].items()}


def verdict(row, options):
    if "native" not in row["runs"]:
        return "no native run"
    native = row["runs"]["native"]["status"]
    bad = sorted({name for names in row["unequal"].values() for name in names})
    if native not in ("ok", "skipped") and not bad:
        bad = [f"[native {native}]"]
    if options.strict and any(run.get("refused") for run in row["runs"].values()):
        bad.append("[refused]")
    if options.strict and any(row["new_warnings"].values()):
        bad.append("[new warnings]")
    if bad:
        return "NO: " + ", ".join(bad)
    if any(row["refusals"].values()):
        return "refused"
    return "skipped" if native == "skipped" else "yes"


# Writing


def table(rows, modes):
    lines = [["workload", *modes, "equal?", "notes"]]
    for row in rows.values():
        cells = [cell(row["runs"][mode]) for mode in modes]
        lines.append([row["title"], *cells, row["equal"], "; ".join(row["notes"])])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    lines.insert(1, ["-" * width for width in widths] + ["-----"])
    text = [" | ".join([*(c.ljust(w) for c, w in zip(line, widths)), line[-1]]) for line in lines]
    return "\n".join(f"| {line.rstrip()} |" for line in text)


def cell(run):
    if run["status"] != "ok":
        return run["status"]
    steady_ms = run["report"].get("steady_ms")
    return f"{run['wall_s']:.1f} s" if steady_ms is None else f"{steady_ms:.3g} ms"


def summary(rows, modes, wall_s):
    equal = sum(row["equal"] == "yes" for row in rows.values())
    skipped = sum(row["equal"] == "skipped" for row in rows.values())
    names = sorted({name for row in rows.values() for run in row["runs"].values() for name in run.get("refused", [])})
    clear = sum(row["equal"] == "refused" for row in rows.values())
    lines = [
        f"{equal} of {len(rows) - skipped} rows equal over {', '.join(modes)}; "
        f"{clear} refused in clear words; {skipped} skipped; {wall_s:.0f} s"
    ]
    if names:
        lines.append(f"refused functions met: {', '.join(names)}")
    return "\n".join(lines)


def details(rows, modes):
    """Enough about each bad row to start on it without the JSON."""
    lines = []
    for name, row in rows.items():
        for mode in modes:
            run, native = row["runs"][mode], row["runs"].get("native", {})
            if row["equal"].startswith("NO") and run["status"] not in ("ok", "skipped"):
                lines.append(f"{name} {mode}: {run['status']}")
                lines += [f"    {line[:200]}" for line in run.get("stderr", "").strip().splitlines()[-3:]]
            for check in row["unequal"].get(mode, [])[:6]:
                ours, theirs = (
                    value_of(((r.get("report") or {}).get("checks") or {}).get(check)) for r in (native, run)
                )
                if not check.startswith("["):
                    lines.append(f"{name} {mode} {check}: {str(ours)[:90]} natively, {str(theirs)[:90]}")
            lines += [f"{name} {mode} stderr: {line[:200]}" for line in row["new_warnings"].get(mode, [])[:2]]
    return "\n".join(lines)


def write_json(path, rows, options):
    if path:
        scratch = path.with_suffix(".partial")
        result = {"machine": machine(), "modes": options.modes, "scale": options.scale, "rows": rows}
        scratch.write_text(json.dumps(result, indent=1))
        scratch.replace(path)


@functools.cache
def machine():
    return {
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "gpu": output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "commit": output_of("git", "-C", str(REPOSITORY), "rev-parse", "HEAD"),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


if __name__ == "__main__":
    main()
