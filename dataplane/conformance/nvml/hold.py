"""A program that holds device memory as it is told to, line by line.

  alloc BYTES...   allocates each
  free             gives all of it back
  churn COUNT      allocates and frees so many times, a MiB at a time and at most eight
  work SECONDS     has the device work all the time, for so long
  busy SECONDS     likewise, and answers what NVML says to it of the device's utilization
  look             has look.py look, from within this program, and answers what that does
Each other line is answered by one: bytes that cuMemGetInfo says are used, and bytes that cuDeviceTotalMem says there
are."""

import ctypes
import pathlib
import subprocess
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")

# Takes about a millisecond of the software GPU.
SPIN = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin()
{
    .reg .pred %more;
    .reg .u32 %left;
    mov.u32 %left, 5000;
TURN:
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra TURN;
    ret;
}
"""


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, f"{name} answers {code}"


def alloc(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def used():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    of_device = ctypes.c_size_t()
    call("cuDeviceTotalMem_v2", ctypes.byref(of_device), 0)
    assert of_device.value == total.value
    return f"{total.value - free.value} {total.value}"


def churn(count):
    held = []
    for i in range(count):
        held.append(alloc(1 << 20))
        if len(held) == 8:
            while held:
                call("cuMemFree_v2", held.pop())
    while held:
        call("cuMemFree_v2", held.pop())


def work(seconds):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), SPIN)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # So many that the device seldom waits for this program, however busy the machine is.
        for _ in range(200):
            call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        call("cuCtxSynchronize")


def utilization():
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, rates = ctypes.c_void_p(), (ctypes.c_uint * 2)()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    assert nvml.nvmlDeviceGetUtilizationRates(device, rates) == 0
    return rates[0]


def main():
    call("cuInit", 0)
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    held = []
    print(used(), flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "alloc":
            held += [alloc(int(n)) for n in numbers]
        elif word == "free":
            while held:
                call("cuMemFree_v2", held.pop())
        elif word == "work":
            work(float(numbers[0]))
        elif word == "busy":
            work(float(numbers[0]))
            print(utilization(), flush=True)
            continue
        elif word == "look":
            script = pathlib.Path(__file__).with_name("look.py")
            subprocess.run([sys.executable, script], input=b"\n", check=True)
            continue
        else:
            churn(int(numbers[0]))
        print(used(), flush=True)


main()
