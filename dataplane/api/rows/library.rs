//! Libraries and kernels.

/// The reply brings the kernels' names, attributes and parameter layouts.
#[by_hand(0x0280)]
#[since(12000)]
#[creates(library)]
#[charges(by_hand)]
fn cuLibraryLoadData(
    library: *mut CUlibrary,
    code: *const c_void,
    jitOptions: *mut CUjit_option,
    jitOptionsValues: *mut *mut c_void,
    numJitOptions: u32,
    libraryOptions: *mut CUlibraryOption,
    libraryOptionValues: *mut *mut c_void,
    numLibraryOptions: u32,
);

#[client]
#[since(12000)]
#[creates(library)]
fn cuLibraryLoadFromFile(
    library: *mut CUlibrary,
    fileName: *const c_char,
    jitOptions: *mut CUjit_option,
    jitOptionsValues: *mut *mut c_void,
    numJitOptions: u32,
    libraryOptions: *mut CUlibraryOption,
    libraryOptionValues: *mut *mut c_void,
    numLibraryOptions: u32,
);

#[by_hand(0x0281)]
#[since(12000)]
#[destroys(library)]
fn cuLibraryUnload(library: CUlibrary);

#[by_hand(0x0282)]
#[since(12000)]
#[creates(pKernel, library)]
fn cuLibraryGetKernel(pKernel: *mut CUkernel, library: CUlibrary, name: *const c_char);

#[client]
#[since(12040)]
fn cuLibraryGetKernelCount(count: *mut u32, lib: CUlibrary);

#[by_hand(0x0283)]
#[since(12040)]
#[finds(kernels)]
fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, numKernels: u32, lib: CUlibrary);

#[by_hand(0x0284)]
#[since(12000)]
#[creates(pMod, library)]
fn cuLibraryGetModule(pMod: *mut CUmodule, library: CUlibrary);

#[by_hand(0x0285)]
#[since(12000)]
fn cuLibraryGetGlobal(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);

/// The variable's bytes are carried over to pages of the heap, which the client has at its address. Where that cannot
/// be it is refused for good: the context answers the error from then on, since the runtime, which asks for a program's
/// variables, ignores it.
#[by_hand(0x0286)]
#[since(12000)]
fn cuLibraryGetManaged(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);

/// Host code that a kernel may call would run on the GPU's host, not here.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12000)]
fn cuLibraryGetUnifiedFunction(fptr: *mut *mut c_void, library: CUlibrary, symbol: *const c_char);

#[client]
#[since(12000)]
#[finds(pFunc)]
fn cuKernelGetFunction(pFunc: *mut CUfunction, kernel: CUkernel);

#[client]
#[since(12050)]
#[finds(pLib)]
fn cuKernelGetLibrary(pLib: *mut CUlibrary, kernel: CUkernel);

#[client]
#[since(12030)]
fn cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel);

#[client]
#[since(12040)]
fn cuKernelGetParamInfo(kernel: CUkernel, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize);

#[client]
#[since(12000)]
fn cuKernelGetAttribute(pi: *mut i32, attrib: CUfunction_attribute, kernel: CUkernel, dev: CUdevice);

#[client]
#[since(12000)]
fn cuKernelSetAttribute(attrib: CUfunction_attribute, val: i32, kernel: CUkernel, dev: CUdevice);

#[client]
#[since(12000)]
fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice);
