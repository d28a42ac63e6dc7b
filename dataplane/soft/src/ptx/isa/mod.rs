//! The pre-decoded register machine: what `decode` emits and `exec` runs.
//!
//! A register is a row of 32 lanes. 32-bit and narrower registers live in `R32` rows, 64-bit ones in `R64` rows,
//! 128-bit ones in two of those and predicates in one bit per lane, so that lanes of a diverged warp that sit in
//! different functions never share bytes.

pub mod instruction;
pub mod matrix;
pub mod narrow;
pub mod operand;
pub mod program;
pub mod texture;
pub mod video;
