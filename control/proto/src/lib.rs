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

/// What the service says of itself to tools that ask.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
