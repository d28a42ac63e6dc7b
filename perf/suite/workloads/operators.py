"""Every operator that PyTorch's own test database knows, forward and backward, on the samples it comes with."""

import importlib.util
import os
import sys
import types
import unittest
import warnings

from report import Report, deterministic_torch, require

require("operators", "torch")
if importlib.util.find_spec("expecttest") is None:
    # What the database lies in derives its own tests from this class, and asks nothing else of the package.
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
# Importing the database forbids later changes of cuDNN's settings.
torch = deterministic_torch()
op_db = require("operators", "torch.testing._internal.common_methods_invocations").op_db

warnings.simplefilter("ignore")
report = Report("operators")
DEVICE = os.environ.get("SUITE_DEVICE", "cuda")
SAMPLES = report.count(8, quick=1)
#: What they answer is whatever lay in memory before.
UNINITIALISED = ("empty", "new_empty")
TYPES = [torch.float32, torch.int64, torch.bool, torch.complex64]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in tensors(item)]


def fingerprint(tensor):
    """Two sums over all values, one of which depends on their order. Some kernels add in no fixed order, so no digest."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1).double()
    flat = torch.nan_to_num(flat, nan=3.0, posinf=5.0, neginf=-5.0)
    weights = torch.arange(flat.numel(), device=flat.device, dtype=torch.float64).cos()
    return [flat.abs().sum().item(), (flat.abs() * (2 + weights)).sum().item()]


def run(op, sample):
    """Shapes and fingerprints of what an operator answers, and of the gradients of its inputs."""
    torch.manual_seed(0)
    results = tensors(op(sample.input, *sample.args, **sample.kwargs))
    wanted = [result for result in results if result.requires_grad]
    inputs = [t for t in tensors([sample.input, sample.args, sample.kwargs]) if t.is_leaf and t.requires_grad]
    if wanted and inputs:
        loss = sum((result.abs() if result.is_complex() else result).sum() for result in wanted)
        grads = torch.autograd.grad(loss, inputs, allow_unused=True)
        results += [grad for grad in grads if grad is not None]
    shapes = [f"{tuple(t.shape)} {t.dtype}" for t in results]
    return shapes, [value for t in results for value in fingerprint(t)]


seen = failed = 0
for op in op_db:
    if op.name.startswith(UNINITIALISED):
        continue
    supported = op.supported_dtypes(DEVICE)
    dtype = next((t for t in TYPES if t in supported), None)
    if dtype is None:
        continue
    name = op.formatted_name
    backward = dtype in op.supported_backward_dtypes(DEVICE) and op.supports_autograd
    shapes, values = [], []
    torch.manual_seed(0)
    try:
        for sample, _ in zip(op.sample_inputs(DEVICE, dtype, requires_grad=backward), range(SAMPLES)):
            shape, value = run(op, sample)
            shapes, values = shapes + shape, values + value
        torch.cuda.synchronize() if DEVICE == "cuda" else None
    except Exception as error:  # noqa: BLE001 natively some fail too, and must fail alike
        shapes.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200])
        failed += 1
    seen += 1
    report.exact(f"{name} shapes", ", ".join(shapes))
    report.close(name, values, rtol=1e-3, atol=1e-2)

report.exact("operators", seen)
report.extra(operators=seen, failed=failed)
report.finish()
