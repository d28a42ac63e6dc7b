//! `cuGetProcAddress`: how the runtime finds everything else.
//!
//! UNSAFETY: calls a function through the address that was found.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, text};

facts! { proc_address:
    Init [
        an_unknown_name_is_reported_in_the_status,
        a_version_before_the_function_is_reported_in_the_status,
        an_unknown_name_without_status_is_null,
        an_unknown_name_is_not_found_in_the_first_form,
        the_empty_name_is_not_found,
        unknown_flags_are_invalid_value,
        the_version_selects_the_abi,
        the_flag_selects_the_default_stream,
        functions_without_a_stream_ignore_the_flag,
        what_is_found_is_what_is_exported,
        itself_changes_its_signature_at_12000,
        everything_the_runtime_needs_is_found,
    ]
    Context [ctx_get_device_takes_a_context_since_13000]
}

fn find(cu: &Cuda, name: &str, version: c_int, flags: u64) -> Get<(*mut c_void, CUdriverProcAddressQueryResult)> {
    let (mut function, mut status, name) = (null_mut(), 99, text(name));
    ok!(cu.cuGetProcAddress_v2(name.as_ptr(), &mut function, version, flags, &mut status));
    Ok((function, status))
}

fn an_unknown_name_is_reported_in_the_status(cu: &'static Cuda) -> Verdict {
    same!(find(cu, "cuNoSuchFunction", 13000, 0)?, (null_mut(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    Ok(())
}

fn a_version_before_the_function_is_reported_in_the_status(cu: &'static Cuda) -> Verdict {
    same!(find(cu, "cuMemAllocAsync", 11000, 0)?, (null_mut(), CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    Ok(())
}

fn an_unknown_name_without_status_is_null(cu: &'static Cuda) -> Verdict {
    let mut function = std::ptr::dangling_mut();
    ok!(cu.cuGetProcAddress_v2(c"cuNoSuchFunction".as_ptr(), &mut function, 13000, 0, null_mut()));
    holds!(function.is_null(), "an unknown name has an address");
    Ok(())
}

fn an_unknown_name_is_not_found_in_the_first_form(cu: &'static Cuda) -> Verdict {
    let mut function = null_mut();
    answers!(CUDA_ERROR_NOT_FOUND, cu.cuGetProcAddress(c"cuNoSuchFunction".as_ptr(), &mut function, 11030, 0));
    Ok(())
}

fn the_empty_name_is_not_found(cu: &'static Cuda) -> Verdict {
    holds!(find(cu, "", 13000, 0)?.0.is_null(), "the empty name has an address");
    Ok(())
}

fn unknown_flags_are_invalid_value(cu: &'static Cuda) -> Verdict {
    let (mut function, mut status) = (null_mut(), 0);
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuGetProcAddress_v2(c"cuInit".as_ptr(), &mut function, 13000, 0x100, &mut status)
    );
    Ok(())
}

fn the_version_selects_the_abi(cu: &'static Cuda) -> Verdict {
    let (old, _) = find(cu, "cuGraphAddKernelNode", 10000, 0)?;
    let (new, _) = find(cu, "cuGraphAddKernelNode", 12000, 0)?;
    holds!(!old.is_null() && !new.is_null(), "cuGraphAddKernelNode has no address at 10000 or at 12000");
    holds!(old != new, "cuGraphAddKernelNode is the same function at 10000 and at 12000");
    Ok(())
}

fn the_flag_selects_the_default_stream(cu: &'static Cuda) -> Verdict {
    let (unsaid, _) = find(cu, "cuLaunchKernel", 13000, 0)?;
    let (legacy, _) = find(cu, "cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM.into())?;
    let (own, _) = find(cu, "cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.into())?;
    same!(unsaid, legacy);
    holds!(own != legacy, "launches on the per-thread default stream go to the legacy one");
    Ok(())
}

fn functions_without_a_stream_ignore_the_flag(cu: &'static Cuda) -> Verdict {
    let (legacy, _) = find(cu, "cuMemAlloc", 13000, 0)?;
    let (own, _) = find(cu, "cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.into())?;
    same!(own, legacy);
    Ok(())
}

fn what_is_found_is_what_is_exported(cu: &'static Cuda) -> Verdict {
    for (name, version, flags, symbol) in [
        ("cuInit", 13000, 0, "cuInit"),
        ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2"),
        ("cuMemcpyHtoDAsync", 13000, 2, "cuMemcpyHtoDAsync_v2_ptsz"),
        ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuEventElapsedTime", 13000, 0, "cuEventElapsedTime_v2"),
        ("cuEventElapsedTime", 12000, 0, "cuEventElapsedTime"),
        ("cuStreamBeginCapture", 13000, 0, "cuStreamBeginCapture_v2"),
    ] {
        let (found, _) = find(cu, name, version, flags)?;
        holds!(found == cu.symbol(symbol), "{name} at {version} with flags {flags} is not {symbol}");
    }
    Ok(())
}

fn itself_changes_its_signature_at_12000(cu: &'static Cuda) -> Verdict {
    let (old, _) = find(cu, "cuGetProcAddress", 11030, 0)?;
    let (new, _) = find(cu, "cuGetProcAddress", 12000, 0)?;
    holds!(!old.is_null() && !new.is_null() && old != new, "one cuGetProcAddress for both signatures");
    Ok(())
}

fn everything_the_runtime_needs_is_found(cu: &'static Cuda) -> Verdict {
    let names = "cuInit cuDriverGetVersion cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceTotalMem \
        cuDeviceGetAttribute cuDeviceGetUuid cuDeviceGetPCIBusId cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease \
        cuDevicePrimaryCtxGetState cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxReset cuCtxCreate cuCtxDestroy \
        cuCtxSetCurrent cuCtxGetCurrent cuCtxPushCurrent cuCtxPopCurrent cuCtxSynchronize cuCtxGetDevice cuCtxGetLimit \
        cuCtxSetLimit cuCtxGetStreamPriorityRange cuModuleLoadData cuModuleLoadDataEx cuModuleUnload \
        cuModuleGetFunction cuModuleGetGlobal cuModuleGetLoadingMode cuLibraryLoadData cuLibraryGetKernel \
        cuLibraryGetModule cuLibraryGetGlobal cuLibraryUnload cuKernelGetFunction cuKernelGetAttribute cuMemAlloc \
        cuMemAllocPitch cuMemFree cuMemHostAlloc cuMemFreeHost cuMemHostRegister cuMemHostUnregister \
        cuMemHostGetDevicePointer cuMemGetInfo cuMemcpy cuMemcpyAsync cuMemcpyHtoD cuMemcpyDtoH cuMemcpyDtoD \
        cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync cuMemcpy2DUnaligned cuMemcpy3D cuMemsetD8 cuMemsetD32 \
        cuMemsetD8Async cuMemAllocAsync cuMemFreeAsync cuMemPoolCreate cuPointerGetAttribute cuPointerGetAttributes \
        cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuStreamSynchronize cuStreamQuery \
        cuStreamWaitEvent cuStreamAddCallback cuStreamBeginCapture cuStreamEndCapture cuStreamIsCapturing \
        cuStreamGetCaptureInfo cuEventCreate cuEventDestroy cuEventRecord cuEventQuery cuEventSynchronize \
        cuEventElapsedTime cuLaunchKernel cuLaunchKernelEx cuLaunchHostFunc cuLaunchCooperativeKernel \
        cuFuncGetAttribute cuFuncSetAttribute cuOccupancyMaxActiveBlocksPerMultiprocessor \
        cuOccupancyMaxPotentialBlockSize cuGraphCreate cuGraphDestroy cuGraphInstantiate cuGraphLaunch \
        cuGraphExecDestroy cuGraphExecUpdate cuGraphAddKernelNode cuGraphAddMemcpyNode cuGraphAddMemsetNode \
        cuGraphAddHostNode cuGraphAddChildGraphNode cuGraphAddEmptyNode cuGraphGetNodes cuGraphGetEdges \
        cuMemAddressReserve cuMemCreate cuMemMap cuMemSetAccess cuMemUnmap cuMemRelease cuGetExportTable \
        cuGetErrorName cuGetErrorString cuProfilerStart cuProfilerStop";
    for name in names.split_whitespace() {
        let (function, status) = find(cu, name, 13000, 0)?;
        holds!(!function.is_null() && status == CU_GET_PROC_ADDRESS_SUCCESS, "{name} is not found at 13000");
    }
    Ok(())
}

fn ctx_get_device_takes_a_context_since_13000(cu: &'static Cuda) -> Verdict {
    let (function, _) = find(cu, "cuCtxGetDevice", 13000, 0)?;
    holds!(!function.is_null(), "cuCtxGetDevice is not found at 13000");
    // SAFETY: at version 13000 the name stands for cuCtxGetDevice_v2, which has this signature.
    let call = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut CUdevice, CUcontext) -> CUresult>(function)
    };
    let mut device = -1;
    // SAFETY: a writable device and the current context, as cuCtxGetDevice_v2 asks.
    ok!(unsafe { call(&mut device, cu.context()?) });
    same!(device, 0);
    Ok(())
}
