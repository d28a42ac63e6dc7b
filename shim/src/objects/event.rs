//! Events that end, and what is checked of one at once.

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};

use crate::objects::capture::capturing;
use crate::session::attached::session;
use crate::state::context;

/// What the driver checks of an event and a stream at once.
pub fn check(event: CUevent, stream: CUstream, flags: u32, known: u32) -> Result<(), CUresult> {
    session()?;
    if flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if (stream as u64) <= 2 && context::current() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if !Handle(event as u64).is(Kind::Event) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    // What is external to a graph is so while that is captured.
    if flags != 0 && !capturing(stream) {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    Ok(())
}
