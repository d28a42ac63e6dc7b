//! Modules and libraries that the client has unloaded.

use std::sync::Arc;

use crate::worker::driver::image::Image;

/// A module or library that the client has unloaded. The driver waits for the device when it unloads, so that is
/// left for a moment when the device is idle: what it waits for may be waiting for another command of the client.
pub struct Retired {
    pub handle: usize,
    pub is_library: bool,
    /// The context that a module was loaded into.
    pub context: u64,
    pub image: Option<Arc<Image>>,
}
