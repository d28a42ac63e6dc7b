//! Arrays that CUDA lends to the application with a node's parameters.

use std::collections::HashMap;
use std::sync::Mutex;

/// Arrays that CUDA lends to the application until their node is changed or destroyed.
pub static LENT: Mutex<Option<HashMap<u64, Vec<Lent>>>> = Mutex::new(None);

/// One loan: kept at its address, compared by its bytes.
pub struct Lent {
    pub words: Box<[u64]>,
    /// For kernel parameters: pointers into `words`.
    pub pointers: Box<[usize]>,
}
