//! Whether the two sides of a session have the same memory.

use crate::codec::Fault;
use crate::record::HeapRange;

/// The first of the three things in which carriers differ; the others are how the other side is rung and how its end
/// is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Both sides have mapped the same ones.
    Shared,
    /// Each side has its own, and what one of them writes comes to the other's when it is announced.
    Mirrored,
}

impl Pages {
    /// Whether what one side writes has to be brought to the other. Else it sees it at once.
    pub const fn must_bring(self) -> bool {
        matches!(self, Pages::Mirrored)
    }

    /// Whether each side has pages of its own: what one of them clears or gives back the other one still has, and a
    /// thread of the carrier's may be looking at them.
    pub const fn are_separate(self) -> bool {
        matches!(self, Pages::Mirrored)
    }

    pub(crate) const fn word(self) -> u64 {
        match self {
            Pages::Shared => 0,
            Pages::Mirrored => 1,
        }
    }

    pub(crate) const fn from_word(word: u64) -> Result<Pages, Fault> {
        match word {
            0 => Ok(Pages::Shared),
            1 => Ok(Pages::Mirrored),
            _ => Err(Fault("pages that are neither shared nor mirrored")),
        }
    }
}

/// Host memory that client and worker both have, at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedMemory {
    Heap(HeapRange),
    /// Of a file that the client has registered and the worker has mapped: nothing has to be brought. Only the driver
    /// touches it there, for whoever cuts the file short takes the pages.
    File,
}

impl SharedMemory {
    pub fn heap(self) -> Option<HeapRange> {
        match self {
            SharedMemory::Heap(range) => Some(range),
            SharedMemory::File => None,
        }
    }
}
