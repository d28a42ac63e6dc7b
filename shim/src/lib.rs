//! Orion's `libcuda.so.1`: the CUDA driver API, answered here where the answer is known and by a worker where
//! it is not.
//!
//! It lives in somebody else's process: no constructor, no thread and no mapping before `cuInit`, no destructor
//! that talks to anybody, no dependencies but libc and a hash.

// UNSAFETY: a C ABI is raw pointers from the application; each function says what it asks of them.

/// A line of Orion's own on standard error.
macro_rules! say {
    ($($what:tt)*) => { orion_transport::client::say::say(format_args!($($what)*)) };
}
pub(crate) use say;

mod activity;
mod answer;
mod api;
mod generated;
mod lease;
mod memory;
mod objects;
mod report;
mod session;
mod start;
mod state;
mod system;
mod tables;
