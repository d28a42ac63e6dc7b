//! Numbers of threads that are free.

use std::sync::Mutex;

use orion_cuda::sys::*;

pub static FREE_SLOTS: Mutex<(u16, Vec<u16>)> = Mutex::new((0, Vec::new()));
/// Calls number themselves per slot, so a slot's next owner goes on where the last one stopped.
pub static SLOT_SEQUENCES: Mutex<Vec<u64>> = Mutex::new(Vec::new());
