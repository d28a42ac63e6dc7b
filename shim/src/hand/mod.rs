//! Functions whose arguments need more than the table can say.

// NVIDIA's names stay as they are.
#![allow(non_snake_case)]

pub mod address_map;
pub mod array;
pub mod callback;
pub mod capture;
pub mod event;
pub mod events;
pub mod execution;
pub mod graph;
pub mod green_context;
pub mod heap;
pub mod host_memory;
pub mod image;
pub mod in_step;
pub mod jit;
pub mod link;
pub mod memory;
pub mod module;
pub mod on_the_way;
pub mod output;
pub mod payload;
pub mod stream;
pub mod stream_copy;
pub mod stream_memory;
pub mod sync;
pub mod virtual_memory;
