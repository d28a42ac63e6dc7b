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

use super::host_memory::in_mode;
use super::jit;
use super::module::payload;
use crate::worker::helper::Own;
use crate::worker::session::{Outcome, Session, Wait};
use crate::worker::{driver_log, extents};

pub type Links = HashMap<u64, Link>;

pub struct Link {
    kept: Arc<Kept>,
    /// The driver's own copy, once complete.
    cubin: Option<(*const u8, usize)>,
    /// Once something was compiled. NVIDIA's linker keeps what it made of inputs by thread, and crashes where another
    /// one completes them; so all of a link is one thread's, whichever of the client's asks.
    thread: Option<Own>,
}

/// What the driver refers to while a link lives.
struct Kept {
    options: jit::Decoded,
    values: Vec<*mut c_void>,
}

// SAFETY: its pointers lead into buffers that it owns. The driver writes there while it compiles, and what is read
// meanwhile are bytes.
unsafe impl Send for Kept {}
// SAFETY: as above.
unsafe impl Sync for Kept {}

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
        let kept = Arc::new(Kept { options, values });
        s.links.insert(word, Link { kept, cubin: None, thread: None });
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
        link.kept.options.encode_results(reply, &link.kept.values);
    }
}

/// What a helper thread compiles with, and what comes of it.
#[derive(Default)]
struct Made {
    cubin: usize,
    bytes: usize,
    results: Vec<u8>,
}

/// Compiling takes long, so the link's own thread does it. `finish` writes the reply.
fn compile(
    s: &mut Session,
    header: &Header,
    word: u64,
    job: impl FnOnce(&'static Driver, &mut Made) -> CUresult + Send + 'static,
    finish: impl FnOnce(&mut Session, CUresult, &Made, &mut Vec<u8>) + 'static,
) -> Result<Outcome, Fault> {
    let context = match s.context(s.green.home(header.context)) {
        Ok(context) => context,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mode = s.captures.mode_of(header.thread);
    let driver = s.driver;
    let Some(link) = s.links.get_mut(&word) else { return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)) };
    let thread = link.thread.get_or_insert_with(|| Own::start("link", driver));
    let kept = link.kept.clone();
    let made = Arc::new(Mutex::new(Made::default()));
    let mine = made.clone();
    let job = thread.run(context, move |driver| {
        let mut made = made.lock().expect("no panic happens under this lock");
        let code = in_mode(driver, mode, || job(driver, &mut made));
        drop(kept);
        code
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
    _reply: &mut Vec<u8>,
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
        // SAFETY: a live link: one is destroyed behind this. Input, name and arrays are our own during the call.
        let code = unsafe { driver.cuLinkAddData_v2(state, kind, at, bytes, name.as_ptr(), count, keys, of) };
        options.encode_results(&mut made.results, &values);
        code
    };
    compile(s, header, word, job, move |s, _, made, reply| {
        reply.extend_from_slice(&made.results);
        logs(s, word, reply);
    })
}

/// Completes, or copies what was completed: see the shim's `link::request`.
pub fn cuLinkComplete(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
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
    compile(s, header, word, job, move |s, code, made, reply| {
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
    header: &Header,
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
    let Some(Link { kept, thread: Some(thread), .. }) = link else {
        // SAFETY: a live link, whose options are dropped after it.
        return Ok(Outcome::Done(unsafe { s.driver.cuLinkDestroy(state) }));
    };
    let state = state as usize;
    let job = thread.run(ptr::null_mut(), move |driver| {
        // SAFETY: a live link, whose options are dropped after it.
        let code = unsafe { driver.cuLinkDestroy(state as CUlinkState) };
        drop(kept);
        code
    });
    Ok(s.park(header, Wait::Job(job), |_, code, _| code))
}
