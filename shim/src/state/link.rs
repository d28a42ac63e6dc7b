//! Links under way.

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
