#!/usr/bin/env python3
"""What nvidia-smi, pynvml and PyTorch's NVML users say natively and through Orion, under different limits.

    cargo build --release
    python3 perf/suite/nvml.py --limits 8GiB,4GiB --out nvml.json
    python3 perf/suite/nvml.py --driver soft --nvidia-smi .nvml-tools/nvidia-smi     without a GPU: Orion's side alone

A program that holds memory (dataplane/conformance/nvml/hold.py) runs natively and then, under each limit, through an
oriond of its own; beside it the tools are asked. Printed is what differs between the native answers and Orion's, and
whether used and total bytes agree between cuMemGetInfo, NVML and nvidia-smi. Differences are to be expected where
API_COVERAGE.md says so (temperatures, serial numbers). Exits 1 when bytes disagree or a tool fails through Orion.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "dataplane/conformance/nvml"
HOLD_BYTES = (1, 513, 1_000_000, 700_000_001)

PYNVML = """
import json, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
answers = {}
for name in sorted(dir(n)):
    if not re.match("nvmlDeviceGet", name) or "Handle" in name: continue
    try:
        answers[name] = str(getattr(n, name)(h))
    except n.NVMLError as e:
        answers[name] = type(e).__name__
    except TypeError:
        pass
answers["nvmlDeviceGetCount"] = n.nvmlDeviceGetCount()
print(json.dumps(answers))
"""
TORCH = """
import json, os, torch
answers = {"device_count": torch.cuda.device_count(), "is_available": torch.cuda.is_available()}
x = torch.ones(1 << 24, device="cuda"); (x @ x).item()
for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used"):
    try:
        answers[name] = getattr(torch.cuda, name)()
    except Exception as e:
        answers[name] = type(e).__name__
answers["list_gpu_processes"] = torch.cuda.list_gpu_processes().splitlines()[1:]
print(json.dumps(answers))
"""
SMI = {
    "table": [],
    "list": ["-L"],
    "query": [
        "--query-gpu=index,name,memory.total,memory.used,memory.free,utilization.gpu,driver_version,compute_cap",
        "--format=csv,noheader,nounits",
    ],
    "apps": ["--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"],
    "pmon": ["pmon", "-c", "1"],
    "matrix": ["topo", "-m"],
    "all": ["-q"],
}


def main():
    options = parse_options()
    results = {}
    if options.driver != "soft":
        results["native"] = ask(options, dict(os.environ))
    for limit in options.limits.split(","):
        with server(options, limit) as environment:
            results[limit] = ask(options, environment)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    wrong = 0
    for name, result in results.items():
        wrong += check(name, result) if name != "native" else 0
        if name != "native" and "native" in results:
            compare(name, results["native"], result)
    sys.exit(1 if wrong else 0)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", default="8GiB,4GiB", help="of device memory, one oriond each")
    parser.add_argument("--driver", default="auto", help="as of oriond serve; soft: no native side")
    parser.add_argument("--build", type=Path, default=ROOT / "target/release")
    parser.add_argument("--nvidia-smi", default="nvidia-smi")
    parser.add_argument("--python", default=sys.executable, help="with pynvml, and PyTorch if that is to be asked")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


@contextlib.contextmanager
def server(options, limit):
    """An oriond of this limit; yields the environment of a program that uses it."""
    with tempfile.TemporaryDirectory(prefix="orion-nvml-") as folder:
        socket, build = Path(folder) / "oriond.sock", options.build.resolve()
        command = [build / "oriond", "serve", "--socket", socket, "--listen", "none", "--memory-limit", limit]
        command += [] if options.driver == "auto" else ["--driver", options.driver]
        log = open(Path(folder) / "log", "w+")
        process = subprocess.Popen(command, stderr=log)
        try:
            until = time.monotonic() + 30
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"oriond does not listen: {Path(log.name).read_text()}")
                time.sleep(0.02)
            libraries = f"{build}/libnvidia_ml.so:{build}/libcuda.so"
            yield dict(os.environ, ORION_SERVER=f"unix:{socket}", LD_PRELOAD=libraries)
        finally:
            process.terminate()
            process.wait()


def ask(options, environment):
    """Everything, beside a program that holds memory."""
    hold = [options.python, PROGRAMS / "hold.py"]
    program = subprocess.Popen(hold, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        empty = numbers(program.stdout.readline())
        program.stdin.write(f"alloc {' '.join(map(str, HOLD_BYTES))}\n")
        program.stdin.flush()
        held = numbers(program.stdout.readline())
        answers = {"pid": program.pid, "empty": empty, "program": held}
        answers["nvml"] = run([options.python, PROGRAMS / "look.py"], environment, "\n")
        answers["smi"] = {name: run([options.nvidia_smi, *words], environment) for name, words in SMI.items()}
        answers["pynvml"] = as_json(run([options.python, "-c", "import re\n" + PYNVML], environment))
        with_nvml = dict(environment, PYTORCH_NVML_BASED_CUDA_CHECK="1")
        answers["torch"] = as_json(run([options.python, "-c", TORCH], with_nvml))
        return answers
    finally:
        program.kill()
        program.wait()


def numbers(line):
    return [int(word) for word in line.split()] or [0, 0]


def run(command, environment, text=""):
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, timeout=120)
    return {"status": done.returncode, "out": done.stdout, "err": done.stderr[-2000:]}


def as_json(result):
    return json.loads(result["out"]) if result["status"] == 0 else {"failed": result["err"].strip()[-300:]}


def check(name, result):
    """Whether all say the same bytes; how many do not."""
    used, total = result["program"]
    words = (result["nvml"]["out"].split() or ["0", "0"]) + [""]
    row = [cell.strip() for cell in result["smi"]["query"]["out"].split(",")]
    facts = {
        "NVML's total": (int(words[0]), total),
        "NVML's used": (int(words[1]), used),
        "its process": (words[2], f"{result['pid']}:{used}"),
        "nvidia-smi's total MiB": (row[2] if len(row) > 2 else "", str(total >> 20)),
        "nvidia-smi tells the process": (str(result["pid"]) in result["smi"]["table"]["out"], True),
    }
    facts.update({f"nvidia-smi {which}": (one["status"], 0) for which, one in result["smi"].items()})
    wrong = {what: pair for what, pair in facts.items() if pair[0] != pair[1]}
    print(f"== {name}: cuMemGetInfo says {used} of {total} bytes; {len(facts) - len(wrong)} of {len(facts)} agree")
    for what, (is_so, should) in wrong.items():
        print(f"   {what}: {is_so!r}, and should be {should!r}")
    return len(wrong)


def compare(name, native, ours):
    for part in ("pynvml", "torch"):
        for what in sorted(native[part].keys() | ours[part].keys()):
            one, other = native[part].get(what), ours[part].get(what)
            if one != other:
                print(f"   {part} {what}: natively {short(one)}, {name} {short(other)}")
    for which, one in native["smi"].items():
        lines = [set(map(str.strip, side["out"].splitlines())) for side in (one, ours["smi"][which])]
        for mark, only in (("natively", lines[0] - lines[1]), (name, lines[1] - lines[0])):
            for line in sorted(only) if which != "all" else []:
                print(f"   nvidia-smi {which}, {mark} alone: {short(line)}")
    known = re.compile(r": (?!N/A)")
    lost = [x.strip() for x in native["smi"]["all"]["out"].splitlines() if known.search(x)]
    kept = {x.strip().split(":")[0] for x in ours["smi"]["all"]["out"].splitlines() if known.search(x)}
    names = [line.split(":")[0] for line in lost]
    print(f"   nvidia-smi -q does not tell: {', '.join(name.strip() for name in names if name not in kept)}")


def short(value):
    text = str(value)
    return text if len(text) < 160 else text[:157] + "..."


if __name__ == "__main__":
    main()
