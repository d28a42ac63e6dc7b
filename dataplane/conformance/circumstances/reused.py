"""A program that closes all descriptors, as daemons do, and has their numbers for its own: says what became of its
files, its sockets and those of a child that it forks, and whether its calls came back."""

import ctypes
import os
import signal
import socket
import sys
import tempfile

NUMBERS = range(3, 200)
cuda = ctypes.CDLL("libcuda.so.1")


def use():
    """The codes of some calls."""
    bytes_ = 4 << 20
    place, read = ctypes.c_uint64(), ctypes.create_string_buffer(bytes_)
    return [
        cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(bytes_)),
        cuda.cuMemsetD8_v2(place, ctypes.c_ubyte(7), ctypes.c_size_t(bytes_)),
        cuda.cuMemcpyDtoH_v2(read, place, ctypes.c_size_t(bytes_)),
        cuda.cuMemcpyHtoD_v2(place, read, ctypes.c_size_t(bytes_)),
        cuda.cuMemFree_v2(place),
        cuda.cuCtxSynchronize(),
    ]


def main():
    context = ctypes.c_void_p()
    codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)]
    if any(codes + use()):
        sys.exit(f"before: {codes} {use()}")
    os.closerange(NUMBERS.start, 1024)
    folder = tempfile.mkdtemp()
    # A file and a socket in turn, whichever had the number before; what lies in the other end is asked later.
    pairs, files, far = {}, {}, 300
    for number in NUMBERS:
        if number % 2:
            files[number] = os.open(f"{folder}/{number}", os.O_RDWR | os.O_CREAT)
            if files[number] != number:
                sys.exit(f"{number} was not free")
        else:
            near, other = socket.socketpair()
            os.dup2(other.fileno(), far + number)
            pairs[number] = far + number
            if near.fileno() != number:
                os.dup2(near.fileno(), number)
                near.close()
            else:
                near.detach()
            other.close()
    signal.alarm(60)
    after = [use(), use()]
    child = os.fork()
    if child == 0:
        is_open = True
        for number in NUMBERS:
            try:
                os.fstat(number)
            except OSError:
                is_open = False
        os._exit(0 if is_open else 1)
    _, status = os.waitpid(child, 0)
    written = [number for number in files if os.fstat(number).st_size]
    heard = []
    for number, other in pairs.items():
        end = socket.socket(fileno=other)
        end.setblocking(False)
        try:
            end.recv(1)
            heard.append(number)
        except BlockingIOError:
            pass
        end.detach()
    for number in files:
        os.unlink(f"{folder}/{number}")
    os.rmdir(folder)
    kept = "kept" if status == 0 else "lost"
    came = "with errors" if all(any(codes) for codes in after) else f"{after}"
    print(f"files {written}, sockets {heard}, the child's {kept}, calls came back {came}")


main()
