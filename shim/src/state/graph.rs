//! Arrays that CUDA lends to the application with a node's parameters.

use std::collections::HashMap;

use crate::state::lock::{Lock, Rank};

pub struct Graphs {
    /// Arrays that CUDA lends to the application until their node is changed or destroyed.
    pub lent: Lock<Option<HashMap<u64, Vec<Lent>>>>,
}

impl Graphs {
    pub const fn new() -> Graphs {
        Graphs { lent: Lock::new(Rank::Objects, None) }
    }
}

/// One loan: kept at its address, compared by its bytes.
pub struct Lent {
    pub words: Box<[u64]>,
    /// For kernel parameters: pointers into `words`.
    pub pointers: Box<[usize]>,
}
