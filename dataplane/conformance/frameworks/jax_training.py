"""JAX trains a small convolutional network on Orion's GPU with the losses that it has on the CPU."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

if [d.device_kind for d in jax.devices()] != ["Orion software GPU"]:
    sys.exit(f"FAIL JAX shows {jax.devices()}")
# What is multiplied as TF32 there, as on any newer GPU, is multiplied as f32 on the CPU.
jax.config.update("jax_default_matmul_precision", "highest")

BATCH, STEPS, RATE = 32, 12, 0.1
numbers = np.random.default_rng(1)
patterns = numbers.standard_normal((10, 14, 14, 1), dtype=np.float32)


def batch():
    digits = numbers.integers(0, 10, BATCH)
    noise = 0.5 * numbers.standard_normal((BATCH, 14, 14, 1), dtype=np.float32)
    return patterns[digits] + noise, digits.astype(np.int32)


def network(weights, pictures):
    layers = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(pictures, weights["conv"], (1, 1), "SAME", dimension_numbers=layers)
    x = jax.nn.relu(x + weights["bias"])
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(BATCH, -1) @ weights["dense"])
    return x @ weights["out"]


def loss(weights, pictures, digits):
    guesses = jax.nn.log_softmax(network(weights, pictures))
    return -jnp.take_along_axis(guesses, digits[:, None], axis=1).mean()


@jax.jit
def step(weights, pictures, digits):
    value, slopes = jax.value_and_grad(loss)(weights, pictures, digits)
    return jax.tree.map(lambda w, slope: w - RATE * slope, weights, slopes), value


def train(device, weights, batches):
    weights, losses = jax.device_put(weights, device), []
    for pictures, digits in batches:
        weights, value = step(weights, jax.device_put(pictures, device), jax.device_put(digits, device))
        if value.devices() != {device}:
            sys.exit(f"FAIL a loss is on {value.devices()}")
        losses.append(float(value))
    return losses


weights = {
    "conv": 0.2 * numbers.standard_normal((3, 3, 1, 8), dtype=np.float32),
    "bias": np.zeros(8, np.float32),
    "dense": 0.05 * numbers.standard_normal((7 * 7 * 8, 32), dtype=np.float32),
    "out": 0.1 * numbers.standard_normal((32, 10), dtype=np.float32),
}
batches = [batch() for _ in range(STEPS)]
got = train(jax.devices()[0], weights, batches)
wanted = train(jax.devices("cpu")[0], weights, batches)
if not np.allclose(got, wanted, rtol=1e-3) or got[-1] > 0.7 * got[0]:
    sys.exit(f"FAIL the losses are {got}, the CPU's {wanted}")
print("PASS training: " + " ".join(f"{value:.3f}" for value in got))

a = numbers.standard_normal((70, 90), dtype=np.float32)
b = numbers.standard_normal((90, 50), dtype=np.float32)
square = a[:50, :50] @ a[:50, :50].T + 50 * np.eye(50, dtype=np.float32)
HALF = jnp.bfloat16
CASES = {
    "elementwise": (lambda a: jnp.sin(a) + jax.scipy.special.erf(a) + jnp.abs(a) ** 1.5, (a,), 1e-5),
    "reduction": (lambda a: a.sum(axis=0) + a.max(), (a,), 1e-4),
    "sort": (lambda a: jnp.sort(a, axis=1), (a,), 0),
    "cumsum": (lambda a: jnp.cumsum(a, axis=1), (a,), 1e-4),
    "random": (lambda a: jax.random.normal(jax.random.key(3), a.shape), (a,), 1e-5),
    "fft": (lambda a: jnp.abs(jnp.fft.fft(a)), (a,), 1e-3),
    "matmul": (lambda a, b: a @ b, (a, b), 1e-4),
    "matmul of bf16": (lambda a, b: (a.astype(HALF) @ b.astype(HALF)).astype(jnp.float32), (a, b), 1e-1),
    "solve": (lambda s, a: jnp.linalg.solve(s, a[:50]), (square, a), 1e-4),
    "cholesky": (lambda s: jnp.linalg.cholesky(s), (square,), 1e-3),
    "softmax and its gradient": (lambda a: jax.grad(lambda a: jax.nn.softmax(a)[:, 0].sum())(a), (a,), 1e-5),
}
for name, (case, arguments, tolerance) in CASES.items():
    got, wanted = (
        np.asarray(jax.jit(case)(*jax.device_put(arguments, jax.devices(where)[0]))) for where in ("gpu", "cpu")
    )
    if not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        worst = np.unravel_index(np.argmax(np.abs(got - wanted)), wanted.shape)
        sys.exit(f"FAIL {name}: {got[worst]} at {worst}, the CPU computes {wanted[worst]}")
    print(f"PASS {name}", flush=True)
