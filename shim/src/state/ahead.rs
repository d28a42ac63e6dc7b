//! What the threads of this process have ahead in streams.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use crate::state::session::Session;

/// A stream's handle and, of a default stream, the context: of any other, 0.
pub type Key = (u64, u64);

pub struct OfStream {
    pub key: Key,
    pub since_mark: u32,
    /// By the sequences of what was asked, the oldest first.
    pub marks: VecDeque<(&'static Session, u64)>,
}

/// What a thread has ahead. Without a destructor, as [`crate::session::thread::Thread`] is.
pub struct Ahead {
    /// The stream that was used last, and its commands since the last mark.
    pub last: Cell<Key>,
    pub since_mark: Cell<u32>,
    /// The streams, each with what is known of it but for the one used last. Freed by [`Ahead::end`].
    pub streams: Cell<ManuallyDrop<Vec<OfStream>>>,
}

impl Ahead {
    pub const fn new() -> Ahead {
        let streams = Cell::new(ManuallyDrop::new(Vec::new()));
        Ahead { last: Cell::new((0, 0)), since_mark: Cell::new(0), streams }
    }

    /// The thread ends, and nobody waits for its answers.
    pub fn end(&self) {
        drop(ManuallyDrop::into_inner(self.streams.take()));
        self.last.set((0, 0));
    }
}
