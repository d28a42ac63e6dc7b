//! The JIT linker.

// UNSAFETY: hands inputs to the driver and copies the cubin it made.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::Size;
use orion_wire::message::image::JitResults;
use orion_wire::message::link::{LinkAddData, LinkAddDataReply, LinkComplete, LinkCompleteReply, LinkCreate};
use orion_wire::message::link::{LinkDestroy, LinkStep};
use orion_wire::record::Header;

use crate::worker::calls::payload::payload;
use crate::worker::driver::capture_mode::in_mode;
use crate::worker::driver::helper::Own;
use crate::worker::driver::{extents, jit, log as driver_log};
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::links::{Kept, Link};
use crate::worker::state::waits::Wait;

/// Links of one session that are alive at once, each with a thread.
const LINKS_MAX: usize = 1024;

pub fn cuLinkCreate_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = LinkCreate::decode(&mut r)?;
    let (word, options) = (q.link.0, jit::Decoded::of(&q.options)?);
    if s.links.len() >= LINKS_MAX {
        driver_log::refuse(&format!("of {LINKS_MAX} links none was destroyed; no further one is made"));
        return Ok(Outcome::Done(CUDA_ERROR_OUT_OF_MEMORY));
    }
    let (keys, values) = options.arrays();
    let values = values.into_iter().map(AtomicPtr::new).collect();
    let kept = Arc::new(Kept { options, keys, values, state: AtomicPtr::default() });
    // The handle's meaning is the link here; the driver's is known to the thread.
    s.bind(Kind::LinkState, word, Arc::as_ptr(&kept).cast_mut().cast())?;
    s.links.insert(word, Link { kept, cubin: None, thread: Own::start("link", s.driver) });
    let job = |driver: &'static Driver, kept: &Kept, _: &mut Made| {
        let mut state: CUlinkState = ptr::null_mut();
        let (keys, values) = (kept.keys.as_ptr().cast_mut(), kept.values.as_ptr().cast_mut().cast());
        // SAFETY: arrays of equal length; values and buffers are kept until the link is destroyed.
        let code = unsafe { driver.cuLinkCreate_v2(kept.keys.len() as u32, keys, values, &mut state) };
        kept.state.store(state, Ordering::SeqCst);
        code
    };
    compile(s, header, word, job, move |s, code, _, _| {
        if code != CUDA_SUCCESS {
            s.unbind(Kind::LinkState, word);
        }
    })
}

fn results<'a>(options: &'a jit::Decoded, values: &[AtomicPtr<c_void>]) -> JitResults<'a> {
    let values: Vec<_> = values.iter().map(|value| value.load(Ordering::Relaxed)).collect();
    options.results(&values)
}

/// What the driver has said of all inputs together.
fn logs(s: &Session, word: u64) -> JitResults<'_> {
    s.links.get(&word).map(|link| results(&link.kept.options, &link.kept.values)).unwrap_or_default()
}

/// What a helper thread compiles with, and what comes of it.
#[derive(Default)]
struct Made {
    cubin: usize,
    bytes: usize,
    /// The options' values, as the driver left them.
    values: Vec<AtomicPtr<c_void>>,
}

/// What the link's own thread does. `finish` writes the reply.
fn compile(
    s: &mut Session,
    header: &Header,
    word: u64,
    job: impl FnOnce(&'static Driver, &Kept, &mut Made) -> CUresult + Send + 'static,
    finish: impl FnOnce(&mut Session, CUresult, &Made, &mut Vec<u8>) + 'static,
) -> Handled {
    let context = s.context(s.green.home(header.context))?;
    let mode = s.captures.mode_of(header.thread);
    let Some(link) = s.links.get(&word) else { return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)) };
    let (made, kept) = (Arc::new(Mutex::new(Made::default())), link.kept.clone());
    let mine = made.clone();
    let job = link.thread.run(context, move |driver| {
        let mut made = made.lock().expect("no panic happens under this lock");
        in_mode(driver, mode, || job(driver, &kept, &mut made))
    });
    Ok(s.park(header, Wait::Job(job), move |s, code, reply| {
        finish(s, code, &mine.lock().expect("no panic happens under this lock"), reply);
        code
    }))
}

pub fn cuLinkAddData_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = LinkAddData::decode(&mut r)?;
    let (word, kind, name) = (q.link.0, q.input_type, q.name.to_c());
    let mut data = payload(s, &q.data)?;
    let options = Arc::new(jit::Decoded::of(&q.options)?);
    let theirs = options.clone();
    let bytes = data.len();
    // A text that lost its NUL would be read beyond its end.
    data.push(0);
    let job = move |driver: &'static Driver, kept: &Kept, made: &mut Made| {
        if let Some(why) = extents::objection(&data) {
            driver_log::refuse(&format!("the linker's input {why}; it is not linked"));
            return CUDA_ERROR_INVALID_IMAGE;
        }
        let (mut keys, mut values) = theirs.arrays();
        let (count, keys, of) = (keys.len() as u32, keys.as_mut_ptr(), values.as_mut_ptr());
        let at = data.as_mut_ptr().cast();
        // SAFETY: a live link: one is destroyed behind this. Input, name and arrays are our own during the call.
        let code = kept
            .with(|state| unsafe { driver.cuLinkAddData_v2(state, kind, at, bytes, name.as_ptr(), count, keys, of) });
        made.values = values.into_iter().map(AtomicPtr::new).collect();
        code
    };
    compile(s, header, word, job, move |s, _, made, reply| {
        LinkAddDataReply { results: results(&options, &made.values), of_link: logs(s, word) }.encode(reply);
    })
}

pub fn cuLinkComplete(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = LinkComplete::decode(&mut r)?;
    let word = q.link.0;
    if let LinkStep::Fetch(range) = q.step {
        let range = range.check(s.heap.bytes())?;
        let to = s.heap_pointer(range)?;
        let Some((cubin, bytes)) = s.links.get(&word).and_then(|l| l.cubin) else {
            return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE));
        };
        let len = bytes.min(range.bytes as usize);
        // SAFETY: the driver's cubin is valid until the link is destroyed; the range lies inside the heap.
        unsafe { ptr::copy_nonoverlapping(cubin, to, len) };
        if s.pages.must_bring() {
            s.announce(range);
        }
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    let job = move |driver: &'static Driver, kept: &Kept, made: &mut Made| {
        let (mut cubin, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: a live link, as above, and valid out pointers.
        let code = kept.with(|state| unsafe { driver.cuLinkComplete(state, &mut cubin, &mut bytes) });
        (made.cubin, made.bytes) = (cubin as usize, bytes);
        code
    };
    compile(s, header, word, job, move |s, code, made, reply| {
        if code == CUDA_SUCCESS
            && let Some(link) = s.links.get_mut(&word)
        {
            link.cubin = Some((made.cubin as *const u8, made.bytes));
        }
        LinkCompleteReply { of_link: logs(s, word), bytes: Size::of(made.bytes) }.encode(reply);
    })
}

pub fn cuLinkDestroy(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = LinkDestroy::decode(&mut r)?.link.0;
    let job = |driver: &'static Driver, kept: &Kept, _: &mut Made| {
        // SAFETY: a live link, whose options are dropped after it.
        kept.with(|state| unsafe { driver.cuLinkDestroy(state) })
    };
    let outcome = compile(s, header, word, job, |_, _, _, _| ());
    // The thread ends once it has done that.
    s.unbind(Kind::LinkState, word);
    outcome
}
