"""NVIDIA Warp compiles by NVRTC and hands over PTX, as long as its CUDA is no newer than the driver."""

import sys
import tempfile

import numpy as np
import warp as wp

wp.config.quiet = True
wp.config.kernel_cache_dir = tempfile.mkdtemp(prefix="orion-warp-")
wp.init()
numbers = np.random.default_rng(7)


def check(name, got, wanted, tolerance):
    if not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        sys.exit(f"FAIL {name}: {got}, NumPy computes {wanted}")
    print(f"PASS {name}", flush=True)


@wp.kernel
def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = a * x[i] + wp.sin(y[i])


with wp.ScopedDevice("cuda:0"):
    host = numbers.random(1000, dtype=np.float32)
    x, y = wp.array(host, dtype=float), wp.ones(1000, dtype=float)
    wp.launch(saxpy, dim=1000, inputs=[2.0, x, y])
    wanted = 2 * host + np.sin(np.float32(1))
    check("a kernel", y.numpy(), wanted, 1e-5)

    with wp.ScopedCapture() as capture:
        wp.launch(saxpy, dim=1000, inputs=[2.0, x, y])
    for _ in range(3):
        wp.capture_launch(capture.graph)
        wanted = 2 * host + np.sin(wanted)
    check("a graph, launched three times", y.numpy(), wanted, 1e-4)
    check("a sum", wp.utils.array_sum(x), host.sum(), 1e-4)

    keys, values = wp.zeros(1024, dtype=int), wp.zeros(1024, dtype=int)
    wp.copy(keys, wp.array(numbers.permutation(512).astype(np.int32)), count=512)
    wp.utils.radix_sort_pairs(keys, values, 512)
    check("a sort", keys.numpy()[:512], np.arange(512), 0)

    points = numbers.random((200, 3)).astype(np.float32)

    @wp.kernel
    def neighbours(grid: wp.uint64, points: wp.array(dtype=wp.vec3), radius: float, counts: wp.array(dtype=int)):
        i = wp.tid()
        count = int(0)
        for j in wp.hash_grid_query(grid, points[i], radius):
            if wp.length(points[i] - points[j]) <= radius:
                count += 1
        counts[i] = count

    there, counts = wp.array(points, dtype=wp.vec3), wp.zeros(200, dtype=int)
    grid = wp.HashGrid(16, 16, 16)
    grid.build(there, 0.2)
    wp.launch(neighbours, dim=200, inputs=[grid.id, there, 0.2, counts])
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    check("neighbours by a hash grid", counts.numpy(), (distances <= np.float32(0.2)).sum(axis=1), 0)
