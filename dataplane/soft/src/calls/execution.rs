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
use crate::module::{self, Function, Prepared, function_attribute, resolve};
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
            if v < 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if f.declared().req_cluster.is_some() {
                return Err(CUDA_ERROR_NOT_PERMITTED);
            }
            let axis = (attrib - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) as usize;
            f.settings.required_cluster[axis].store(v, Ordering::Relaxed);
        }
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
            if !(0..=2).contains(&v) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
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

/// Most bytes of arguments that a launch may have.
const PARAM_BYTES_MAX: usize = 32_764;

/// Changes what `cuLaunch` launches a function with.
fn prepare(f: CUfunction, change: impl FnOnce(&Function, &mut Prepared) -> R) -> R {
    context::current()?.check()?;
    let f = resolve(f, None)?;
    f.settings.is_prepared.store(true, Ordering::Relaxed);
    change(&f, &mut *f.settings.prepared.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?)
}

fn set_argument(f: CUfunction, offset: c_int, value: &[u8]) -> R {
    prepare(f, |_, prepared| {
        let first = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let end = first.checked_add(value.len()).filter(|end| *end <= PARAM_BYTES_MAX);
        let end = end.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if prepared.values.len() < end {
            prepared.values.resize(end, 0);
        }
        prepared.values[first..end].copy_from_slice(value);
        Ok(())
    })
}

fn launch_prepared(f: CUfunction, width: c_int, height: c_int, h: CUstream) -> R {
    context::current()?.check()?;
    let function = resolve(f, None)?;
    let mut bytes = function.func().param_bytes as usize;
    let mut prepared = function.settings.prepared.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.clone();
    if prepared.param_bytes > bytes {
        return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    prepared.values.resize(bytes, 0);
    let mut packed: [*mut c_void; 5] = [
        CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
        prepared.values.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
        (&raw mut bytes).cast(),
        std::ptr::null_mut(),
    ];
    let extra = if bytes == 0 { std::ptr::null_mut() } else { packed.as_mut_ptr() };
    // What is negative is too large.
    let grid = [width as u32, height as u32, 1];
    let shape = Shape { grid, block: prepared.block, shared: prepared.shared, cooperative: false, cluster: None };
    launch(f, shape, h, std::ptr::null_mut(), extra)
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
    if function.settings.is_prepared.load(Ordering::Relaxed) {
        // `cuLaunch` launches with what the last launch had, where nothing else is set.
        let mut prepared = function.settings.prepared.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        *prepared = Prepared { block: s.block, shared: s.shared, param_bytes: bytes.len(), values: bytes.clone() };
    }
    let parameter_bytes = bytes.len();
    let k = KernelLaunch::new(f, &s_ref.context, s.grid, s.block, s.shared, bytes, (s.cooperative, s.cluster));
    let k = k.inspect_err(|_| {
        // As an H200 has it.
        if let Some(capture) = s_ref.capture() {
            capture.invalidate();
        }
    })?;
    if s_ref.capture().is_none() {
        k.function.settings.load();
    }
    s_ref.wait_for_room(parameter_bytes);
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
        if f.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
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
    fn cuFuncSetBlockShape(f: CUfunction, x: c_int, y: c_int, z: c_int) {
        prepare(f, |_, prepared| {
            let block = [x as u32, y as u32, z as u32];
            let threads = block.iter().try_fold(1u32, |all, n| all.checked_mul(*n));
            if !matches!(threads, Some(1..=1024)) || block[2] > 64 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            prepared.block = block;
            Ok(())
        })
    }
    fn cuFuncSetSharedSize(f: CUfunction, bytes: c_uint) {
        prepare(f, |f, prepared| {
            if bytes > f.dynamic_shared_max() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            prepared.shared = bytes;
            Ok(())
        })
    }
    fn cuParamSetSize(f: CUfunction, bytes: c_uint) {
        prepare(f, |_, prepared| {
            if bytes as usize > PARAM_BYTES_MAX {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            prepared.param_bytes = bytes as usize;
            Ok(())
        })
    }
    fn cuParamSeti(f: CUfunction, offset: c_int, value: c_uint) { set_argument(f, offset, &value.to_ne_bytes()) }
    fn cuParamSetf(f: CUfunction, offset: c_int, value: f32) { set_argument(f, offset, &value.to_ne_bytes()) }
    fn cuParamSetv(f: CUfunction, offset: c_int, from: *mut c_void, bytes: c_uint) {
        if bytes as usize > PARAM_BYTES_MAX || from.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        set_argument(f, offset, &list(from.cast::<u8>(), bytes as usize)?)
    }
    fn cuLaunch(f: CUfunction) { launch_prepared(f, 1, 1, std::ptr::null_mut()) }
    fn cuLaunchGrid(f: CUfunction, width: c_int, height: c_int) {
        launch_prepared(f, width, height, std::ptr::null_mut())
    }
    fn cuLaunchGridAsync(f: CUfunction, width: c_int, height: c_int, h: CUstream) {
        launch_prepared(f, width, height, h)
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
