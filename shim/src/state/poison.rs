//! Contexts that a kernel broke.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use orion_cuda::sys::*;

pub static ANY: AtomicBool = AtomicBool::new(false);
pub static CONTEXTS: Mutex<Vec<(u64, CUresult)>> = Mutex::new(Vec::new());
