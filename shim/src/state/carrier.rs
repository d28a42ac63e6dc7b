//! The way to the worker.

use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;

use orion_transport::client::Link;

pub static CONNECTION: OnceLock<std::sync::Arc<dyn Link>> = OnceLock::new();

/// The session's sockets, for [`forget_in_child`].
pub static SOCKETS: [AtomicI32; 1] = [const { AtomicI32::new(-1) }; 1];
