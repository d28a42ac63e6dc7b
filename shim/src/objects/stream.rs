//! Streams: created without waiting, and what never changes about one is answered here.

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};

use crate::session::ahead;
use crate::session::attached::session;
use crate::session::context::with_home;
use crate::state::context;
use crate::state::process::state;
use crate::state::stream::Stream;

/// Priorities beyond the device's range are clamped, as the driver documents.
pub fn clamped(priority: i32, device: u32) -> Result<i32, CUresult> {
    session()?;
    let device = crate::session::device::told(device).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
    let (least, greatest) = device.stream_priorities;
    Ok(priority.clamp(greatest.min(least), least.max(greatest)))
}

/// The default streams are not objects: they belong to the current context.
pub fn find(stream: CUstream) -> Result<Option<&'static Stream>, CUresult> {
    session()?;
    if (stream as u64) <= 2 {
        return if context::current() == 0 { Err(CUDA_ERROR_INVALID_CONTEXT) } else { Ok(None) };
    }
    find_own(stream).map(Some)
}

/// A stream of the application's. One whose green context is gone answers so, also to being destroyed.
pub fn find_own(stream: CUstream) -> Result<&'static Stream, CUresult> {
    let handle = Handle(stream as u64);
    if !handle.is(Kind::Stream) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let s = state().streams.table.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if s.in_green && crate::session::context::device_of(s.context).is_none() {
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    Ok(s)
}

/// Work on a stream of the application's own belongs to that stream's context, also in a thread without a current
/// one; PyTorch's backward threads rely on it.
pub fn in_context_of(stream: CUstream, f: impl FnOnce() -> CUresult) -> CUresult {
    let give = || {
        ahead::queued(stream);
        f()
    };
    if context::current() != 0 || (stream as u64) <= 2 {
        return give();
    }
    match state().streams.table.get(Handle(stream as u64)) {
        Some(s) => crate::session::context::with_current(s.context, give),
        None => give(),
    }
}

/// As [`in_context_of`], of a copy to and from these addresses.
pub fn in_context_of_copy(
    stream: CUstream,
    (to, from): (u64, u64),
    synchronous: bool,
    f: impl FnOnce() -> CUresult,
) -> CUresult {
    // What is waited for is not ahead.
    if !synchronous && session().is_ok_and(|s| s.pages.must_bring()) {
        let is_host = |side| state().addresses.find(side).is_some_and(|range| range.is_host());
        ahead::carried(stream, is_host(to), is_host(from));
    }
    in_context_of(stream, f)
}

/// In a thread without a current context, with that of the stream: of one of the application's own the driver needs no
/// other.
pub fn at_home<T>(stream: CUstream, f: impl FnOnce() -> T) -> T {
    let own = || state().streams.table.get(Handle(stream as u64)).filter(|_| (stream as u64) > 2);
    with_home(|| own().map_or(0, |own| own.context), f)
}

/// Whether a stream is another context's than `ctx`, or than a function of `of_function`'s, which the driver may not
/// accept. A green context's streams are those of the context that it shares.
#[inline]
pub fn is_elsewhere(stream: CUstream, ctx: u64, of_function: u64) -> bool {
    #[cold]
    fn compared(stream: CUstream, ctx: u64, of_function: u64) -> bool {
        let home = home(stream);
        home != crate::session::context::home_of(ctx) || of_function != 0 && of_function != home
    }
    state().contexts.several() && compared(stream, ctx, of_function)
}

/// The context whose memory and events a stream's work has.
pub fn home(stream: CUstream) -> u64 {
    let own = state().streams.table.get(Handle(stream as u64)).filter(|_| (stream as u64) > 2);
    own.map_or_else(context::current_home, |s| crate::session::context::home_of(s.context))
}

/// Unique in the process; the legacy and the null stream share one, a thread's default stream has its own.
pub fn stream_id(ctx: u64, stream: CUstream) -> Option<u64> {
    match find(stream) {
        Ok(Some(s)) => Some(s.id),
        Ok(None) if stream as u64 == 2 => Some(1 << 32 | crate::session::thread::thread_slot() as u64),
        Ok(None) => Some(7 + (Handle(ctx).index() as u64)),
        Err(_) => None,
    }
}
