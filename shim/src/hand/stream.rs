//! Streams: created without waiting, and what never changes about one is answered here.

// UNSAFETY: writes answers through the application's pointers.

use std::sync::atomic::{AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};

use super::execution::write;
use crate::call::post;
use crate::handles::{self, Table};
use crate::local::context;
use crate::session::session;

struct Stream {
    flags: u32,
    priority: i32,
    context: u64,
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

unsafe fn create(out: *mut CUstream, flags: u32, priority: i32) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let ctx = context::current();
        if ctx == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if out.is_null() || flags > CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Priorities beyond the device's range are clamped, as the driver documents.
        let device = context::current_device().unwrap_or(0);
        let index = crate::local::device::worker_ordinal(device).unwrap_or(0) as usize;
        let (least, greatest) = s.welcome.devices[index].stream_priorities;
        let priority = priority.clamp(greatest.min(least), least.max(greatest));
        let handle = handles::reserve(Kind::Stream);
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
        STREAMS.insert(handle, Stream { flags, priority, context: ctx, id });
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
    if !handle.is(Kind::Stream) || STREAMS.remove(handle).is_none() {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    super::capture::stream_destroyed(stream);
    let code = post(ops::CU_STREAM_DESTROY_V2, |w| w.word(handle.0));
    handles::release(handle);
    code
}

/// The default streams are not objects: they belong to the current context.
fn find(stream: CUstream) -> Result<Option<&'static Stream>, CUresult> {
    session()?;
    if (stream as u64) <= 2 {
        return if context::current() == 0 { Err(CUDA_ERROR_INVALID_CONTEXT) } else { Ok(None) };
    }
    let handle = Handle(stream as u64);
    if !handle.is(Kind::Stream) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    STREAMS.get(handle).map(Some).ok_or(CUDA_ERROR_INVALID_HANDLE)
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

/// Green contexts are not forwarded, so a stream always belongs to an ordinary one.
///
/// # Safety
/// As CUDA's `cuStreamGetCtx_v2`.
pub unsafe fn cuStreamGetCtx_v2(stream: CUstream, ctx: *mut CUcontext, green: *mut CUgreenCtx) -> CUresult {
    // SAFETY: the caller's promise.
    let code = unsafe { cuStreamGetCtx(stream, ctx) };
    if code == CUDA_SUCCESS && !green.is_null() {
        // SAFETY: the caller's promise.
        unsafe { green.write(std::ptr::null_mut()) };
    }
    code
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
