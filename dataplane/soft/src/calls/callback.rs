//! Host functions in streams.

// UNSAFETY: C entry points.

use std::ffi::{c_uint, c_void};

use orion_cuda::sys::*;

use crate::api::{Raw, api};
use crate::enqueue::enqueue;
use crate::graph::Work;
use crate::stream::resolve;

api! {
    fn cuLaunchHostFunc(h: CUstream, f: CUhostFn, data: *mut c_void) {
        let s = resolve(h)?;
        if f.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        enqueue(&s, Work::Host(Raw((f, data)))).map(drop)
    }
    fn cuStreamAddCallback(h: CUstream, f: CUstreamCallback, data: *mut c_void, flags: c_uint) {
        let s = resolve(h)?;
        let Some(f) = f else { return Err(CUDA_ERROR_INVALID_VALUE) };
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if s.capture().is_some() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let call = Raw((f, h, data));
        s.submit(Vec::new(), Box::new(move |c| {
            let call = call;
            let Raw((f, h, data)) = call;
            // SAFETY: the application's function with the application's argument, once, as CUDA promises.
            crate::device::host_function(|| unsafe { f(h, c.error(), data) });
        })).map(drop)
    }
}
