//! The controller's service: what `orion.proto` describes, as Rust.

#![forbid(unsafe_code)]
pub mod few;
mod heard;
pub mod leader;

pub use generated::*;

mod generated {
    #![allow(clippy::all)]

    tonic::include_proto!("orion.v1");
}

/// Of one answer, to tools: a large pool's list is longer than the 4 MiB that gRPC takes where nothing is said.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What the service says of itself to tools that ask.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
