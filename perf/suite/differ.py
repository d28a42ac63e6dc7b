#!/usr/bin/env python3
"""Programs nobody would write, natively and through Orion: where do the two differ?

    python3 perf/suite/differ.py --seeds 100                          # native, shm and tcp
    python3 perf/suite/differ.py --seeds 20 --modes native,tcp --steps 2000
    python3 perf/suite/differ.py --seeds 20 --wide                    # textures, graphs of all nodes, two devices, ...
    python3 perf/suite/differ.py --seeds 7-7 --show                   # one program's whole trace

Each seed is a program: calls of the driver in random order by three threads in turn, with arguments that are right,
nearly right or wrong. It prints what each call answered and what came of it, by names and not by addresses, so that the
traces of two runs are the same where the drivers are. Exits 1 where a mode's trace differs from the first mode's; the
first call that does is printed with those before it. Needs no PyTorch.
"""

import argparse
import difflib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import run
from differ_program import Program
from differ_wider import Wider


def trace(mode, seed, options):
    command = run.orion_prefix(mode, options) + [sys.executable, __file__, "--child", "--seeds", str(seed)]
    command += ["--steps", str(options.steps), *["--known"] * options.known, *["--wide"] * options.wide]
    environment = dict(os.environ)
    if mode == "native" and options.native_lib:
        environment["LD_LIBRARY_PATH"] = str(options.native_lib)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    ended = "" if done.returncode == 0 else f"\nended with {done.returncode}: {done.stderr.strip()[-300:]}"
    return (done.stdout + ended).splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(run.MODES), help="comma-separated, of native, shm, tcp")
    parser.add_argument("--seeds", default="20", metavar="N or A-B", help="how many programs, or which; 20 unless told")
    parser.add_argument("--steps", default=400, type=int, help="calls of a program, more or less; 400 unless told")
    parser.add_argument("--known", action="store_true", help="only what the software GPU is known to do as a GPU does")
    parser.add_argument("--wide", action="store_true", help="of more functions: see differ_wider.py")
    parser.add_argument("--show", action="store_true", help="print whole traces")
    parser.add_argument("--native-lib", type=Path, metavar="DIR", help="where the native mode's libcuda.so.1 is")
    parser.add_argument("--orion-run", default=run.REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--orion-args", default="", help='more options for orion-run, e.g. "--software-gpu"')
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        (Wider if options.wide else Program)(int(options.seeds), options.steps, options.known).run()
    options.orion_args = shlex.split(options.orion_args)
    first, last = ([*map(int, options.seeds.split("-"))] if "-" in options.seeds else [1, int(options.seeds)])
    modes, calls, differ = options.modes.split(","), 0, 0
    for seed in range(first, last + 1):
        traces = {mode: trace(mode, seed, options) for mode in modes}
        expected = traces[modes[0]]
        calls += len(expected)
        if options.show:
            print(*expected, sep="\n")
        for mode in modes[1:]:
            if traces[mode] == expected:
                continue
            differ += 1
            pairs = enumerate(zip(expected + [""], traces[mode] + [""]))
            at = next((i for i, (a, b) in pairs if a != b), min(len(expected), len(traces[mode])))
            print(f"seed {seed}: {mode} differs from {modes[0]} at line {at + 1}")
            print(*(f"    {line}" for line in expected[max(0, at - 6) : at]), sep="\n")
            print(*difflib.ndiff(expected[at : at + 2], traces[mode][at : at + 2]), sep="\n")
    print(f"{last - first + 1} programs, {calls} calls, {differ} traces differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
