//! What a queue pair is asked to do, and what it says of it.

/// A write into the other side's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// From this offset of the outbox, behind which is the stage.
    pub from: usize,
    pub to: Place,
    pub bytes: usize,
    /// What the other side is told when the bytes are there.
    pub notice: Option<u32>,
    /// Comes back when the device has done this and all before it; nothing does if it is none.
    pub token: Option<u64>,
}

impl Work {
    /// Writes nothing.
    pub fn bare(notice: Option<u32>, token: u64) -> Work {
        Work { from: 0, to: Place::Inbox(0), bytes: 0, notice, token: Some(token) }
    }
}

/// What of the other side's memory is written. It has shown nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Inbox(usize),
    /// Of its ring's data.
    Ring(usize),
    /// Where the records that were written into its ring end.
    Placed,
}

/// A read of what the other side shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    pub to: ReadTo,
    pub address: u64,
    pub key: u32,
    pub bytes: usize,
}

/// Where this side's device puts what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTo {
    /// An address in what is registered there.
    Known(Slot, u64),
    Landing,
}

/// Where a device knows a range from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// A registration of the range alone, whose pages stay where they are until it is let go of.
    Range(usize),
    /// That of the area of the heap that it is in, whose pages the device finds by itself.
    Area(usize),
}

/// Memory that a device knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    pub slot: Slot,
    /// For the other side, where it is shown to it.
    pub key: u32,
}

/// What a device may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The other side's reads it, and nobody writes.
    ShownToRead,
    /// This side's writes it, and nobody else.
    ReadInto,
}

/// Comes back when a read is done. Of writes nothing comes back that is this.
pub const READ: u64 = u64::MAX;

/// Something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub outcome: Outcome,
    /// Of the work.
    pub token: u64,
    /// What came with a write of the other side's.
    pub notice: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Well,
    /// Given back undone, for the queue pair is in error.
    Flushed,
    /// As verbs number it.
    Failed(u32),
}
