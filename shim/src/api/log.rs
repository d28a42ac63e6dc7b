//! The driver's log.

// UNSAFETY: reads and writes through the application's pointers.

use std::ffi::{CStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::log::LogAsk;

use crate::answer::code;
use crate::report::log::{IN_CALLBACK, error};
use crate::state::log::{Callback, fitted};
use crate::state::process::state;

/// What the worker's driver logged about commands that had no reply comes with this one's.
fn fetch() {
    if crate::session::attached::session().is_ok() {
        // Without a worker the log is what it is.
        let _ = crate::session::call::call(LogAsk::OP, |w| LogAsk {}.encode(w), |_| Ok(()));
    }
}

/// An argument that may not be what it is, which is logged like every other failure.
fn refused<T>(function: &str, message: &str) -> Result<T, CUresult> {
    error(function, message);
    Err(CUDA_ERROR_INVALID_VALUE)
}

pub unsafe fn cuLogsRegisterCallback(
    callbackFunc: CUlogsCallback,
    userData: *mut c_void,
    callback_out: *mut CUlogsCallbackHandle,
) -> CUresult {
    let Some(function) = callbackFunc else {
        return code(refused("cuLogsRegisterCallback", "callbackFunc cannot be NULL"));
    };
    let handle = state().handles.reserve(Kind::LogCallback).0;
    state().log.callbacks.lock().push(Callback { handle, function, data: userData.addr() });
    if !callback_out.is_null() {
        // SAFETY: not null; valid for a write by the C API's contract.
        unsafe { callback_out.write(std::ptr::without_provenance_mut(handle as usize)) };
    }
    CUDA_SUCCESS
}

pub unsafe fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle) -> CUresult {
    let handle = callback.addr() as u64;
    let found = {
        let mut callbacks = state().log.callbacks.lock();
        let before = callbacks.len();
        callbacks.retain(|c| c.handle != handle);
        callbacks.len() < before
    };
    if !found {
        return code(refused("cuLogsUnregisterCallback", "callback is not registered"));
    }
    // Whoever unregisters frees the data next, so nobody may be in the callback any more but the caller itself.
    if !IN_CALLBACK.get() {
        drop(state().log.calling.lock_after_panic());
    }
    crate::objects::handles::release(Handle(handle));
    CUDA_SUCCESS
}

/// The flags must be 0, but driver 580 does not mind.
pub unsafe fn cuLogsCurrent(iterator_out: *mut CUlogIterator, _flags: u32) -> CUresult {
    const NAME: &str = "cuLogsCurrent";
    code((|| {
        if iterator_out.is_null() {
            return refused(NAME, "iterator_out cannot be NULL");
        }
        fetch();
        let next = state().log.lines.lock().next;
        // SAFETY: not null; valid for a write by the C API's contract.
        unsafe { iterator_out.write(next) };
        Ok(())
    })())
}

pub unsafe fn cuLogsDumpToFile(iterator: *mut CUlogIterator, pathToFile: *const c_char, flags: u32) -> CUresult {
    const NAME: &str = "cuLogsDumpToFile";
    code((|| {
        if pathToFile.is_null() {
            return refused(NAME, "pathToFile cannot be NULL");
        }
        if flags != 0 {
            return refused(NAME, "flags must be 0");
        }
        fetch();
        // SAFETY: null or valid, and a C string, by the C API's contract.
        let (from, path) = unsafe { (iterator.as_ref().copied(), CStr::from_ptr(pathToFile)) };
        let (text, next) = {
            let log = state().log.lines.lock();
            let (overwritten, lines) = log.since(from);
            (fitted(usize::MAX, overwritten, &lines).unwrap_or_default(), log.next)
        };
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
        let _whole = orion_transport::thread::Uncancelled::hold();
        if let Err(e) = std::fs::write(path, text) {
            return refused(NAME, &format!("writing {} failed: {e}", path.display()));
        }
        if !iterator.is_null() {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { iterator.write(next) };
        }
        Ok(())
    })())
}

pub unsafe fn cuLogsDumpToMemory(
    iterator: *mut CUlogIterator,
    buffer: *mut c_char,
    size: *mut usize,
    flags: u32,
) -> CUresult {
    const NAME: &str = "cuLogsDumpToMemory";
    code((|| {
        if buffer.is_null() {
            return refused(NAME, "buffer cannot be NULL");
        }
        if size.is_null() {
            return refused(NAME, "size cannot be NULL");
        }
        if flags != 0 {
            return refused(NAME, "flags must be 0");
        }
        fetch();
        // SAFETY: null or valid, and not null, by the C API's contract.
        let (from, room) = unsafe { (iterator.as_ref().copied(), size.read()) };
        let (text, next) = {
            let log = state().log.lines.lock();
            let (overwritten, lines) = log.since(from);
            (fitted(room.saturating_sub(1), overwritten, &lines).filter(|_| room > 0 || lines.is_empty()), log.next)
        };
        let written = text.as_ref().map_or(0, String::len);
        // SAFETY: not null, and `room` bytes of the application's, of which the text and its end take no more.
        unsafe {
            size.write(written);
            if room > 0 {
                std::ptr::copy_nonoverlapping(text.as_deref().unwrap_or("").as_ptr().cast(), buffer, written);
                buffer.add(written).write(0);
            }
        }
        if text.is_none() {
            return refused(NAME, "buffer is too small for any message");
        }
        if !iterator.is_null() {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { iterator.write(next) };
        }
        Ok(())
    })())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::log::LINE_BYTES_MAX;
    use crate::report::log::error;

    #[test]
    fn messages_are_one_line_of_bounded_length() {
        let mut at = 0;
        // SAFETY: valid places; the buffer has the size it says.
        unsafe {
            assert_eq!(cuLogsCurrent(&mut at, 0), CUDA_SUCCESS);
            error("cuTest", &format!("one\ntwo {}", "é".repeat(300)));
            let mut buffer = vec![0u8; 32 << 10];
            let mut size = buffer.len();
            assert_eq!(cuLogsDumpToMemory(&mut at, buffer.as_mut_ptr().cast(), &mut size, 0), CUDA_SUCCESS);
            let text = std::str::from_utf8(&buffer[..size]).unwrap();
            let line = text.lines().find(|l| l.contains("cuTest")).unwrap();
            assert!(line.contains("[CUDA][E][cuTest] one two é"), "{line}");
            assert!(line.len() < LINE_BYTES_MAX);
        }
    }
}
