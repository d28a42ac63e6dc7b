//! Copies.

mod batch;
mod linear;
mod peer;
mod rows;
mod wherever;

pub use batch::*;
pub use linear::*;
pub use peer::*;
pub use rows::*;
pub use wherever::*;
