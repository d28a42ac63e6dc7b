//! Links of the JIT linker that are alive.

// UNSAFETY: pointers into buffers that a link owns cross threads.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use orion_cuda::sys::*;

use crate::worker::driver::helper::Own;
use crate::worker::driver::jit;

pub type Links = HashMap<u64, Link>;

pub struct Link {
    pub kept: Arc<Kept>,
    /// The driver's own copy, once complete.
    pub cubin: Option<(*const u8, usize)>,
    /// NVIDIA's linker allocates by thread, and crashes where a link is made by one and compiled, completed or
    /// destroyed by another while that one makes a second. So all of a link is one thread's, whichever of the client's
    /// asks.
    pub thread: Own,
}

/// What the driver refers to while a link lives.
pub struct Kept {
    pub options: jit::Decoded,
    pub keys: Vec<CUjit_option>,
    /// The driver writes results there.
    pub values: Vec<AtomicPtr<c_void>>,
    /// The driver's link, once it is made. Read and written by the link's thread only.
    pub state: AtomicPtr<CUlinkState_st>,
}

// SAFETY: its pointers lead into buffers that it owns. The driver writes there while it compiles, and whoever reads
// meanwhile reads bytes.
unsafe impl Send for Kept {}

// SAFETY: as above.
unsafe impl Sync for Kept {}

impl Kept {
    /// Does something with the driver's link, if it could be made.
    pub fn with(&self, work: impl FnOnce(CUlinkState) -> CUresult) -> CUresult {
        match self.state.load(Ordering::SeqCst) {
            state if state.is_null() => CUDA_ERROR_INVALID_HANDLE,
            state => work(state),
        }
    }
}
