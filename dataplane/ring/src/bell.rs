//! How the two ends of a ring get each other out of their sleep.
//!
//! A ring says *when*: whoever is about to sleep sets the flag of his seat and looks once more, and whoever then has
//! something for him takes the flag away and rings (see [`crate::control`]). A bell says *how*, which is the carrier's
//! to decide. With nobody asleep it is not asked, so publishing costs the same whatever it is.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::futex::{self, Among};

/// How many places there are in which somebody may sleep: both ends of three rings.
pub const SEATS: usize = 6;

/// A place in which one thread at a time may sleep.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// Below [`SEATS`], and the same on both sides.
    pub number: usize,
    /// 1 while somebody sleeps there or is about to. It lies in the session's memory.
    pub flag: &'static AtomicU32,
}

pub trait Bell: Send + Sync {
    /// Has whoever sleeps in this seat get up. His flag has just been taken away.
    fn ring(&self, seat: Seat);

    /// Returns once rung, when `timeout` has passed, or for no reason: whoever slept looks again. A ring that came
    /// before, and after the flag was set, counts.
    fn sleep(&self, seat: Seat, timeout: Duration);
}

/// The flag itself is slept on: for pages that one kernel has, which finds the sleeper by them.
pub struct Futex;

impl Bell for Futex {
    fn ring(&self, seat: Seat) {
        // All of them, since who else waits there is not ours and must not have the one wake that is meant for us.
        futex::wake_all(seat.flag, Among::Processes);
    }

    fn sleep(&self, seat: Seat, timeout: Duration) {
        futex::wait(seat.flag, 1, Some(timeout), Among::Processes);
    }
}
