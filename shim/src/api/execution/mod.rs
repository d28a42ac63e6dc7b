//! Launches, and attributes of functions.

mod deprecated;
mod launch;

pub use deprecated::*;
pub use launch::*;
