//! Memory pools.

use std::collections::HashMap;
use std::sync::Mutex;

use orion_cuda::sys::*;
use orion_wire::Writer;

#[derive(Default)]
struct Pools {
    /// Default pool by device.
    pub defaults: HashMap<u32, u64>,
    /// Current pool by device, where it is not the default.
    pub current: HashMap<u32, u64>,
    /// Created pools and their devices.
    pub created: HashMap<u64, u32>,
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

pub fn pools<T>(f: impl FnOnce(&mut Pools) -> T) -> T {
    f(POOLS.lock().expect("no panic happens under this lock").get_or_insert_default())
}
