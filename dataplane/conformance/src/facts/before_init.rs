//! What may be asked before `cuInit`, and what the rest answers.

use std::ptr::{null, null_mut};

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{string_at, zeroed};

facts! { before_init:
    Nothing [
        device_count_is_not_initialized,
        device_get_is_not_initialized,
        device_attribute_is_not_initialized,
        current_context_is_not_initialized,
        primary_retain_is_not_initialized,
        alloc_is_not_initialized,
        module_load_is_not_initialized,
        driver_version_needs_no_init,
        driver_version_into_null_is_invalid_value,
        error_names_need_no_init,
        proc_address_needs_no_init,
        an_unknown_export_table_is_an_error,
        init_refuses_flags,
        init_twice_succeeds,
        exit_without_init_is_clean,
    ]
}

fn device_count_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let mut count = 0;
    answers!(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&mut count));
    Ok(())
}

fn device_get_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let mut device = 0;
    answers!(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGet(&mut device, 0));
    Ok(())
}

fn device_attribute_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let mut value = 0;
    answers!(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetAttribute(&mut value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    Ok(())
}

fn current_context_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let mut context = null_mut();
    answers!(CUDA_ERROR_NOT_INITIALIZED, cu.cuCtxGetCurrent(&mut context));
    Ok(())
}

fn primary_retain_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let mut context = null_mut();
    answers!(CUDA_ERROR_NOT_INITIALIZED, cu.cuDevicePrimaryCtxRetain(&mut context, 0));
    Ok(())
}

fn alloc_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let mut address = 0;
    answers!(CUDA_ERROR_NOT_INITIALIZED, cu.cuMemAlloc_v2(&mut address, 16));
    Ok(())
}

fn module_load_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let mut module = null_mut();
    answers!(CUDA_ERROR_NOT_INITIALIZED, cu.cuModuleLoadData(&mut module, crate::lab::PTX.as_ptr().cast()));
    Ok(())
}

fn driver_version_needs_no_init(cu: &'static Cuda) -> Verdict {
    let mut version = 0;
    ok!(cu.cuDriverGetVersion(&mut version));
    holds!(version >= 12000, "the driver calls itself {version}, older than any this list was written for");
    Ok(())
}

fn driver_version_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDriverGetVersion(null_mut()));
    Ok(())
}

fn error_names_need_no_init(cu: &'static Cuda) -> Verdict {
    let mut name = null();
    ok!(cu.cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &mut name));
    same!(string_at(name), "CUDA_ERROR_NOT_INITIALIZED");
    Ok(())
}

fn proc_address_needs_no_init(cu: &'static Cuda) -> Verdict {
    let (mut function, mut status) = (null_mut(), 0);
    ok!(cu.cuGetProcAddress_v2(c"cuInit".as_ptr(), &mut function, 12000, 0, &mut status));
    holds!(!function.is_null(), "cuInit has no address");
    Ok(())
}

fn an_unknown_export_table_is_an_error(cu: &'static Cuda) -> Verdict {
    let mut table = std::ptr::dangling();
    let id: CUuuid = zeroed();
    let code = cu.cuGetExportTable(&mut table, &id);
    holds!(code != CUDA_SUCCESS, "success for a table that does not exist");
    holds!(table.is_null(), "the pointer to a table that does not exist was left alone");
    Ok(())
}

fn init_refuses_flags(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuInit(1));
    Ok(())
}

fn init_twice_succeeds(cu: &'static Cuda) -> Verdict {
    ok!(cu.cuInit(0));
    ok!(cu.cuInit(0));
    Ok(())
}

/// The runner looks at the exit status: a library that is loaded and never used must not disturb the end.
fn exit_without_init_is_clean(_cu: &'static Cuda) -> Verdict {
    Ok(())
}
