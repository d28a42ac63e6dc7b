//! Callbacks of the log.

// UNSAFETY: C entry points.

use std::ffi::c_void;

use orion_cuda::sys::*;

use crate::api::{Raw, api, put_some};
use crate::log::CALLBACKS;

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
