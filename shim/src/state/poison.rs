//! Contexts that a kernel broke.

use std::sync::atomic::AtomicBool;

use orion_cuda::sys::*;

use crate::state::lock::{Lock, Rank};

pub struct Poison {
    pub any: AtomicBool,
    pub contexts: Lock<Vec<(u64, CUresult)>>,
}

impl Poison {
    pub const fn new() -> Poison {
        Poison { any: AtomicBool::new(false), contexts: Lock::new(Rank::Leaf, Vec::new()) }
    }
}
