//! Devices, where this was built with verbs, and what says that it was not.

#[cfg(not(feature = "rdma"))]
pub use super::missing::{Device, Pair};
#[cfg(feature = "rdma")]
pub use super::verbs::{Device, Pair};
