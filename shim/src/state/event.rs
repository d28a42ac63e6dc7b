//! Events of other contexts, and those that other processes may look at.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

/// Whose events are, of those made since there are several contexts. Older ones are the first one's.
pub static HOMES: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);

/// Events that other processes may look at, of this process or opened by it.
pub static SHARED: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);
/// Whether there ever was one; most programs have none.
static ANY_SHARED: AtomicBool = AtomicBool::new(false);

pub fn share(event: Handle) {
    SHARED.lock().expect("no panic happens under this lock").insert(event.0);
    ANY_SHARED.store(true, Ordering::Relaxed);
}

pub fn is_shared(event: CUevent) -> bool {
    // Relaxed: whoever made the event told this thread of it by other means.
    ANY_SHARED.load(Ordering::Relaxed)
        && SHARED.lock().expect("no panic happens under this lock").contains(&(event as u64))
}

/// Whether some event may be looked at by other processes: then a graph, too, has reached the driver when it has been
/// launched, because it may record one.
pub fn any_shared() -> bool {
    ANY_SHARED.load(Ordering::Relaxed)
}
