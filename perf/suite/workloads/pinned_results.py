"""JAX arrays in `pinned_host` memory, new ones at addresses that were used before: each holds its own round's value."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from report import Report, require  # noqa: E402

jax = require("pinned_results", "jax")
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

report = Report("pinned_results")
report.gate()

with report.section("values"):
    mesh = Mesh(jax.devices()[:1], "x")
    pinned = NamedSharding(mesh, PartitionSpec(), memory_kind="pinned_host")
    device = NamedSharding(mesh, PartitionSpec(), memory_kind="device")
    both_pinned = jax.jit(lambda x: (x, x), out_shardings=(pinned, pinned))
    one_pinned = jax.jit(lambda x: (x * 2, x + 1), out_shardings=(pinned, device))
    rounds = int(os.environ.get("ORION_PINNED_ROUNDS", report.count(400, speed=400)))
    wrong = []
    for i in range(rounds):
        a, b = both_pinned(i)
        x, y = one_pinned(np.float32(i))
        k = jax.device_put(np.full(3, i, np.int32), pinned)
        z = jax.device_put(k, device)
        for got, want in ((a, i), (b, i), (x, 2 * i), (y, i + 1), (z[0], i)):
            seen = float(np.asarray(got))
            if seen != want:
                wrong.append((i, seen, want))
    report.exact("wrong", wrong)

report.finish()
