//! What a command asks of the driver: a file for each subject of the driver API, as in the table, and the
//! generated ones.

// NVIDIA's names stay as they are.
#![allow(non_snake_case)]

pub mod activity;
pub mod array;
pub mod callback;
pub mod capture;
pub mod context;
pub mod copy;
pub mod decoded;
pub mod event;
pub mod execution;
pub mod generated;
pub mod graph;
pub mod green_context;
pub mod handlers;
pub mod host_memory;
pub mod images;
pub mod ipc;
pub mod library;
pub mod link;
pub mod memory;
pub mod module;
pub mod occupancy;
pub mod payload;
pub mod pool;
pub mod shared_file;
pub mod stream;
pub mod tensor_map;
pub mod texture;
pub mod user_object;
pub mod virtual_memory;
