#!/usr/bin/env python3
"""Programs that stay and take turns on one GPU: for comparing builds and settings with little time on a GPU.

    python3 perf/suite/turns.py item native shm=unix:/tmp/o.sock,lib=new old=tcp:127.0.0.1:7413,lib=old
    python3 perf/suite/turns.py llama --rounds 7 --turn-s 0.8 native pinned=tcp:127.0.0.1:7411,lib=new,cores=0-7

Each argument after the workload is a program: NAME, or NAME=SERVER and what is different about it, separated by commas:
lib=FOLDER with Orion's libcuda.so.1, cores=LIST to run on, VARIABLE=VALUE for its environment. The servers run already.
Every program is imported and warmed up before the first turn and has its session until the end. Each round gives each
program one turn, in another order each time; the table has the median turn and the least and the most of them. Ratios
are to the program named first.
"""

import argparse
import ctypes
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "workloads"))


def item():
    import torch

    x = torch.tensor(1.5, device="cuda")
    return x.item, 100, "us", torch.cuda.synchronize


def small_ops():
    import torch

    x = torch.ones(64, device="cuda")
    return lambda: x.add_(1.0), 500, "us", torch.cuda.synchronize


def driver():
    """The driver with the GPU's context current, and a function that ends the program where it answers an error."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()

    def checked(code):
        if code != 0:
            sys.exit(f"the driver answered {code}")

    checked(cuda.cuInit(0))
    checked(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    checked(cuda.cuCtxSetCurrent(context))
    return cuda, checked


def mem_info():
    cuda, checked = driver()
    numbers = ctypes.c_size_t(), ctypes.c_size_t()
    return lambda: checked(cuda.cuMemGetInfo_v2(*map(ctypes.byref, numbers))), 100, "us", lambda: None


def copy(size):
    """A copy of so many bytes from the GPU to pinned memory, and the wait for it."""
    cuda, checked = driver()
    size, host, device = ctypes.c_size_t(size), ctypes.c_void_p(), ctypes.c_uint64()
    checked(cuda.cuMemHostAlloc(ctypes.byref(host), size, 0))
    checked(cuda.cuMemAlloc_v2(ctypes.byref(device), size))
    checked(cuda.cuMemsetD8_v2(device, ctypes.c_ubyte(7), size))

    def step():
        checked(cuda.cuMemcpyDtoHAsync_v2(host, device, size, None))
        checked(cuda.cuStreamSynchronize(None))

    return step, 2 if size.value > 1 << 20 else 50, "us", lambda: None


def llama():
    import torch
    import transformers

    from small_llama import small_llama

    torch.manual_seed(0)
    model = small_llama(transformers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, model.config.vocab_size, (4, 512)).cuda()

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step, 4, "ms", torch.cuda.synchronize


def resnet():
    import torch
    import torchvision

    model, image = torchvision.models.resnet50().eval().cuda(), torch.randn(1, 3, 224, 224, device="cuda")
    inference = torch.inference_mode()
    inference.__enter__()

    def step():
        model(image)
        torch.cuda.synchronize()

    return step, 5, "ms", torch.cuda.synchronize


def jax_train():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    from small_jax import small_jax

    train, state, x = small_jax(jax)

    def step():
        nonlocal state
        state, _ = train(state, x)

    return step, 5, "ms", lambda: jax.block_until_ready(state)


WORKLOADS = {function.__name__: function for function in (item, small_ops, mem_info, llama, resnet, jax_train)}
SIZES = {"8": 8, "4k": 4 << 10, "64k": 64 << 10, "1m": 1 << 20, "64m": 64 << 20}
WORKLOADS |= {f"copy_{name}": functools.partial(copy, size) for name, size in SIZES.items()}


def main():
    if sys.argv[1:2] == ["--take-turns"]:
        return take_turns(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("programs", nargs="+", metavar="NAME[=SERVER[,…]]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn-s", type=float, default=0.4, help="how long a turn lasts")
    options = parser.parse_args()
    programs = {text.split("=")[0]: start(options.workload, text) for text in options.programs}
    try:
        for name, program in programs.items():
            unit = hear(name, program)
        names = list(programs)
        turns = {name: [] for name in names}
        for number in range(options.rounds):
            begin = number % len(names)
            for name in names[begin:] + names[:begin]:
                print(options.turn_s, file=programs[name].stdin, flush=True)
                turns[name].append(json.loads(hear(name, programs[name])))
    finally:
        for program in programs.values():
            program.kill()
    print(table(options.workload, unit, turns))


def start(workload, text):
    _, _, rest = text.partition("=")
    environment, command = dict(os.environ), [sys.executable, __file__, "--take-turns", workload]
    for index, part in enumerate(filter(None, rest.split(","))):
        key, _, value = part.partition("=")
        if index == 0:
            environment["ORION_SERVER"] = part
        elif key == "lib":
            environment["LD_LIBRARY_PATH"] = f"{value}:{environment.get('LD_LIBRARY_PATH', '')}"
        elif key == "cores":
            command = ["taskset", "-c", value, *command]
        else:
            environment[key] = value
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def hear(name, program):
    said = program.stdout.readline()
    if not said:
        sys.exit(f"{name} has ended with {program.wait()}; what it said is above")
    return said.strip()


def take_turns(workload):
    step, window, unit, wait = WORKLOADS[workload]()
    scale = {"us": 1e6, "ms": 1e3}[unit] / window

    def sample():
        started = time.perf_counter()
        for _ in range(window):
            step()
        wait()
        return (time.perf_counter() - started) * scale

    for _ in range(3):
        sample()
    print(unit, flush=True)
    for line in sys.stdin:
        end, samples = time.perf_counter() + float(line), []
        while time.perf_counter() < end:
            samples.append(sample())
        print(statistics.median(samples), flush=True)


def table(workload, unit, turns):
    first = statistics.median(next(iter(turns.values())))
    lines = [f"| {workload}, {unit} | median | range | ratio |", "| --- | --- | --- | --- |"]
    for name, values in turns.items():
        median = statistics.median(values)
        spread = f"{min(values):.3g} to {max(values):.3g}"
        lines.append(f"| {name} | {median:.3g} | {spread} | {first / median:.3g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
