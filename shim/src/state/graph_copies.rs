//! Ranges of the heap that stand for pageable memory which graphs copy.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_wire::record::HeapRange;

use crate::state::lock::{Lock, Rank};

/// A range of the heap that stands for pageable memory of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staged {
    pub range: HeapRange,
    /// Address of the first byte copied, in the application's memory.
    pub host: u64,
    pub shape: Shape,
}

/// What lies between the first and the last byte of one side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub width: usize,
    pub rows: usize,
    pub slices: usize,
    pub pitch: usize,
    pub slice_pitch: usize,
}

impl Shape {
    /// Bytes without a gap.
    pub fn line(bytes: usize) -> Shape {
        Shape { width: bytes, rows: 1, slices: 1, pitch: bytes, slice_pitch: bytes }
    }

    /// Offsets of the rows; between them lies memory that is not part of the copy.
    pub fn rows(self) -> impl Iterator<Item = usize> {
        (0..self.slices).flat_map(move |z| (0..self.rows).map(move |y| z * self.slice_pitch + y * self.pitch))
    }

    pub fn bytes(self) -> usize {
        (self.slices - 1) * self.slice_pitch + (self.rows - 1) * self.pitch + self.width
    }
}

pub struct GraphCopies {
    /// Every range set aside, by its offset.
    pub staged: Lock<BTreeMap<u64, Staged>>,
    pub ever: AtomicBool,
}

impl GraphCopies {
    pub const fn new() -> GraphCopies {
        GraphCopies { staged: Lock::new(Rank::Leaf, BTreeMap::new()), ever: AtomicBool::new(false) }
    }

    /// Whether any range was ever set aside.
    pub fn any(&self) -> bool {
        self.ever.load(Ordering::Relaxed)
    }

    /// What the range at `offset` stands for.
    pub fn staged(&self, offset: u64) -> Option<Staged> {
        self.staged.lock().get(&offset).copied()
    }

    /// The worker knows the range from now on.
    pub fn keep(&self, staged: &Staged) {
        self.ever.store(true, Ordering::Relaxed);
        self.staged.lock().insert(staged.range.offset, *staged);
    }
}
