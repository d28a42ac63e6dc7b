//! The driver that a worker calls, and what is handed to it.

pub mod activity;
pub mod capture_mode;
pub mod channels;
pub mod cupti;
pub mod extents;
pub mod globals;
pub mod helper;
pub mod image;
pub mod jit;
pub mod load;
pub mod log;
pub mod preemption;
pub mod prints;
pub mod rounding;
