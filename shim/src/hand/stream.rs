//! Streams: created without waiting, and what never changes about one is answered here.

// UNSAFETY: writes answers through the application's pointers.

use std::sync::atomic::{AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};

use super::execution::write;
use crate::call::{call, post};
use crate::handles::{self, Table};
use crate::local::context;
use crate::session::session;

struct Stream {
    flags: u32,
    priority: i32,
    context: u64,
    /// The context is a green one's.
    in_green: bool,
    id: u64,
}

static STREAMS: Table<Stream> = Table::new();
/// The driver counts streams per process, default streams first; so does this.
static NEXT_ID: AtomicU64 = AtomicU64::new(16);

/// # Safety
/// As CUDA's `cuStreamCreate`.
pub unsafe fn cuStreamCreate(out: *mut CUstream, flags: u32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { create(out, flags, 0) }
}

/// # Safety
/// As CUDA's `cuStreamCreateWithPriority`.
pub unsafe fn cuStreamCreateWithPriority(out: *mut CUstream, flags: u32, priority: i32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { create(out, flags, priority) }
}

/// Awaited, unlike the others: the driver has to judge the green context.
///
/// # Safety
/// As CUDA's `cuGreenCtxStreamCreate`.
pub unsafe fn cuGreenCtxStreamCreate(out: *mut CUstream, green: CUgreenCtx, flags: u32, priority: i32) -> CUresult {
    let answer = (|| {
        let ctx = super::green_context::context_of(green)?;
        if out.is_null() || flags != CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let priority = clamped(priority, context::device_of(ctx).unwrap_or(0))?;
        let handle = handles::reserve(Kind::Stream);
        let request = |w: &mut Vec<u8>| {
            for v in [handle.0, green as u64, flags as u64, priority as u32 as u64] {
                w.word(v);
            }
        };
        if let Err(code) = call(ops::CU_GREEN_CTX_STREAM_CREATE, request, |_| Ok(())) {
            handles::release(handle);
            return Err(code);
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        STREAMS.insert(handle, Stream { flags, priority, context: ctx, in_green: true, id });
        Ok(handle.0 as CUstream)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// Priorities beyond the device's range are clamped, as the driver documents.
fn clamped(priority: i32, device: u32) -> Result<i32, CUresult> {
    let index = crate::local::device::worker_ordinal(device).unwrap_or(0) as usize;
    let (least, greatest) = session()?.welcome.devices[index].stream_priorities;
    Ok(priority.clamp(greatest.min(least), least.max(greatest)))
}

unsafe fn create(out: *mut CUstream, flags: u32, priority: i32) -> CUresult {
    let answer = (|| {
        session()?;
        let ctx = context::current();
        if ctx == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if out.is_null() || flags > CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let priority = clamped(priority, context::current_device().unwrap_or(0))?;
        let handle = handles::reserve_in(Kind::Stream, context::current_home());
        let code = post(ops::CU_STREAM_CREATE_WITH_PRIORITY, |w| {
            w.word(handle.0);
            w.word(flags as u64);
            w.word(priority as u32 as u64);
        });
        if code != CUDA_SUCCESS {
            handles::release(handle);
            return Err(code);
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let in_green = context::green_of(ctx) != 0;
        STREAMS.insert(handle, Stream { flags, priority, context: ctx, in_green, id });
        Ok(handle.0 as CUstream)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    let handle = Handle(stream as u64);
    if let Err(code) = find_own(stream) {
        return code;
    }
    let code = post(ops::CU_STREAM_DESTROY_V2, |w| w.word(handle.0));
    handles::release(handle);
    code
}

/// A stream was destroyed, or its context was.
pub fn ended(handle: Handle) {
    if STREAMS.remove(handle).is_some() {
        super::capture::stream_destroyed(handle.0 as CUstream);
    }
}

/// The default streams are not objects: they belong to the current context.
fn find(stream: CUstream) -> Result<Option<&'static Stream>, CUresult> {
    session()?;
    if (stream as u64) <= 2 {
        return if context::current() == 0 { Err(CUDA_ERROR_INVALID_CONTEXT) } else { Ok(None) };
    }
    find_own(stream).map(Some)
}

/// A stream of the application's. One whose green context is gone answers so, also to being destroyed.
fn find_own(stream: CUstream) -> Result<&'static Stream, CUresult> {
    let handle = Handle(stream as u64);
    if !handle.is(Kind::Stream) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let s = STREAMS.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if s.in_green && context::device_of(s.context).is_none() {
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    Ok(s)
}

/// Work on a stream of the application's own belongs to that stream's context, also in a thread without a current
/// one; PyTorch's backward threads rely on it.
pub fn in_context_of(stream: CUstream, f: impl FnOnce() -> CUresult) -> CUresult {
    if context::current() != 0 || (stream as u64) <= 2 {
        return f();
    }
    match STREAMS.get(Handle(stream as u64)) {
        Some(s) => context::with_current(s.context, f),
        None => f(),
    }
}

/// Whether a stream is another context's than `ctx`, which the driver may not accept. A green context's streams are
/// those of the context that it shares.
#[inline]
pub fn is_elsewhere(stream: CUstream, ctx: u64) -> bool {
    #[cold]
    fn compared(stream: CUstream, ctx: u64) -> bool {
        home(stream) != context::home_of(ctx)
    }
    context::several() && compared(stream, ctx)
}

/// The context whose memory and events a stream's work has.
pub fn home(stream: CUstream) -> u64 {
    let own = STREAMS.get(Handle(stream as u64)).filter(|_| (stream as u64) > 2);
    own.map_or_else(context::current_home, |s| context::home_of(s.context))
}

/// # Safety
/// As CUDA's `cuStreamGetPriority`.
pub unsafe fn cuStreamGetPriority(stream: CUstream, priority: *mut i32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(priority, find(stream).map(|s| s.map_or(0, |s| s.priority))) }
}

/// # Safety
/// As CUDA's `cuStreamGetFlags`.
pub unsafe fn cuStreamGetFlags(stream: CUstream, flags: *mut u32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(flags, find(stream).map(|s| s.map_or(0, |s| s.flags))) }
}

/// Unique in the process; the legacy and the null stream share one, a thread's default stream has its own.
pub fn stream_id(ctx: u64, stream: CUstream) -> Option<u64> {
    match find(stream) {
        Ok(Some(s)) => Some(s.id),
        Ok(None) if stream as u64 == 2 => Some(1 << 32 | crate::call::thread_slot() as u64),
        Ok(None) => Some(7 + (Handle(ctx).index() as u64)),
        Err(_) => None,
    }
}

/// # Safety
/// As CUDA's `cuStreamGetId`.
pub unsafe fn cuStreamGetId(stream: CUstream, id: *mut u64) -> CUresult {
    let answer = find(stream).map(|_| stream_id(context::current(), stream).unwrap_or(0));
    // SAFETY: the caller's promise.
    unsafe { write(id, answer) }
}

/// # Safety
/// As CUDA's `cuStreamGetCtx`.
pub unsafe fn cuStreamGetCtx(stream: CUstream, ctx: *mut CUcontext) -> CUresult {
    let answer = find(stream).map(|s| s.map_or(context::current(), |s| s.context) as CUcontext);
    // SAFETY: the caller's promise.
    unsafe { write(ctx, answer) }
}

/// Of a stream of a green context: the primary context and the green one.
///
/// # Safety
/// As CUDA's `cuStreamGetCtx_v2`.
pub unsafe fn cuStreamGetCtx_v2(stream: CUstream, ctx: *mut CUcontext, green: *mut CUgreenCtx) -> CUresult {
    let found = find(stream).map(|s| s.map_or(context::current(), |s| s.context)).and_then(|of| {
        let g = context::green_of(of);
        // The per-thread default stream is none of a green context's.
        if g != 0 && stream as u64 == 2 { Err(CUDA_ERROR_INVALID_HANDLE) } else { Ok((context::home_of(of), g)) }
    });
    // SAFETY: the caller's promise.
    let code = unsafe { write(ctx, found.map(|(home, _)| home as CUcontext)) };
    if let (CUDA_SUCCESS, Ok((_, g)), false) = (code, found, green.is_null()) {
        // SAFETY: the caller's promise.
        unsafe { green.write(g as CUgreenCtx) };
    }
    code
}

/// # Safety
/// As CUDA's `cuStreamGetGreenCtx`.
pub unsafe fn cuStreamGetGreenCtx(stream: CUstream, green: *mut CUgreenCtx) -> CUresult {
    let of = find(stream).map(|s| s.map_or(context::current(), |s| s.context));
    // SAFETY: the caller's promise.
    unsafe { write(green, of.map(|of| context::green_of(of) as CUgreenCtx)) }
}

/// # Safety
/// As CUDA's `cuStreamGetDevice`.
pub unsafe fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) -> CUresult {
    let answer = find(stream).and_then(|s| {
        let ctx = s.map_or(context::current(), |s| s.context);
        context::resolve(ctx as CUcontext).map(|c| c.device as CUdevice)
    });
    // SAFETY: the caller's promise.
    unsafe { write(device, answer) }
}
