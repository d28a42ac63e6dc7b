//! How a process comes by its session, and how a forked child is kept from it.

pub mod attach;
pub mod fork;
mod log;
mod standard;
