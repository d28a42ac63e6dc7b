//! Links under way.

use crate::state::jit::Options;
use crate::state::lock::Lock;
use crate::state::table::Table;

/// A `CUlinkState`. Its options' log buffers are written to until it is destroyed.
pub struct Link {
    pub options: Lock<Options>,
    /// What the application got a pointer to.
    pub cubin: Lock<Option<Vec<u8>>>,
}

pub struct Links {
    pub table: Table<Link>,
}

impl Links {
    pub const fn new() -> Links {
        Links { table: Table::new() }
    }
}
