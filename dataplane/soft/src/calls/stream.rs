//! Streams.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, api, get, handle, put, put_some};
use crate::context::{self, Class, Context, Stream};
use crate::event::EVENTS;
use crate::log::refuse;
use crate::stream::{PRIORITY_GREATEST, STREAMS, living, resolve};
use crate::{capture, enqueue, green_context, pool};

fn create(out: *mut CUstream, flags: c_uint, priority: c_int) -> R {
    // SAFETY: the caller's out parameter.
    unsafe { create_in(&context::current()?, out, flags, priority) }
}

/// # Safety
/// `out` is null or valid for writing a handle.
pub unsafe fn create_in(c: &Arc<Context>, out: *mut CUstream, flags: c_uint, priority: c_int) -> R {
    if out.is_null() || flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let class = if flags & CU_STREAM_NON_BLOCKING != 0 { Class::NonBlocking } else { Class::Blocking };
    let s = Stream::new(c, class, flags, priority.clamp(PRIORITY_GREATEST, 0));
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, STREAMS.add(&s)) }
}

fn destroy(h: CUstream) -> R {
    let s = living(h)?;
    STREAMS.remove(h);
    if let Some(c) = s.capture() {
        capture::abandon(&s, &c);
    }
    // Work already queued still runs; the context keeps the stream until then so that synchronising includes it.
    s.close();
    let me = s.clone();
    if s.is_done(s.submitted())
        && let Ok(mut all) = s.context.streams.lock()
    {
        all.retain(|t| !Arc::ptr_eq(t, &me));
    }
    Ok(())
}

/// A stream of whose capture nothing has gone wrong.
fn unless_invalid(h: CUstream) -> R<Arc<Stream>> {
    let s = resolve(h)?;
    s.capture().map_or(Ok(()), |capture| capture.check())?;
    Ok(s)
}

/// A stream that says what it is. While it is captured it does not, and who asks ends the capture, as on an H200.
fn told(h: CUstream) -> R<Arc<Stream>> {
    let s = resolve(h)?;
    match s.capture() {
        Some(capture) => {
            capture.invalidate();
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Ok(s),
    }
}

api! {
    fn cuStreamCreate(out: *mut CUstream, flags: c_uint) { create(out, flags, 0) }
    fn cuStreamCreateWithPriority(out: *mut CUstream, flags: c_uint, priority: c_int) { create(out, flags, priority) }
    fn cuStreamDestroy(h: CUstream) { destroy(h) }
    fn cuStreamDestroy_v2(h: CUstream) { destroy(h) }
    fn cuStreamQuery(h: CUstream) {
        let s = resolve(h)?;
        if let Some(c) = s.capture() {
            c.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if s.class == Class::Legacy {
            enqueue::forbid_legacy(&s.context)?;
        }
        capture::forbid_unsafe()?;
        let idle = s.is_idle();
        s.context.check()?;
        if idle { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }
    fn cuStreamSynchronize(h: CUstream) {
        let s = resolve(h)?;
        if let Some(c) = s.capture() {
            c.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if s.class == Class::Legacy {
            enqueue::forbid_legacy(&s.context)?;
        }
        capture::forbid_unsafe()?;
        for p in s.preceding() {
            p.stream.wait(p.number);
        }
        s.wait_all();
        pool::synchronized();
        s.context.check()
    }
    fn cuStreamGetPriority(h: CUstream, priority: *mut c_int) {
        put(priority, unless_invalid(h)?.priority)
    }
    fn cuStreamGetFlags(h: CUstream, flags: *mut c_uint) {
        put(flags, told(h)?.flags)
    }
    fn cuStreamGetId(h: CUstream, id: *mut c_ulonglong) {
        put(id, told(h)?.id)
    }
    fn cuStreamGetDevice(h: CUstream, device: *mut CUdevice) {
        put(device, told(h)?.context.device)
    }
    fn cuStreamGetCtx(h: CUstream, ctx: *mut CUcontext) {
        put(ctx, handle(&unless_invalid(h)?.context))
    }
    fn cuStreamGetCtx_v2(h: CUstream, ctx: *mut CUcontext, green: *mut CUgreenCtx) {
        let c = resolve(h)?.context.clone();
        if c.green.is_none() {
            put(ctx, handle(&c))?;
            put_some(green, std::ptr::null_mut());
            return Ok(());
        }
        if h as usize == 2 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        put(ctx, handle(&context::by_id(c.id).ok_or(CUDA_ERROR_INVALID_CONTEXT)?))?;
        put_some(green, green_context::of(&c));
        Ok(())
    }
    fn cuStreamGetGreenCtx(h: CUstream, green: *mut CUgreenCtx) {
        put(green, green_context::of(&resolve(h)?.context))
    }
    fn cuStreamWaitEvent(h: CUstream, e: CUevent, flags: c_uint) {
        let s = resolve(h)?;
        let e = EVENTS.get(e).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if flags & !CU_EVENT_WAIT_EXTERNAL != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let is_external = flags & CU_EVENT_WAIT_EXTERNAL != 0;
        if capture::wait_event(&s, &e, is_external)? {
            return Ok(());
        }
        if is_external {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        match e.point() {
            // Waiting for work of the same stream, or for nothing, changes nothing.
            Some(p) if !Arc::ptr_eq(&p.stream, &s) => s.submit(vec![p], Box::new(|_| ())).map(drop),
            _ => Ok(()),
        }
    }
    fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) {
        resolve(dst)?;
        resolve(src).map(drop)
    }
    fn cuStreamGetAttribute(h: CUstream, attr: CUstreamAttrID, value: *mut CUstreamAttrValue) {
        let s = resolve(h)?;
        let mut v: CUstreamAttrValue = std::mem::zeroed();
        match attr {
            CU_LAUNCH_ATTRIBUTE_PRIORITY => v.priority = s.priority,
            CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => v.syncPolicy = CU_SYNC_POLICY_AUTO,
            CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => {}
            _ => return refuse("cuStreamGetAttribute", "this attribute"),
        }
        put(value, v)
    }
    fn cuStreamSetAttribute(h: CUstream, attr: CUstreamAttrID, value: *const CUstreamAttrValue) {
        resolve(h)?;
        get(value)?;
        match attr {
            CU_LAUNCH_ATTRIBUTE_PRIORITY
            | CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
            | CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => Ok(()),
            _ => refuse("cuStreamSetAttribute", "this attribute"),
        }
    }
}
