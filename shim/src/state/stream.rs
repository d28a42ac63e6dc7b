//! Streams.

use std::sync::atomic::AtomicU64;

use crate::state::table::Table;

pub struct Stream {
    pub flags: u32,
    pub priority: i32,
    pub context: u64,
    /// The context is a green one's.
    pub in_green: bool,
    pub id: u64,
}

pub struct Streams {
    pub table: Table<Stream>,
    /// The driver counts streams per process, default streams first; so does this.
    pub next_id: AtomicU64,
}

impl Streams {
    pub const fn new() -> Streams {
        Streams { table: Table::new(), next_id: AtomicU64::new(16) }
    }
}
