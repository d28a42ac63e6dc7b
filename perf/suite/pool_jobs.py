#!/usr/bin/env python3
"""Jobs of a pool side by side on one GPU, and what is left of jobs that are killed.

    cargo build --release
    python3 perf/suite/pool_jobs.py --gmem 4096,8192 --kills 100 --out pool.json
    python3 perf/suite/pool_jobs.py --driver soft --kills 10        without a GPU
    python3 perf/suite/pool_jobs.py --gmem "" --kills 0 --across 16384          a program with vGPUs on two GPUs

Starts a controller, an oriond and an agent. A job for each limit runs at the same time: each has to see its own size
in CUDA and in nvidia-smi, and to be refused memory at its own limit; orion-smi has to show all. Then jobs are killed
with SIGKILL at random times of their lives, a few at once; measured is how long it takes until no worker of theirs is
left, the GPU's memory is what it was, and the vGPUs are back in the pool. Exits 1 if anything was wrong or took longer
than five seconds.

With --across MIB a pool that spreads vGPUs gives a program two of them, which lie on two GPUs; what the suite's
programs for two GPUs say there has to be what they say natively.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crowd import children_of
from run import ENVIRONMENT, agree
from server import find_driver

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
LEFT_S_MAX = 5.0
# By so much the memory of one warm worker differs from the next one's, on an H200: killed jobs use up those of before.
# A job takes more than a hundred times as much.
WORKERS_DIFFER_MIB = 4


class Pool:
    def __init__(self, options, placement="pack"):
        self.options, self.folder = options, Path(tempfile.mkdtemp(prefix="orion-pool-"))
        self.placement = placement
        self.environment = dict(os.environ, HOME=str(self.folder))
        self.processes = []

    def start(self):
        settings = self.folder / "controller.yaml"
        controller = f"controller:\n  listen_port: 0\n  placement: {self.placement}\n"
        settings.write_text(f"{controller}database:\n  data-dir: {self.folder}/store\n")
        self.run("controller", ["orion-controller", "start", "--config-file", settings])
        self.controller = self.said("controller", r"listening on (\S+)")
        driver = self.options.driver or find_driver()
        serve = ["oriond", "serve", "--driver", driver, "--warm", "2", "--pool", self.folder / "pool"]
        self.oriond = self.run("oriond", [*serve, "--socket", "none", "--listen", "127.0.0.1:0"])
        address = self.said("oriond", r"tcp:127\.0\.0\.1:\d+")
        agent = ["orion-agent", "--controller", self.controller, "--pool", self.folder / "pool", "--vgpu-count", "16"]
        self.run("agent", [*agent, "--address", address])
        self.environment["ORION_CONTROLLER"] = self.controller
        until("the pool has a GPU", 60, lambda: self.free() is not None)
        self.all = self.free()

    def run(self, name, command):
        log = open(self.folder / f"{name}.log", "wb")
        program = [self.options.bin / command[0], *command[1:]]
        process = subprocess.Popen(list(map(str, program)), env=self.environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def said(self, name, pattern):
        path = self.folder / f"{name}.log"
        until(f"{name} says {pattern}", 60, lambda: re.search(pattern, path.read_text(errors="replace")))
        found = re.search(pattern, path.read_text(errors="replace"))
        return found.group(1) if found.groups() else found.group()

    def smi(self, *arguments):
        command = [str(self.options.bin / "orion-smi"), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout

    def free(self):
        """vGPUs that nobody has."""
        found = re.search(r"(\d+)/(\d+)", self.smi("--pool"))
        return int(found.group(1)) if found else None

    def job(self, gmem, log, smi):
        environment = dict(self.environment, ORION_GMEM=str(gmem), ORION_WAIT="60", POOL_JOB_SMI=smi)
        command = [str(self.options.bin / "orion-run"), "--", self.options.python, str(HERE / "workloads/pool_job.py")]
        command += ["--torch"] if self.options.driver != "soft" else []
        out, said = open(log, "wb"), open(f"{log}.err", "wb")
        return subprocess.Popen(command, env=environment, stdout=out, stderr=said, start_new_session=True)

    def workers(self):
        return len(children_of(self.oriond.pid))

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def until(what, seconds, holds):
    started = time.monotonic()
    while not holds():
        if time.monotonic() - started > seconds:
            sys.exit(f"pool_jobs: waited {seconds} s in vain until {what}")
        time.sleep(0.02)
    return time.monotonic() - started


def used_mib(options):
    if options.driver == "soft":
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(int(line) for line in subprocess.run(query, capture_output=True, text=True).stdout.split())


def kill(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def side_by_side(pool, options):
    limits = [int(text) for text in options.gmem.split(",")]
    logs = [str(pool.folder / f"job{gmem}") for gmem in limits]
    jobs = [pool.job(gmem, log, options.nvidia_smi) for gmem, log in zip(limits, logs)]
    wrong = ["nvidia-smi was not asked"] if options.nvidia_smi == "true" and options.driver != "soft" else []
    try:
        for job, log in zip(jobs, logs):
            until(f"{log} works", 120, lambda: Path(log).read_text() or job.poll() is not None)
        for gmem, log in zip(limits, logs):
            text = Path(log).read_text()
            if not text:
                sys.exit(f"pool_jobs: the job of {gmem} MiB has ended: {Path(log + '.err').read_text()[-1500:]}")
            said = json.loads(text)
            print(f"job of {gmem} MiB: {said}")
            for name in ("total", "free", "device"):
                if said[name] != gmem * MIB:
                    wrong.append(f"the job of {gmem} MiB sees {name} {said[name] / MIB} MiB")
            # PyTorch's own blocks are of 2 and 20 MiB.
            if not gmem - 128 <= said["taken"] / MIB <= gmem or said["refusal"] != "OutOfMemoryError":
                wrong.append(f"the job of {gmem} MiB got {said['taken'] / MIB} MiB, then {said['refusal']}")
            if options.nvidia_smi != "true" and said["smi"].split(",")[0] != str(gmem):
                wrong.append(f"in the job of {gmem} MiB nvidia-smi says {said['smi']}")
        time.sleep(2.5)
        shown = pool.smi()
        print(shown)
        wrong += [f"orion-smi does not show {gmem}MiB" for gmem in limits if f"/{gmem}MiB" not in shown]
    finally:
        for job in jobs:
            kill(job)
    until("all vGPUs are free", 10, lambda: pool.free() == pool.all)
    return wrong


def across(options):
    """What differs from native in programs with two vGPUs, each on a GPU of its own."""
    pool, wrong = Pool(options, "spread"), []
    try:
        pool.start()
        alone = {**os.environ, **ENVIRONMENT}
        asked = {**pool.environment, **ENVIRONMENT, "ORION_VGPU": "2", "ORION_GMEM": str(options.across)}
        in_the_pool = [str(options.bin / "orion-run"), "--", options.python]
        for arguments in ([], ["nccl"]):
            name = " ".join(["several_gpus", *arguments])
            program = [str(HERE / "workloads/several_gpus.py"), *arguments]
            native = report_of([options.python, *program], alone)
            shared = report_of([*in_the_pool, *program], asked, pool)
            wrong += [f"{name}: {why}" for why in differences(native, shared)]
            print(f"{name}: {len(native.get('checks', []))} checks; orion-smi meanwhile: {shared.get('smi')}")
    finally:
        pool.stop()
    return wrong


def report_of(command, environment, pool=None):
    """What a program says in its last line, and what orion-smi shows of its vGPUs while it runs."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        program = subprocess.Popen(command, env=environment, stdout=out, stderr=errors)
        shown = []
        while program.poll() is None:
            time.sleep(0.2)
            if pool:
                shown.append(re.findall(r"\d+/\d+", pool.smi("--pool")))
        out.seek(0)
        errors.seek(0)
        lines = out.read().splitlines()
        try:
            said = json.loads(lines[-1])
        except (IndexError, ValueError):
            return {"failed": f"ended with {program.returncode}: {errors.read()[-1500:]}"}
    if pool:
        # With the fewest vGPUs that were free of each GPU.
        said["smi"] = min(shown, default=None)
    return said


def differences(native, shared):
    for side, said in (("natively", native), ("in the pool", shared)):
        if "failed" in said or "skipped" in said:
            return [f"{side} {said.get('failed') or said.get('skipped')}"]
    ours, theirs = native["checks"], shared["checks"]
    return [
        f"{name} is {theirs.get(name)} in the pool and {ours.get(name)} natively"
        for name in {**ours, **theirs}
        if not agree(ours.get(name), theirs.get(name))
    ]


def settled(pool, options):
    """What the GPUs' memory and the workers are when both have been the same for five seconds: a worker that is being
    made ready takes memory later."""
    seen, since = None, time.monotonic()
    while time.monotonic() - since < 5:
        now = used_mib(options), pool.workers()
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.2)
    return seen


def killed(pool, options):
    """How long until nothing is left, per round of some jobs."""
    until("the warm workers are there", 60, lambda: pool.workers() >= 2)
    base, warm = settled(pool, options)
    took, number = [], 0
    chance = random.Random(1)
    while number < options.kills:
        count = min(options.at_once, options.kills - number)
        jobs = [pool.job(2048, str(pool.folder / f"kill{number + i}"), "true") for i in range(count)]
        logs = [pool.folder / f"kill{number + i}" for i in range(count)]
        for job, log in zip(jobs, logs):
            until(f"{log} works", 120, lambda: log.read_text() or job.poll() is not None)
            if job.poll() is not None:
                sys.exit(f"pool_jobs: {log.name} has ended: {Path(f'{log}.err').read_text()[-1500:]}")
        time.sleep(chance.random())
        for job in jobs:
            kill(job)
        killed_at, left = time.monotonic(), {}
        while len(left) < 3 and time.monotonic() - killed_at < 20:
            now = time.monotonic() - killed_at
            if "workers" not in left and pool.workers() <= warm:
                left["workers"] = now
            if "memory" not in left and used_mib(options) <= base + WORKERS_DIFFER_MIB * warm:
                left["memory"] = now
            if "vgpus" not in left and pool.free() == pool.all:
                left["vgpus"] = now
            time.sleep(0.02)
        took.append({name: left.get(name) for name in ("workers", "memory", "vgpus")})
        if len(left) < 3:
            now = f"{used_mib(options)} MiB, {pool.workers()} workers, {pool.free()} free vGPUs"
            print(f"after {number + count} kills: {now}; before: {base} MiB, {warm} workers, {pool.all} free vGPUs")
        number += count
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=HERE.parent.parent / "target/release", help="folder with oriond")
    parser.add_argument("--gmem", default="4096,8192", help="MiB of the jobs that run side by side")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=5, help="jobs that run when they are killed")
    parser.add_argument("--across", type=int, metavar="MIB", help="a program with vGPUs of so much memory on two GPUs")
    parser.add_argument("--driver", help="oriond's driver, if not the one of this machine")
    parser.add_argument("--nvidia-smi", default="nvidia-smi", help="what the jobs ask; true asks nothing")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    pool, wrong, took = Pool(options), [], []
    try:
        pool.start()
        if options.gmem:
            wrong += side_by_side(pool, options)
        if options.kills:
            took = killed(pool, options)
    finally:
        pool.stop()
    if options.across:
        wrong += across(options)
    for name in ("workers", "memory", "vgpus") if took else ():
        times = sorted(t[name] if t[name] is not None else 99.0 for t in took)
        print(f"{options.kills} kills, {name}: median {times[len(times) // 2]:.2f} s, most {times[-1]:.2f} s")
        if times[-1] > LEFT_S_MAX:
            wrong.append(f"{name} were not back within {LEFT_S_MAX:.0f} s")
    for line in wrong:
        print(f"WRONG: {line}")
    if options.out:
        options.out.write_text(json.dumps({"wrong": wrong, "kills": took}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
