//! The JIT linker. It runs in the worker; inputs travel there, the finished cubin travels back.

// UNSAFETY: reads inputs from the application's memory and writes answers to it.

use std::ffi::{CStr, c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::{Fault, Reader, Writer};

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

/// Logs come back whatever the result is, unless the command failed before the driver was asked.
fn absorb(options: &Options, r: &mut Reader<'_>) -> Result<(), Fault> {
    if r.is_empty() { Ok(()) } else { options.absorb(r) }
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
        let request = |w: &mut Vec<u8>| {
            w.word(handle.0);
            options.encode(w);
        };
        crate::objects::handles::made(handle, call(ops::CU_LINK_CREATE_V2, request, |_| Ok(())))?;
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
    let code = call_any(
        ops::CU_LINK_ADD_DATA_V2,
        |w| {
            w.word(handle as u64);
            w.word(kind as u64);
            payload.encode(w);
            w.bytes(name.to_bytes());
            options.encode(w);
        },
        |code, r| {
            absorb(options, r)?;
            absorb(&of_link, r)?;
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
        let request = |w: &mut Vec<u8>| {
            w.word(handle as u64);
            w.word(request::COMPLETE);
        };
        let (code, size) = call_any(ops::CU_LINK_COMPLETE, request, |code, r| {
            absorb(&of_link, r)?;
            Ok((code, if code == CUDA_SUCCESS { r.word()? } else { 0 }))
        })?;
        posted(code)?;
        // Cubins are larger than a record: the worker writes this one to the heap.
        let loan = Loan::general(s, size as usize)?;
        let request = |w: &mut Vec<u8>| {
            w.word(handle as u64);
            w.word(request::FETCH);
            loan.range.put(w);
        };
        call(ops::CU_LINK_COMPLETE, request, |_| Ok(()))?;
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

/// The two halves of completing.
mod request {
    pub const COMPLETE: u64 = 0;
    pub const FETCH: u64 = 1;
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuLinkDestroy(handle: CUlinkState) -> CUresult {
    code((|| {
        session()?;
        link(handle)?;
        let handle = Handle(handle as u64);
        let destroyed = posted(post(ops::CU_LINK_DESTROY, |w| w.word(handle.0)));
        crate::objects::handles::release(handle);
        destroyed
    })())
}
