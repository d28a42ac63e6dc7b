"""The workloads of the suite and the speed each must reach: the one table that run.py and speed.py share."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    #: "workloads/x.py" runs under Python, "cuda/x.cu" is built by nvcc first.
    source: str
    args: tuple = ()
    env: dict = field(default_factory=dict)
    nvcc: tuple = ()
    #: Longest first when several run at once, so that no long one is left over at the end.
    seconds: int = 6
    #: Keeps what it compiles in build/cache, so speed.py runs it once before it measures.
    fills_cache: bool = False

    @property
    def is_cuda(self):
        return self.source.endswith(".cu")

    @property
    def is_gated(self):
        """Whether it waits for its turn once it is prepared. CUDA programs have nothing to prepare, and of a cold
        script the preparation is measured."""
        return not self.is_cuda and "cold" not in self.args


@dataclass(frozen=True)
class Goal:
    """One row of the speed table. A limit is (how it is judged, number): see speed.judge."""

    title: str
    workload: str
    #: "steady_ms", "wall_s", or a key of the workload's `extra`.
    metric: str
    unit: str
    shm: tuple
    tcp: tuple
    #: True for GB/s and the like: the ratio is then Orion / native, so above 1 is always better than native.
    more_is_better: bool = False


def torch_row(name, title, script=None, *args, **more):
    return Workload(name, title, f"workloads/{script or name}.py", tuple(args), **more)


def cuda_row(name, title, source=None, *nvcc, **more):
    return Workload(name, f"CUDA C++: {title}", f"cuda/{source or name}.cu", nvcc=nvcc, seconds=2, **more)


def allocator(setting):
    # The variable lost "CUDA" from its name in PyTorch 2.9; older ones read only the old one.
    return {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}


WORKLOADS = [
    torch_row("hello", "hello, device properties"),
    torch_row("mnist", "MNIST CNN training, sync each step"),
    torch_row("resnet50_bf16", "ResNet-50 training, bf16", "resnet50", "bf16", seconds=9),
    torch_row("resnet50_fp32", "ResNet-50 training, fp32", "resnet50", "fp32", seconds=9),
    torch_row("resnet50_pageable", "ResNet-50 training, pageable batch each step", "resnet50", "pageable", seconds=9),
    torch_row("resnet50_batch1", "ResNet-50 inference, batch 1, sync", "resnet50", "batch1", seconds=7),
    torch_row("inception", "Inception-v3 training step", seconds=8),
    torch_row("gpt2", "GPT-2 generate, batch 1", "gpt2", "40", seconds=16),
    torch_row("llama", "Llama training step, bf16, fused AdamW"),
    torch_row("attention", "SDPA: flash, efficient, cuDNN, math", seconds=8),
    torch_row("fp8", "fp8 _scaled_mm"),
    torch_row("libraries", "cuFFT, cuSOLVER, cuSPARSE, LSTM, sort, random", seconds=8),
    torch_row("operators", "every operator of PyTorch's test database", "operators", "operators", seconds=40),
    torch_row("modules", "every module and optimizer of that database", "operators", "modules", seconds=20),
    torch_row("compile_default", "torch.compile, default", "compile", "default", seconds=25, fills_cache=True),
    torch_row(
        "compile_reduce_overhead",
        "torch.compile, reduce-overhead",
        "compile",
        "reduce-overhead",
        seconds=25,
        fills_cache=True,
    ),
    torch_row("graphs", "CUDA graphs from PyTorch"),
    torch_row("dataloader", "DataLoader, 4 workers, pinned memory", seconds=9),
    torch_row(
        "expandable_segments", "expandable segments allocator", "allocator", env=allocator("expandable_segments:True")
    ),
    torch_row("malloc_async", "cudaMallocAsync allocator", "allocator", env=allocator("backend:cudaMallocAsync")),
    torch_row("out_of_memory", "out of memory, and the process goes on"),
    torch_row("device_assert", "device assert beside an unharmed process", seconds=9),
    torch_row("two_processes", "two processes at once", seconds=9),
    torch_row("several_gpus", "two GPUs: copies, a model across both, threads"),
    torch_row("several_gpus_nccl", "two GPUs: NCCL in one process, DataParallel", "several_gpus", "nccl", seconds=10),
    # By the file descriptors that NCCL would use instead, Orion shares no memory.
    torch_row(
        "several_gpus_ddp",
        "two GPUs: DDP, a process for each, NCCL_CUMEM_ENABLE=0",
        "several_gpus",
        "ddp",
        seconds=20,
        env={"NCCL_CUMEM_ENABLE": "0"},
    ),
    torch_row("shared_tensor", "a tensor shared between processes", seconds=9),
    torch_row("profiler", "torch.profiler"),
    torch_row("threads", "multi-threaded inference", seconds=7),
    torch_row("small_ops", "eager small ops"),
    torch_row("item_loop", ".item() loop"),
    torch_row("copies", "pinned, pageable and 1 KiB copies"),
    torch_row("first_use", "first CUDA use of a process", seconds=4),
    torch_row("footprint", "idle CPU and GPU memory of a session", seconds=8),
    torch_row(
        "jax_train",
        "JAX: training step, random, FFT",
        seconds=15,
        fills_cache=True,
        env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    ),
    torch_row(
        "pinned_results",
        "JAX: results in pinned host memory",
        seconds=15,
        env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    ),
    torch_row("cupy_arrays", "CuPy: elementwise, reductions, FFT, SVD, raw kernels", seconds=12, fills_cache=True),
    torch_row("triton_programs", "Triton: vector add, matmul with tensor descriptors", seconds=10, fills_cache=True),
    torch_row("numba_kernels", "numba-cuda kernels (optional)"),
    cuda_row("device_query", "device query"),
    cuda_row("streams", "streams and events, legacy default stream"),
    cuda_row(
        "streams_per_thread", "streams and events, per-thread default stream", "streams", "--default-stream=per-thread"
    ),
    cuda_row("graphs_cuda", "graphs"),
    cuda_row("cooperative", "cooperative launch, grid sync"),
    cuda_row("clusters", "clusters, distributed shared memory"),
    cuda_row("textures", "textures and surfaces"),
    cuda_row("pools", "memory pools"),
    cuda_row("vmm", "virtual memory management"),
    cuda_row("mapped", "mapped and registered host memory"),
    cuda_row("mapped_live", "mapped memory, host and running kernel", "mapped", args=("live",)),
    cuda_row("managed", "managed memory (a named refusal is accepted)"),
    cuda_row("printf", "printf from kernels"),
    cuda_row("errors", "error cases, sticky errors, assert"),
    cuda_row("shapes", "2D, 3D, peer and UVA copies"),
    cuda_row("devices", "two GPUs in one process"),
    cuda_row("callbacks", "host callbacks"),
    cuda_row("occupancy", "occupancy and function attributes"),
    cuda_row("jit", "cuLink, PTX, NVRTC", None, "-ldl"),
    cuda_row("warps", "shuffles, votes, atomics, shared memory"),
    cuda_row("warps_ptx", "the same from PTX alone", "warps", "-gencode=arch=compute_75,code=compute_75"),
    cuda_row("launches", "launch loop"),
    # Only for speed.py: native takes most of a minute, for cuDNN compiles a kernel for each length.
    torch_row("gpt2_cold", "GPT-2 generate, cold, 256 tokens", "gpt2", "256", "cold", seconds=60),
]

SPEED_ONLY = {"gpt2_cold"}


def ratio(least):
    return ("ratio >=", least)


def most(limit):
    return ("<=", limit)


def least(limit):
    return (">=", limit)


def above_native(limit):
    return ("above native <=", limit)


GOALS = [
    Goal("eager small ops", "small_ops", "us_per_op", "us", ratio(1.15), ratio(1.0)),
    Goal(".item() in a loop", "item_loop", "us_each", "us", ratio(1.0), most(25)),
    Goal("ResNet-50 training, bf16", "resnet50_bf16", "steady_ms", "ms", ratio(0.99), ratio(0.97)),
    Goal("ResNet-50 training, fp32", "resnet50_fp32", "steady_ms", "ms", ratio(0.99), ratio(0.97)),
    Goal("Inception-v3 training", "inception", "steady_ms", "ms", ratio(0.99), ratio(0.97)),
    Goal("Llama training", "llama", "steady_ms", "ms", ratio(0.99), ratio(0.97)),
    Goal("ResNet-50 training, pageable batch", "resnet50_pageable", "steady_ms", "ms", ratio(1.05), ratio(0.8)),
    Goal("GPT-2 generate, a token", "gpt2", "steady_ms", "ms", ratio(1.05), ratio(0.95)),
    Goal("ResNet-50 inference, batch 1", "resnet50_batch1", "steady_ms", "ms", ratio(1.0), ratio(0.9)),
    Goal("MNIST, sync each step", "mnist", "steady_ms", "ms", ratio(1.0), ratio(0.8)),
    Goal("CUDA graph replay", "graphs", "steady_ms", "ms", ratio(0.98), ratio(0.95)),
    Goal("torch.compile reduce-overhead", "compile_reduce_overhead", "steady_ms", "ms", ratio(0.98), ratio(0.95)),
    Goal("JAX training step", "jax_train", "steady_ms", "ms", ratio(0.98), ratio(0.9)),
    Goal("CuPy launch loop", "cupy_arrays", "us_per_launch", "us", ratio(1.0), ratio(0.9)),
    Goal("Triton launch loop", "triton_programs", "us_per_launch", "us", ratio(1.0), ratio(0.9)),
    Goal("DataLoader, pinned, 4 workers", "dataloader", "steady_ms", "ms", ratio(0.99), ratio(0.9)),
    Goal("pinned H2D 256 MiB", "copies", "h2d_pinned_gbps", "GB/s", least(0.98 * 55), least(8), True),
    Goal("pinned D2H 256 MiB", "copies", "d2h_pinned_gbps", "GB/s", least(0.98 * 55), least(8), True),
    Goal("pageable H2D 256 MiB", "copies", "h2d_pageable_gbps", "GB/s", ratio(2.0), least(6), True),
    Goal("pageable D2H 256 MiB", "copies", "d2h_pageable_gbps", "GB/s", ratio(1.3), least(6), True),
    Goal("1 KiB async H2D", "copies", "h2d_1kib_us", "us", ratio(1.0), ratio(0.8)),
    Goal("first CUDA use", "first_use", "first_use_ms", "ms", ratio(2.0), ratio(1.5)),
    Goal("cold GPT-2 script, wall time", "gpt2_cold", "wall_s", "s", ratio(0.95), ratio(0.9)),
    Goal("enqueue of a launch", "launches", "enqueue_ns", "ns", most(150), most(300)),
    Goal("call with answer, beyond native (cuMemPoolGetAttribute p50)", "launches", "short_call_us", "us",
         above_native(1.2), above_native(15)),
    Goal("call with answer, beyond native (cuMemGetInfo p50)", "launches", "call_us", "us",
         above_native(1.2), above_native(15)),
    # The driver's own threads wake up in a program that does nothing, natively as well.
    Goal("idle session, CPU beyond native", "footprint", "idle_cpu_percent", "%", above_native(0.1), above_native(0.1)),
    Goal("GPU memory beyond native", "footprint", "gpu_memory_mib", "MiB", above_native(0), above_native(0)),
]
