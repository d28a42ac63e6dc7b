#!/usr/bin/env python3
"""Builds NVIDIA's CUDA samples from a checkout, runs each natively and through Orion over shm and tcp, and prints one
table of whether they say the same.

    git clone https://github.com/NVIDIA/cuda-samples
    python3 perf/suite/samples.py --samples cuda-samples --jobs 8 --out samples.json

Left out are samples that need more than CUDA (OpenGL, Vulkan, MPI, NPP and the like) or compile their kernels with
NVRTC from sources that lie elsewhere, and those that nvcc cannot build here. What a sample prints is compared line by
line in any order, numbers aside: most are times and rates.
A sample that fails natively has to fail alike. Exits 1 when a row differs. See README.md beside this file.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import run

BUILD = run.BUILD / "samples"
FOREIGN = re.compile(r"GL|D3D|[vV]ulkan|Tegra|NPP|nvJPEG|NvSci|MPI|freeImage|nvrtc|DLA")
LIBRARIES = ("cublas", "cufft", "cusolver", "cusparse", "curand", "cudadevrt")
SOURCES = (".cu", ".cpp", ".c")
#: Whoever runs many programs at once waits for a worker, and is told so.
WAITING = re.compile(r"orion: \S+ took the connection and has said nothing for")
#: Of a kernel in a file of its own, which the sample loads.
LOADED = ("-fatbin", "64.fatbin"), ("-ptx", "64.ptx")


def main():
    options = parse_options()
    folders = find(options)
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        built = dict(pool.map(lambda folder: build(folder, options), folders))
    names = sorted(name for name, failure in built.items() if not failure)
    for name, failure in sorted(built.items()):
        if failure:
            print(f"not built: {name}: {failure}", file=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        rows = dict(zip(names, pool.map(lambda name: run_all(name, options), names)))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))
    print(table(rows, options.modes))
    same = sum(row["verdict"] == "yes" for row in rows.values())
    print(f"{same} of {len(rows)} samples the same over {', '.join(options.modes)}; "
          f"{len(built) - len(rows)} not built; {time.monotonic() - started:.0f} s")
    sys.exit(0 if same == len(rows) else 1)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=Path, required=True, metavar="DIR", help="a checkout of NVIDIA/cuda-samples")
    parser.add_argument("--jobs", type=int, default=1, help="samples at once")
    run.add_common_options(parser)
    options = parser.parse_args()
    if not (options.samples / "Samples").is_dir():
        parser.error(f"{options.samples} has no folder Samples: clone https://github.com/NVIDIA/cuda-samples there")
    if options.list:
        print("\n".join(folder.name for folder in find(options)))
        sys.exit(0)
    if not (found := shutil.which(options.nvcc)):
        parser.error(f"{options.nvcc} is not there: say --nvcc PATH")
    options.nvcc = os.path.abspath(found)
    return run.finish_options(parser, options)


def find(options):
    """Folders of the samples asked for."""
    only, skip = (set(filter(None, names.split(","))) for names in (options.only, options.skip))
    folders = {path.parent.name: path.parent for path in options.samples.resolve().glob("Samples/*/*/CMakeLists.txt")}
    if unknown := (only | skip) - set(folders):
        sys.exit(f"unknown samples {', '.join(sorted(unknown))}; --list names them")
    wanted = only or {name for name in folders if not FOREIGN.search(name)}
    return [folders[name] for name in sorted(wanted - skip)]


# Building


def build(folder, options):
    """Name, and what the compiler said if there is no program."""
    name, out = folder.name, BUILD / folder.name
    if options.no_build:
        return name, "" if (out / name).exists() else "--no-build, and it was not built before"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for data in (folder / "data", *folder.glob("*.mtx")):
        if data.exists():
            (shutil.copytree if data.is_dir() else shutil.copy)(data, out / data.name)
    failures = [nvcc(folder, options, *command) for command in commands(folder, out, options)]
    if any(failures):
        shutil.rmtree(out)
    return name, next(filter(None, failures), "")


def commands(folder, out, options):
    """Arguments of nvcc: for kernels in files of their own, then for the program."""
    asked = (folder / "CMakeLists.txt").read_text()
    sources = [path for path in sorted(folder.iterdir()) if path.suffix in SOURCES and path.name in asked]
    if "CUDA::cuda_driver" in asked or "-fatbin" in asked:
        kernels = [path for path in sources if path.suffix == ".cu" and any(s.suffix != ".cu" for s in sources)]
        sources = [path for path in sources if path not in kernels]
        for kernel in kernels:
            for kind, ending in LOADED:
                yield [kind, "-o", out / (kernel.stem.removesuffix("64") + ending), kernel]
    common = options.samples.resolve() / "Common"
    helpers = {"multithreading.h": "multithreading.cpp", "helper_multiprocess.h": "helper_multiprocess.cpp"}
    read = [path for path in folder.iterdir() if path.suffix in (*SOURCES, ".h", ".cuh")]
    text = "".join(path.read_text(errors="replace") for path in read)
    present = {path.name for path in sources}
    sources += [common / source for header, source in helpers.items() if header in text and source not in present]
    libraries = [f"-l{name}" for name in LIBRARIES if re.search(name, asked)]
    separate = ["-rdc=true"] if "SEPARABLE" in asked or "-lcudadevrt" in libraries else []
    yield ["-o", out / folder.name, *separate, *sources, *libraries, "-Xcompiler", "-fopenmp", "-lcuda", "-ldl"]


def nvcc(folder, options, *arguments):
    roots = [folder, folder / "inc", options.samples.resolve() / "Common"]
    includes = [f"-I{root}" for root in roots]
    libraries = Path(options.nvcc).resolve().parent.parent / "lib"
    # nvcc from PyPI keeps its libraries there, and has no libcuda to link with, as toolkits do; Orion has one.
    places = [f"-L{libraries}", f"-L{libraries}/stubs", f"-L{options.orion_run.parent}"]
    command = [options.nvcc, "-std=c++17", "-O2", f"-arch={options.arch}", *includes, *places, *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=folder)
    said = (done.stdout + done.stderr).splitlines()
    errors = [line for line in said if re.search("error|cannot find|undefined", line)]
    return (errors or ["nvcc failed"])[0][:160] if done.returncode else ""


# Running


def run_all(name, options):
    row = {mode: run_one(name, mode, options) for mode in options.modes}
    native = row.get("native")
    differing = {mode: difference(native, row[mode]) for mode in options.modes if native and mode != "native"}
    row["notes"] = [f"{mode}: {what}" for mode, what in differing.items() if what]
    row["verdict"] = "NO" if row["notes"] else "yes" if native else "no native run"
    return row


def run_one(name, mode, options):
    command = [*run.orion_prefix(mode, options), f"./{name}"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [str(part) for part in command], cwd=BUILD / name, capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=options.timeout,
        )
        said, rc = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        said, rc = (late.stdout or b"").decode(errors="replace"), f"no end after {options.timeout:g} s"
    return {"rc": rc, "wall_s": round(time.monotonic() - began, 2), "said": said}


def difference(native, other):
    """The first line that only one of them has, or nothing."""
    if native["rc"] != other["rc"]:
        last = [line for line in other["said"].splitlines() if line.strip() and not WAITING.search(line)][-1:]
        return f"ended with {other['rc']}, not {native['rc']}: {''.join(last)[:120]}"
    ours, theirs = (collections.Counter(lines(result["said"])) for result in (native, other))
    missing, more = ours - theirs, theirs - ours
    line = next(iter(more), None) or next(iter(missing), None)
    return line and f"{'also' if more else 'without'} \"{line[:120]}\""


def lines(said):
    """What a sample printed, without numbers and spaces, and without what Orion says of a machine that is busy."""
    for line in said.splitlines():
        if WAITING.search(line):
            continue
        line = re.sub(r"0x[0-9a-fA-F]+|\d[\d.,]*([eE][-+]?\d+)?|-?\b(nan|inf)\b", "#", line)
        line = re.sub(r"[\s#+-]+", " ", line).strip()
        if line:
            yield line


def table(rows, modes):
    cells = [["sample", *modes, "same?"]]
    for name, row in rows.items():
        times = [f"{row[mode]['wall_s']:.1f} s" if row[mode]["rc"] == 0 else str(row[mode]["rc"]) for mode in modes]
        cells.append([name, *times, "; ".join([row["verdict"], *row["notes"]])])
    widths = [max(len(line[column]) for line in cells) for column in range(len(modes) + 1)]
    cells.insert(1, ["-" * width for width in widths] + ["-----"])
    text = [" | ".join([*(c.ljust(w) for c, w in zip(line, widths)), line[-1]]) for line in cells]
    return "\n".join(f"| {line} |" for line in text)


if __name__ == "__main__":
    main()
