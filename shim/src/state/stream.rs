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

pub static STREAMS: Table<Stream> = Table::new();
/// The driver counts streams per process, default streams first; so does this.
pub static NEXT_ID: AtomicU64 = AtomicU64::new(16);
