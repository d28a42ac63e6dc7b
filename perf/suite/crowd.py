#!/usr/bin/env python3
"""How many programs at once use one GPU and one machine's cores: natively, over shm and over TCP in turn.

    python3 perf/suite/crowd.py --counts 1,4,12 --seconds 3 --rounds 2 --out crowd.json
    python3 perf/suite/crowd.py --variant native --variant tcp --variant "quiet=tcp,ORION_SPIN_US=0,server:--spin-us=0"

All programs of all variants start once, attach and stay: who has no turn sleeps, as an idle tenant would. For each
workload and count every variant has a turn of some seconds, in another order each round; the first N of its programs
begin together. A variant is native, shm, tcp or tcp-apart (programs on the second half of the cores, server on the
first; native-apart is native on that half), or NAME=KIND and what is different about it: VARIABLE=VALUE for programs
and server, server:OPTION for oriond, bin:FOLDER for another build.

The table has the sum of the programs' steps a second, the slowest program against the mean, p99 of a step, how many
cores the machine kept busy and how many the server's processes did. Ratios are to the variant native of the same
count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from server import find_driver, free_port, own_token

HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")


class Variant:
    def __init__(self, text, options):
        name, _, rest = text.partition("=")
        kind, *parts = rest.split(",") if rest else [name]
        if kind.removesuffix("-apart") not in ("native", "shm", "tcp"):
            sys.exit(f'crowd: "{text}" is no variant: native, shm, tcp, tcp-apart or NAME=KIND,…')
        self.name, self.kind, self.options = name, kind, options
        self.bin, self.extra, self.environment = options.bin, [], dict(os.environ)
        for part in parts:
            if part.startswith("server:"):
                self.extra.append(part.removeprefix("server:"))
            elif part.startswith("bin:"):
                self.bin = Path(part.removeprefix("bin:"))
            else:
                key, _, value = part.partition("=")
                self.environment[key] = value
        cores = sorted(os.sched_getaffinity(0))
        half = len(cores) // 2
        apart = kind.endswith("-apart")
        self.program_cores, self.server_cores = (cores[half:], cores[:half]) if apart else (None, None)
        self.server, self.programs, self.folder = None, [], tempfile.mkdtemp(prefix="orion-crowd-")

    def start(self, count):
        if not self.kind.startswith("native"):
            self.serve()
            path = f"{self.libraries()}:{self.environment.get('LD_LIBRARY_PATH', '')}"
            self.environment |= {"LD_LIBRARY_PATH": path, "ORION_SERVER": self.address}
        command = [self.options.python, str(HERE / "workloads/crowd_member.py"), *self.options.member]
        for index in range(count):
            log = open(f"{self.folder}/{index}.log", "wb")
            self.programs.append(
                subprocess.Popen(
                    [*on(self.program_cores), *command],
                    env=self.environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            )

    def libraries(self):
        """Where install.sh puts them; of cargo's build a folder in which they have their names."""
        installed = (self.bin / "../lib/orion").resolve()
        if (installed / "libcuda.so.1").exists():
            return installed
        named = {"libcuda.so": "libcuda.so.1", "libcupti.so": "libcupti.so.13", "libnvidia_ml.so": "libnvidia-ml.so.1"}
        for built, name in named.items():
            os.symlink((self.bin / built).resolve(strict=True), f"{self.folder}/{name}")
        return self.folder

    def serve(self):
        command = [self.bin / "oriond", "serve", "--driver", self.options.driver or find_driver(), "--warm", "2"]
        if self.kind.startswith("tcp"):
            self.address = f"tcp:127.0.0.1:{free_port()}"
            command += ["--socket", "none", "--listen", self.address.removeprefix("tcp:"), "--token-file", own_token()]
            self.environment["ORION_TOKEN_FILE"] = os.environ["ORION_TOKEN_FILE"]
        else:
            self.address = f"unix:{self.folder}/oriond.sock"
            command += ["--socket", self.address.removeprefix("unix:"), "--listen", "none"]
        log = open(f"{self.folder}/oriond.log", "wb")
        command = [*on(self.server_cores), *map(str, command), *self.extra]
        self.server = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        time.sleep(1)
        if self.server.poll() is not None:
            sys.exit(f"crowd: oriond of {self.name} has ended: {Path(log.name).read_text()[-2000:]}")

    def tell(self, index, line):
        try:
            self.programs[index].stdin.write(line + "\n")
            self.programs[index].stdin.flush()
        except BrokenPipeError:
            pass

    def hear(self, index):
        said = self.programs[index].stdout.readline()
        if not said:
            log = Path(f"{self.folder}/{index}.log").read_text(errors="replace")[-1500:]
            raise Ended(f"program {index} of {self.name} has ended with {self.programs[index].wait()}: {log}")
        return json.loads(said)

    def all(self, line, count):
        for index in range(count):
            self.tell(index, line)
        return [self.hear(index) for index in range(count)]

    def server_cpu_s(self):
        if self.server is None:
            return 0.0
        children = [self.server.pid, *children_of(self.server.pid)]
        return sum(cpu_s(pid) for pid in children)

    def stop(self):
        for process in [*self.programs, *filter(None, [self.server])]:
            process.kill()
            process.wait()


class Ended(Exception):
    pass


def on(cores):
    return ["taskset", "-c", ",".join(map(str, cores))] if cores else []


def children_of(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            mine = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in mine:
            found += [child, *children_of(child)]
    return found


def cpu_s(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def machine_busy_s():
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK


def turn(variant, workload, count, seconds):
    variant.all("say", count)
    start = time.monotonic() + 0.3
    for index in range(count):
        variant.tell(index, f"{workload} {seconds} {start}")
    time.sleep(max(0.0, start + 0.05 - time.monotonic()))
    began, busy, server = time.monotonic(), machine_busy_s(), variant.server_cpu_s()
    time.sleep(max(0.0, start + seconds - 0.05 - time.monotonic()))
    lasted = time.monotonic() - began
    busy, server = machine_busy_s() - busy, variant.server_cpu_s() - server
    answers = [variant.hear(index) for index in range(count)]
    rates = [a["steps"] / a["seconds"] for a in answers]
    return {
        "rate": sum(rates),
        "slowest": min(rates) / statistics.mean(rates),
        "p50": statistics.median(a["p50"] for a in answers),
        "p99": statistics.median(a["p99"] for a in answers),
        "cores": busy / lasted,
        "server_cores": server / lasted,
    }


def table(results):
    lines = [
        "| workload | N | variant | steps/s | / native | slowest / mean | p50 ms | p99 ms | p99 / native | cores "
        "| server |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    by = {}
    for r in results:
        by.setdefault((r["workload"], r["count"]), {}).setdefault(r["variant"], []).append(r)
    for (workload, count), variants in by.items():
        middle = lambda name, key: statistics.median(r[key] for r in variants[name])  # noqa: E731
        for name in variants:
            own = "native-apart" if name.endswith("-apart") and "native-apart" in variants else "native"
            rate, p99 = middle(name, "rate"), middle(name, "p99")
            ratio = f"{rate / middle(own, 'rate'):.2f}" if own in variants else ""
            tail = f"{p99 / middle(own, 'p99'):.2f}" if own in variants else ""
            numbers = [f"{middle(name, key):.2f}" for key in ("slowest", "p50", "p99")]
            cores = [f"{middle(name, key):.1f}" for key in ("cores", "server_cores")]
            row = [workload, str(count), name, f"{rate:.0f}", ratio, *numbers, tail, *cores]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=HERE.parent.parent / "target/release", help="folder with oriond")
    parser.add_argument("--variant", action="append", default=[], metavar="KIND|NAME=KIND,…")
    parser.add_argument("--counts", default="1,4,12")
    parser.add_argument("--workloads", default="eager,mnist,resnet,training")
    parser.add_argument("--training-max", type=int, default=4, help="programs that train at once, for the GPU's memory")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget-s", type=float, default=540.0, help="no further turn begins after so many seconds")
    parser.add_argument("--driver", help="oriond's driver, if not the one of this machine")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--member", nargs="*", default=[], help="further arguments of the programs")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    counts = [int(n) for n in options.counts.split(",")]
    variants = [Variant(text, options) for text in options.variant or ["native", "shm", "tcp"]]
    results = []
    try:
        for variant in variants:
            variant.start(max(counts))
        for variant in variants:
            variant.all("say", max(counts))
        attached_s = time.monotonic() - began
        print(f"{len(variants)} variants of {max(counts)} programs attached after {attached_s:.0f} s", flush=True)
        for workload in options.workloads.split(","):
            wanted = [n for n in counts if workload != "training" or n <= options.training_max]
            for variant in variants:
                variant.all(f"prepare {workload}", max(wanted, default=0))
            for count in wanted:
                for number in range(options.rounds):
                    order = variants[number % len(variants) :] + variants[: number % len(variants)]
                    for variant in order:
                        if time.monotonic() - began > options.budget_s:
                            raise Ended("the time is over")
                        result = turn(variant, workload, count, options.seconds)
                        results.append({"workload": workload, "count": count, "variant": variant.name, **result})
    except Ended as why:
        print(f"crowd: {why}", file=sys.stderr)
    finally:
        for variant in variants:
            variant.stop()
    print(table(results))
    if options.out:
        options.out.write_text(json.dumps({"cores": os.cpu_count(), "results": results}, indent=1))
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
