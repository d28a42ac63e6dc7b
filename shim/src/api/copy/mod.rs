//! Copies.

mod batch;
mod linear;
mod rows;
mod wherever;

pub use batch::*;
pub use linear::*;
pub use rows::*;
pub use wherever::*;
