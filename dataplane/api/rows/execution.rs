//! Launches and attributes of functions.

/// Arguments are packed with the layout learned when the function was loaded. Geometry is checked in the shim, so
/// the errors CUDA reports at once are reported at once.
#[by_hand(0x0300)]
#[since(4000)]
#[per_thread(ptsz)]
fn cuLaunchKernel(
    f: CUfunction,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    sharedMemBytes: u32,
    hStream: CUstream,
    kernelParams: *mut *mut c_void,
    extra: *mut *mut c_void,
);

/// As `cuLaunchKernel`, with attributes.
#[client]
#[since(11060)]
#[per_thread(ptsz)]
fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    f: CUfunction,
    kernelParams: *mut *mut c_void,
    extra: *mut *mut c_void,
);

/// As `cuLaunchKernel`, with attributes.
#[client]
#[since(9000)]
#[per_thread(ptsz)]
fn cuLaunchCooperativeKernel(
    f: CUfunction,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    sharedMemBytes: u32,
    hStream: CUstream,
    kernelParams: *mut *mut c_void,
);

/// Known here once asked or set.
#[by_hand(0x0302)]
#[since(2020)]
fn cuFuncGetAttribute(pi: *mut i32, attrib: CUfunction_attribute, hfunc: CUfunction);

/// Known here once asked or set.
#[by_hand(0x0303)]
#[since(9000)]
fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: i32);

/// Moves the split between cache and shared memory, and occupancy with it.
#[by_hand(0x0305)]
#[since(3000)]
fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache);

/// A hint without effect since Volta.
#[client]
#[since(4020)]
fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig);

#[client]
#[since(12030)]
fn cuFuncGetName(name: *mut *const c_char, hfunc: CUfunction);

#[client]
#[since(12040)]
fn cuFuncGetParamInfo(func: CUfunction, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize);

/// Whether the worker's driver has brought it to the device; it does that late unless told otherwise.
#[by_hand(0x0306)]
#[since(12040)]
fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction);

#[by_hand(0x0307)]
#[since(12040)]
fn cuFuncLoad(function: CUfunction);

#[client]
#[since(11000)]
#[finds(hmod)]
fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction);

/// Removed in CUDA 13 and deprecated since 11.3; launch on each device and synchronise.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(9000)]
fn cuLaunchCooperativeKernelMultiDevice(launchParamsList: *mut CUDA_LAUNCH_PARAMS, numDevices: u32, flags: u32);

/// Deprecated with `cuLaunch`, which launches with what was set: the shape of a block.
#[client]
#[since(2000)]
fn cuFuncSetBlockShape(hfunc: CUfunction, x: i32, y: i32, z: i32);

/// Deprecated with `cuLaunch`, which launches with what was set: bytes of shared memory.
#[client]
#[since(2000)]
fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: u32);

/// Deprecated with `cuLaunch`: more than the function takes is refused at the launch.
#[client]
#[since(2000)]
fn cuParamSetSize(hfunc: CUfunction, numbytes: u32);

/// Deprecated with `cuLaunch`, which launches with what was set: an argument.
#[client]
#[since(2000)]
fn cuParamSeti(hfunc: CUfunction, offset: i32, value: u32);

/// Deprecated with `cuLaunch`, which launches with what was set: an argument.
#[client]
#[since(2000)]
fn cuParamSetf(hfunc: CUfunction, offset: i32, value: f32);

/// Deprecated with `cuLaunch`, which launches with what was set: bytes of arguments.
#[client]
#[since(2000)]
fn cuParamSetv(hfunc: CUfunction, offset: i32, ptr: *mut c_void, numbytes: u32);

/// Deprecated in CUDA 4.0: as `cuLaunchKernel`, with what was set of the function.
#[client]
#[since(2000)]
fn cuLaunch(f: CUfunction);

/// Deprecated in CUDA 4.0: as `cuLaunchKernel`, with what was set of the function.
#[client]
#[since(2000)]
fn cuLaunchGrid(f: CUfunction, grid_width: i32, grid_height: i32);

/// Deprecated in CUDA 4.0: as `cuLaunchKernel`, with what was set of the function.
#[client]
#[since(2000)]
fn cuLaunchGridAsync(f: CUfunction, grid_width: i32, grid_height: i32, hStream: CUstream);

/// Texture references were removed with CUDA 12's compilers.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuParamSetTexRef(hfunc: CUfunction, texunit: i32, hTexRef: CUtexref);
