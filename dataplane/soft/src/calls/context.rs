//! Contexts.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::api::{R, api, handle, put, put_some};
use crate::capture::{self, forbid_captured};
use crate::context::{
    self, CONTEXTS, Context, current, current_any, from_handle, from_handle_or_current, primary, retain_primary, stack,
};
use crate::event::lookup_event;
use crate::log::refuse;
use crate::{device, enqueue, pool, stream, vram};

impl Context {
    /// Ends a green context. Its streams are not destroyed with it, but nothing can be done with them any more.
    pub fn end_green(self: &Arc<Self>) -> R {
        for s in self.every_stream() {
            s.wait_all();
            s.close();
        }
        self.forget_streams();
        self.alive.store(false, Ordering::Release);
        CONTEXTS.remove::<CUctx_st>(handle(self));
        stack(|s| {
            if s.last().is_some_and(|t| Arc::ptr_eq(t, self)) {
                s.pop();
            }
        });
        release_primary(self.device, false)
    }

    pub fn synchronize(&self) -> R {
        for s in self.streams_of_all() {
            s.wait_all();
        }
        pool::synchronized();
        self.check()
    }

    /// Ends everything that lives in the context.
    fn tear_down(&self) {
        for s in self.every_stream() {
            s.wait_all();
            s.close();
            stream::STREAMS.remove(Arc::as_ptr(&s).cast_mut());
        }
        self.forget_streams();
        crate::event::end_context(self.id);
        crate::module::unload_context(self.id);
        crate::texture::end_context(self.id);
        crate::array::end_context(self.id);
        for r in vram::all(|r| r.context == self.id) {
            crate::memory::drop_range(&vram::Range { flags: r.flags & !crate::memory::GRAPH_OWNED, ..r });
        }
        self.error.store(CUDA_SUCCESS, Ordering::Release);
        self.alive.store(false, Ordering::Release);
    }
}

fn create(out: *mut CUcontext, flags: c_uint, dev: CUdevice) -> R {
    let dev = device::check(dev)?;
    if out.is_null() || flags & !CU_CTX_FLAGS_MASK != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let c = Context::new(dev, flags, false);
    stack(|s| s.push(c.clone()));
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, handle(&c)) }
}

fn destroy(ctx: CUcontext) -> R {
    let c = from_handle(ctx)?;
    // A green context shares the primary one, which is not destroyed but released.
    if c.primary || c.green.is_some() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    CONTEXTS.remove(ctx);
    c.tear_down();
    stack(|s| {
        if s.last().is_some_and(|t| Arc::ptr_eq(t, &c)) {
            s.pop();
        }
    });
    Ok(())
}

fn push(ctx: CUcontext) -> R {
    device::initialised()?;
    if ctx.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let c = from_handle(ctx)?;
    stack(|s| s.push(c));
    Ok(())
}

fn pop(out: *mut CUcontext) -> R {
    device::initialised()?;
    let c = stack(Vec::pop).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    // SAFETY: the caller's out parameter, which may be null.
    unsafe { put_some(out, handle(&c)) };
    Ok(())
}

fn release_primary(dev: CUdevice, all: bool) -> R {
    let dev = device::check(dev)?;
    let mut p = primary(dev).lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
    if !all && p.references == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    p.references = if all { 0 } else { p.references - 1 };
    if p.references == 0
        && let Some(c) = &p.context
    {
        c.tear_down();
    }
    Ok(())
}

fn set_primary_flags(dev: CUdevice, flags: c_uint) -> R {
    let dev = device::check(dev)?;
    if flags & !CU_CTX_FLAGS_MASK != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut p = primary(dev).lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
    p.flags = flags;
    if let Some(c) = &p.context {
        c.flags.store(flags, Ordering::Relaxed);
    }
    Ok(())
}

fn limit_default(limit: CUlimit) -> R<usize> {
    Ok(match limit {
        CU_LIMIT_STACK_SIZE => 1024,
        CU_LIMIT_PRINTF_FIFO_SIZE => 1 << 20,
        CU_LIMIT_MALLOC_HEAP_SIZE => 8 << 20,
        CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH => 2,
        CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => 2048,
        CU_LIMIT_MAX_L2_FETCH_GRANULARITY => 128,
        CU_LIMIT_PERSISTING_L2_CACHE_SIZE => 0,
        // No graphics shares the context. cuBLAS 13 asks for the second, and takes an error that it does not know for
        // success without an answer.
        CU_LIMIT_SHMEM_SIZE | CU_LIMIT_CIG_ENABLED | CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED => 0,
        CU_LIMIT_MAX.. => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// Captures everything that a context has been given so far.
pub fn record_context(c: &Arc<Context>, h: CUevent) -> R {
    let e = lookup_event(h)?;
    if e.context.id != c.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    enqueue::forbid_capture(c)?;
    let s = c.legacy_stream()?;
    let ends = c.streams_of_all().iter().filter(|t| !Arc::ptr_eq(t, &s)).map(|t| t.end()).collect();
    e.record_after(&s, ends)
}

/// Whatever a context is given from now on waits for the event.
pub fn wait_context(c: &Arc<Context>, h: CUevent) -> R {
    let e = lookup_event(h)?;
    forbid_captured(&e)?;
    enqueue::forbid_capture(c)?;
    // The default stream is there before it is used.
    c.legacy_stream()?;
    if let Some(p) = e.point() {
        for s in c.streams_of_all() {
            if !Arc::ptr_eq(&s, &p.stream) {
                s.submit(vec![p.clone()], Box::new(|_| ()))?;
            }
        }
    }
    Ok(())
}

api! {
    fn cuCtxCreate_v2(out: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        create(out, flags, dev)
    }
    fn cuCtxCreate_v3(
        out: *mut CUcontext,
        _params: *mut CUexecAffinityParam,
        count: c_int,
        flags: c_uint,
        dev: CUdevice,
    ) {
        if count > 0 {
            return refuse("cuCtxCreate_v3", "execution affinity");
        }
        create(out, flags, dev)
    }
    fn cuCtxCreate_v4(out: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice) {
        if !params.is_null() && ((*params).numExecAffinityParams > 0 || !(*params).cigParams.is_null()) {
            return refuse("cuCtxCreate_v4", "execution affinity");
        }
        create(out, flags, dev)
    }
    fn cuCtxDestroy(ctx: CUcontext) { destroy(ctx) }
    fn cuCtxDestroy_v2(ctx: CUcontext) { destroy(ctx) }
    fn cuCtxPushCurrent(ctx: CUcontext) { push(ctx) }
    fn cuCtxPushCurrent_v2(ctx: CUcontext) { push(ctx) }
    fn cuCtxPopCurrent(out: *mut CUcontext) { pop(out) }
    fn cuCtxPopCurrent_v2(out: *mut CUcontext) { pop(out) }
    fn cuCtxSetCurrent(ctx: CUcontext) {
        device::initialised()?;
        if ctx.is_null() {
            stack(Vec::pop);
            return Ok(());
        }
        let c = from_handle(ctx)?;
        stack(|s| {
            s.pop();
            s.push(c);
        });
        Ok(())
    }
    fn cuCtxGetCurrent(out: *mut CUcontext) {
        device::initialised()?;
        put(out, stack(|s| s.last().map_or(std::ptr::null_mut(), handle)))
    }
    fn cuCtxGetDevice(dev: *mut CUdevice) {
        put(dev, current_any()?.device)
    }
    fn cuCtxGetDevice_v2(dev: *mut CUdevice, ctx: CUcontext) {
        put(dev, from_handle_or_current(ctx)?.device)
    }
    fn cuCtxGetFlags(flags: *mut c_uint) {
        put(flags, current_any()?.flags.load(Ordering::Relaxed))
    }
    fn cuCtxSetFlags(flags: c_uint) {
        if flags & !CU_CTX_FLAGS_MASK != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        current_any()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }
    fn cuCtxGetId(ctx: CUcontext, id: *mut c_ulonglong) {
        put(id, from_handle_or_current(ctx)?.number)
    }
    fn cuCtxSynchronize() {
        let c = current_any()?;
        enqueue::forbid_capture(&c)?;
        capture::forbid_unsafe()?;
        c.synchronize()
    }
    fn cuCtxSynchronize_v2(ctx: CUcontext) {
        let c = from_handle_or_current(ctx)?;
        enqueue::forbid_capture(&c)?;
        capture::forbid_unsafe()?;
        c.synchronize()
    }
    fn cuCtxSetLimit(limit: CUlimit, value: usize) {
        let c = current()?;
        capture::forbid_unsafe()?;
        let default = limit_default(limit)?;
        let before = c.limits.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.insert(limit, value);
        if limit == CU_LIMIT_STACK_SIZE && value > before.unwrap_or(default) {
            // As the driver does, which moves the stacks of what runs.
            c.synchronize()?;
        }
        Ok(())
    }
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) {
        let c = current()?;
        let default = limit_default(limit)?;
        let set = c.limits.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.get(&limit).copied();
        put(value, set.unwrap_or(default))
    }
    fn cuCtxGetCacheConfig(config: *mut CUfunc_cache) {
        put(config, current()?.cache_config.load(Ordering::Relaxed))
    }
    fn cuCtxSetCacheConfig(config: CUfunc_cache) {
        current()?.cache_config.store(config, Ordering::Relaxed);
        Ok(())
    }
    fn cuCtxGetSharedMemConfig(config: *mut CUsharedconfig) {
        current()?;
        put(config, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE)
    }
    fn cuCtxSetSharedMemConfig(_config: CUsharedconfig) {
        current().map(drop)
    }
    fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint) {
        from_handle_or_current(ctx)?;
        put(version, 3020)
    }
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        current()?;
        put_some(least, 0);
        put_some(greatest, stream::PRIORITY_GREATEST);
        Ok(())
    }
    fn cuCtxResetPersistingL2Cache() {
        current().map(drop)
    }
    fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, dev: CUdevice) {
        let dev = device::check(dev)?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, handle(&retain_primary(dev)?))
    }
    fn cuDevicePrimaryCtxRelease(dev: CUdevice) { release_primary(dev, false) }
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) { release_primary(dev, false) }
    fn cuDevicePrimaryCtxReset(dev: CUdevice) { release_primary(dev, true) }
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) { release_primary(dev, true) }
    fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) { set_primary_flags(dev, flags) }
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) { set_primary_flags(dev, flags) }
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let dev = device::check(dev)?;
        let p = primary(dev).lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        put(flags, p.flags)?;
        put(active, c_int::from(p.context.as_ref().is_some_and(|c| c.alive.load(Ordering::Relaxed))))
    }
    fn cuCtxRecordEvent(ctx: CUcontext, h: CUevent) {
        let c = context::from_handle(ctx)?;
        record_context(&c, h)
    }
    fn cuCtxWaitEvent(ctx: CUcontext, h: CUevent) {
        let c = context::from_handle(ctx)?;
        wait_context(&c, h)
    }
}
