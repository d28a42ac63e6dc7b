"""What NVML says of the first device, as often as it is asked by a line on standard input.

The answer is one line: bytes in all, bytes used, and pid:bytes of each process, by pid. The library is asked without
pynvml, so this needs nothing but Python."""

import ctypes
import sys

nvml = ctypes.CDLL("libnvidia-ml.so.1")


def call(name, *arguments):
    code = getattr(nvml, name)(*arguments)
    assert code == 0, f"{name} answers {code}"


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


def look(device):
    memory = (ctypes.c_ulonglong * 3)()
    call("nvmlDeviceGetMemoryInfo", device, memory)
    total, free, used = memory
    assert total == free + used, list(memory)
    count, processes = ctypes.c_uint(64), (Process * 64)()
    call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), processes)
    found = sorted((p.pid, p.used) for p in processes[: count.value])
    return " ".join([str(total), str(used), *(f"{pid}:{used}" for pid, used in found)])


def main():
    call("nvmlInit_v2")
    device = ctypes.c_void_p()
    call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(device))
    for _ in sys.stdin:
        print(look(device), flush=True)


main()
