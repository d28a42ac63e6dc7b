"""What a workload has to say, as one JSON object on its last line of output.

A check is a result that native and Orion must agree on. `exact` values must be the same; `close` values
carry the tolerance they are compared with. Times and sizes that may differ go into `extra`.
A section that raises is named in `errors` and the process exits 1, so that a workload which is broken
in the same way natively and through Orion is never taken for an equal one.

Where SUITE_RECORD is set, the file that it names appears when the first figure begins; see ../why.py.

Where SUITE_GATE is set, `gate` waits for this program's turn on the GPU; see ../gate.py. Before it belong imports and
what the CPU can prepare, and nothing that touches CUDA.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib
import itertools
import json
import os
import statistics
import sys
import threading
import time
import traceback
import warnings

#: How long speed.py lets one figure take, once it has WINDOWS_MIN samples.
SPEED_S = 0.6
WINDOWS_MIN = 5

#: While somebody records where the time goes, the first figure takes this long.
RECORD_S = 6

GATE = os.environ.get("SUITE_GATE")
RECORD = os.environ.get("SUITE_RECORD")
CPUS = sorted(os.sched_getaffinity(0))
if GATE and len(CPUS) >= 8:
    # Whoever prepares keeps to the last quarter of the cores, away from the program that measures. Libraries that count
    # cores while they are loaded shall not notice.
    os.environ.setdefault("OMP_NUM_THREADS", str(len(CPUS)))
    os.sched_setaffinity(0, CPUS[-(len(CPUS) // 4) :])


class Report:
    def __init__(self, workload):
        self.workload = workload
        self.scale = "correct"
        self.args = []
        for arg in sys.argv[1:]:
            if arg in ("--quick", "--speed"):
                self.scale = arg[2:]
            else:
                self.args.append(arg)
        self.checks, self.extras, self.errors = {}, {}, {}
        self.steady_ms = None
        self.waited_s = 0.0

    def gate(self):
        """Waits for this program's turn, if there are turns: from here on it has the GPU to itself."""
        if not GATE:
            return
        arrived = time.perf_counter()
        with open(GATE, "rb") as gate:
            gate.read()
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), CPUS)
        self.waited_s += time.perf_counter() - arrived

    def begin(self):
        """What is to be recorded, if anything is, begins now."""
        if RECORD:
            open(RECORD, "w").close()

    def rounds(self, count):
        """Rounds of what is timed: so many, or while it is recorded as many as fit into RECORD_S."""
        self.begin()
        began = time.perf_counter()
        for number in itertools.count():
            if time.perf_counter() - began > RECORD_S if RECORD else number >= count:
                return
            yield number

    def count(self, correct, speed=None, quick=None):
        """How often to repeat something at the scale asked for."""
        if self.scale == "speed":
            return speed or correct
        if self.scale == "quick":
            return quick or max(2, correct // 2)
        return correct

    def exact(self, name, value):
        self.checks[name] = {"v": plain(value), "tol": 0}

    def close(self, name, value, rtol=1e-3, atol=0.0):
        self.checks[name] = {"v": plain(value, digests=False), "rtol": rtol, "atol": atol}

    def extra(self, **values):
        self.extras.update(values)

    @contextlib.contextmanager
    def section(self, name):
        """Runs one part of a workload; what it raises is recorded and the other parts still run."""
        started, waited_s = time.perf_counter(), self.waited_s
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.errors[name] = f"{type(error).__name__}: {error}"[:500]
        took_s = time.perf_counter() - started - (self.waited_s - waited_s)
        self.extras.setdefault("section_s", {})[name] = round(took_s, 3)

    def time(self, step, steps, sync, warmup=2, window=1):
        """Median ms of a step. With a window above 1 the host runs ahead for that many steps, as training does.

        At the scale of speed.py `steps` is the most; the median is sound long before, and time on a GPU is scarce.
        """
        for _ in range(warmup):
            step()
        sync()
        samples, trips, began = [], [], time.perf_counter()
        for _ in self.rounds(max(1, steps // window)):
            enough = len(samples) >= WINDOWS_MIN and time.perf_counter() - began > SPEED_S
            if enough and self.scale == "speed" and not RECORD:
                break
            before = round_trips()
            started = time.perf_counter()
            for _ in range(window):
                step()
            # The wait at the end of a window is this function's own.
            trips.append(round_trips() - before)
            sync()
            samples.append((time.perf_counter() - started) * 1e3 / window)
        # Of what is timed first, which is what `steady_ms` is about; and as there, what happens once does not count.
        self.extras.setdefault("round_trips_per_step", statistics.median(trips) / window)
        return statistics.median(samples)

    def finish_if_speed(self):
        """What follows is not timed, or not judged, so speed.py has no use for it."""
        if self.scale == "speed":
            self.finish()

    def finish(self):
        sys.stderr.flush()
        result = {
            "workload": self.workload,
            "checks": self.checks,
            "steady_ms": self.steady_ms,
            "extra": self.extras,
        }
        if self.errors:
            result["errors"] = self.errors
        print(json.dumps(result), flush=True)
        if GATE:
            # The next program's turn comes when this one is gone. Python takes half a second to leave PyTorch behind.
            os._exit(1 if self.errors else 0)
        sys.exit(1 if self.errors else 0)


def at_once(work, count):
    """Runs `work(0)` to `work(count - 1)`, each in a thread of its own, and returns what they raised."""
    failures = []

    def guarded(index):
        try:
            work(index)
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def skip(workload, why):
    print(json.dumps({"workload": workload, "skipped": why, "checks": {}, "steady_ms": None, "extra": {}}))
    sys.exit(0)


def require(workload, *modules):
    """Imports what a workload needs, or ends it as skipped: not every machine has every framework."""
    try:
        found = [importlib.import_module(module) for module in modules]
    except ImportError as error:
        skip(workload, str(error))
    return found[0] if len(found) == 1 else found


def process_s():
    """How long this process has existed."""
    with open("/proc/self/stat") as stat:
        started = int(stat.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def round_trips():
    """How many calls of this process Orion has waited for so far; 0 natively. To be asked once CUDA is in use."""
    count = round_trip_counter()
    return count() if count else 0


@functools.cache
def round_trip_counter():
    try:
        # By this name it is the one in use, whoever loaded it.
        counter = ctypes.CDLL("libcuda.so.1").orion_round_trips
    except (OSError, AttributeError):
        return None
    counter.restype = ctypes.c_uint64
    return counter


def deterministic_torch(seed=0):
    """PyTorch with every choice fixed that it lets us fix; the rest only warns, natively too."""
    import torch
    import torch.utils.deterministic

    warnings.filterwarnings("ignore", message=".*deterministic.*")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling every torch.empty with NaN is for debugging and would add kernels to every step.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)
    return torch


def digest(tensor):
    """Hex digest of shape, type and bytes of a torch, numpy, CuPy or JAX array."""
    if hasattr(tensor, "detach"):
        import torch

        tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        label = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        data = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        data = data.reshape(-1).view(torch.uint8).numpy().tobytes()
    else:
        import numpy

        array = numpy.ascontiguousarray(tensor.get() if hasattr(tensor, "get") else numpy.asarray(tensor))
        label, data = f"{array.shape} {array.dtype}", array.tobytes()
    return hashlib.sha256(label.encode() + data).hexdigest()[:16]


def digest_all(tensors):
    return hashlib.sha256("".join(digest(tensor) for tensor in tensors).encode()).hexdigest()[:16]


def plain(value, digests=True):
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, digests) for item in value]
    if digests:
        return digest(value)
    values = value.tolist()
    return [float(item) for item in values] if isinstance(values, list) else float(values)
