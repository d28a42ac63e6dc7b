//! The JIT linker.

// UNSAFETY: hands inputs to the driver and copies the cubin it made.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Fault, Reader, Writer};

use super::jit;
use super::module::payload;
use crate::worker::session::{Outcome, Session, Wait};
use crate::worker::{driver_log, extents};

pub type Links = HashMap<u64, Link>;

/// What the driver refers to while a link lives.
pub struct Link {
    options: jit::Decoded,
    values: Vec<*mut c_void>,
    /// The driver's own copy, once complete.
    cubin: Option<(*const u8, usize)>,
    /// Held by who compiles: threads of the client take turns.
    turn: Arc<Mutex<()>>,
}

/// What a destroyed link's options were, on its way to be dropped.
struct Unshared(#[allow(dead_code, reason = "kept for its destructor")] Link);

// SAFETY: its pointers lead into buffers that it owns, and nobody else refers to it.
unsafe impl Send for Unshared {}

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
        s.links.insert(word, Link { options, values, cubin: None, turn: Arc::default() });
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

/// What a helper thread compiles with, and what comes of it.
#[derive(Default)]
struct Made {
    cubin: usize,
    bytes: usize,
    results: Vec<u8>,
}

/// Compiling takes long, so a helper thread does it; while a stream is captured it is done here, where the driver takes
/// it for the capturing thread's. `finish` writes the reply.
fn compile(
    s: &mut Session,
    header: &Header,
    word: u64,
    reply: &mut Vec<u8>,
    job: impl FnOnce(&'static Driver, &mut Made) -> CUresult + Send + 'static,
    finish: impl FnOnce(&mut Session, CUresult, &Made, &mut Vec<u8>) + 'static,
) -> Result<Outcome, Fault> {
    let Some(turn) = s.links.get(&word).map(|link| link.turn.clone()) else {
        return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE));
    };
    if s.captures.open() {
        let mut made = Made::default();
        let code = job(s.driver, &mut made);
        finish(s, code, &made, reply);
        return Ok(Outcome::Done(code));
    }
    let context = match s.context(s.green.home(header.context)) {
        Ok(context) => context,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let made = Arc::new(Mutex::new(Made::default()));
    let mine = made.clone();
    let job = s.helpers.run(context, move |driver| {
        let _turn = turn.lock().expect("no panic happens under this lock");
        job(driver, &mut made.lock().expect("no panic happens under this lock"))
    });
    Ok(s.park(header, Wait::Job(job), move |s, code, reply| {
        finish(s, code, &mine.lock().expect("no panic happens under this lock"), reply);
        code
    }))
}

pub fn cuLinkAddData_v2(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let kind = r.word()? as u32;
    let mut data = payload(s, &mut r)?;
    let name = CString::new(r.bytes()?).map_err(|_| Fault("name of a linker input holds a NUL"))?;
    // Checked here, where a fault ends the session; decoded again where it is used, because it holds pointers.
    let options = r.rest().to_vec();
    jit::Decoded::decode(&mut r)?;
    let state = match state(s, word) {
        Ok(state) => state as usize,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let bytes = data.len();
    // A text that lost its NUL would be read beyond its end.
    data.push(0);
    let job = move |driver: &'static Driver, made: &mut Made| {
        let Ok(options) = jit::Decoded::decode(&mut Reader::new(&options)) else { return CUDA_ERROR_INVALID_VALUE };
        if let Some(why) = extents::objection(&data) {
            driver_log::say(&format!("the linker's input {why}"));
            return CUDA_ERROR_INVALID_IMAGE;
        }
        let (mut keys, mut values) = options.arrays();
        let (count, keys, of) = (keys.len() as u32, keys.as_mut_ptr(), values.as_mut_ptr());
        let (state, at) = (state as CUlinkState, data.as_mut_ptr().cast());
        // SAFETY: a live link: destroying one waits for its turn. Input, name and arrays are our own during the call.
        let code = unsafe { driver.cuLinkAddData_v2(state, kind, at, bytes, name.as_ptr(), count, keys, of) };
        options.encode_results(&mut made.results, &values);
        code
    };
    compile(s, header, word, reply, job, move |s, _, made, reply| {
        reply.extend_from_slice(&made.results);
        logs(s, word, reply);
    })
}

/// Completes, or copies what was completed: see the shim's `link::request`.
pub fn cuLinkComplete(
    s: &mut Session,
    header: &Header,
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
    let state = state as usize;
    let job = move |driver: &'static Driver, made: &mut Made| {
        let (mut cubin, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: a live link, as above, and valid out pointers.
        let code = unsafe { driver.cuLinkComplete(state as CUlinkState, &mut cubin, &mut bytes) };
        (made.cubin, made.bytes) = (cubin as usize, bytes);
        code
    };
    compile(s, header, word, reply, job, move |s, code, made, reply| {
        logs(s, word, reply);
        if code == CUDA_SUCCESS {
            if let Some(link) = s.links.get_mut(&word) {
                link.cubin = Some((made.cubin as *const u8, made.bytes));
            }
            reply.word(made.bytes as u64);
        }
    })
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
    let link = s.links.remove(&word);
    s.unbind(Kind::LinkState, word);
    // Another thread of the client may be compiling with it, against the rules: that has to end first, and not here.
    if let Some(turn) = link.as_ref().map(|l| l.turn.clone()).filter(|turn| Arc::strong_count(turn) > 2) {
        let (state, link) = (state as usize, link.map(Unshared));
        s.helpers.run(ptr::null_mut(), move |driver| {
            let _turn = turn.lock().expect("no panic happens under this lock");
            // SAFETY: a live link, whose options are dropped after it.
            let code = unsafe { driver.cuLinkDestroy(state as CUlinkState) };
            drop(link);
            code
        });
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    // SAFETY: a live link, whose options are dropped after it.
    let code = unsafe { s.driver.cuLinkDestroy(state) };
    drop(link);
    Ok(Outcome::Done(code))
}
