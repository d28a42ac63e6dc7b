#!/usr/bin/env python3
"""Runs what PyTorch itself tests its operators with, and writes what came out, as digests of the bits.

    python3 perf/suite/torch_samples.py --kinds forward,backward --shard 0/4 --out outcomes.jsonl

PyTorch's wheel brings the samples of its own tests (torch.testing._internal): for each operator, module and optimizer
the arguments, data types and options that its authors found worth a test. Each line of the outcome is a JSON list: the
sample's name, what became of it (a digest, or the class of what was raised), and the first words of an error. A sample
begins with a line that says `began`, so that whoever reads it knows what a process died of. What spoils the process (a
CUDA error that stays) ends it with 3. peers.py --torch runs this natively and through Orion and compares.
"""

import argparse
import hashlib
import itertools
import json
import random
import sys
import warnings
from pathlib import Path

import numpy
import torch
from torch.utils import _pytree as pytree

KINDS = ("forward", "backward", "modules", "optimizers", "graph")
#: One of each family, so that each kernel's template is met; the rest differ in a type's name.
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64)
#: These compile C++ or call tools of the machine, take minutes each, or ask for what only two GPUs have.
NOT_RUN = ("nn.functional.scaled_mm", "torch.ops.aten._flash_attention_forward")
#: The process cannot go on.
SPOILT = 3
#: Samples are counted before they are made.
NO_SUCH_SAMPLE = "no such sample"


def main():
    options = parse_options()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    outcomes = Outcomes(options)
    for kind in options.kinds:
        for name, make in SAMPLES[kind](options):
            if outcomes.wants(name):
                outcomes.run(name, make)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated, of " + ", ".join(KINDS))
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="the I-th of N parts of the operators")
    parser.add_argument("--samples", type=int, default=4, help="of each operator and data type, at most")
    parser.add_argument("--only", default="", help="comma-separated: samples whose name has one of these in it")
    parser.add_argument("--names", metavar="FILE", help="a JSON list of the samples to run, by their whole names")
    parser.add_argument("--done", metavar="FILE", help="a JSON list of samples to leave out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default="/dev/stdout", metavar="FILE")
    options = parser.parse_args()
    options.kinds = options.kinds.split(",")
    unknown = set(options.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kinds {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    try:
        options.part, options.parts = (int(word) for word in options.shard.split("/"))
        assert 0 <= options.part < options.parts
    except (ValueError, AssertionError):
        parser.error(f"--shard {options.shard} is not I/N with I from 0 to N - 1")
    options.only = list(filter(None, options.only.split(",")))
    for key in ("names", "done"):
        path = getattr(options, key)
        setattr(options, key, set(json.loads(Path(path).read_text())) if path else None)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU")
    return options


class Outcomes:
    def __init__(self, options):
        self.options = options
        self.out = open(options.out, "a", buffering=1)

    def wants(self, name):
        names, done, only = self.options.names, self.options.done, self.options.only
        if (done and name in done) or (names is not None and name not in names):
            return False
        return not only or any(word in name for word in only)

    def run(self, name, make):
        self.out.write(json.dumps([name, "began", ""]) + "\n")
        seed(name)
        try:
            outcome, text = digest(name, make(), self.options), ""
        except NoSuchSample:
            outcome, text = NO_SUCH_SAMPLE, ""
        except Exception as error:  # Whatever a sample raises natively it has to raise through Orion.
            outcome, text = f"raised {type(error).__name__}", " ".join(str(error).split())[:300]
        self.out.write(json.dumps([name, outcome, text]) + "\n")
        if self.options.device == "cuda":
            try:
                torch.cuda.synchronize()
            except RuntimeError as error:
                print(f"after {name}: {error}", file=sys.stderr)
                sys.exit(SPOILT)


def seed(name):
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    random.seed(number)
    numpy.random.seed(number)
    torch.manual_seed(number)


# Samples: each a name and a function that gives tensors


def operators(options, dtypes, samples, run):
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db[options.part :: options.parts]:
        full = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if full in NOT_RUN:
            continue
        for dtype in dtypes(op, options):
            for index in range(samples):
                name = f"{run.__name__} {full} {str(dtype).removeprefix('torch.')} {index}"
                yield name, lambda op=op, dtype=dtype, index=index: run(op, dtype, index, options)


class NoSuchSample(Exception):
    """The operator has fewer."""


def sample(op, dtype, index, options, requires_grad=False):
    made = op.sample_inputs(options.device, dtype, requires_grad=requires_grad)
    found = next(itertools.islice(made, index, None), None)
    if found is None:
        raise NoSuchSample
    return found


def call(op, made):
    return op(made.input, *made.args, **made.kwargs)


def forward(op, dtype, index, options):
    made = sample(op, dtype, index, options)
    return call(op, made)


def backward(op, dtype, index, options):
    made = sample(op, dtype, index, options, requires_grad=True)
    out = [t for t in tensors(call(op, made)) if t.requires_grad]
    into = [t for t in tensors((made.input, made.args, made.kwargs)) if t.requires_grad and t.is_leaf]
    found = torch.autograd.grad(out, into, [torch.ones_like(t) for t in out], allow_unused=True)
    return out, [t for t in found if t is not None]


def graph(op, dtype, index, options):
    """What cannot be captured says so, and the next sample has to find the streams as if nothing had been."""
    made = sample(op, dtype, index, options)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(op, made)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = call(op, made)
    captured.replay()
    captured.replay()
    return out


def supported(op, options):
    known = op.supported_dtypes(options.device)
    return [dtype for dtype in DTYPES if dtype in known]


def differentiable(op, options):
    known = op.supported_backward_dtypes(options.device) if op.supports_autograd else ()
    return [dtype for dtype in (torch.float32, torch.complex64) if dtype in known]


def single(op, options):
    return [dtype for dtype in (torch.float32, torch.int64) if dtype in op.supported_dtypes(options.device)][:1]


def modules(options):
    from torch.testing._internal.common_modules import module_db

    for info in module_db[options.part :: options.parts]:
        for dtype in (torch.float32, torch.bfloat16):
            for index in range(options.samples):
                name = f"modules {info.name} {str(dtype).removeprefix('torch.')} {index}"
                yield name, lambda info=info, dtype=dtype, index=index: module(info, dtype, index, options)


def module(info, dtype, index, options):
    made = info.module_inputs_func(info, device=options.device, dtype=dtype, requires_grad=True, training=True)
    found = next(itertools.islice(made, index, None), None)
    if found is None or found.forward_input is None:
        raise NoSuchSample
    built = info.module_cls(*found.constructor_input.args, **found.constructor_input.kwargs)
    built = built.to(options.device, dtype).train()
    out = built(*found.forward_input.args, **found.forward_input.kwargs)
    loss = sum(t.float().sum() for t in tensors(out) if t.requires_grad)
    if torch.is_tensor(loss):
        loss.backward()
    return out, [p.grad for p in built.parameters() if p.grad is not None]


def optimizers(options):
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db[options.part :: options.parts]:
        for index in range(12):
            for how in ({}, {"foreach": True}, {"fused": True}, {"capturable": True}):
                name = f"optimizers {info.optim_cls.__name__} {index} {'+'.join(how) or 'plain'}"
                yield name, lambda info=info, index=index, how=how: optimizer(info, index, how, options)


def optimizer(info, index, how, options):
    made = info.optim_inputs_func(device=options.device)
    if index >= len(made):
        raise NoSuchSample
    net = torch.nn.Sequential(torch.nn.Linear(37, 19), torch.nn.Tanh(), torch.nn.Linear(19, 5)).to(options.device)
    data = torch.randn(11, 37, device=options.device)
    steps = info.optim_cls(net.parameters(), **{"lr": 0.01, **made[index].kwargs, **how})
    for _ in range(3):
        steps.zero_grad()
        loss = net(data).square().mean()
        loss.backward()
        steps.step(lambda: net(data).square().mean())
    return list(net.parameters())


SAMPLES = {
    "forward": lambda options: operators(options, supported, options.samples, forward),
    "backward": lambda options: operators(options, differentiable, options.samples, backward),
    "graph": lambda options: operators(options, single, 2, graph),
    "modules": modules,
    "optimizers": optimizers,
}


# What came out


def tensors(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if torch.is_tensor(leaf)]


def digest(name, tree, options):
    found = hashlib.blake2b(digest_size=12)
    way = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=2).digest(), "little") % len(WAYS)
    for leaf in pytree.tree_leaves(tree):
        if torch.is_tensor(leaf):
            for part in parts(leaf.detach()):
                found.update(f"{part.dtype} {tuple(part.shape)}".encode())
                found.update(to_host(part, way, options))
        else:
            found.update(repr(leaf).encode())
    return found.hexdigest()


def parts(tensor):
    """The dense tensors that it is made of."""
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested:
        return list(tensor.unbind())
    return [tensor]


def to_host(tensor, way, options):
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    if options.device == "cuda" and flat.is_cuda:
        flat = WAYS[way](flat)
    return flat.numpy().tobytes()


def pinned(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def by_blocking(tensor):
    return tensor.cpu()


def by_stream(tensor):
    host = pinned(tensor)
    host.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return host


def by_query(tensor):
    host = pinned(tensor)
    host.copy_(tensor, non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    while not done.query():
        pass
    return host


def by_side_stream(tensor):
    host, side = pinned(tensor), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(tensor, non_blocking=True)
    tensor.record_stream(side)
    side.synchronize()
    return host


#: Bytes come to the host in each of these; which one is decided by the sample's name.
WAYS = (by_blocking, by_stream, by_query, by_side_stream)


if __name__ == "__main__":
    main()
