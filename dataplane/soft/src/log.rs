//! The driver's log, as far as a callback wants it: what was refused, and why.

// UNSAFETY: calls the application's function with the data it gave.

use std::ffi::{CString, c_void};
use std::sync::Mutex;

use orion_cuda::sys::*;

use crate::api::{R, Raw};
use crate::say::say;

pub type Entry = (usize, CUlogsCallback, Raw<*mut c_void>);

pub(crate) static CALLBACKS: Mutex<(usize, Vec<Entry>)> = Mutex::new((1, Vec::new()));

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

/// Logs once per feature, because a program that meets a limit usually meets it in a loop.
pub fn refuse<T>(function: &str, what: &str) -> R<T> {
    refused(&format!("{function}: {what} is not supported"))
}

/// As [`refuse`], where what is lacking is told apart from what lacks it: a kernel, say, and an instruction of it.
pub fn refuse_for<T>(function: &str, what: &str, why: &str) -> R<T> {
    refused(&format!("{function}: {what} is not supported: {why}"))
}

fn refused<T>(line: &str) -> R<T> {
    say(line);
    error(line);
    Err(CUDA_ERROR_NOT_SUPPORTED)
}
