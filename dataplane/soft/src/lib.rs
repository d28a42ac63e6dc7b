//! The software GPU: CUDA's driver API without a GPU or NVIDIA's driver, so that programs built by nvcc run anywhere.
//!
//! Every function has the C signature of `cuda.h`; `symbol` finds them by name. Kernels are interpreted from the PTX
//! in the program's images (`ptx`, `exec`); everything else is the driver's bookkeeping.

pub mod api;
pub mod array;
pub mod busy;
pub mod calls;
pub mod capture;
pub mod clock;
pub mod cluster;
pub mod code;
pub mod condition;
pub mod conditional;
pub mod context;
pub mod copy;
pub mod cupti;
pub mod device;
pub mod dot;
pub mod enqueue;
pub mod error;
pub mod event;
pub mod exec;
pub mod graph;
pub mod green_context;
pub mod hold;
pub mod image;
pub mod jit;
pub mod launch;
pub mod log;
pub mod memory;
pub mod memset;
pub mod module;
pub mod pool;
pub mod printf;
pub mod ptx;
pub mod say;
pub mod stream;
pub mod stream_memory;
pub mod texture;
pub mod vram;
pub mod work;

pub use calls::entry_point::symbol;
