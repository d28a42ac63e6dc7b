//! Contexts and primary contexts.

/// Counted here; the worker retains the context when it is first used.
#[by_hand(0x0180)]
#[since(7000)]
#[creates(pctx)]
fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice);

#[by_hand(0x0181, client)]
#[since(11000)]
fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32);

#[local]
#[since(7000)]
fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut u32, active: *mut i32);

/// Drops every object of the context on both sides.
#[by_hand(0x0182)]
#[since(11000)]
#[destroys(dev)]
fn cuDevicePrimaryCtxReset_v2(dev: CUdevice);

/// Reaches the worker when the count falls to zero.
#[by_hand(0x0183)]
#[since(11000)]
#[destroys(dev)]
fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice);

#[local]
#[since(7000)]
#[destroys(dev)]
fn cuDevicePrimaryCtxRelease(dev: CUdevice);

#[local]
#[since(7000)]
#[destroys(dev)]
fn cuDevicePrimaryCtxReset(dev: CUdevice);

#[local]
#[since(7000)]
fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: u32);

#[by_hand(0x0184)]
#[since(3020)]
#[creates(pctx)]
#[charges(by_hand)]
fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, dev: CUdevice);

#[local]
#[since(2000)]
#[creates(pctx)]
fn cuCtxCreate(pctx: *mut CUcontext, flags: u32, dev: CUdevice);

/// As `cuCtxCreate_v2`; execution affinity and CIG parameters are refused.
#[local]
#[since(11040)]
#[creates(pctx)]
fn cuCtxCreate_v3(
    pctx: *mut CUcontext,
    paramsArray: *mut CUexecAffinityParam,
    numParams: i32,
    flags: u32,
    dev: CUdevice,
);

/// As `cuCtxCreate_v2`; execution affinity and CIG parameters are refused.
#[local]
#[since(12050)]
#[creates(pctx)]
fn cuCtxCreate_v4(pctx: *mut CUcontext, ctxCreateParams: *mut CUctxCreateParams, flags: u32, dev: CUdevice);

#[by_hand(0x0185)]
#[since(4000)]
#[destroys(ctx)]
fn cuCtxDestroy_v2(ctx: CUcontext);

#[local]
#[since(2000)]
#[destroys(ctx)]
fn cuCtxDestroy(ctx: CUcontext);

#[local]
#[since(4000)]
fn cuCtxPushCurrent_v2(ctx: CUcontext);

#[local]
#[since(4000)]
#[finds(pctx)]
fn cuCtxPopCurrent_v2(pctx: *mut CUcontext);

#[local]
#[since(2000)]
fn cuCtxPushCurrent(ctx: CUcontext);

#[local]
#[since(2000)]
#[finds(pctx)]
fn cuCtxPopCurrent(pctx: *mut CUcontext);

/// The calling thread's context stack lives in the shim.
#[local]
#[since(4000)]
fn cuCtxSetCurrent(ctx: CUcontext);

/// The calling thread's context stack lives in the shim.
#[local]
#[since(4000)]
#[finds(pctx)]
fn cuCtxGetCurrent(pctx: *mut CUcontext);

/// The calling thread's context stack lives in the shim.
#[local]
#[since(2000)]
fn cuCtxGetDevice(device: *mut CUdevice);

/// The calling thread's context stack lives in the shim.
#[local]
#[since(13000)]
fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext);

/// The calling thread's context stack lives in the shim.
#[local]
#[since(7000)]
fn cuCtxGetFlags(flags: *mut u32);

/// The calling thread's context stack lives in the shim.
#[by_hand(0x0186, client)]
#[since(12010)]
fn cuCtxSetFlags(flags: u32);

/// The calling thread's context stack lives in the shim.
#[local]
#[since(12000)]
fn cuCtxGetId(ctx: CUcontext, ctxId: *mut u64);

/// The calling thread's context stack lives in the shim.
#[local]
#[since(3020)]
fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0187)]
#[since(2000)]
fn cuCtxSynchronize();

#[client]
#[since(13000)]
fn cuCtxSynchronize_v2(ctx: CUcontext);

/// Read again only after it was set.
#[by_hand(0x0188)]
#[since(3010)]
#[charges(by_hand)]
fn cuCtxSetLimit(limit: CUlimit, value: usize);

/// Read again only after it was set.
#[by_hand(0x0189, client)]
#[since(3010)]
fn cuCtxGetLimit(pvalue: Out<usize>, limit: CUlimit);

/// A fact of the device.
#[local]
#[since(5050)]
fn cuCtxGetStreamPriorityRange(leastPriority: *mut i32, greatestPriority: *mut i32);

#[local]
#[since(3020)]
fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache);

#[local]
#[since(4020)]
fn cuCtxGetSharedMemConfig(pConfig: *mut CUsharedconfig);

/// A preference; a later call reports if it is no valid one.
#[by_hand(0x018a, client)]
#[since(3020)]
fn cuCtxSetCacheConfig(config: CUfunc_cache);

/// A preference; a later call reports if it is no valid one.
#[local]
#[since(4020)]
fn cuCtxSetSharedMemConfig(config: CUsharedconfig);

#[by_hand(0x018b, client)]
#[since(11000)]
fn cuCtxResetPersistingL2Cache();

#[local]
#[since(11040)]
fn cuCtxGetExecAffinity(pExecAffinity: *mut CUexecAffinityParam, type_: CUexecAffinityType);

#[call(0x018c)]
#[since(12050)]
fn cuCtxRecordEvent(hCtx: CUcontext, hEvent: CUevent);

#[call(0x018d)]
#[since(12050)]
fn cuCtxWaitEvent(hCtx: CUcontext, hEvent: CUevent);

/// Counted contexts were deprecated in CUDA 4.0; primary contexts replaced them.
#[local]
#[since(2000)]
#[creates(pctx)]
fn cuCtxAttach(pctx: *mut CUcontext, flags: u32);

/// Counted contexts were deprecated in CUDA 4.0; primary contexts replaced them.
#[local]
#[since(2000)]
#[destroys(ctx)]
fn cuCtxDetach(ctx: CUcontext);
