//! Copies.

mod batch;
mod linear;
mod rows;

pub use batch::*;
pub use linear::*;
pub use rows::*;
