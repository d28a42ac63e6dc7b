"""TensorFlow shows Orion's GPU, and its own kernels compute there what the CPU computes."""

import sys

import numpy as np
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
if [detail.get("device_name") for detail in details] != ["Orion software GPU"]:
    sys.exit(f"FAIL TensorFlow shows {gpus} {details}")
tf.config.set_soft_device_placement(False)

numbers = np.random.default_rng(5)
a = numbers.standard_normal((257, 1031), dtype=np.float32)
b = numbers.standard_normal((257, 1031), dtype=np.float32)
whole = numbers.integers(-1000, 1000, (64, 777), dtype=np.int32)

# Kernels for which the wheel carries PTX. Of others (exp, where, relu, ...) it has machine code alone.
CASES = {
    "add": lambda: tf.add(a, b),
    "multiply": lambda: tf.multiply(a, b),
    "divide": lambda: tf.divide(a, b),
    "tanh": lambda: tf.tanh(a),
    "cast": lambda: tf.cast(tf.cast(a, tf.float16), tf.float32),
    "broadcast": lambda: tf.add(a, b[:, :1]),
    "add of integers": lambda: tf.add(whole, whole[:1]),
    "reduce_sum": lambda: tf.reduce_sum(a),
    "reduce_sum of rows": lambda: tf.reduce_sum(a, axis=1),
    "reduce_sum of columns": lambda: tf.reduce_sum(a, axis=0),
    "reduce_mean": lambda: tf.reduce_mean(a),
    "reduce_max": lambda: tf.reduce_max(b, axis=0),
    "reduce_prod": lambda: tf.reduce_prod(a[:, :8], axis=1),
    "argmax": lambda: tf.argmax(a, axis=1),
}

for name, case in CASES.items():
    with tf.device("/CPU:0"):
        wanted = case()
    with tf.device("/GPU:0"):
        got = case()
    if "GPU:0" not in got.device:
        sys.exit(f"FAIL {name} was computed on {got.device}")
    got, wanted = got.numpy(), wanted.numpy()
    exact = wanted.dtype.kind != "f"
    if not (np.array_equal(got, wanted) if exact else np.allclose(got, wanted, rtol=2e-5, atol=2e-4)):
        worst = np.unravel_index(np.argmax(np.abs(got.astype(float) - wanted.astype(float))), got.shape)
        sys.exit(f"FAIL {name}: {got[worst]} at {worst}, the CPU computes {wanted[worst]}")
    print(f"PASS {name}")

# What is drawn on the device need not be what the CPU draws, but it is random, and again the same from the same seed.
def drawn(draw):
    tf.random.set_seed(7)
    with tf.device("/GPU:0"):
        return draw().numpy()


for name, draw, mean, deviation in (
    ("normal", lambda: tf.random.normal([200_000]), 0, 1),
    ("uniform", lambda: tf.random.uniform([200_000]), 0.5, 12**-0.5),
):
    once, again = drawn(draw), drawn(draw)
    if abs(once.mean() - mean) > 0.02 or abs(once.std() - deviation) > 0.02 or len(np.unique(once)) < 100_000:
        sys.exit(f"FAIL random.{name}: mean {once.mean()}, deviation {once.std()}")
    if not np.array_equal(once, again):
        sys.exit(f"FAIL random.{name} draws something else from the same seed")
    print(f"PASS random.{name}")
    print(f"PASS random.{name} again")
