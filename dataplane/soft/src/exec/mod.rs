//! Runs kernels. From below: what there is (`state`), registers and memory, instructions, warps, blocks, grids.

pub mod access;
pub mod bits;
pub mod block;
pub mod builtin;
pub mod cluster;
pub mod convert;
pub mod fast;
pub mod fault;
pub mod float;
pub mod floating;
pub mod grid;
pub mod heap;
pub mod integer;
pub mod lanes;
pub mod matrix;
pub mod mbarrier;
pub mod memory;
pub mod narrow;
pub mod ops;
pub mod predicate;
pub mod range_cache;
pub mod registers;
pub mod state;
pub mod texture;
pub mod video;
pub mod warp;
