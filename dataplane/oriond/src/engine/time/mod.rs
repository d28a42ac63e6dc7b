//! Whose turn it is on each GPU, where sessions have shares of the GPU's time.
//!
//! ```text
//! policy     which sessions have a share, and which
//! arbiters   a thread a GPU, which has `orion_arbiter` decide and tells the workers
//! ```

pub mod arbiters;
pub mod policy;
