//! What a queue pair is asked to do, and what it says of it.

/// A write into the other side's inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// From this offset of the outbox to the same one of the inbox.
    pub at: usize,
    pub bytes: usize,
    /// What the other side is told when the bytes are there.
    pub notice: Option<u32>,
    /// Comes back when the device has done this and all before it; nothing does if it is none.
    pub token: Option<u64>,
}

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
