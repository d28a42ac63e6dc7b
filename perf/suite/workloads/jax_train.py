"""JAX: a jitted training step in bf16, random numbers, FFT and linear algebra."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from report import Report, digest, require  # noqa: E402

jax = require("jax_train", "jax")
import jax.numpy as jnp  # noqa: E402
from small_jax import small_jax  # noqa: E402

report = Report("jax_train")
report.gate()

with report.section("device"):
    device = jax.devices()[0]
    report.exact("platform", device.platform)
    report.exact("kind", device.device_kind)

with report.section("train"):
    train, state, x = small_jax(jax)
    losses = []

    def step():
        global state
        state, loss = train(state, x)
        losses.append(loss)

    steps, warmup = report.count(20, speed=2000), report.count(5, speed=200)
    report.steady_ms = report.time(step, steps, lambda: jax.block_until_ready(state), warmup=warmup, window=5)
    # XLA chooses its matrix kernels by timing them, so the bits may differ from run to run.
    report.close("losses", [float(loss) for loss in losses[:8]], rtol=2e-2)
    report.exact("losses_are_finite", bool(jnp.isfinite(jnp.stack(losses)).all()))

report.finish_if_speed()

with report.section("random"):
    key = jax.random.key(42)
    report.exact("normal", digest(jax.random.normal(key, (10000,))))
    report.exact("uniform", digest(jax.random.uniform(key, (1000, 3))))
    report.exact("permutation", digest(jax.random.permutation(key, 1000)))
    report.exact("categorical", digest(jax.random.categorical(key, jnp.zeros((100, 10)))))

with report.section("fft"):
    signal = jax.random.normal(jax.random.key(1), (8, 4096))
    report.exact("rfft", digest(jnp.fft.rfft(signal)))
    report.close("fft_round_trip", float(jnp.abs(jnp.fft.ifft(jnp.fft.fft(signal)).real - signal).max()), atol=1e-5)

with report.section("linalg"):
    matrix = jax.random.normal(jax.random.key(2), (64, 64))
    report.close("svd", [float(v) for v in jnp.linalg.svd(matrix, compute_uv=False)], rtol=1e-4, atol=1e-4)
    report.close("solve", float(jnp.abs(jnp.linalg.solve(matrix, matrix) - jnp.eye(64)).max()), atol=1e-2)
    report.exact("sort", digest(jnp.sort(signal, axis=1)))

with report.section("control"):
    total = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda i, s: s + i * i, 0))(1000)
    report.exact("while_loop", int(total))
    scanned = jax.lax.scan(lambda carry, v: (carry + v, carry * v), 0.0, jnp.arange(100.0))
    report.exact("scan", [float(scanned[0]), digest(scanned[1])])

report.finish()
