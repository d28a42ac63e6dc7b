//! From parsed text to `isa` code.

mod cluster;
pub mod decoder;
mod instruction;
mod matrix;
mod narrow;
mod packed;
pub mod program;
mod prologue;
pub mod rows;
mod texture;
mod video;
