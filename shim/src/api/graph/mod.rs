//! Graphs.

mod exec;
pub mod nodes;
mod params;

pub use exec::*;
pub use nodes::*;
pub use params::*;
