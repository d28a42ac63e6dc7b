//! Output of kernels that is not printed yet.

use crate::state::lock::{Lock, Rank};

pub struct Output {
    pub kept: Lock<Vec<u8>>,
}

impl Output {
    pub const fn new() -> Output {
        Output { kept: Lock::new(Rank::Leaf, Vec::new()) }
    }
}
