#!/usr/bin/env python3
"""Runs other people's tests natively and through Orion, several at a time, and prints only what differs.

    git clone --branch v14.2.0 https://github.com/cupy/cupy; git clone https://github.com/jax-ml/jax
    python3 perf/suite/peers.py --jobs 8 --cupy cupy/tests/cupy_tests --jax jax/tests --out peers.json
    python3 perf/suite/peers.py --jobs 8 --samples cuda-samples --ggml ggml/build/bin/test-backend-ops
    python3 perf/suite/peers.py --jobs 12 --torch forward,backward,graph --pytest pycuda=pycuda/test

The paths are yours: nothing is downloaded. CuPy's and JAX's tests, and any others of `--pytest`, are run by pytest, one
process a file; `--only a,b` takes files whose path has one of these in it, `--sample 20` twenty tests of each file,
drawn by lot, the same in every mode. NVIDIA's samples are built and compared as by samples.py. ggml's program is asked
for each backend operation. `--torch` runs the samples that PyTorch tests its operators with, which its wheel brings
(torch_samples.py), and compares the bits. A test that differs runs again natively, by itself; one that does not agree
with itself is listed as varying and not held against Orion. Exits 1 when a test differs. See README.md beside it.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import run

PLUGIN = '''
import hashlib, itertools, json, os, zlib
import pytest
OUT = open(os.environ["PEERS_OUTCOMES"], "a", buffering=1)
def pytest_runtest_logstart(nodeid, location):
    OUT.write(json.dumps([nodeid, "began", ""]) + "\\n")
def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        text = ""
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            text = (crash.message if crash else str(report.longrepr))[:400]
        OUT.write(json.dumps([report.nodeid, report.outcome, text]) + "\\n")
def pytest_collectreport(report):
    if report.failed:
        OUT.write(json.dumps([report.nodeid, "not collected", str(report.longrepr)[-400:]]) + "\\n")
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    count, _, seed = os.environ.get("PEERS_SAMPLE", "").partition(" ")
    piece, _, pieces = os.environ.get("PEERS_PIECE", "0/1").partition("/")
    chosen, lot = set(), lambda test: hashlib.sha256((seed + test).encode()).digest()
    for _, tests in itertools.groupby((item.nodeid for item in items), lambda test: test.split("::")[0]):
        chosen.update(sorted(tests, key=lot)[:int(count)] if count else tests)
    chosen = {test for test in chosen if zlib.crc32(test.encode()) % int(pieces) == int(piece)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
'''
#: What a process was doing when it died; it is started again behind that.
DEATHS_MAX = 5
#: What pytest ends with where it was given no test: of a file with three tests a fourth piece has none.
NONE_COLLECTED = 5
#: The outcome of a file that --budget-s had no time for, or not to its end: what ran both ways is compared.
CUT = "cut short"


def main():
    options = parse_options()
    began = time.monotonic()
    options.deadline = began + options.budget_s if options.budget_s else None
    suites = {name: suite for name, suite in (("cupy", options.cupy), ("jax", options.jax), *options.pytest) if suite}
    results = {}
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        (Path(scratch) / "orion_peers_plugin.py").write_text(PLUGIN)
        for name, suite in suites.items():
            results[name] = run_pytest(name, suite.resolve(), options, Path(scratch))
        if options.torch:
            results["torch"] = run_torch(options, Path(scratch))
        if options.ggml:
            results["ggml"] = run_ggml(options.ggml.resolve(), options)
    unequal = sum(report(name, result, options.modes) for name, result in results.items())
    if options.samples:
        # Flushed, so that what that program prints comes behind it.
        print("== samples", flush=True)
        unequal += run_samples(options)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    print(f"{unequal} differ; {time.monotonic() - began:.0f} s")
    sys.exit(1 if unequal else 0)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cupy", type=Path, metavar="DIR", help="a folder of CuPy's tests")
    parser.add_argument("--jax", type=Path, metavar="DIR", help="a folder of JAX's tests")
    parser.add_argument("--pytest", type=named_folder, action="append", default=[], metavar="NAME=DIR",
                        help="a folder of other tests for pytest, and what to call them")
    parser.add_argument("--torch", default="", metavar="KINDS", help="PyTorch's samples, of kinds of torch_samples.py")
    parser.add_argument("--torch-samples", type=int, default=4, metavar="N", help="of one operator and type at most")
    parser.add_argument("--samples", type=Path, metavar="DIR", help="a checkout of NVIDIA/cuda-samples")
    parser.add_argument("--ggml", type=Path, metavar="PROGRAM", help="ggml's test-backend-ops, built for CUDA")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--sample", type=int, metavar="N", help="of each file for pytest N tests, by lot")
    parser.add_argument("--pieces", type=int, default=1, metavar="N",
                        help="run each file for pytest as N processes with a part of its tests each")
    parser.add_argument("--gpus", type=int, metavar="N", help="deal the files for pytest out to N GPUs, each to one")
    parser.add_argument("--seed", default="0", help="another lot draws others (0)")
    parser.add_argument("--pytest-args", default="", metavar="ARGS", help="more for pytest, such as -k memory")
    run.add_common_options(parser)
    options = parser.parse_args()
    if options.pieces < 1:
        parser.error(f"--pieces is {options.pieces}; a file has one or more")
    asked = [options.cupy, options.jax, options.samples, options.ggml, *(folder for _, folder in options.pytest)]
    if not any(asked) and not options.torch:
        parser.error("nothing to run: name a path with --cupy, --jax, --pytest, --samples or --ggml, or --torch KINDS")
    for path in filter(None, asked):
        if not path.exists():
            parser.error(f"{path} is not there")
    return run.finish_options(parser, options)


def named_folder(text):
    name, equals, folder = text.partition("=")
    if not (name and equals and folder) or name in ("cupy", "jax", "torch", "ggml"):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DIR with a name of its own, such as pycuda=pycuda/test")
    return name, Path(folder)


# pytest


def run_pytest(name, folder, options, scratch):
    """By mode, each test's outcome and the first words of its failure."""
    files = find(folder, options)
    if not files:
        sys.exit(f"no test file of {folder} has {options.only} in its path")
    todo = [(mode, path, piece) for path in files for piece in range(options.pieces) for mode in options.modes]
    outcomes = {mode: {} for mode in options.modes}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = pool.map(lambda part: run_file(*part, folder, options, scratch), todo)
        for (mode, _, _), found in zip(todo, runs):
            outcomes[mode].update(found)
    if "native" in options.modes:
        # What differs has a minute more.
        options.deadline = options.deadline and options.deadline + 60
        again = {test for mode in options.modes for test in differing(outcomes, mode)}
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            # What the time is over for stays a difference.
            runs = pool.map(lambda t: {} if is_over(options) else run_tests([t], "native", folder, options, scratch),
                            sorted(again))
            outcomes["native again"] = {test: found for one in runs for test, found in one.items()}
    return outcomes


def find(folder, options):
    """Test files below a folder, or the one file that was named."""
    if folder.is_file():
        return [folder]
    only, skip = (list(filter(None, names.split(","))) for names in (options.only, options.skip))
    files = sorted(p for p in folder.rglob("*.py") if re.match(r"test_.*|.*_test\.py", p.name))
    wanted = [p for p in files if not only or any(word in str(p.relative_to(folder)) for word in only)]
    return [p for p in wanted if not any(word in str(p.relative_to(folder)) for word in skip)]


def run_file(mode, path, piece, folder, options, scratch):
    if is_over(options):
        root = folder if folder.is_dir() else folder.parent
        return {str(path.relative_to(root)): (CUT, "it was not begun")}
    return run_tests([str(path)], mode, folder, options, scratch, piece)


def is_over(options):
    """Whether --budget-s is."""
    return bool(options.deadline) and time.monotonic() > options.deadline


def run_tests(tests, mode, folder, options, scratch, piece=None):
    """Starts again behind a test that took the process with it. `piece` is which of --pieces; all of them without."""
    root = folder if folder.is_dir() else folder.parent
    found, dead = {}, []
    for _ in range(DEATHS_MAX):
        with tempfile.NamedTemporaryFile(dir=scratch, suffix=".jsonl") as log:
            rc = pytest(tests, dead, mode, root, options, scratch, log.name, piece)
            lines = [json.loads(line) for line in Path(log.name).read_text().splitlines()]
        for test, outcome, text in lines:
            if outcome != "began" or test not in found:
                found[test] = (outcome, text)
        last = next((test for test, (outcome, _) in reversed(found.items()) if outcome == "began"), None)
        if rc == CUT:
            found.pop(last, None)
            for test in tests:
                path = Path(test.split("::")[0])
                found[str(path.relative_to(root) if path.is_absolute() else path)] = (CUT, "--budget-s was over")
            return found
        if last is None:
            if not lines and not (piece is not None and rc == NONE_COLLECTED):
                found[tests[0]] = ("not collected", f"pytest ended with {rc}")
            return found
        found[last] = ("died", f"the process ended with {rc}")
        dead.append(last)
    return found


def pytest(tests, dead, mode, root, options, scratch, log, piece):
    command = [*run.orion_prefix(mode, options), options.python, "-m", "pytest", "-q", "-rN",
               "-p", "no:cacheprovider", "-p", "orion_peers_plugin", f"--rootdir={root}", *options.pytest_args.split()]
    command += [part for test in dead for part in ("--deselect", test)] + tests
    caches = run.caches(scratch / "cache" / mode, "full")
    path = f"{scratch}:{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | caches | {"PEERS_OUTCOMES": log, "PYTHONPATH": path}
    # Several at once share a GPU, and JAX would take three quarters of it each.
    environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONDONTWRITEBYTECODE": "1", "ORION_QUIET": "1"}
    if options.gpus:
        # By its name, so that it is the same GPU in every mode.
        file = Path(tests[0].split("::")[0]).name
        environment["CUDA_VISIBLE_DEVICES"] = str((zlib.crc32(file.encode()) + (piece or 0)) % options.gpus)
    if options.sample:
        environment["PEERS_SAMPLE"] = f"{options.sample} {options.seed}"
    if piece is not None:
        environment["PEERS_PIECE"] = f"{piece}/{options.pieces}"
    process = subprocess.Popen([str(part) for part in command], cwd=root, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    left = options.deadline - time.monotonic() if options.deadline else options.timeout
    try:
        return process.wait(max(0, min(options.timeout, left)))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if left < options.timeout:
            return CUT
        return f"no end after {options.timeout:g} s"


# PyTorch's samples


def run_torch(options, scratch):
    """The operators are dealt to processes, of which several run at once."""
    shards = max(1, options.jobs // len(options.modes))
    todo = [(mode, shard) for shard in range(shards) for mode in options.modes]
    outcomes = {mode: {} for mode in options.modes}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = pool.map(lambda task: torch_process(task[0], ["--shard", f"{task[1]}/{shards}"], options, scratch), todo)
        for (mode, _), found in zip(todo, runs):
            outcomes[mode].update(found)
    if "native" in options.modes:
        # What had no time, here or there, is not compared; a program that did not get as far is.
        known = set.intersection(*(set(found) for found in outcomes.values())) | {"the program"}
        outcomes = {mode: {t: found[t] for t in known & found.keys()} for mode, found in outcomes.items()}
        options.deadline = options.deadline and options.deadline + 60
        outcomes["native again"] = torch_again(outcomes, options, scratch)
    return outcomes


def torch_again(outcomes, options, scratch):
    """Samples that differ, natively, until one of them does not agree with what it was."""
    again = {test for mode in options.modes for test in differing(outcomes, mode)}
    found = {}
    for _ in range(run.NATIVE_AGAIN):
        open_ones = sorted(t for t in again if t not in found or verdict(found[t]) == verdict(outcomes["native"][t]))
        if not open_ones or is_over(options):
            break
        names = scratch / "names.json"
        names.write_text(json.dumps(open_ones))
        found |= torch_process("native", ["--names", names], options, scratch)
    return found


def torch_process(mode, arguments, options, scratch):
    """By name, what became of each sample. What a sample took with it is begun again behind that one."""
    found = {}
    while True:
        with tempfile.NamedTemporaryFile(dir=scratch, suffix=".jsonl") as log, tempfile.TemporaryFile() as complaint:
            done = scratch / f"{Path(log.name).stem}-done.json"
            done.write_text(json.dumps(sorted(found)))
            command = [*run.orion_prefix(mode, options), options.python, Path(__file__).with_name("torch_samples.py"),
                       "--kinds", options.torch, "--samples", options.torch_samples, "--done", done, "--out", log.name,
                       *arguments]
            if options.only:
                command += ["--only", options.only]
            environment = os.environ | run.ENVIRONMENT | run.caches(scratch / "cache" / mode, "full")
            process = subprocess.Popen([str(part) for part in command], env=environment | {"ORION_QUIET": "1"},
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaint,
                                       start_new_session=True)
            end = wait_while_it_writes(process, log.name, options)
            lines = [json.loads(line) for line in Path(log.name).read_text().splitlines() if line.endswith("]")]
            complaint.seek(0)
            said = complaint.read().decode(errors="replace")[-300:]
        now = {}
        for test, outcome, text in lines:
            now[test] = (outcome, text)
        last = next((test for test, (outcome, _) in now.items() if outcome == "began"), None)
        if end == CUT:
            now.pop(last, None)
            return found | now
        if last is not None:
            now[last] = ("died", f"the process ended with {end}: {said}")
        if not now:
            return found if end == 0 else found | {"the program": (f"ended with {end}", said)}
        found |= now
        if end == 0:
            return found


def wait_while_it_writes(process, log, options):
    """How it ended: by itself, by the end of all time, or for having been at one sample for --timeout."""
    size, since = 0, time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        now = os.path.getsize(log)
        if now != size:
            size, since = now, time.monotonic()
        is_stuck = time.monotonic() - since > options.timeout
        if is_stuck or is_over(options):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"no end after {options.timeout:g} s" if is_stuck else CUT
    return process.returncode


# ggml


def run_ggml(program, options):
    """Its lines are `NAME(arguments): OK` or `FAIL`, coloured."""
    outcomes = {}
    for mode in options.modes:
        command = [*run.orion_prefix(mode, options), program, "test", "-b", "CUDA0"]
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, timeout=options.timeout)
            said, end = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            said, end = (late.stdout or b"").decode(errors="replace"), f"no end after {options.timeout:g} s"
        plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
        cases = re.findall(r"^\s*(\w+\(.*\)): (.*)$", plain, re.MULTILINE)
        outcomes[mode] = {case: (verdict, "") for case, verdict in cases}
        outcomes[mode]["the program"] = (f"ended with {end}", "")
    return outcomes


# NVIDIA's samples


def run_samples(options):
    command = [sys.executable, Path(__file__).with_name("samples.py"), "--samples", options.samples, "--modes",
               ",".join(options.modes), "--jobs", options.jobs, "--orion-run", options.orion_run,
               "--nvcc", options.nvcc, "--arch", options.arch]
    if options.orion_args:
        command += ["--orion-args", " ".join(options.orion_args)]
    return subprocess.run([str(part) for part in command]).returncode


# What differs


def differing(outcomes, mode):
    """Tests that ended in another way than natively. One that failed natively too, otherwise, is the same."""
    native = outcomes.get("native", {})
    if mode == "native" or not native:
        return []
    here = outcomes[mode]
    cut = {path for found in (native, here) for path, (outcome, _) in found.items() if outcome == CUT}

    def is_known(test):
        return test not in cut and (test.split("::")[0] not in cut or (test in native and test in here))

    known = filter(is_known, native.keys() | here.keys())
    return sorted(t for t in known if verdict(native.get(t)) != verdict(here.get(t)))


def verdict(found):
    """`xfail` and `skip` are one to pytest's reports; a failure is a failure whatever it says."""
    return found[0] if found else "not seen"


def report(name, outcomes, modes):
    """Prints the differences of one suite and says how many there are."""
    native = outcomes.get("native", {})
    counts = collections.Counter(verdict(found) for found in native.values())
    print(f"== {name}: natively " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))
    unequal = 0
    for mode in (m for m in modes if m != "native"):
        here = outcomes[mode]
        both = sum(CUT not in (here[t][0], native[t][0]) for t in here.keys() & native.keys())
        print(f"-- over {mode}: {both} tests both ways, {len(differing(outcomes, mode))} differ")
        for test in differing(outcomes, mode):
            here, there = outcomes[mode].get(test), native.get(test)
            again = outcomes.get("native again", {}).get(test)
            varies = again is not None and verdict(again) != verdict(there)
            unequal += not varies
            said = " ".join((here or ("", ""))[1].split())[:200]
            print(f"{'varies' if varies else 'DIFFERS'} {test}: {verdict(here)}, natively {verdict(there)}: {said}")
    return unequal


if __name__ == "__main__":
    main()
