#!/usr/bin/env python3
"""What each function of the driver answers when it is given nothing, or little: natively and through Orion.

    python3 perf/suite/refusals.py                               # native, shm and tcp
    python3 perf/suite/refusals.py --modes native --only Stream  # the driver's own answers, of some functions
    python3 perf/suite/refusals.py --save gpu.json               # and keeps the first mode's answers
    python3 perf/suite/refusals.py --against gpu.json            # compares with those instead of a first mode
    python3 perf/suite/refusals.py --against gpu.json --known known.txt    # but for what is known to differ

Every function of dataplane/api/rows is called in four ways: with zeros alone, with room where it takes a pointer, with
real objects, and with those and ones for numbers; with a current context, without one, and with a stream that is being
captured. `later 1` is an error that the next synchronization told. Exits 1 if a mode differs from the first one. Needs
no PyTorch.
"""

import argparse
import ctypes
import json
import mmap
import os
import re
import selectors
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import run

ROWS = run.REPOSITORY / "dataplane/api/rows"
ROOM = 64 << 10
CALL_S = 4
WAYS = (
    ("a context", "zeros"),
    ("a context", "room"),
    ("a context", "objects"),
    ("a context", "ones"),
    ("no context", "zeros"),
    ("no context", "objects"),
    ("no context", "ones"),
    ("a captured stream", "objects"),
    ("a captured stream", "ones"),
)
#: They end what the others need, or the process, or are about another process.
LEFT_OUT = re.compile(
    "cuCtxDestroy|cuCtxDetach|cuDevicePrimaryCtx(Reset|Release)|cuCheckpoint|cuCoredump|cuGetExportTable|cuIpc|cuLogs"
    "|cuDeviceSetGraphMemAttribute|cuCtxSetLimit|cuModuleLoadFatBinary|cuMemExport|cuMemImport|cuMemPoolImport"
)
PTX = b""".version 7.0
.target sm_75
.address_size 64
.global .u32 variable;
.visible .entry nothing() { ret; }
"""
#: Kept alive: the driver may keep what it was given.
KEPT = []


def functions():
    """Each function's name and the types of its parameters."""
    text = " ".join(path.read_text() for path in sorted(ROWS.glob("*.rs")))
    text = re.sub(r"//[^\n]*", "", text).replace("\n", " ")
    found = {}
    for name, parameters in re.findall(r"fn (cu\w+)\(([^;]*?)\)(?: -> \w+)?;", text):
        types = [one.split(":", 1)[1].strip() for one in parameters.split(",") if ":" in one]
        if not LEFT_OUT.match(name):
            found[name] = types
    return dict(sorted(found.items()))


class Lab:
    """A context, and whatever of each kind a function is to be called with, made anew for each call."""

    def __init__(self):
        self.cu = ctypes.CDLL("libcuda.so.1")
        self.context = c_void_p()
        self.must(self.cu.cuInit(0))
        self.must(self.cu.cuDevicePrimaryCtxRetain(byref(self.context), 0))
        self.must(self.cu.cuCtxSetCurrent(self.context))

    def must(self, code):
        if code:
            raise RuntimeError(f"the driver answered {code}")

    def made(self, function, kind=c_void_p, *arguments):
        it = kind()
        self.must(getattr(self.cu, function)(byref(it), *arguments))
        return it.value or 0

    def object(self, kind):
        cu, made = self.cu, self.made
        match kind:
            case "CUstream":
                return made("cuStreamCreate", c_void_p, 1)
            case "CUevent":
                return made("cuEventCreate", c_void_p, 0)
            case "CUcontext":
                return self.context.value
            case "CUdeviceptr":
                return made("cuMemAlloc_v2", c_uint64, c_size_t(ROOM))
            case "CUmodule":
                return made("cuModuleLoadData", c_void_p, PTX)
            case "CUfunction":
                return made("cuModuleGetFunction", c_void_p, c_void_p(self.object("CUmodule")), b"nothing")
            case "CUlibrary":
                return made("cuLibraryLoadData", c_void_p, PTX, None, None, 0, None, None, 0)
            case "CUkernel":
                return made("cuLibraryGetKernel", c_void_p, c_void_p(self.object("CUlibrary")), b"nothing")
            case "CUgraph":
                return made("cuGraphCreate", c_void_p, 0)
            case "CUgraphNode":
                return made("cuGraphAddEmptyNode", c_void_p, c_void_p(self.object("CUgraph")), None, c_size_t(0))
            case "CUgraphExec":
                return made("cuGraphInstantiateWithFlags", c_void_p, c_void_p(self.object("CUgraph")), c_uint64(0))
            case "CUarray":
                shape = (c_size_t * 3)(64, 64, 0)
                ctypes.cast(byref(shape, 16), ctypes.POINTER(c_uint))[0] = 0x20
                ctypes.cast(byref(shape, 20), ctypes.POINTER(c_uint))[0] = 1
                return made("cuArrayCreate_v2", c_void_p, byref(shape))
            case "CUmemoryPool":
                return made("cuDeviceGetDefaultMemPool", c_void_p, 0)
            case _:
                return 0

    def argument(self, kind, how, captured):
        if kind.startswith(("*", "Out<", "In<")):
            if how == "zeros":
                return c_void_p()
            room = mmap.mmap(-1, ROOM)
            KEPT.append(room)
            return c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(room)))
        if kind in ("CUipcMemHandle", "CUipcEventHandle"):
            return (ctypes.c_char * 64)()
        if kind == "f32":
            return ctypes.c_float(1.0 if how == "ones" else 0.0)
        if kind in ("u8", "u16", "u32", "i32", "u64", "usize"):
            return c_uint64(how == "ones")
        if how in ("objects", "ones"):
            if kind == "CUstream" and captured:
                return captured[0]
            if kind == "CUevent" and captured:
                return captured[1]
            return c_void_p(self.object(kind))
        return c_void_p()

    def capture(self):
        stream, event = (c_void_p(self.object(kind)) for kind in ("CUstream", "CUevent"))
        function = c_void_p(self.object("CUfunction"))
        return stream, event, function

    def answer(self, name, types, situation, how):
        """What the function answered, and what came of it."""
        cu = self.cu
        captured = self.capture() if situation == "a captured stream" else None
        arguments = [self.argument(kind, how, captured) for kind in types]
        self.must(cu.cuCtxSynchronize())
        if captured:
            self.must(cu.cuStreamBeginCapture_v2(captured[0], 0))
            one = c_uint(1)
            self.must(cu.cuLaunchKernel(captured[2], one, one, one, one, one, one, 0, captured[0], None, None))
            self.must(cu.cuEventRecord(captured[1], captured[0]))
        if situation == "no context":
            self.must(cu.cuCtxSetCurrent(None))
        code = getattr(cu, name)(*arguments)
        self.must(cu.cuCtxSetCurrent(self.context))
        said = str(code)
        if captured:
            said += f", captured until {cu.cuStreamEndCapture(captured[0], byref(c_void_p()))}"
        later = cu.cuCtxSynchronize()
        return said + (f", later {later}" if later else ""), later != 0 and cu.cuCtxSynchronize() != 0


def ask(only, begin):
    """A line before each call and one after it, from the `begin`th call on."""
    lab = Lab()
    calls = [(*one, *way) for one in functions().items() if only in one[0] for way in WAYS]
    for i, (name, types, situation, how) in enumerate(calls[begin:], begin):
        if situation == "a captured stream" and "CUstream" not in types and "CUevent" not in types:
            continue
        print(f"{i}\t{name}\t{situation}, {how}", flush=True)
        if not hasattr(lab.cu, name):
            print("\tmissing", flush=True)
            continue
        try:
            said, is_broken = lab.answer(name, types, situation, how)
        except RuntimeError as error:
            said, is_broken = f"then {error}", True
        print(f"\t{said}", flush=True)
        if is_broken:
            os._exit(3)
    print("end", flush=True)
    os._exit(0)


def answers(mode, options):
    """By function and situation. A child that dies or hangs is followed by another, which goes on behind."""
    lib = {**os.environ, "LD_LIBRARY_PATH": str(options.native_lib)} if options.native_lib else None
    command = [sys.executable, __file__, "--only", options.only, "--ask"]
    if mode != "native":
        command = [options.orion_run, *shlex.split(options.orion_args), "--transport", mode, "--", *command]
    told, begin = {}, 0
    while True:
        child = subprocess.Popen(
            [*command, str(begin)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=lib if mode == "native" else None,
        )
        asked, ended = None, False
        selector = selectors.DefaultSelector()
        selector.register(child.stdout, selectors.EVENT_READ)
        rest = b""
        while True:
            hangs = not selector.select(CALL_S if asked else 60)
            some = b"" if hangs else os.read(child.stdout.fileno(), 1 << 16)
            *lines, rest = (rest + some).decode().split("\n")
            rest = rest.encode()
            for line in lines:
                if line == "end":
                    ended = True
                elif line.startswith("\t"):
                    told[asked], asked = line[1:], None
                elif line.count("\t") == 2:
                    number, asked = line.split("\t", 1)
                    asked, begin = asked.replace("\t", " | "), int(number) + 1
            if hangs or not some:
                break
        child.kill()
        code = child.wait()
        if ended:
            return told
        if asked:
            told[asked] = "hangs" if hangs else f"ends the program ({'signal' if code < 0 or code > 128 else code})"
        elif begin == 0:
            sys.exit(f"refusals: {mode}: the program ended with {code} before the first call")


def keep(told, path):
    """A line for each function: its answers in the order of `WAYS`."""
    by_function = {}
    for row, said in told.items():
        function, way = row.split(" | ")
        by_function.setdefault(function, [None] * len(WAYS))[WAYS.index(tuple(way.split(", ")))] = said
    lines = (f"{json.dumps(function)}: {json.dumps(said)}" for function, said in sorted(by_function.items()))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def row_of(function, way):
    return f"{function} | {', '.join(way)}"


def kept(path):
    told = {}
    for function, answers in json.loads(path.read_text()).items():
        told |= {row_of(function, way): said for way, said in zip(WAYS, answers) if said is not None}
    return told


def known_of(path):
    """A line for each function, with the numbers of the ways in which its answers are known to differ."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {row_of(function, WAYS[int(number)]) for function, numbers in lines for number in numbers}


def list_known(rows, path):
    by_function = {}
    for row in rows:
        function, way = row.split(" | ")
        by_function.setdefault(function, []).append(str(WAYS.index(tuple(way.split(", ")))))
    path.write_text("".join(f"{function} {''.join(sorted(ways))}\n" for function, ways in sorted(by_function.items())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(run.MODES), help="comma-separated, of native, shm, tcp")
    parser.add_argument("--only", default="", help="only functions with this in their name")
    parser.add_argument("--save", type=Path, metavar="FILE", help="where to keep the first mode's answers")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compares with answers that were kept")
    parser.add_argument("--known", type=Path, metavar="FILE", help="what is known to differ")
    parser.add_argument("--list", type=Path, metavar="FILE", help="where to write what does")
    parser.add_argument("--native-lib", type=Path, metavar="DIR", help="where the native mode's libcuda.so.1 is")
    parser.add_argument("--orion-run", default=run.REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--orion-args", default="", help='more options for orion-run, e.g. "--software-gpu"')
    parser.add_argument("--ask", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask is not None:
        return ask(options.only, options.ask)
    modes = options.modes.split(",")
    with ThreadPoolExecutor(len(modes)) as pool:
        told = dict(zip(modes, pool.map(lambda mode: answers(mode, options), modes)))
    if options.save:
        keep(next(iter(told.values())), options.save)
    if options.against:
        told = {"kept": {row: said for row, said in kept(options.against).items() if options.only in row}, **told}
    (first_name, first), *others = told.items()
    # Of what ends the program there is nothing to compare.
    first = {row: said for row, said in first.items() if not said.startswith(("ends", "hangs", "then"))}
    is_known = known_of(options.known) if options.known else set()
    found = set()
    for row, said in first.items():
        also = [f"{mode}: {of.get(row)}" for mode, of in others if of.get(row) != said]
        if also:
            found.add(row)
        if also and row not in is_known:
            print(" | ".join([row, f"{first_name}: {said}", *also]))
    for row in sorted(is_known & set(first) - found):
        print(f"{row} | no longer differs")
    if options.list:
        list_known(found, options.list)
    different = len(found - is_known)
    print(f"{len(first)} answers, {different} differ, and {len(found & is_known)} that are known to")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
