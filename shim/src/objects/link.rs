//! Links that end.

use orion_wire::handle::Handle;

use crate::state::jit::Options;
use crate::state::link::LINKS;

/// A link was destroyed, or its context was.
pub fn ended(handle: Handle) {
    let Some(gone) = LINKS.remove(handle) else { return };
    // The table keeps its values for a while; what is large goes now.
    gone.cubin.lock().expect("no panic happens under this lock").take();
    *gone.options.lock().expect("no panic happens under this lock") = Options::default();
}
