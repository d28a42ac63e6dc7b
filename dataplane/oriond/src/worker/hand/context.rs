//! Contexts: made, reset and destroyed under the client's handles.

// UNSAFETY: calls the driver with contexts and devices of this session.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::record::Header;
use orion_wire::{Fault, Reader};

use crate::worker::session::{Outcome, Session};

pub fn cuCtxCreate_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (word, flags, device) = (r.word()?, r.word()? as u32, s.device(r.word()? as i32));
    let device = match device {
        Ok(d) => d,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mut context = ptr::null_mut();
    // Creating makes it current here; which one is current is the client's business.
    s.forget_current();
    // SAFETY: a device of this session and a valid out pointer.
    let code = unsafe { s.driver.cuCtxCreate_v2(&mut context, flags, device) };
    if code == CUDA_SUCCESS {
        let mut popped = ptr::null_mut();
        // SAFETY: the context just created is on top of this thread's stack.
        unsafe { s.driver.cuCtxPopCurrent_v2(&mut popped) };
        s.bind(Kind::Context, word, context.cast())?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuCtxDestroy_v2(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let context = match s.context(word) {
        // A green one ends with its green context.
        Ok(c) if !c.is_null() && s.green.home(word) == word => c,
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_CONTEXT)),
    };
    // Destroying waits for the context's work, which may wait for the client. No context is current to the command
    // meanwhile: whether it is done is asked when other threads' contexts have been current, and this one may be gone.
    s.park_blocking(
        &Header { context: 0, ..*header },
        // SAFETY: a context of this session that the client gives up.
        {
            let context = context as usize;
            move |d| unsafe { d.cuCtxDestroy_v2(context as CUcontext) }
        },
        move |s, code, _| {
            s.context_gone(word);
            s.unbind(Kind::Context, word);
            code
        },
    )
}

/// Nothing to do but to have it: the worker holds a primary context from its first use until it is released.
pub fn cuDevicePrimaryCtxRetain(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let ordinal = r.word()? as u32;
    Ok(Outcome::Done(s.context(Handle::primary_context(ordinal).0).err().unwrap_or(CUDA_SUCCESS)))
}

/// The client's last release. cudart does this while its process exits, so nothing is torn down here: the
/// process that holds everything is about to end. A client that goes on finds a fresh context.
pub fn cuDevicePrimaryCtxRelease_v2(
    s: &mut Session,
    header: &Header,
    r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    cuDevicePrimaryCtxReset_v2(s, header, r, reply)
}

pub fn cuDevicePrimaryCtxReset_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let ordinal = r.word()? as i32;
    let device = match s.device(ordinal) {
        Ok(d) => d,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    super::green_context::end_all(s, ordinal);
    // SAFETY: a device of this session. The worker's own reference survives a reset.
    let code = unsafe { s.driver.cuDevicePrimaryCtxReset_v2(device) };
    // Only now: until then the driver may refer to images that are dropped here.
    s.context_gone(Handle::primary_context(ordinal as u32).0);
    Ok(Outcome::Done(code))
}
