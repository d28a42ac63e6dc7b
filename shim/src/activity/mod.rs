//! What CUPTI's users see: calls recorded here, and what the worker's profiler recorded about the GPU.
//!
//! A call that a profiler wants to see has a correlation id from where it enters to where it leaves: a call of the
//! runtime API if cudart reports it, a call of the driver API otherwise. Calls made inside of one are part of it. The
//! first command that such a call sends is preceded by its id, and so the worker's records have it too.

pub mod api_callbacks;
pub mod buffers;
pub mod calls;
pub mod clock;
pub mod functions;
pub mod generated;
pub mod gpu;
pub mod parameters;
pub mod subscriber;
pub mod time;
