//! The JIT linker. It runs in the worker; inputs travel there, the finished cubin travels back.

// UNSAFETY: reads inputs from the application's memory and writes answers to it.

use std::ffi::{CStr, c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::field::Existing;
use orion_wire::message::image::Nothing;
use orion_wire::message::link::{LinkAddData, LinkAddDataReply, LinkComplete, LinkCompleteReply, LinkCreate};
use orion_wire::message::link::{LinkDestroy, LinkStep};

use crate::answer::{code, posted, write};
use crate::memory::payload::{Loan, Payload};
use crate::session::attached::session;
use crate::session::call::{call, call_any, post};
use crate::state::context;
use crate::state::jit::Options;
use crate::state::link::Link;
use crate::state::lock::{Lock, Rank};
use crate::state::process::state;

fn link(handle: CUlinkState) -> Result<&'static Link, CUresult> {
    let handle = Handle(handle as u64);
    Some(handle)
        .filter(|h| h.is(Kind::LinkState))
        .and_then(|h| state().links.table.get(h))
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// # Safety
/// As CUDA's `cuLinkCreate_v2`.
pub unsafe fn cuLinkCreate_v2(
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    out: *mut CUlinkState,
) -> CUresult {
    let answer = (|| {
        session()?;
        if context::current() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's promise: two arrays of `count` elements that outlive the link.
        let options = unsafe { Options::from_raw(count, options, values) }?;
        let handle = state().handles.reserve_in(Kind::LinkState, context::current_home());
        let q = LinkCreate { link: handle.into(), options: options.told() };
        crate::objects::handles::made(handle, call(LinkCreate::OP, |w| q.encode(w), |_| Ok(())))?;
        drop(q);
        state().links.table.insert(
            handle,
            Link { options: Lock::new(Rank::Object, options), cubin: Lock::new(Rank::Leaf, Default::default()) },
        );
        Ok(handle.0 as CUlinkState)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuLinkAddData_v2`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuLinkAddData_v2(
    handle: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    bytes: usize,
    name: *const c_char,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    if data.is_null() || bytes == 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let data = std::slice::from_raw_parts(data.cast_const().cast::<u8>(), bytes);
        let name = if name.is_null() { c"" } else { CStr::from_ptr(name) };
        code(Options::from_raw(count, options, values).and_then(|o| add(handle, kind, data, name, &o)))
    }
}

fn add(handle: CUlinkState, kind: CUjitInputType, data: &[u8], name: &CStr, options: &Options) -> Result<(), CUresult> {
    let s = session()?;
    let link = link(handle)?;
    let payload = Payload::new(s, data)?;
    let of_link = link.options.lock();
    let q = LinkAddData {
        link: Existing(handle as u64),
        input_type: kind,
        data: payload.told(),
        name: name.into(),
        options: options.told(),
    };
    let code = call_any(
        LinkAddData::OP,
        |w| q.encode(w),
        |code, r| {
            // Logs come back whatever the result is, unless the command failed before the driver was asked.
            if !r.is_empty() {
                let q = LinkAddDataReply::decode(r)?;
                options.absorb(&q.results);
                of_link.absorb(&q.of_link);
            }
            Ok(code)
        },
    )?;
    posted(code)
}

/// The file is read here, where the application sees it.
///
/// # Safety
/// As CUDA's `cuLinkAddFile_v2`.
pub unsafe fn cuLinkAddFile_v2(
    handle: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let _whole = orion_transport::thread::Uncancelled::hold();
    // SAFETY: not null, and NUL-terminated by the caller's promise.
    let name = unsafe { CStr::from_ptr(path) };
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let Ok(mut data) = std::fs::read(path) else { return CUDA_ERROR_FILE_NOT_FOUND };
    if kind == CU_JIT_INPUT_PTX {
        // PTX in a file has no NUL at its end.
        data.push(0);
    }
    // SAFETY: the caller's promise: two arrays of `count` elements.
    let options = unsafe { Options::from_raw(count, options, values) };
    code(options.and_then(|o| add(handle, kind, &data, name, &o)))
}

/// The cubin belongs to the link and lives as long.
///
/// # Safety
/// As CUDA's `cuLinkComplete`.
pub unsafe fn cuLinkComplete(handle: CUlinkState, cubin: *mut *mut c_void, bytes: *mut usize) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let link = link(handle)?;
        let of_link = link.options.lock();
        let request = |step| {
            let q = LinkComplete { link: Existing(handle as u64), step };
            move |w: &mut Vec<u8>| q.encode(w)
        };
        let completed = call_any(LinkComplete::OP, request(LinkStep::Complete(Nothing {})), |code, r| {
            if r.is_empty() && code != CUDA_SUCCESS {
                return Ok((code, 0));
            }
            let q = LinkCompleteReply::decode(r)?;
            of_link.absorb(&q.of_link);
            Ok((code, q.bytes.0))
        });
        let (code, size) = completed?;
        posted(code)?;
        // Cubins are larger than a record: the worker writes this one to the heap.
        let loan = Loan::general(s, size as usize)?;
        call(LinkComplete::OP, request(LinkStep::Fetch(loan.range.into())), |_| Ok(()))?;
        let mut copy = vec![0u8; size as usize];
        // SAFETY: the loan has as many bytes, and the worker has written them.
        unsafe { std::ptr::copy_nonoverlapping(loan.pointer(), copy.as_mut_ptr(), copy.len()) };
        let at = copy.as_mut_ptr();
        *link.cubin.lock() = Some(copy);
        Ok((at, size as usize))
    })();
    match answer {
        Ok((at, size)) => {
            // SAFETY: each is null or valid by the caller's promise.
            unsafe {
                if !cubin.is_null() {
                    cubin.write(at.cast());
                }
                if !bytes.is_null() {
                    bytes.write(size);
                }
            }
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuLinkDestroy(handle: CUlinkState) -> CUresult {
    code((|| {
        session()?;
        link(handle)?;
        let handle = Handle(handle as u64);
        let destroyed = posted(post(LinkDestroy::OP, |w| LinkDestroy { link: handle.into() }.encode(w)));
        crate::objects::handles::release(handle);
        destroyed
    })())
}
