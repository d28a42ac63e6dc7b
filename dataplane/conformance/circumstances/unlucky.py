"""A program in circumstances that nobody chose: uses a vGPU, and says in a file what came of it.

  unlucky.py FILE interrupted   a timer interrupts whatever waits, two thousand times a second, as profilers' do
  unlucky.py FILE closed        standard input, output and error are closed, and printed to all the same
  unlucky.py FILE small         files may have no bytes, and a file that has some ends the program
  unlucky.py FILE debugged      the address space has no randomness, as in a debugger
  unlucky.py FILE threadless    no thread can be made
  unlucky.py FILE crowded       no thread can be made once the GPU is there
  unlucky.py FILE locked        all of its memory is locked, as real-time programs do it, before there is a GPU
  unlucky.py FILE locks         and when there is one"""

import ctypes
import os
import resource
import signal
import struct
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")


def use():
    """Fills memory of the device and reads it back."""
    bytes_ = 1 << 20
    context, place, read = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.create_string_buffer(bytes_)
    codes = [
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(bytes_)),
        cuda.cuMemsetD8_v2(place, ctypes.c_ubyte(7), ctypes.c_size_t(bytes_)),
        cuda.cuMemcpyDtoH_v2(read, place, ctypes.c_size_t(bytes_)),
        cuda.cuMemFree_v2(place),
    ]
    return "right" if not any(codes) and read.raw == b"\7" * bytes_ else f"wrong {codes}"


def without_randomness():
    """This program anew, laid out as gdb lays programs out."""
    c = ctypes.CDLL(None)
    before = c.personality(ctypes.c_ulong(0xFFFFFFFF))
    if before & 0x0040000 == 0:
        c.personality(ctypes.c_ulong(before | 0x0040000))
        os.execv(sys.executable, [sys.executable, *sys.argv])


def no_more_threads():
    """As where a limit of threads is reached, which binds root too: clone and clone3 answer EAGAIN."""
    load_number, is_equal, allow, refuse = 0x20, 0x15, 0x7FFF0000, 0x00050000 | 11
    program = [(load_number, 0, 0, 0), (is_equal, 1, 0, 56), (is_equal, 0, 1, 435), (6, 0, 0, refuse), (6, 0, 0, allow)]
    filter_ = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    described = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(filter_)))
    c = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, by_filter = 38, 22, 2
    if c.prctl(no_new_privileges, 1, 0, 0, 0) or c.prctl(seccomp, by_filter, described, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def lock_memory():
    """All that there is and all that comes has pages of its own and keeps them. What refuses that is an answer, too."""
    current_and_future = 3
    c = ctypes.CDLL(None, use_errno=True)
    if c.mlockall(current_and_future):
        raise OSError(ctypes.get_errno(), "mlockall")


def resident_mib():
    with open("/proc/self/status") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith("VmRSS")) >> 10


def main():
    way = sys.argv[2]
    if way == "debugged":
        without_randomness()
    out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    if way == "interrupted":
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    elif way == "closed":
        for standard in range(3):
            os.close(standard)
    elif way == "threadless":
        no_more_threads()
    elif way == "small":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    elif way == "locked":
        lock_memory()
    code = cuda.cuInit(0)
    said = [f"cuInit {code}"]
    if way == "closed":
        for standard in 1, 2:
            try:
                os.write(standard, b"printed by the program\n" * 100)
            except OSError as e:
                said.append(os.strerror(e.errno))
    if code == 0:
        said.append(use())
        if way == "crowded":
            no_more_threads()
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
            said.append(f"cuLaunchHostFunc {cuda.cuLaunchHostFunc(None, function, None)}")
        if way == "locks":
            lock_memory()
        # What was printed has been heard by then, by whoever hears it.
        time.sleep(0.2)
        said.append(use())
    if way.startswith("lock"):
        said.append("little" if resident_mib() < 256 else f"{resident_mib()} MiB")
    signal.setitimer(signal.ITIMER_REAL, 0)
    if way == "small":
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    os.write(out, ", ".join(said).encode())


main()
