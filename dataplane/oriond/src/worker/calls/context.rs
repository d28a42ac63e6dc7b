//! Contexts: made, reset, destroyed and waited for under the client's handles.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::cell::Cell;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::context::{CtxCreate, CtxDestroy, CtxSetLimit, CtxSynchronize, CtxSynchronizeReply};
use orion_wire::message::context::{DevicePrimaryCtxRelease, DevicePrimaryCtxReset, DevicePrimaryCtxRetain};
use orion_wire::record::Header;

use crate::worker::calls::green_context;
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::waits::{Wait, Waiting};

pub fn cuCtxCreate_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = CtxCreate::decode(&mut r)?;
    let (word, flags, vgpu) = (q.context.0, q.flags, s.vgpus.at(q.device.0)?);
    let device = s.vgpus.get(vgpu).device;
    let context = Cell::new(ptr::null_mut());
    s.forget_current();
    let code = s.making_context(
        word,
        vgpu,
        |d| {
            let (mut created, mut popped) = (ptr::null_mut(), ptr::null_mut());
            // Creating makes it current here; which one is current is the client's business.
            // SAFETY: a device of this session and valid out pointers; the context is on top of this thread's stack.
            let code = unsafe {
                match d.cuCtxCreate_v2(&mut created, flags, device) {
                    CUDA_SUCCESS => d.cuCtxPopCurrent_v2(&mut popped),
                    code => code,
                }
            };
            context.set(created);
            code
        },
        // SAFETY: a context that was just made, and that nobody has been told of.
        |d| unsafe { _ = d.cuCtxDestroy_v2(context.get()) },
    );
    if code == CUDA_SUCCESS {
        s.bind(Kind::Context, word, context.get().cast())?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuCtxDestroy_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = CtxDestroy::decode(&mut r)?.context.0;
    let context = match s.context(word) {
        // A green one ends with its green context.
        Ok(c) if !c.is_null() && s.green.home(word) == word => c,
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_CONTEXT)),
    };
    let destroy = move |s: &mut Session| {
        // What is kept for the session in this context is asked by this thread between any two commands, so no other
        // thread may be ending it meanwhile.
        // SAFETY: a context of this session that the client gives up.
        let code = unsafe { s.driver.cuCtxDestroy_v2(context) };
        s.context_gone(word, code);
        s.unbind(Kind::Context, word);
        code
    };
    if s.captures.forbids(header.thread) {
        return Ok(Outcome::Done(destroy(s)));
    }
    // Destroying waits for the context's work, which may wait for the client: so that is over first.
    let mut streams: Vec<(u64, CUstream)> = s.busy_streams_of(word).into_iter().map(|stream| (word, stream)).collect();
    streams.push((word, ptr::null_mut()));
    let (header, streams) = (Header { context: word, ..*header }, s.beside_captures(streams));
    Ok(s.park(&header, Wait::Everywhere(streams), move |s, _, _| destroy(s)))
}

/// Nothing to do but to have it: the worker holds a primary context from its first use until it is released.
pub fn cuDevicePrimaryCtxRetain(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let ordinal = DevicePrimaryCtxRetain::decode(&mut r)?.device.0 as u32;
    Ok(Outcome::Done(s.context(Handle::primary_context(ordinal).0).err().unwrap_or(CUDA_SUCCESS)))
}

/// The client's last release. cudart does this while its process exits, so nothing is torn down here: the
/// process that holds everything is about to end. A client that goes on finds a fresh context.
pub fn cuDevicePrimaryCtxRelease_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    reset(s, DevicePrimaryCtxRelease::decode(&mut r)?.device.0)
}

pub fn cuDevicePrimaryCtxReset_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    reset(s, DevicePrimaryCtxReset::decode(&mut r)?.device.0)
}

fn reset(s: &mut Session, ordinal: i32) -> Handled {
    s.device(ordinal)?;
    green_context::end_all(s, ordinal);
    let code = s.reset_primary(ordinal as u32)?;
    // Only now: until then the driver may refer to images that are dropped here.
    s.context_gone(Handle::primary_context(ordinal as u32).0, code);
    Ok(Outcome::Done(code))
}

/// For larger stacks the driver waits for the device.
pub fn cuCtxSetLimit(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let CtxSetLimit { limit, value } = CtxSetLimit::decode(&mut r)?;
    let Some(aside) = s.limiting(limit, value) else { return Ok(Outcome::Done(CUDA_ERROR_OUT_OF_MEMORY)) };
    // SAFETY: numbers.
    let set = move |driver: &'static Driver| unsafe { driver.cuCtxSetLimit(limit, value as usize) };
    if limit != CU_LIMIT_STACK_SIZE {
        let code = set(s.driver);
        s.limited(aside, code);
        return Ok(Outcome::Done(code));
    }
    s.park_blocking(header, set, move |s, code, _| {
        s.limited(aside, code);
        code
    })
}

pub fn cuCtxSynchronize(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    CtxSynchronize::decode(&mut r)?;
    let (own, until) = s.busy_streams();
    let mut streams: Vec<(u64, CUstream)> = own.into_iter().map(|stream| (header.context, stream)).collect();
    streams.push((header.context, ptr::null_mut()));
    // The green contexts on a primary context's device are synchronised with it.
    let green = s.green.contexts_on(header.context);
    for context in &green {
        streams.extend(s.busy_streams_of(*context).into_iter().map(|stream| (*context, stream)));
        streams.push((*context, ptr::null_mut()));
    }
    // The last one is asked first: what that is refused with, if it is captured, is the answer.
    streams.extend(s.captured_in(header.context).into_iter().map(|stream| (header.context, stream)));
    Ok(s.park(header, Wait::Then(streams, Waiting::Synchronize), move |s, code, reply| {
        s.streams_idle(until);
        for context in green {
            s.streams_idle_in(context, until);
        }
        CtxSynchronizeReply { events: s.flush_output(code) }.encode(reply);
        code
    }))
}
