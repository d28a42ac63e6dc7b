//! The devices' clock.

use std::sync::OnceLock;
use std::time::Instant;

pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}
