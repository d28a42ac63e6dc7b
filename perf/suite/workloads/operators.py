"""What PyTorch's own test database lists, on the samples it comes with: `operators.py operators` every operator with
its gradients, `operators.py modules` every torch.nn module and every optimizer, optimizers in a CUDA graph too."""

import importlib.util
import os
import sys
import types
import unittest
import warnings

from report import Report, deterministic_torch, require

PART = next((arg for arg in sys.argv[1:] if not arg.startswith("--")), "operators")
require(PART, "torch")
if importlib.util.find_spec("expecttest") is None:
    # What the database lies in derives its own tests from this class, and asks nothing else of the package.
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
# Importing the database forbids later changes of cuDNN's settings.
torch = deterministic_torch()
DATABASE = "torch.testing._internal.common_"
op_db = require(PART, f"{DATABASE}methods_invocations").op_db
module_db = require(PART, f"{DATABASE}modules").module_db
optim_db = require(PART, f"{DATABASE}optimizers").optim_db

warnings.simplefilter("ignore")
report = Report(PART)
DEVICE = os.environ.get("SUITE_DEVICE", "cuda")
SAMPLES = report.count(5, quick=1)
#: What they answer is whatever lay in memory before; of the last, the random state that it has no use for.
UNINITIALISED = ("empty", "new_empty", "torch.ops.aten._efficient_attention_forward")
TYPES = [torch.float32, torch.int64, torch.bool, torch.complex64]
failed = []


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in tensors(item)]


def fingerprint(tensor):
    """Two sums over all values, one of which depends on their order. No digest: some kernels add in no fixed order."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1).double()
    flat = torch.nan_to_num(flat, nan=3.0, posinf=5.0, neginf=-5.0).abs()
    weights = torch.arange(flat.numel(), device=flat.device, dtype=torch.float64).cos()
    return [flat.sum().item(), (flat * (2 + weights)).sum().item()]


def with_gradients(results, inputs):
    wanted = [result for result in results if result.requires_grad]
    if not wanted or not inputs:
        return results
    loss = sum((result.abs() if result.is_complex() else result).sum() for result in wanted)
    return results + [g for g in torch.autograd.grad(loss, inputs, allow_unused=True) if g is not None]


def judge(name, runs):
    """Runs what `runs` yields. Shapes, types and errors are to be the same, values close."""
    shapes, values = [], []
    torch.manual_seed(0)
    try:
        for _, results in zip(range(SAMPLES), runs()):
            shapes += [f"{tuple(t.shape)} {t.dtype}" for t in results]
            values += [value for t in results for value in fingerprint(t)]
    except Exception as error:  # noqa: BLE001 natively some fail too, and must fail alike
        shapes.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200])
        failed.append(name)
    report.exact(f"{name} shapes", ", ".join(shapes))
    report.close(name, values, rtol=1e-3, atol=1e-2)


def operator(op):
    supported = op.supported_dtypes(DEVICE)
    dtype = next((t for t in TYPES if t in supported), None)
    if dtype is None or op.name.startswith(UNINITIALISED):
        return False
    has_gradient = op.supports_autograd and dtype in op.supported_backward_dtypes(DEVICE)

    def runs():
        for sample in op.sample_inputs(DEVICE, dtype, requires_grad=has_gradient):
            torch.manual_seed(0)
            results = tensors(op(sample.input, *sample.args, **sample.kwargs))
            given = tensors([sample.input, sample.args, sample.kwargs])
            yield with_gradients(results, [t for t in given if t.is_leaf and t.requires_grad])

    judge(op.formatted_name, runs)
    return True


def module(info, training):
    def runs():
        given = {"device": DEVICE, "dtype": torch.float32, "requires_grad": True, "training": training}
        for sample in info.module_inputs_func(info, **given):
            if sample.forward_input is None:
                continue
            torch.manual_seed(0)
            args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
            made = info.module_cls(*args, **kwargs).to(DEVICE).train(training)
            results = tensors(made(*sample.forward_input.args, **sample.forward_input.kwargs))
            yield with_gradients(results, list(made.parameters()))

    judge(f"{info.formatted_name} {'train' if training else 'eval'}", runs)


def optimizer(info, **implementation):
    def runs():
        for sample in info.optim_inputs_func(device=DEVICE):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(DEVICE)
            batch = torch.randn(32, 8, device=DEVICE)
            made = info.optim_cls(model.parameters(), **{**sample.kwargs, **implementation})

            def closure(made=made, model=model, batch=batch):
                made.zero_grad(set_to_none=not implementation.get("capturable"))
                loss = model(batch).square().mean()
                loss.backward()
                return loss

            def step(made=made, closure=closure):
                made.step(closure) if info.step_requires_closure else (closure(), made.step())

            if implementation.get("capturable"):
                replayed(step)
            else:
                for _ in range(4):
                    step()
            yield list(model.parameters())

    judge(" ".join([info.name, *implementation]), runs)


def replayed(step):
    """Four steps, three of them as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(3):
        graph.replay()


if PART == "operators":
    report.exact("operators", sum(operator(op) for op in op_db))
else:
    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            module(info, training)
    for info in optim_db:
        if info.only_supports_sparse_grads:
            continue
        optimizer(info)
        for name in info.supported_impls:
            if name == "foreach" or (name == "fused" and "cuda" in info.supports_fused_on):
                optimizer(info, **{name: True})
        if info.has_capturable_arg and DEVICE == "cuda":
            optimizer(info, capturable=True)
    report.exact("modules, optimizers", [len(module_db), len(optim_db)])
report.extra(failed=failed)
report.finish()
