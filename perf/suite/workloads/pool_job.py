"""A job of a pool: says what it sees of its GPU, takes memory until there is none, and then works until it is ended.

A line of JSON: `total` and `free` in bytes at the start, `device` as CUDA has its size, `taken` until the first
refusal, the refusal's name, what nvidia-smi says in this program (`smi`), and, once the memory is given back,
`working`.
"""

import ctypes
import json
import os
import subprocess
import sys

MIB = 1 << 20


def with_torch():
    import torch

    free, total = torch.cuda.mem_get_info()
    said = {"total": total, "free": free, "device": torch.cuda.get_device_properties(0).total_memory}
    held = []
    try:
        while True:
            held.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda").fill_(1))
            torch.cuda.synchronize()
    except torch.OutOfMemoryError as refusal:
        said |= {"taken": len(held) * 64 * MIB, "refusal": type(refusal).__name__}
    said["smi"] = smi()
    held.clear()
    torch.cuda.empty_cache()
    x = torch.randn(1024, 1024, device="cuda")
    return said, lambda: (x @ x).sum().item()


def with_driver():
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()

    def ok(code):
        if code != 0:
            sys.exit(f"pool_job: the driver answered {code}")

    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    free, total, device = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
    ok(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    ok(cuda.cuDeviceTotalMem_v2(ctypes.byref(device), 0))
    said = {"total": total.value, "free": free.value, "device": device.value}
    held, address = [], ctypes.c_uint64()
    while (code := cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 * MIB))) == 0:
        held.append(address.value)
    said |= {"taken": len(held) * 64 * MIB, "refusal": {2: "OutOfMemoryError"}.get(code, str(code)), "smi": smi()}
    for address in held:
        ok(cuda.cuMemFree_v2(ctypes.c_uint64(address)))
    return said, lambda: ok(cuda.cuCtxSynchronize())


def smi():
    command = os.environ.get("POOL_JOB_SMI", "nvidia-smi")
    query = ["--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run([command, *query], capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError as e:
        return str(e)


said, step = with_torch() if "--torch" in sys.argv else with_driver()
step()
print(json.dumps(said | {"working": True}), flush=True)
while True:
    step()
