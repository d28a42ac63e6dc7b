//! Copies of bytes of which one end, or the stream, is of another session: its node does not reach what lies elsewhere, so
//! the bytes come through the client. They have arrived when the call returns, whichever form it was: all work that was
//! in the stream is waited for first, and whatever comes later comes after.

// UNSAFETY: copies from and to addresses of the application's.

use orion_cuda::sys::*;

use super::linear::{cuMemcpy, cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use crate::objects::{capture, synchronize};
use crate::report::refuse;
use crate::session::arguments::LEGACY;
use crate::session::route::{self, Key};
use crate::state::process::state;

/// Bytes that are in the client at once.
const PIECE_BYTES: usize = 8 << 20;

/// Makes a copy by `call` if one session can make it.
pub fn wherever(to: u64, from: u64, bytes: usize, stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    // Pinned memory is read when the stream comes to it, and what another session has pinned is pageable to this one's.
    if is_pinned_elsewhere(from, to) {
        return through_the_client(to, from, bytes, stream).err().unwrap_or(CUDA_SUCCESS);
    }
    match route::in_a_context(&[Key::Address(to), Key::Address(from), Key::Stream(stream as u64)], call) {
        Ok(code) => code,
        Err(_) => through_the_client(to, from, bytes, stream).err().unwrap_or(CUDA_SUCCESS),
    }
}

fn is_pinned_elsewhere(from: u64, to: u64) -> bool {
    if !state().attachment.several() {
        return false;
    }
    let (source, target) = (Key::Host(from).context(), Key::Address(to).context());
    source.zip(target).is_some_and(|(source, target)| source.session != target.session)
}

fn through_the_client(to: u64, from: u64, bytes: usize, stream: CUstream) -> Result<(), CUresult> {
    if capture::capturing(stream) {
        refuse::refused("a copy between two nodes", "it cannot be captured into a graph, which is one node's");
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    in_order(stream)?;
    let (there, here) = (Key::Address(to).context(), Key::Address(from).context());
    match (there, here) {
        (Some(there), Some(here)) if there.session != here.session => {
            let mut piece = vec![0; bytes.min(PIECE_BYTES)];
            for at in (0..bytes).step_by(PIECE_BYTES) {
                let len = PIECE_BYTES.min(bytes - at);
                let (to, from, held) = (to + at as u64, from + at as u64, piece.as_mut_ptr());
                // SAFETY: a piece is as long as what is copied to and from it.
                done(route::with(here, || unsafe { cuMemcpyDtoH_v2(LEGACY, held.cast(), from, len) }))?;
                // SAFETY: as above.
                done(route::with(there, || unsafe { cuMemcpyHtoD_v2(LEGACY, to, held.cast(), len) }))?;
            }
            Ok(())
        }
        // Only the stream is elsewhere.
        (Some(place), Some(_)) => done(route::with(place, || {
            // SAFETY: both are device memory.
            match unsafe { cuMemcpy(LEGACY, to, from, bytes) } {
                CUDA_SUCCESS => synchronize::stream(LEGACY),
                code => code,
            }
        })),
        // SAFETY: the other end is the caller's memory, by its promise.
        (Some(there), None) => done(route::with(there, || unsafe { cuMemcpyHtoD_v2(LEGACY, to, from as _, bytes) })),
        // SAFETY: as above.
        (None, Some(here)) => done(route::with(here, || unsafe { cuMemcpyDtoH_v2(LEGACY, to as _, from, bytes) })),
        (None, None) => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// What was put into the stream before is over.
fn in_order(stream: CUstream) -> Result<(), CUresult> {
    match Key::Stream(stream as u64).context() {
        Some(context) => done(route::with(context, || synchronize::stream(stream))),
        None => Ok(()),
    }
}

fn done(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}
