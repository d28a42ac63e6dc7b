//! What the shim asks of the system.

pub mod futex;
pub mod threads;
