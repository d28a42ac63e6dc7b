//! The functions of the driver API that are written here, one file a subject of the table.
//!
//! All of them take what `cuda.h` says and ask of their pointers what it says: null, or valid for the access the
//! function is for. Null is refused where the driver refuses it, and also where the driver would crash.
//!
//! Result codes and their order (null pointer, initialisation, device, context) were compared with driver 580.159.

// NVIDIA's names stay as they are.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod array;
pub mod callback;
pub mod capture;
pub mod context;
pub mod copy;
pub mod device;
pub mod entry_point;
pub mod error;
pub mod event;
pub mod execution;
pub mod export_table;
pub mod generated;
pub mod graph;
pub mod green_context;
pub mod host_memory;
pub mod initialization;
pub mod ipc;
pub mod library;
pub mod link;
pub mod log;
pub mod managed;
pub mod memory;
pub mod memset;
pub mod module;
pub mod occupancy;
pub mod peer;
pub mod pointer;
pub mod pool;
pub mod profiler;
pub mod stream;
pub mod stream_memory;
pub mod tensor_map;
pub mod texture;
pub mod user_object;
pub mod virtual_memory;
