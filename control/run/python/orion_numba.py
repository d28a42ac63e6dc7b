"""Makes numba hand over PTX, which the software GPU runs, in place of machine code, which it does not.

numba links what it compiled with nvJitLink, which makes PTX of its intermediate language and of nothing else, and no
setting of numba's makes it ask for that. It imports the module that NUMBA_CUDA_MEMORY_MANAGER names when it makes its
first context, before it links anything. orion-run names this one on the software GPU, and nowhere else. Memory is
managed as always. There are two of numba's, numba-cuda and numba-cuda-mlir, and a program may have both.
"""

import ctypes
import sys
import warnings

#: What numba's groups of a whole grid call, which CUDA has as machine code (libcudadevrt.a). A cooperative launch has a
#: workspace, whose address is in two registers; its second word is a barrier. Each block adds one, but for the first,
#: which adds what is missing to 2^31: whoever sees the highest bit change knows that all have come.
_OF_GRIDS = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b64 %handle;
    mov.u64 %handle, 1;
    st.param.b64 [result], %handle;
    ret;
}
.visible .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %p;
    .reg .b32 %x, %y, %z, %high, %low, %blocks, %add, %before, %now;
    .reg .b64 %at;
    barrier.sync 0;
    mov.u32 %x, %tid.x;
    mov.u32 %y, %tid.y;
    mov.u32 %z, %tid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    setp.ne.u32 %p, %x, 0;
    @%p bra over;
    mov.u32 %high, %envreg1;
    mov.u32 %low, %envreg2;
    mov.b64 %at, {%low, %high};
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %y, %nctaid.y;
    mov.u32 %z, %nctaid.z;
    mul.lo.u32 %blocks, %blocks, %y;
    mul.lo.u32 %blocks, %blocks, %z;
    sub.u32 %blocks, %blocks, 1;
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ctaid.y;
    mov.u32 %z, %ctaid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    setp.eq.u32 %p, %x, 0;
    sub.u32 %add, 0x80000000, %blocks;
    selp.u32 %add, %add, 1, %p;
    fence.sc.gpu;
    atom.add.release.gpu.u32 %before, [%at+4], %add;
again:
    ld.acquire.gpu.u32 %now, [%at+4];
    xor.b32 %now, %now, %before;
    setp.ge.s32 %p, %now, 0;
    @%p bra again;
    fence.sc.gpu;
over:
    barrier.sync 0;
    st.param.b32 [result], 0;
    ret;
}
\0"""


def _ask_for_ptx(driver):
    linker = driver._Linker
    machine_code = linker.complete

    def complete(self):
        if hasattr(self, "_materialize_pending_cu"):
            self._materialize_pending_cu()
        codes = [code for code in self._object_codes if code.name != "libcudadevrt.a"]
        of_grids = [_OF_GRIDS] if len(codes) < len(self._object_codes) else []
        kinds = {code.code_type for code in codes}
        if not kinds <= {"ltoir", "ptx"}:
            return machine_code(self)
        # As of kernels with debug=True, or with files of PTX: what can be linked as an intermediate language is, and
        # the software GPU links the rest.
        texts = [code.code for code in codes if code.code_type == "ptx"] + of_grids
        if "ltoir" in kinds:
            everything = self._object_codes
            self._object_codes = [code for code in codes if code.code_type == "ltoir"]
            texts.insert(0, self.get_linked_ptx())
            self._object_codes = everything
        else:
            # Its logs are asked for, and there are none without a linker.
            self.linker = codes[0]
            self._info_log = self._error_log = ""
            self._complete = True
        return driver.ObjectCode.from_ptx(texts[0]) if len(texts) == 1 else _linked(driver, texts)

    linker.complete = complete


def _linked(driver, texts):
    """Of several texts, by the driver's linker."""
    cuda = driver.binding

    def done(answer):
        if answer[0] != cuda.CUresult.CUDA_SUCCESS:
            raise driver.LinkerError(f"linking {len(texts)} texts of PTX failed: {answer[0].name}")
        return answer[1:]

    (state,) = done(cuda.cuLinkCreate(0, [], []))
    try:
        for text in texts:
            kind = cuda.CUjitInputType.CU_JIT_INPUT_PTX
            done(cuda.cuLinkAddData(state, kind, text, len(text), b"numba", 0, [], []))
        image, size = done(cuda.cuLinkComplete(state))
        return driver.ObjectCode.from_cubin(ctypes.string_at(image, size))
    finally:
        cuda.cuLinkDestroy(state)


def _known(driver):
    # A numba without this class gives PTX to the driver's linker.
    if not hasattr(driver, "_Linker"):
        return
    missing = [name for name in ("complete", "get_linked_ptx") if not hasattr(driver._Linker, name)]
    if missing or not hasattr(driver, "ObjectCode"):
        warnings.warn(f"Orion does not know this version of {driver.__name__} ({missing}); its kernels may be refused")
    else:
        _ask_for_ptx(driver)


#: Those that have asked for their memory manager.
_drivers = set()


def __getattr__(name):
    """The memory manager of the driver that asks for it."""
    if name != "_numba_memory_manager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    driver = sys.modules[sys._getframe(1).f_globals["__name__"]]
    if driver.__name__ not in _drivers:
        _drivers.add(driver.__name__)
        _known(driver)
    return driver.NumbaCUDAMemoryManager
