//! Output of kernels that is not printed yet.

use std::sync::Mutex;

pub static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
