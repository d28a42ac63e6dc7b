"""One program of `shares.py`: gives a GPU work of some kind and says afterwards when the GPU did it.

The kernels write the GPU's own clock (%globaltimer) when they begin and when they end; kinds that launch other things
are put between two small kernels that do. It says `ready` on standard output, waits for a line on standard input,
works, and ends with one line of JSON; the stamps, pairs of 64-bit numbers, go to a file.
"""

import argparse
import array
import ctypes
import json
import sys
import time

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 stamps, .param .u32 turns)
{
    .reg .pred %first, %more, %never;
    .reg .u32 %block, %thread, %which, %left, %x;
    .reg .u64 %to, %begin, %end;
    ld.param.u64 %to, [stamps];
    ld.param.u32 %left, [turns];
    cvta.to.global.u64 %to, %to;
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    or.b32 %which, %block, %thread;
    setp.eq.u32 %first, %which, 0;
    mov.u32 %x, %thread;
    mov.u64 %begin, %globaltimer;
    setp.eq.u32 %more, %left, 0;
    @%more bra DONE;
TURN:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra TURN;
DONE:
    setp.eq.u32 %never, %x, 77777777;
    @%never st.global.u32 [%to], %x;
    mov.u64 %end, %globaltimer;
    @%first st.global.u64 [%to], %begin;
    @%first st.global.u64 [%to+8], %end;
    ret;
}
\0"""
SLOTS = 1 << 20
MEMSET_BYTES = 256 << 20


class Driver:
    def __init__(self, soft):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self("cuCtxSetCurrent", self.context)
        count = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(count), 16, device)
        self.grid, self.block = (1, 1) if soft else (count.value * 2, 128)
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), PTX)
        self("cuModuleGetFunction", ctypes.byref(self.function), module, b"work")
        self.stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.slots = SLOTS if not soft else 1 << 16
        self.stamps = self.memory(self.slots * 16)
        self("cuMemsetD8_v2", self.stamps, 0, ctypes.c_size_t(self.slots * 16))
        self.slot = 0
        self.to, self.turns = ctypes.c_uint64(), ctypes.c_uint32()
        pointers = [ctypes.cast(ctypes.byref(self.to), ctypes.c_void_p)]
        pointers.append(ctypes.cast(ctypes.byref(self.turns), ctypes.c_void_p))
        self.parameters = (ctypes.c_void_p * 2)(*pointers)
        self.launch = self.cuda.cuLaunchKernel

    def __call__(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise SystemExit(f"{name} answered {code}")

    def memory(self, count):
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        return address

    def work(self, turns, *, name="cuLaunchKernel", small=False):
        """One kernel; its stamps go to the next slot."""
        self.to.value = self.stamps.value + 16 * (self.slot % self.slots)
        self.turns.value = turns
        self.slot += 1
        grid, block = (1, 1) if small else (self.grid, self.block)
        extra = (None,) if name == "cuLaunchKernel" else ()
        function = getattr(self.cuda, name)
        code = function(self.function, grid, 1, 1, block, 1, 1, 0, self.stream, self.parameters, *extra)
        if code != 0:
            raise SystemExit(f"{name} answered {code}")

    def wait(self):
        self("cuStreamSynchronize", self.stream)

    def event(self):
        event = ctypes.c_void_p()
        self("cuEventCreate", ctypes.byref(event), 2)
        return event

    def read_stamps(self):
        used = min(self.slot, self.slots)
        buffer = (ctypes.c_uint64 * (2 * used))()
        self("cuMemcpyDtoH_v2", buffer, self.stamps, ctypes.c_size_t(16 * used))
        return array.array("Q", buffer)


class InFlight:
    """Keeps two batches of launches on the GPU."""

    def __init__(self, driver, batch):
        self.driver, self.batch, self.count = driver, batch, 0
        self.events = [driver.event(), driver.event()]

    def launched(self):
        self.count += 1
        if self.count % self.batch == 0:
            event = self.events[self.count // self.batch % 2]
            if self.count > 2 * self.batch:
                self.driver("cuEventSynchronize", event)
            self.driver("cuEventRecord", event, self.driver.stream)


def steady(driver, options, until, note):
    flight = InFlight(driver, max(1, int(4000 / options.kernel_us)))
    turns = int(options.kernel_us * options.turns_per_us)
    while time.monotonic() < until:
        driver.work(turns)
        flight.launched()
        note()


def cooperative(driver, options, until, note):
    flight = InFlight(driver, max(1, int(4000 / options.kernel_us)))
    turns = int(options.kernel_us * options.turns_per_us)
    while time.monotonic() < until:
        driver.work(turns, name="cuLaunchCooperativeKernel")
        flight.launched()
        note()


def waiting(driver, options, until, note):
    turns = int(options.kernel_us * options.turns_per_us)
    while time.monotonic() < until:
        driver.work(turns)
        driver.wait()
        note()


def bursty(driver, options, until, note):
    """Works for so long, sleeps for so long. Says how long the first kernel of each burst took to come back."""
    turns = int(options.kernel_us * options.turns_per_us)
    latencies = []
    flight = InFlight(driver, max(1, int(2000 / options.kernel_us)))
    while time.monotonic() < until:
        begun = time.monotonic()
        driver.work(turns)
        driver.wait()
        latencies.append((time.monotonic() - begun) * 1000 - options.kernel_us / 1000)
        while time.monotonic() < min(until, begun + options.on_ms / 1000):
            driver.work(turns)
            flight.launched()
            note()
        driver.wait()
        time.sleep(options.off_ms / 1000)
    return {"first_kernel_ms": [round(latency, 3) for latency in latencies]}


def graph(driver, options, until, note):
    turns = int(options.kernel_us * options.turns_per_us)
    made, executable = ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuStreamBeginCapture_v2", driver.stream, 2)
    for _ in range(options.nodes):
        driver.slot = 0
        driver.work(turns)
    driver("cuStreamEndCapture", driver.stream, ctypes.byref(made))
    driver("cuGraphInstantiateWithFlags", ctypes.byref(executable), made, ctypes.c_uint64(0))
    # Slot 0 is the nodes'.
    driver.slot = 1
    while time.monotonic() < until:
        between_marks(driver, lambda: driver("cuGraphLaunch", executable, driver.stream))
        driver.wait()
        note()
    return {"first_slot": 1, "marks": True}


def memset(driver, options, until, note):
    count = MEMSET_BYTES if not options.soft else 1 << 20
    block = driver.memory(count)
    flight = InFlight(driver, 4)

    def some():
        for _ in range(8):
            driver("cuMemsetD32Async", block, 7, ctypes.c_size_t(count // 4), driver.stream)

    while time.monotonic() < until:
        between_marks(driver, some)
        flight.launched()
        note()
    return {"marks": True}


def between_marks(driver, some):
    driver.work(0, small=True)
    some()
    driver.work(0, small=True)


def torch_steps(make):
    """A step of a PyTorch program, between two marks on its stream."""

    def run(driver, options, until, note):
        import torch

        driver("cuCtxSetCurrent", driver.context)
        step = make(torch)
        driver.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        until = begin(options)
        driver.slot = 0
        flight = InFlight(driver, 2)
        while time.monotonic() < until:
            between_marks(driver, step)
            flight.launched()
            note()
        return {"marks": True}

    run.begins_itself = True
    return run


def gemm(torch):
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    c = torch.empty_like(a)
    return lambda: [torch.mm(a, b, out=c) for _ in range(8)]


def pointwise(torch):
    x = torch.randn(64 << 20, device="cuda")
    y = torch.empty_like(x)
    return lambda: [torch.add(x, 1.0, out=y) for _ in range(8)]


def resnet(torch):
    import torchvision

    model = torchvision.models.resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


KINDS = {
    "steady": steady,
    "cooperative": cooperative,
    "waiting": waiting,
    "bursty": bursty,
    "graph": graph,
    "memset": memset,
    "gemm": torch_steps(gemm),
    "pointwise": torch_steps(pointwise),
    "resnet": torch_steps(resnet),
}


def begin(options):
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise SystemExit("nobody said when to begin")
    return time.monotonic() + options.seconds


def calibrate(driver):
    """Turns of the loop in a microsecond, of a GPU that nobody else uses."""
    best = None
    for turns in (10_000, 100_000, 100_000, 100_000):
        slot = driver.slot
        driver.work(turns)
        driver.wait()
        stamps = driver.read_stamps()
        took_us = max(0.001, (stamps[2 * slot + 1] - stamps[2 * slot]) / 1000)
        best = max(best or 0, turns / took_us)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, "calibrate"])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--kernel-us", type=float, default=50)
    parser.add_argument("--turns-per-us", type=float, default=1000)
    parser.add_argument("--on-ms", type=float, default=300)
    parser.add_argument("--off-ms", type=float, default=300)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--soft", action="store_true")
    parser.add_argument("--stamps")
    options = parser.parse_args()
    driver = Driver(options.soft)
    if options.kind == "calibrate":
        print(json.dumps({"turns_per_us": calibrate(driver)}), flush=True)
        return
    run = KINDS[options.kind]
    driver.work(100)
    driver.wait()
    times = []
    until = None if getattr(run, "begins_itself", False) else begin(options)
    driver.slot = 0
    more = run(driver, options, until, lambda: times.append(time.monotonic())) or {}
    driver.wait()
    with open(options.stamps, "wb") as file:
        driver.read_stamps().tofile(file)
    times = times or [0.0]
    seconds = max(times[-1] - times[0], 1e-9)
    answer = {"kind": options.kind, "steps": len(times), "steps_per_s": len(times) / seconds, **more}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
