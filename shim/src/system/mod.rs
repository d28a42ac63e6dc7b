//! What the shim asks of the system.

pub mod threads;
