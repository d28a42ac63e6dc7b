//! The driver's log, as far as a callback wants it: what was refused, and why.

// UNSAFETY: C entry points; calls the application's function with the data it gave.

use std::ffi::{CString, c_void};
use std::sync::Mutex;

use orion_cuda::sys::*;

use crate::api::{Raw, api, put_some};

type Entry = (usize, CUlogsCallback, Raw<*mut c_void>);

static CALLBACKS: Mutex<(usize, Vec<Entry>)> = Mutex::new((1, Vec::new()));

/// Tells every callback.
pub fn error(message: &str) {
    let callbacks = CALLBACKS.lock().map(|c| c.1.clone()).unwrap_or_default();
    let Ok(text) = CString::new(message) else { return };
    for (_, callback, data) in callbacks {
        if let Some(callback) = callback {
            // SAFETY: the function that was registered, with its own data and a NUL-terminated text.
            unsafe { callback(data.0, CU_LOG_LEVEL_ERROR, text.as_ptr().cast_mut(), text.as_bytes().len()) };
        }
    }
}

api! {
    fn cuLogsRegisterCallback(callback: CUlogsCallback, data: *mut c_void, out: *mut CUlogsCallbackHandle) {
        if callback.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut all = CALLBACKS.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let id = all.0;
        all.0 += 1;
        all.1.push((id, callback, Raw(data)));
        put_some(out, std::ptr::without_provenance_mut(id));
        Ok(())
    }
    fn cuLogsUnregisterCallback(h: CUlogsCallbackHandle) {
        let mut all = CALLBACKS.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let at = all.1.iter().position(|c| c.0 == h.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        all.1.remove(at);
        Ok(())
    }
}
