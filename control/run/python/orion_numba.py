"""Makes numba hand over PTX, which the software GPU runs, in place of machine code, which it does not.

numba links what it compiled with nvJitLink, and no setting of its own makes it ask nvJitLink for PTX. It imports the
module that NUMBA_CUDA_MEMORY_MANAGER names when it makes its first context, before it links anything. orion-run names
this one on the software GPU, and nowhere else. Memory is managed as always.
"""

import warnings

from numba.cuda.cudadrv import driver

_numba_memory_manager = driver.NumbaCUDAMemoryManager


def _ask_for_ptx(linker):
    machine_code = linker.complete

    def complete(self):
        codes = self._object_codes
        if self._has_ltoir:
            return driver.ObjectCode.from_ptx(self.get_linked_ptx())
        # Nothing to link, as of a kernel with debug=True. Its logs are asked for, and there are none without a linker.
        if len(codes) == 1 and codes[0].code_type == "ptx":
            self.linker = codes[0]
            self._info_log = self._error_log = ""
            self._complete = True
            return codes[0]
        return machine_code(self)

    linker.complete = complete


# A numba without this class gives PTX to the driver's linker.
if hasattr(driver, "_Linker"):
    _missing = [name for name in ("complete", "get_linked_ptx") if not hasattr(driver._Linker, name)]
    if _missing or not hasattr(driver, "ObjectCode"):
        warnings.warn(f"Orion does not know this version of numba-cuda ({_missing}); its kernels may be refused")
    else:
        _ask_for_ptx(driver._Linker)
