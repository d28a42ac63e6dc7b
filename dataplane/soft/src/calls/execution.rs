//! Kernel launches, and what functions say of themselves.

// UNSAFETY: C entry points, and arguments given as an array of pointers.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use orion_cuda::sys::*;

use crate::api::{R, api, get, handle, list, put, put_some};
use crate::graph::Work;
use crate::launch::{KernelLaunch, pack_arguments};
use crate::log::refuse;
use crate::module::{self, Function, function_attribute, resolve};
use crate::ptx::decode::program::kernel_params;
use crate::ptx::isa::program::Param;
use crate::{context, enqueue, stream};

pub(super) fn set_function_attribute(f: &Function, attrib: CUfunction_attribute, v: c_int) -> R {
    match attrib {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            if v < 0 || v as u32 + f.func().static_shared > crate::device::SHARED_OPTIN {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            f.settings.dynamic_shared_max.store(v, Ordering::Relaxed);
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            if !(-1..=100).contains(&v) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            f.settings.carveout.store(v, Ordering::Relaxed);
        }
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => f.settings.non_portable.store(v, Ordering::Relaxed),
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH..=CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
            if f.declared().req_cluster.is_some() {
                return Err(CUDA_ERROR_NOT_PERMITTED);
            }
            let axis = (attrib - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) as usize;
            f.settings.required_cluster[axis].store(v, Ordering::Relaxed);
        }
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
            f.settings.cluster_policy.store(v, Ordering::Relaxed);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

pub(super) fn param_info(params: &[Param], index: usize, offset: *mut usize, size: *mut usize) -> R {
    let p = params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's out parameters; the size may be null.
    unsafe {
        put(offset, p.offset as usize)?;
        put_some(size, p.bytes as usize);
    }
    Ok(())
}

struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    cooperative: bool,
    cluster: Option<[u32; 3]>,
}

fn launch(f: CUfunction, s: Shape, h: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) -> R {
    let s_ref = stream::resolve(h)?;
    let function = module::resolve(f, Some(&s_ref.context))?;
    // A `CUkernel` is its stream's context's.
    if h as usize > 2 && function.context != s_ref.context.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    // SAFETY: the application's argument arrays.
    let bytes = unsafe { pack_arguments(&function, params, extra)? };
    let k = KernelLaunch::new(f, &s_ref.context, s.grid, s.block, s.shared, bytes, (s.cooperative, s.cluster))?;
    s_ref.wait_for_room();
    let end = enqueue::enqueue(&s_ref, Work::Kernel(Arc::new(k)))?;
    match end.filter(|_| launches_block()) {
        Some(end) => {
            end.stream.wait(end.number);
            s_ref.context.check()
        }
        None => Ok(()),
    }
}

/// `CUDA_LAUNCH_BLOCKING`, as it is set when the first kernel is launched.
fn launches_block() -> bool {
    static BLOCKING: OnceLock<bool> = OnceLock::new();
    *BLOCKING.get_or_init(|| std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|v| v.trim().parse() != Ok(0)))
}

/// Reads the attributes of an extended launch: whether it is cooperative, and its cluster.
pub(super) fn launch_attributes(attributes: &[CUlaunchAttribute]) -> R<(bool, Option<[u32; 3]>)> {
    let (mut cooperative, mut cluster) = (false, None);
    for a in attributes {
        // SAFETY: the id says which member of the union is set.
        unsafe {
            match a.id {
                CU_LAUNCH_ATTRIBUTE_COOPERATIVE => cooperative = a.value.cooperative != 0,
                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    let d = a.value.clusterDim;
                    cluster = Some([d.x, d.y, d.z]);
                }
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                    context::lacks();
                    return refuse("cuLaunchKernelEx", "an event inside the launch");
                }
                CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
                    context::lacks();
                    return refuse("cuLaunchKernelEx", "a device-updatable node");
                }
                // The rest are hints about placement and overlap.
                _ => {}
            }
        }
    }
    Ok((cooperative, cluster))
}

api! {
    fn cuFuncGetAttribute(out: *mut c_int, attrib: CUfunction_attribute, f: CUfunction) {
        put(out, function_attribute(&*resolve(f, None)?, attrib)?)
    }
    fn cuFuncSetAttribute(f: CUfunction, attrib: CUfunction_attribute, v: c_int) {
        set_function_attribute(&*resolve(f, None)?, attrib, v)
    }
    fn cuFuncSetCacheConfig(f: CUfunction, _config: CUfunc_cache) {
        resolve(f, None).map(drop)
    }
    fn cuFuncSetSharedMemConfig(f: CUfunction, _config: CUsharedconfig) {
        resolve(f, None).map(drop)
    }
    fn cuFuncGetModule(out: *mut CUmodule, f: CUfunction) {
        let m = resolve(f, None)?.module.upgrade().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        put(out, handle(&m))
    }
    fn cuFuncGetName(out: *mut *const c_char, f: CUfunction) {
        put(out, resolve(f, None)?.name.as_ptr())
    }
    fn cuFuncGetParamInfo(f: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        let f = resolve(f, None)?;
        param_info(&kernel_params(f.declared()).0, index, offset, size)
    }
    fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, f: CUfunction) {
        let loaded = resolve(f, None)?.settings.loaded.load(Ordering::Relaxed);
        put(state, if loaded { CU_FUNCTION_LOADING_STATE_LOADED } else { CU_FUNCTION_LOADING_STATE_UNLOADED })
    }
    fn cuFuncLoad(f: CUfunction) {
        resolve(f, None)?.settings.load();
        Ok(())
    }
    fn cuLaunchKernel(
        f: CUfunction,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        shared: c_uint,
        h: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: false, cluster: None };
        launch(f, shape, h, params, extra)
    }
    fn cuLaunchCooperativeKernel(
        f: CUfunction,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        shared: c_uint,
        h: CUstream,
        params: *mut *mut c_void,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: true, cluster: None };
        launch(f, shape, h, params, std::ptr::null_mut())
    }
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        f: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let c = get(config)?;
        let (cooperative, cluster) = launch_attributes(&list(c.attrs, c.numAttrs as usize)?)?;
        let shape = Shape {
            grid: [c.gridDimX, c.gridDimY, c.gridDimZ],
            block: [c.blockDimX, c.blockDimY, c.blockDimZ],
            shared: c.sharedMemBytes,
            cooperative,
            cluster,
        };
        launch(f, shape, c.hStream, params, extra)
    }
}
