"""Trains a small network on a GPU with CuPy, and once more on the CPU with NumPy: both have to learn the same.

Nothing in here knows of Orion. The pictures are digits of a seven-segment display, 12 by 12 pixels, a little moved,
with noise.
"""

import sys
import time

import cupy
import numpy

BATCH, HIDDEN, STEPS, RATE = 128, 64, 100, 0.5
SEGMENTS = (0x77, 0x24, 0x5D, 0x6D, 0x2E, 0x6B, 0x7B, 0x25, 0x7F, 0x6F)


def pictures(numbers, count):
    """As many pictures with the digits that they show."""
    digits = numbers.integers(0, 10, count)
    shown = numpy.zeros((count, 12, 12), numpy.float32)
    for picture, digit in zip(shown, digits):
        top, left = numbers.integers(0, 2, 2)
        lit = [SEGMENTS[digit] >> segment & 1 for segment in range(7)]
        for on, (row, column, high, wide) in zip(
            lit, ((0, 1, 1, 4), (1, 0, 3, 1), (1, 5, 3, 1), (4, 1, 1, 4), (5, 0, 3, 1), (5, 5, 3, 1), (8, 1, 1, 4))
        ):
            picture[top + row : top + row + high, left + column : left + column + wide] = on
    shown += 0.2 * numbers.standard_normal(shown.shape, numpy.float32)
    return shown.reshape(count, 144), numpy.eye(10, dtype=numpy.float32)[digits]


def train(np, batches, first, second):
    """The loss of each step. `np` is NumPy, or CuPy, which has the same names."""
    first, second, losses = np.asarray(first), np.asarray(second), []
    for pixels, digits in batches:
        pixels, digits = np.asarray(pixels), np.asarray(digits)
        hidden = np.maximum(pixels @ first, 0)
        scores = hidden @ second
        scores -= scores.max(axis=1, keepdims=True)
        guesses = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        losses.append(float(-(digits * np.log(guesses)).sum() / BATCH))
        wrong = (guesses - digits) / BATCH
        back = (wrong @ second.T) * (hidden > 0)
        second -= RATE * (hidden.T @ wrong)
        first -= RATE * (pixels.T @ back)
    return losses


numbers = numpy.random.default_rng(7)
batches = [pictures(numbers, BATCH) for _ in range(STEPS)]
first = 0.1 * numbers.standard_normal((144, HIDDEN), numpy.float32)
second = 0.1 * numbers.standard_normal((HIDDEN, 10), numpy.float32)

name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
began = time.perf_counter()
got = train(cupy, batches, first, second)
seconds = time.perf_counter() - began
print(f"CuPy {cupy.__version__} on {name!r}: {STEPS} steps of {BATCH} pictures in {seconds:.1f} s")
print("loss: " + ", ".join(f"{loss:.3f}" for loss in got[::10] + got[-1:]))
wanted = train(numpy, batches, first, second)
if not numpy.allclose(got, wanted, rtol=1e-3):
    sys.exit(f"FAIL the CPU's losses are {wanted[::10] + wanted[-1:]}")
if got[-1] > got[0] / 4:
    sys.exit("FAIL it has learned nothing")
print("PASS the CPU's losses are the same")
