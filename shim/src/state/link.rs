//! Links under way.

use orion_wire::handle::Handle;
use std::sync::Mutex;

use crate::state::jit::Options;
use crate::state::table::Table;

/// A `CUlinkState`. Its options' log buffers are written to until it is destroyed.
pub struct Link {
    pub options: Mutex<Options>,
    /// What the application got a pointer to.
    pub cubin: Mutex<Option<Vec<u8>>>,
}

pub static LINKS: Table<Link> = Table::new();

/// A link was destroyed, or its context was.
pub fn ended(handle: Handle) {
    let Some(gone) = LINKS.remove(handle) else { return };
    // The table keeps its values for a while; what is large goes now.
    gone.cubin.lock().expect("no panic happens under this lock").take();
    *gone.options.lock().expect("no panic happens under this lock") = Options::default();
}
