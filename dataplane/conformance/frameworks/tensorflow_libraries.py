"""TensorFlow's kernels beside PTX of cuBLAS and cuDNN compute on Orion's GPU what the CPU computes."""

import sys

import numpy as np
import tensorflow as tf

details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
if [detail.get("device_name") for detail in details] != ["Orion software GPU"]:
    sys.exit(f"FAIL TensorFlow shows {details}")
tf.config.set_soft_device_placement(False)
# The CPU has no TF32.
tf.config.experimental.enable_tensor_float_32_execution(False)

numbers = np.random.default_rng(6)
a = numbers.standard_normal((65, 96), dtype=np.float32)
b = numbers.standard_normal((96, 70), dtype=np.float32)
pictures = numbers.standard_normal((4, 12, 12, 3), dtype=np.float32)
filters = numbers.standard_normal((3, 3, 3, 8), dtype=np.float32)
slopes = numbers.standard_normal((4, 12, 12, 8), dtype=np.float32)
half = lambda x: tf.cast(x, tf.float16)
whole = lambda x: tf.cast(x, tf.float32)

CASES = {
    "matmul": (lambda: tf.matmul(a, b), 1e-4),
    "matmul of f64": (lambda: tf.matmul(a.astype("d"), b.astype("d")), 1e-12),
    "matmul of f16": (lambda: whole(tf.matmul(half(a), half(b))), 5e-2),
    "exp": (lambda: tf.exp(a), 1e-5),
    "log": (lambda: tf.math.log(tf.abs(a) + 1), 1e-5),
    "relu": (lambda: tf.nn.relu(a), 0),
    "softmax": (lambda: tf.nn.softmax(a), 1e-5),
    "where": (lambda: tf.where(a > 1), 0),
    "transpose": (lambda: tf.transpose(a), 0),
    "bias_add": (lambda: tf.nn.bias_add(a, b[:, 0]), 0),
    "cross entropy": (
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(np.arange(65, dtype=np.int32), a), 1e-5
    ),
    "max_pool2d": (lambda: tf.nn.max_pool2d(pictures, 2, 2, "SAME"), 0),
    "conv2d": (lambda: tf.nn.conv2d(pictures, filters, 1, "SAME"), 1e-4),
    "conv2d's filters": (
        lambda: tf.compat.v1.nn.conv2d_backprop_filter(pictures, filters.shape, slopes, [1, 1, 1, 1], "SAME"), 1e-3
    ),
}
for name, (case, tolerance) in CASES.items():
    with tf.device("/CPU:0"):
        wanted = case().numpy()
    with tf.device("/GPU:0"):
        got = case()
    if "GPU:0" not in got.device:
        sys.exit(f"FAIL {name} was computed on {got.device}")
    got = got.numpy()
    if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        worst = np.unravel_index(np.argmax(np.abs(got - wanted)), wanted.shape)
        sys.exit(f"FAIL {name}: {got[worst]} at {worst}, the CPU computes {wanted[worst]}")
    print(f"PASS {name}", flush=True)
