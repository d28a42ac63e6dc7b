//! What streams were given to do.

use std::collections::HashSet;

use orion_cuda::sys::*;
use rustc_hash::FxHashMap;

/// A stream with work since it was last seen idle.
#[derive(Clone, Copy)]
pub struct Busy {
    /// The last command that named it.
    pub last: u64,
    /// Whether there was anything but kernels and copies to the device: what those write to host memory is there when
    /// later work of the stream starts, but one copy out of the device may overtake another.
    pub mixed: bool,
}

pub type BusyStreams = FxHashMap<u64, FxHashMap<usize, Busy>>;

pub fn seen_idle(busy: &mut BusyStreams, context: u64, stream: CUstream) {
    if let Some(busy) = busy.get_mut(&context).and_then(|all| all.get_mut(&(stream as usize))) {
        busy.mixed = false;
    }
}

/// Streams, each with its context, in whose order memory of pools may have been freed since the driver was last asked
/// to wait for them. What a pool holds beyond its threshold it gives back in such a wait; a query that finds the stream
/// idle is none.
#[derive(Default)]
pub struct Freed {
    /// Whether the session has taken memory from a pool at all.
    pub uses_pools: bool,
    pub streams: HashSet<(u64, usize)>,
}

/// What is known of a stream since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Home {
    /// As the client names it.
    pub context: u64,
    /// The context's legacy default stream encompasses it.
    pub is_blocking: bool,
}
