"""JAX shows Orion's GPU, and brings an array there and back."""

import sys

import jax
import numpy as np

devices = jax.devices()
if [(d.platform, d.device_kind) for d in devices] != [("gpu", "Orion software GPU")]:
    sys.exit(f"FAIL JAX shows {devices}")
print("PASS devices")
array = np.arange(100_000, dtype=np.float32)
there = jax.device_put(array, devices[0])
if not np.array_equal(np.asarray(there), array):
    sys.exit("FAIL what was brought there did not come back")
print("PASS device_put")
