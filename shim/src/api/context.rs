//! Contexts: every thread's stack of current ones, and what is known about each.
//!
//! The stack is the application's business alone; the worker learns which context a command is for from the
//! command. `cuCtxGetCurrent` and `cuCtxGetDevice` are asked millions of times, so they read one thread-local
//! word and the context behind it. A destroyed context stays on the stacks it is on, as in the driver, and still
//! answers there; it is freed when it is on none.

// UNSAFETY: writes through the application's out pointers.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;

use crate::answer::{code, not_null, posted, put};
use crate::objects::context::{destroy, green_reset, release, retain};
use crate::objects::context_wire;
use crate::objects::synchronize::{Awaited, before_freeing, synchronize};
use crate::session::context::{current_active, current_any, lookup, resolve};
use crate::session::device::facts;
use crate::state::context::{self, API_VERSION, Context, LIMIT_UNTOUCHED, pop, push, top};
use crate::state::process::state;

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuCtxSynchronize() -> CUresult {
    synchronize(Awaited::Context)
}

/// Of a context that need not be the current one.
///
/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuCtxSynchronize_v2(ctx: CUcontext) -> CUresult {
    if ctx.is_null() || ctx as u64 == context::current() {
        return synchronize(Awaited::Context);
    }
    // SAFETY: no pointers of the application's are involved.
    unsafe {
        match cuCtxPushCurrent_v2(ctx) {
            CUDA_SUCCESS => {}
            code => return code,
        }
        let code = synchronize(Awaited::Context);
        let mut popped = std::ptr::null_mut();
        cuCtxPopCurrent_v2(&mut popped);
        code
    }
}

#[inline]
pub unsafe fn cuCtxGetCurrent(pctx: *mut CUcontext) -> CUresult {
    if let Some(c) = top()
        && !pctx.is_null()
    {
        // SAFETY: not null; valid for a write by the C API's contract.
        unsafe { pctx.write(c.as_cuda()) };
        return CUDA_SUCCESS;
    }
    // SAFETY: a pointer of the C API: null or valid.
    code(facts().and_then(|_| unsafe { put(pctx, std::ptr::null_mut()) }))
}

#[inline]
pub unsafe fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult {
    if device.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    match current_any() {
        Ok(c) => {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { device.write(c.device as CUdevice) };
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

#[inline]
pub unsafe fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext) -> CUresult {
    if device.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    match resolve(ctx) {
        Ok(c) => {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { device.write(c.device as CUdevice) };
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// A primary context may be made current before it is retained: cudart does so.
pub unsafe fn cuCtxSetCurrent(ctx: CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        // Looked up first: a failed call leaves the stack as it was.
        let next = if ctx.is_null() { None } else { Some(lookup(ctx.addr() as u64)?) };
        pop();
        if let Some(next) = next {
            push(next);
        }
        Ok(())
    }))
}

pub unsafe fn cuCtxPushCurrent_v2(ctx: CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        not_null(ctx)?;
        push(lookup(ctx.addr() as u64)?);
        Ok(())
    }))
}

pub unsafe fn cuCtxPushCurrent(ctx: CUcontext) -> CUresult {
    // SAFETY: the same contract; the versions differ in what CUDA 3 did with floating contexts.
    unsafe { cuCtxPushCurrent_v2(ctx) }
}

pub unsafe fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        let popped = pop().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if !pctx.is_null() {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { pctx.write(popped.as_cuda()) };
        }
        Ok(())
    }))
}

pub unsafe fn cuCtxPopCurrent(pctx: *mut CUcontext) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuCtxPopCurrent_v2(pctx) }
}

pub unsafe fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> CUresult {
    // SAFETY: a pointer of the C API: null or valid.
    code(unsafe { create(pctx, flags, dev, API_VERSION) })
}

/// The ABI of CUDA 2 differs in the API version the context remembers.
pub unsafe fn cuCtxCreate(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> CUresult {
    // SAFETY: a pointer of the C API: null or valid.
    code(unsafe { create(pctx, flags, dev, API_VERSION_FIRST) })
}

pub unsafe fn cuCtxCreate_v3(
    pctx: *mut CUcontext,
    paramsArray: *mut CUexecAffinityParam,
    numParams: c_int,
    flags: u32,
    dev: CUdevice,
) -> CUresult {
    if !paramsArray.is_null() && numParams > 0 {
        return facts().map_or_else(|code| code, |_| CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    // SAFETY: a pointer of the C API: null or valid.
    code(unsafe { create(pctx, flags, dev, API_VERSION) })
}

pub unsafe fn cuCtxCreate_v4(
    pctx: *mut CUcontext,
    ctxCreateParams: *mut CUctxCreateParams,
    flags: u32,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: null or valid by the C API's contract.
    let (array, count) = match unsafe { ctxCreateParams.as_ref() } {
        Some(p) if !p.cigParams.is_null() => {
            // Sharing a context with a graphics queue needs both on one host.
            return facts().map_or_else(|code| code, |_| CUDA_ERROR_NOT_SUPPORTED);
        }
        Some(p) => (p.execAffinityParams, p.numExecAffinityParams),
        None => (std::ptr::null_mut(), 0),
    };
    // SAFETY: the same contract.
    unsafe { cuCtxCreate_v3(pctx, array, count, flags, dev) }
}

/// # Safety
/// `pctx` must be null or valid for a write.
unsafe fn create(pctx: *mut CUcontext, flags: u32, dev: CUdevice, api_version: u32) -> Result<(), CUresult> {
    let f = facts()?;
    not_null(pctx)?;
    let session = f.device(dev)?.session;
    check_flags(flags, CU_CTX_FLAGS_MASK)?;
    let handle = state().handles.reserve_of(Kind::Context, session, 0);
    let context = Context { api_version, ..Context::new(handle.0, (dev as u32, session)) };
    if let Err(code) = context_wire::create(handle.0, flags, dev as u32) {
        crate::objects::handles::release(handle);
        return Err(code);
    }
    let context = state().contexts.created.insert(handle, context);
    state().contexts.bring_to_life(context, flags);
    push(context);
    state().recording.context_created(context.as_cuda());
    // SAFETY: null or valid, as the caller says.
    unsafe { put(pctx, context.as_cuda()) }
}

pub unsafe fn cuCtxDestroy_v2(ctx: CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        not_null(ctx)?;
        destroy(lookup(ctx.addr() as u64)?)
    }))
}

pub unsafe fn cuCtxDestroy(ctx: CUcontext) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuCtxDestroy_v2(ctx) }
}

/// Deprecated: one more user of the current context.
pub unsafe fn cuCtxAttach(pctx: *mut CUcontext, flags: u32) -> CUresult {
    code(current_active().and_then(|c| {
        not_null(pctx)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        *c.users.lock() += 1;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pctx, c.as_cuda()) }
    }))
}

/// Deprecated: one user less; the last one destroys.
pub unsafe fn cuCtxDetach(ctx: CUcontext) -> CUresult {
    code(current_active().and_then(|c| {
        if c.as_cuda() != ctx {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if c.is_primary {
            return release(c);
        }
        if c.green != 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let left = {
            let mut users = c.users.lock();
            *users -= 1;
            *users
        };
        if left == 0 { destroy(c) } else { Ok(()) }
    }))
}

/// A primary context that is not active has no flags, and says so instead of failing.
pub unsafe fn cuCtxGetFlags(flags: *mut u32) -> CUresult {
    code(not_null(flags).and_then(|()| {
        let c = current_any()?;
        let value = if c.is_active() { c.flags.load(Ordering::Relaxed) } else { 0 };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(flags, value) }
    }))
}

pub unsafe fn cuCtxSetFlags(flags: u32) -> CUresult {
    code(current_active().and_then(|c| {
        check_flags(flags, CU_CTX_FLAGS_MASK)?;
        // Mapping host memory cannot be given up, nor asked for later.
        let kept = c.flags.load(Ordering::Relaxed) & CU_CTX_MAP_HOST;
        c.flags.store(flags & !CU_CTX_MAP_HOST | kept, Ordering::Relaxed);
        posted(context_wire::set_flags(flags))
    }))
}

pub unsafe fn cuCtxGetId(ctx: CUcontext, ctxId: *mut u64) -> CUresult {
    code(not_null(ctxId).and_then(|()| {
        let c = resolve(ctx)?;
        if !c.is_active() {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(ctxId, c.id()) }
    }))
}

pub unsafe fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32) -> CUresult {
    code(facts().and_then(|_| {
        let c = if ctx.is_null() { current_active()? } else { lookup(ctx.addr() as u64)? };
        if !c.is_active() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(version, c.api_version) }
    }))
}

/// From what the session's devices started with and what was set since.
pub unsafe fn cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) -> CUresult {
    code(current_active().and_then(|c| {
        not_null(pvalue)?;
        let slot = c.limits.get(limit as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // For a larger stack the driver waits for the device, and the worker with it, which by then has nothing to wait
        // for.
        if limit == CU_LIMIT_STACK_SIZE && !state().captures.any_open() {
            before_freeing(0)?;
        }
        let value = match slot.load(Ordering::Relaxed) {
            LIMIT_UNTOUCHED => {
                let fresh = &facts()?.device(c.device as CUdevice)?.limits;
                fresh.iter().find(|(id, _)| *id == limit).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?.1
            }
            value => value,
        };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pvalue, value as usize) }
    }))
}

pub unsafe fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult {
    code(current_active().and_then(|c| {
        let slot = c.limits.get(limit as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        slot.store(context_wire::set_limit(limit, value as u64)?, Ordering::Relaxed);
        Ok(())
    }))
}

pub unsafe fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache) -> CUresult {
    code(current_active().and_then(|c| {
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pconfig, c.cache_config.load(Ordering::Relaxed)) }
    }))
}

pub unsafe fn cuCtxSetCacheConfig(config: CUfunc_cache) -> CUresult {
    code(current_active().and_then(|c| {
        if config > CU_FUNC_CACHE_PREFER_EQUAL {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        c.cache_config.store(config, Ordering::Relaxed);
        posted(context_wire::set_cache_config(config))
    }))
}

/// Banks are four bytes wide on everything since Maxwell, whatever was asked for.
pub unsafe fn cuCtxGetSharedMemConfig(pConfig: *mut CUsharedconfig) -> CUresult {
    code(current_active().and_then(|_| {
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pConfig, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE) }
    }))
}

pub unsafe fn cuCtxSetSharedMemConfig(config: CUsharedconfig) -> CUresult {
    code(current_active().and_then(|_| {
        let known = config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
        if known { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }))
}

/// Either pointer may be null.
pub unsafe fn cuCtxGetStreamPriorityRange(leastPriority: *mut c_int, greatestPriority: *mut c_int) -> CUresult {
    code(current_active().and_then(|c| {
        let (least, greatest) = facts()?.device(c.device as CUdevice)?.stream_priorities;
        for (out, value) in [(leastPriority, least), (greatestPriority, greatest)] {
            if !out.is_null() {
                // SAFETY: not null; valid for a write by the C API's contract.
                unsafe { out.write(value) };
            }
        }
        Ok(())
    }))
}

pub unsafe fn cuCtxResetPersistingL2Cache() -> CUresult {
    code(current_active().and_then(|_| posted(context_wire::reset_persisting_l2_cache())))
}

/// Without affinity a context has all multiprocessors.
pub unsafe fn cuCtxGetExecAffinity(pExecAffinity: *mut CUexecAffinityParam, type_: CUexecAffinityType) -> CUresult {
    code(current_active().and_then(|c| {
        not_null(pExecAffinity)?;
        if type_ != CU_EXEC_AFFINITY_TYPE_SM_COUNT {
            return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        let device = facts()?.device(c.device as CUdevice)?;
        let val = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap_or(0) as u32;
        let param = CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val } };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pExecAffinity, CUexecAffinityParam { type_, param }) }
    }))
}

pub unsafe fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) -> CUresult {
    code(facts().and_then(|_| {
        not_null(pctx)?;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pctx, retain(dev)?.as_cuda()) }
    }))
}

pub unsafe fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| release(&f.device(dev)?.primary)))
}

pub unsafe fn cuDevicePrimaryCtxRelease(dev: CUdevice) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuDevicePrimaryCtxRelease_v2(dev) }
}

/// Destroys everything in the context; its users stay, and the next retain brings it back to life.
pub unsafe fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        let primary = &f.device(dev)?.primary;
        if !primary.begin_death() {
            primary.flags_wanted.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let reset = context_wire::primary_reset(primary.device);
        primary.end_life();
        green_reset(primary);
        reset
    }))
}

pub unsafe fn cuDevicePrimaryCtxReset(dev: CUdevice) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuDevicePrimaryCtxReset_v2(dev) }
}

/// PyTorch asks this 64 times a training step.
#[inline]
pub unsafe fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut u32, active: *mut c_int) -> CUresult {
    code(facts().and_then(|f| {
        not_null(flags)?;
        not_null(active)?;
        let primary = &f.device(dev)?.primary;
        // SAFETY: pointers of the C API: null or valid.
        unsafe {
            put(flags, primary.flags_wanted.load(Ordering::Relaxed)).and(put(active, primary.is_active() as c_int))
        }
    }))
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) -> CUresult {
    code(facts().and_then(|f| {
        let primary = &f.device(dev)?.primary;
        check_flags(flags, CU_CTX_FLAGS_MASK & !CU_CTX_MAP_HOST)?;
        primary.flags_wanted.store(flags, Ordering::Relaxed);
        primary.flags.store(flags | CU_CTX_MAP_HOST, Ordering::Relaxed);
        posted(context_wire::primary_set_flags(primary.device, flags))
    }))
}

pub unsafe fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: u32) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuDevicePrimaryCtxSetFlags_v2(dev, flags) }
}
const API_VERSION_FIRST: u32 = 3010;

/// Valid flags: known bits, and at most one way of waiting.
fn check_flags(flags: u32, mask: u32) -> Result<(), CUresult> {
    let one_wait = matches!(
        flags & CU_CTX_SCHED_MASK,
        CU_CTX_SCHED_AUTO | CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD | CU_CTX_SCHED_BLOCKING_SYNC
    );
    if flags & !mask == 0 && one_wait { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::objects::context_wire::tests::{CREATE, DESTROY, RELEASE, RESET, sent};
    use crate::session::context::{current_active, device_of, with_current};
    use crate::state::context::{current, current_device};
    use crate::state::device::fixture::initialise;
    use orion_wire::handle::Handle;

    pub fn primary(ordinal: u32) -> CUcontext {
        std::ptr::without_provenance_mut(Handle::primary_context(ordinal).0 as usize)
    }

    pub fn retain(dev: CUdevice) -> CUcontext {
        let mut c = std::ptr::null_mut();
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&mut c, dev) }, CUDA_SUCCESS);
        c
    }

    fn now() -> CUcontext {
        let mut c = std::ptr::without_provenance_mut(1);
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuCtxGetCurrent(&mut c) }, CUDA_SUCCESS);
        c
    }

    fn state(dev: CUdevice) -> (u32, c_int) {
        let (mut flags, mut active) = (77, 77);
        // SAFETY: valid places.
        assert_eq!(unsafe { cuDevicePrimaryCtxGetState(dev, &mut flags, &mut active) }, CUDA_SUCCESS);
        (flags, active)
    }

    fn flags() -> u32 {
        let mut flags = 0;
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuCtxGetFlags(&mut flags) }, CUDA_SUCCESS);
        flags
    }

    fn id(c: CUcontext) -> Result<u64, CUresult> {
        let mut id = 0;
        // SAFETY: a valid place.
        match unsafe { cuCtxGetId(c, &mut id) } {
            CUDA_SUCCESS => Ok(id),
            code => Err(code),
        }
    }

    const NULL: CUcontext = std::ptr::null_mut();

    #[test]
    fn without_a_context_calls_say_so() {
        initialise();
        let (mut v, mut u, mut p, mut size) = (0, 0, NULL, 0);
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(now(), NULL);
            assert_eq!(cuCtxGetCurrent(std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxGetDevice(std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxPushCurrent_v2(NULL), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
            for code in [
                cuCtxGetDevice(&mut v),
                cuCtxGetDevice_v2(&mut v, NULL),
                cuCtxGetFlags(&mut u),
                cuCtxSetFlags(0),
                cuCtxPopCurrent_v2(&mut p),
                cuCtxGetApiVersion(NULL, &mut u),
                cuCtxGetLimit(&mut size, 0),
                cuCtxSetLimit(0, 1024),
                cuCtxGetStreamPriorityRange(&mut v, &mut v),
                cuCtxGetCacheConfig(&mut u),
                cuCtxResetPersistingL2Cache(),
                cuCtxAttach(&mut p, 0),
                cuCtxDetach(NULL),
                crate::api::profiler::cuProfilerStart(),
                cuCtxSetCurrent(std::ptr::without_provenance_mut(0x7777)),
                cuCtxPushCurrent_v2(std::ptr::without_provenance_mut(0x7777)),
                cuCtxSetCurrent(primary(2)),
            ] {
                assert_eq!(code, CUDA_ERROR_INVALID_CONTEXT);
            }
        }
        assert_eq!(id(NULL), Err(CUDA_ERROR_INVALID_CONTEXT));
        assert_eq!(sent(), []);
    }

    #[test]
    fn a_primary_context_may_be_current_before_it_is_retained() {
        initialise();
        let mut v = -1;
        // SAFETY: valid places.
        unsafe {
            assert_eq!(cuCtxSetCurrent(primary(1)), CUDA_SUCCESS);
            assert_eq!((now(), current(), current_device()), (primary(1), primary(1).addr() as u64, Some(1)));
            assert_eq!(cuCtxGetDevice(&mut v), CUDA_SUCCESS);
            assert_eq!((v, flags(), state(1)), (1, 0, (0, 0)));
            assert_eq!(id(primary(1)), Err(CUDA_ERROR_CONTEXT_IS_DESTROYED));
            let mut u = 0;
            assert_eq!(cuCtxGetApiVersion(primary(1), &mut u), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(cuCtxGetApiVersion(NULL, &mut u), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            assert_eq!(cuCtxDestroy_v2(primary(1)), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(retain(1), primary(1));
            assert_eq!(cuCtxGetApiVersion(NULL, &mut u), CUDA_SUCCESS);
            assert_eq!((u, flags(), state(1)), (3020, CU_CTX_MAP_HOST, (0, 1)));
            assert_eq!(cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
            assert_eq!(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!((now(), state(1)), (primary(1), (0, 0)));
        }
        assert_eq!(sent(), [RELEASE]);
    }

    #[test]
    fn users_of_a_primary_context_survive_its_reset() {
        initialise();
        // SAFETY: plain calls.
        unsafe {
            retain(0);
            retain(0);
            let first = id(primary(0));
            assert_eq!(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
            assert_eq!(state(0), (0, 0));
            retain(0);
            assert_eq!(state(0), (0, 1));
            assert!(id(primary(0)).is_ok() && id(primary(0)) != first);
            for active in [1, 1, 0] {
                assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
                assert_eq!(state(0), (0, active));
            }
            assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        }
        assert_eq!(sent(), [RESET, RELEASE]);
    }

    #[test]
    fn flags_of_a_primary_context() {
        initialise();
        // SAFETY: plain calls.
        unsafe {
            for bad in [3, 8, 0x100, 0x200] {
                assert_eq!(cuDevicePrimaryCtxSetFlags_v2(0, bad), CUDA_ERROR_INVALID_VALUE);
            }
            assert_eq!(cuDevicePrimaryCtxSetFlags_v2(0, 4), CUDA_SUCCESS);
            retain(0);
            cuCtxSetCurrent(primary(0));
            assert_eq!((flags(), state(0)), (12, (4, 1)));
            assert_eq!(cuCtxSetFlags(1), CUDA_SUCCESS);
            assert_eq!((flags(), state(0)), (9, (4, 1)));
            assert_eq!(cuCtxSetFlags(3), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetFlags(0x80), CUDA_SUCCESS);
            assert_eq!(flags(), 0x88);
            cuDevicePrimaryCtxRelease_v2(0);
            assert_eq!((flags(), state(0)), (0, (0, 0)));
        }
    }

    fn make(flags: u32) -> CUcontext {
        let mut c = NULL;
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuCtxCreate_v2(&mut c, flags, 0) }, CUDA_SUCCESS);
        c
    }

    #[test]
    fn creating_makes_current_and_destroying_pops() {
        initialise();
        let mut p = NULL;
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxCreate_v2(std::ptr::null_mut(), 0, 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxCreate_v2(&mut p, 0, 9), CUDA_ERROR_INVALID_DEVICE);
            for bad in [3, 0xff, 0x100] {
                assert_eq!(cuCtxCreate_v2(&mut p, bad, 0), CUDA_ERROR_INVALID_VALUE);
            }
            let a = make(4);
            assert_eq!((now(), flags()), (a, 4));
            assert_eq!(std::thread::spawn(current).join().ok(), Some(0));
            let b = make(0);
            assert!(id(b).is_ok() && id(a) != id(b));
            cuCtxPushCurrent_v2(a);
            assert_eq!(cuCtxDestroy_v2(b), CUDA_SUCCESS);
            assert_eq!(now(), a);
            assert_eq!(cuCtxPopCurrent_v2(&mut p), CUDA_SUCCESS);
            // A dead context stays where it is, and still says what it was.
            assert_eq!((p, now(), flags()), (a, b, 0));
            assert_eq!(current_active().err(), Some(CUDA_ERROR_CONTEXT_IS_DESTROYED));
            assert_eq!(cuCtxGetDevice(&mut 0), CUDA_SUCCESS);
            assert_eq!(cuCtxDestroy_v2(b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            assert_eq!(cuCtxPopCurrent(&mut p), CUDA_SUCCESS);
            assert_eq!(cuCtxDestroy(a), CUDA_SUCCESS);
            assert_eq!(now(), NULL);
        }
        assert_eq!(sent(), [CREATE, CREATE, DESTROY, DESTROY]);
    }

    #[test]
    fn destroying_pops_once() {
        initialise();
        let a = make(8);
        // SAFETY: plain calls.
        unsafe {
            assert_eq!(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
            assert_eq!((now(), cuCtxPopCurrent_v2(std::ptr::null_mut())), (NULL, CUDA_ERROR_INVALID_CONTEXT));
            cuCtxSetCurrent(a);
            cuCtxPushCurrent_v2(a);
            cuCtxPushCurrent_v2(a);
            assert_eq!(cuCtxDestroy_v2(a), CUDA_SUCCESS);
            for left in [a, a, NULL] {
                assert_eq!(now(), left);
                cuCtxPopCurrent_v2(std::ptr::null_mut());
            }
        }
    }

    #[test]
    fn versions_of_creating() {
        initialise();
        let (mut c, mut version) = (NULL, 0);
        let mut params: CUctxCreateParams = CUctxCreateParams {
            execAffinityParams: std::ptr::null_mut(),
            numExecAffinityParams: 0,
            cigParams: std::ptr::null_mut(),
        };
        let mut affinity = CUexecAffinityParam {
            type_: CU_EXEC_AFFINITY_TYPE_SM_COUNT,
            param: CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val: 4 } },
        };
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxCreate(&mut c, 0, 0), CUDA_SUCCESS);
            cuCtxGetApiVersion(c, &mut version);
            assert_eq!(version, 3010);
            cuCtxDestroy_v2(c);
            assert_eq!(cuCtxCreate_v4(&mut c, &mut params, 0, 0), CUDA_SUCCESS);
            cuCtxGetApiVersion(c, &mut version);
            assert_eq!(version, 3020);
            cuCtxDestroy_v2(c);
            params.execAffinityParams = &mut affinity;
            params.numExecAffinityParams = 1;
            assert_eq!(cuCtxCreate_v4(&mut c, &mut params, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
    }

    #[test]
    fn attaching_counts_users() {
        initialise();
        let a = make(0);
        let mut p = NULL;
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxAttach(&mut p, 1), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxAttach(&mut p, 0), CUDA_SUCCESS);
            assert_eq!((p, cuCtxDetach(NULL)), (a, CUDA_ERROR_INVALID_CONTEXT));
            assert_eq!(cuCtxDetach(a), CUDA_SUCCESS);
            assert_eq!(now(), a);
            assert_eq!(cuCtxDetach(a), CUDA_SUCCESS);
            assert_eq!(now(), NULL);
        }
    }

    #[test]
    fn limits_are_those_of_a_fresh_context_until_set() {
        initialise();
        let a = make(0);
        let mut v = 0;
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!((cuCtxGetLimit(&mut v, CU_LIMIT_STACK_SIZE), v), (CUDA_SUCCESS, 1024));
            assert_eq!(cuCtxGetLimit(&mut v, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), CUDA_ERROR_UNSUPPORTED_LIMIT);
            assert_eq!(cuCtxGetLimit(&mut v, CU_LIMIT_MAX), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetLimit(CU_LIMIT_MAX, 1), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxGetLimit(std::ptr::null_mut(), 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 5000), CUDA_SUCCESS);
            assert_eq!((cuCtxGetLimit(&mut v, CU_LIMIT_STACK_SIZE), v), (CUDA_SUCCESS, 5008));
            assert_eq!(cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1), CUDA_ERROR_NOT_PERMITTED);
            cuCtxDestroy_v2(a);
        }
    }

    #[test]
    fn configurations() {
        initialise();
        let a = make(0);
        let (mut u, mut least, mut greatest) = (77, 7, 7);
        let mut affinity = CUexecAffinityParam {
            type_: 9,
            param: CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val: 9 } },
        };
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxSetCacheConfig(4), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetCacheConfig(3), CUDA_SUCCESS);
            assert_eq!((cuCtxGetCacheConfig(&mut u), u), (CUDA_SUCCESS, 3));
            assert_eq!(cuCtxSetSharedMemConfig(3), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetSharedMemConfig(2), CUDA_SUCCESS);
            assert_eq!((cuCtxGetSharedMemConfig(&mut u), u), (CUDA_SUCCESS, 1));
            assert_eq!(cuCtxGetStreamPriorityRange(&mut least, std::ptr::null_mut()), CUDA_SUCCESS);
            assert_eq!(cuCtxGetStreamPriorityRange(std::ptr::null_mut(), &mut greatest), CUDA_SUCCESS);
            assert_eq!((least, greatest), (0, -5));
            assert_eq!(cuCtxGetExecAffinity(&mut affinity, 1), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
            assert_eq!(cuCtxGetExecAffinity(&mut affinity, 0), CUDA_SUCCESS);
            assert_eq!((affinity.type_, affinity.param.smCount.val), (0, 132));
            cuCtxDestroy_v2(a);
        }
    }

    #[test]
    fn another_context_can_be_current_for_a_call() {
        initialise();
        let a = make(0);
        let ask = |handle: CUcontext| {
            let mut seen = 0;
            let code = with_current(handle.addr() as u64, || {
                seen = current();
                CUDA_ERROR_NOT_READY
            });
            (code, seen)
        };
        assert_eq!(ask(primary(1)), (CUDA_ERROR_CONTEXT_IS_DESTROYED, 0));
        retain(1);
        assert_eq!(ask(primary(1)), (CUDA_ERROR_NOT_READY, primary(1).addr() as u64));
        assert_eq!(ask(NULL), (CUDA_ERROR_NOT_READY, a.addr() as u64));
        assert_eq!(now(), a);
        assert_eq!((device_of(a.addr() as u64), device_of(current() + 1)), (Some(0), None));
        // SAFETY: plain calls.
        unsafe {
            cuCtxDestroy_v2(a);
            cuDevicePrimaryCtxRelease_v2(1);
        }
        assert_eq!(ask(NULL), (CUDA_ERROR_INVALID_CONTEXT, 0));
        assert_eq!(ask(a), (CUDA_ERROR_CONTEXT_IS_DESTROYED, 0));
    }

    #[test]
    fn deep_stacks_unwind_in_order() {
        initialise();
        // SAFETY: plain calls.
        unsafe {
            for i in 0..50 {
                assert_eq!(cuCtxPushCurrent_v2(primary(i % 2)), CUDA_SUCCESS);
            }
            for i in (0..50).rev() {
                assert_eq!(now(), primary(i % 2), "at depth {i}");
                assert_eq!(cuCtxPopCurrent_v2(std::ptr::null_mut()), CUDA_SUCCESS);
            }
        }
        assert_eq!(now(), NULL);
    }

    #[test]
    fn nothing_works_in_a_forked_child() {
        initialise();
        // SAFETY: the child makes calls that take no lock another thread may hold, and leaves.
        let status = unsafe {
            cuCtxSetCurrent(primary(0));
            let pid = libc::fork();
            if pid == 0 {
                let (mut c, mut v) = (NULL, 0);
                let codes =
                    [cuCtxGetCurrent(&mut c), cuCtxGetDevice(&mut v), cuCtxSetCurrent(primary(0)), cuCtxSetFlags(0)];
                libc::_exit(codes.iter().all(|code| *code == CUDA_ERROR_NOT_INITIALIZED) as i32);
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            status
        };
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert_eq!(now(), primary(0));
    }
}
