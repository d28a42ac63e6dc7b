//! Ranges of the heap that stand for pageable memory which graphs copy.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_wire::record::HeapRange;

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

/// Every range set aside, by its offset.
pub static STAGED: Mutex<BTreeMap<u64, Staged>> = Mutex::new(BTreeMap::new());
static EVER: AtomicBool = AtomicBool::new(false);

/// Whether any range was ever set aside.
pub fn any() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// What the range at `offset` stands for.
pub fn staged(offset: u64) -> Option<Staged> {
    STAGED.lock().expect("no panic happens under this lock").get(&offset).copied()
}

/// The worker knows the range from now on.
pub fn keep(staged: &Staged) {
    EVER.store(true, Ordering::Relaxed);
    STAGED.lock().expect("no panic happens under this lock").insert(staged.range.offset, *staged);
}
