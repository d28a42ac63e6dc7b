//! The JIT linker.

// UNSAFETY: hands inputs to the driver and copies the cubin it made.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Fault, Reader, Writer};

use super::jit;
use super::module::payload;
use crate::worker::session::{Outcome, Session};

pub type Links = HashMap<u64, Link>;

/// What the driver refers to while a link lives.
pub struct Link {
    options: jit::Decoded,
    values: Vec<*mut c_void>,
    /// The driver's own copy, once complete.
    cubin: Option<(*const u8, usize)>,
}

pub fn cuLinkCreate_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let options = jit::Decoded::decode(&mut r)?;
    let (mut keys, mut values) = options.arrays();
    let mut state: CUlinkState = ptr::null_mut();
    // SAFETY: arrays of equal length; values and buffers are kept until the link is destroyed.
    let code =
        unsafe { s.driver.cuLinkCreate_v2(keys.len() as u32, keys.as_mut_ptr(), values.as_mut_ptr(), &mut state) };
    if code == CUDA_SUCCESS {
        s.bind(Kind::LinkState, word, state.cast())?;
        s.links.insert(word, Link { options, values, cubin: None });
    }
    Ok(Outcome::Done(code))
}

/// The driver's link; null is none.
fn state(s: &mut Session, word: u64) -> Result<CUlinkState, CUresult> {
    match s.handle(Kind::LinkState, word) {
        Ok(state) if !state.is_null() => Ok(state.cast()),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

fn logs(s: &Session, word: u64, reply: &mut Vec<u8>) {
    if let Some(link) = s.links.get(&word) {
        link.options.encode_results(reply, &link.values);
    }
}

pub fn cuLinkAddData_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let kind = r.word()? as u32;
    let mut data = payload(s, &mut r)?;
    let name = CString::new(r.bytes()?).map_err(|_| Fault("name of a linker input holds a NUL"))?;
    let options = jit::Decoded::decode(&mut r)?;
    let state = match state(s, word) {
        Ok(state) => state,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let bytes = data.len();
    // A text that lost its NUL would be read beyond its end.
    data.push(0);
    let (mut keys, mut values) = options.arrays();
    // SAFETY: a live link; input, name and arrays are our own for the length of the call.
    let code = unsafe {
        s.driver.cuLinkAddData_v2(
            state,
            kind,
            data.as_mut_ptr().cast(),
            bytes,
            name.as_ptr(),
            keys.len() as u32,
            keys.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    options.encode_results(reply, &values);
    logs(s, word, reply);
    Ok(Outcome::Done(code))
}

/// Completes, or copies what was completed: see the shim's `link::request`.
pub fn cuLinkComplete(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let is_fetch = r.word()? != 0;
    let state = match state(s, word) {
        Ok(state) => state,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    if is_fetch {
        let range = HeapRange::get(&mut r)?.check(s.heap.bytes())?;
        let to = s.heap_pointer(range)?;
        let Some((cubin, bytes)) = s.links.get(&word).and_then(|l| l.cubin) else {
            return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE));
        };
        let len = bytes.min(range.bytes as usize);
        // SAFETY: the driver's cubin is valid until the link is destroyed; the range lies inside the heap.
        unsafe { ptr::copy_nonoverlapping(cubin, to, len) };
        if s.mirrored {
            s.announce(range);
        }
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    let (mut cubin, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: a live link and valid out pointers.
    let code = unsafe { s.driver.cuLinkComplete(state, &mut cubin, &mut bytes) };
    logs(s, word, reply);
    if code == CUDA_SUCCESS {
        if let Some(link) = s.links.get_mut(&word) {
            link.cubin = Some((cubin.cast_const().cast(), bytes));
        }
        reply.word(bytes as u64);
    }
    Ok(Outcome::Done(code))
}

pub fn cuLinkDestroy(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let state = match state(s, word) {
        Ok(state) => state,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let options = s.links.remove(&word);
    s.unbind(Kind::LinkState, word);
    // SAFETY: a live link, whose options are dropped after it.
    let code = unsafe { s.driver.cuLinkDestroy(state) };
    drop(options);
    Ok(Outcome::Done(code))
}
