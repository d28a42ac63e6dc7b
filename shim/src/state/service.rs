//! How far the service thread has come.

use std::io::Write;
use std::sync::{Mutex, OnceLock};
use std::sync::atomic::AtomicBool;

use orion_ring::Consumer;

/// The service thread has ended; no event will be handled any more.
pub static STOPPED: AtomicBool = AtomicBool::new(false);

pub static SERVICE: OnceLock<std::thread::ThreadId> = OnceLock::new();

pub static CONSUMER: Mutex<Option<Consumer>> = Mutex::new(None);
