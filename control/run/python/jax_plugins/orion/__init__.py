"""Lets JAX look for a GPU on a machine without NVIDIA's device files.

JAX passes over its CUDA plugin, without a word, where none of the files exists that NVIDIA's driver makes in /dev. A
GPU of Orion's needs none. JAX loads this module as it loads every plugin: because it lies in a package `jax_plugins` on
Python's path, where orion-run puts it.
"""

import logging


def initialize():
    try:
        from jax._src.hardware_utils import _NVIDIA_GPU_DEVICES as files

        # One that exists everywhere.
        files.append("/dev/null")
    except (ImportError, AttributeError) as reason:
        logging.getLogger("jax").warning(
            "Orion: this version of JAX is not known (%s); if it shows no GPU, a file /dev/nvidiactl lets it look",
            reason,
        )
