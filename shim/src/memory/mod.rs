//! Host memory, device memory and the way between them.

pub mod copy;
pub mod graph_copies;
pub mod graph_launches;
pub mod held;
pub mod host_memory;
pub mod in_step;
pub mod managed;
pub mod mappings;
pub mod parallel_copy;
pub mod payload;
pub mod pointers;
pub mod reading;
pub mod shared_file;
pub mod staging;
pub mod variables;
pub mod words;
