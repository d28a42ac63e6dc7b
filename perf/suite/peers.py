#!/usr/bin/env python3
"""Runs other people's tests natively and through Orion, several at a time, and prints only what differs.

    git clone --branch v14.2.0 https://github.com/cupy/cupy; git clone https://github.com/jax-ml/jax
    python3 perf/suite/peers.py --jobs 8 --cupy cupy/tests/cupy_tests --jax jax/tests --out peers.json
    python3 perf/suite/peers.py --jobs 8 --samples cuda-samples --ggml ggml/build/bin/test-backend-ops

The paths are yours: nothing is downloaded. CuPy's and JAX's tests are run by pytest, one process a file; `--only a,b`
takes files whose path has one of these in it. NVIDIA's samples are built and compared as by samples.py. ggml's program
is asked for each backend operation. A test that differs runs once more natively, by itself; one that does not agree
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
from pathlib import Path

import run

PLUGIN = '''
import json, os
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
'''
#: What a process was doing when it died; it is started again behind that.
DEATHS_MAX = 5
#: The outcome of a file that --budget-s had no time for, or not to its end: what ran both ways is compared.
CUT = "cut short"


def main():
    options = parse_options()
    began = time.monotonic()
    options.deadline = began + options.budget_s if options.budget_s else None
    suites = {name: suite for name, suite in (("cupy", options.cupy), ("jax", options.jax)) if suite}
    results = {}
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        (Path(scratch) / "orion_peers_plugin.py").write_text(PLUGIN)
        for name, suite in suites.items():
            results[name] = run_pytest(name, suite.resolve(), options, Path(scratch))
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
    parser.add_argument("--samples", type=Path, metavar="DIR", help="a checkout of NVIDIA/cuda-samples")
    parser.add_argument("--ggml", type=Path, metavar="PROGRAM", help="ggml's test-backend-ops, built for CUDA")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--pytest-args", default="", metavar="ARGS", help="more for pytest, such as -k memory")
    run.add_common_options(parser)
    options = parser.parse_args()
    asked = [options.cupy, options.jax, options.samples, options.ggml]
    if not any(asked):
        parser.error("nothing to run: name a path with --cupy, --jax, --samples or --ggml")
    for path in filter(None, asked):
        if not path.exists():
            parser.error(f"{path} is not there")
    return run.finish_options(parser, options)


# pytest


def run_pytest(name, folder, options, scratch):
    """By mode, each test's outcome and the first words of its failure."""
    files = find(folder, options)
    if not files:
        sys.exit(f"no test file of {folder} has {options.only} in its path")
    todo = [(mode, path) for path in files for mode in options.modes]
    outcomes = {mode: {} for mode in options.modes}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = pool.map(lambda file: run_file(*file, folder, options, scratch), todo)
        for (mode, _), found in zip(todo, runs):
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


def run_file(mode, path, folder, options, scratch):
    if is_over(options):
        root = folder if folder.is_dir() else folder.parent
        return {str(path.relative_to(root)): (CUT, "it was not begun")}
    return run_tests([str(path)], mode, folder, options, scratch)


def is_over(options):
    """Whether --budget-s is."""
    return bool(options.deadline) and time.monotonic() > options.deadline


def run_tests(tests, mode, folder, options, scratch):
    """Starts again behind a test that took the process with it."""
    root = folder if folder.is_dir() else folder.parent
    found, dead = {}, []
    for _ in range(DEATHS_MAX):
        with tempfile.NamedTemporaryFile(dir=scratch, suffix=".jsonl") as log:
            rc = pytest(tests, dead, mode, root, options, scratch, log.name)
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
            if not lines:
                found[tests[0]] = ("not collected", f"pytest ended with {rc}")
            return found
        found[last] = ("died", f"the process ended with {rc}")
        dead.append(last)
    return found


def pytest(tests, dead, mode, root, options, scratch, log):
    command = [*run.orion_prefix(mode, options), options.python, "-m", "pytest", "-q", "-rN",
               "-p", "no:cacheprovider", "-p", "orion_peers_plugin", f"--rootdir={root}", *options.pytest_args.split()]
    command += [part for test in dead for part in ("--deselect", test)] + tests
    caches = run.caches(scratch / "cache" / mode, "full")
    path = f"{scratch}:{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | caches | {"PEERS_OUTCOMES": log, "PYTHONPATH": path}
    # Several at once share a GPU, and JAX would take three quarters of it each.
    environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONDONTWRITEBYTECODE": "1", "ORION_QUIET": "1"}
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
            varies = again is not None and verdict(again) == verdict(here)
            unequal += not varies
            said = " ".join((here or ("", ""))[1].split())[:200]
            print(f"{'varies' if varies else 'DIFFERS'} {test}: {verdict(here)}, natively {verdict(there)}: {said}")
    return unequal


if __name__ == "__main__":
    main()
