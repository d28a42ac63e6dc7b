//! Who uses which part of the session's host heap. The client alone decides; the worker only checks bounds.

use std::collections::BTreeMap;
use std::io;

use orion_ring::Heap;

/// Pages are the unit: pinned memory is registered with the driver by page.
pub const PAGE: u64 = 4096;

/// First fit over one range, by offset. Ranges are few (pinned buffers, payloads under way), so a tree of free
/// ranges is enough.
pub struct Region {
    free: BTreeMap<u64, u64>,
    /// Nothing lies across a multiple of this.
    block: u64,
}

impl Region {
    pub fn new(start: u64, end: u64) -> Region {
        let mut free = BTreeMap::new();
        if end > start {
            free.insert(start, end - start);
        }
        Region { free, block: u64::MAX }
    }

    /// An empty one, to be filled with blocks of `block` bytes at multiples of it. What it gives lies in one of them.
    pub fn of_blocks(block: u64) -> Region {
        Region { free: BTreeMap::new(), block }
    }

    /// `bytes` rounded up to pages, at a multiple of `align` (a power of two of at least a page).
    pub fn allocate(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let (start, len, at) = self.free.iter().find_map(|(&start, &len)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= start + len).then_some((start, len, at))
        })?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + bytes < start + len {
            self.free.insert(at + bytes, start + len - (at + bytes));
        }
        Some(at)
    }

    #[cfg(debug_assertions)]
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    pub fn release(&mut self, at: u64, bytes: u64) {
        let mut start = at;
        let mut len = bytes.max(1).next_multiple_of(PAGE);
        if let Some((&before, &before_len)) = self.free.range(..at).next_back()
            && before + before_len == at
            && !at.is_multiple_of(self.block)
        {
            self.free.remove(&before);
            start = before;
            len += before_len;
        }
        let end = start + len;
        if !end.is_multiple_of(self.block)
            && let Some(after_len) = self.free.remove(&end)
        {
            len += after_len;
        }
        self.free.insert(start, len);
    }
}

/// The heap is opened in pieces of this, when something first lies in them, and stays so. A program that locks all of
/// its memory (`mlockall`) gets a page for each that it may read: of the whole heap that would be all that the machine
/// has.
const OPENED_BYTES: u64 = 64 << 20;

/// Staging (registered with the driver ahead of time, and open from the first) and the rest.
pub struct HeapAllocator {
    staging: Region,
    general: Region,
    staging_bytes: u64,
    heap: Heap,
    /// By piece.
    is_open: Vec<bool>,
}

impl HeapAllocator {
    /// Of a heap that nobody uses yet.
    pub fn new(heap: Heap, staging_bytes: u64) -> io::Result<HeapAllocator> {
        heap.close()?;
        let staging_bytes = staging_bytes.min(heap.bytes());
        heap.open(0, staging_bytes)?;
        Ok(HeapAllocator {
            staging: Region::new(0, staging_bytes),
            general: Region::new(staging_bytes, heap.bytes()),
            staging_bytes,
            heap,
            is_open: vec![false; heap.bytes().div_ceil(OPENED_BYTES) as usize],
        })
    }

    pub fn take_staging(&mut self, bytes: u64) -> Option<u64> {
        self.staging.allocate(bytes, PAGE)
    }

    /// `bytes` of the rest, rounded up to pages, at a multiple of `align`.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let offset = self.general.allocate(bytes, align)?;
        if !self.opened(offset, bytes) {
            self.general.release(offset, bytes);
            return None;
        }
        Some(offset)
    }

    /// Of what was taken, whichever part it is of.
    pub fn release(&mut self, offset: u64, bytes: u64) {
        let region = if offset < self.staging_bytes { &mut self.staging } else { &mut self.general };
        region.release(offset, bytes);
    }

    /// Of staging and of the rest, what nobody has.
    #[cfg(debug_assertions)]
    pub fn free_bytes(&self) -> [u64; 2] {
        [&self.staging, &self.general].map(Region::free_bytes)
    }

    /// Opens what is not open yet of a range.
    fn opened(&mut self, offset: u64, bytes: u64) -> bool {
        for piece in offset / OPENED_BYTES..(offset + bytes.max(1)).div_ceil(OPENED_BYTES) {
            if self.is_open[piece as usize] {
                continue;
            }
            let begin = piece * OPENED_BYTES;
            let len = OPENED_BYTES.min(self.heap.bytes() - begin);
            if let Err(why) = self.heap.open(begin, len) {
                crate::say!("{len} bytes of the session's host heap cannot be used: mprotect failed: {why}");
                return false;
            }
            self.is_open[piece as usize] = true;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_joins_its_neighbours() {
        let mut r = Region::new(0, 16 * PAGE);
        let a = r.allocate(1, PAGE).unwrap();
        let b = r.allocate(5000, PAGE).unwrap();
        let c = r.allocate(13 * PAGE, PAGE).unwrap();
        assert_eq!((a, b, c), (0, PAGE, 3 * PAGE));
        assert_eq!(r.allocate(1, PAGE), None);
        r.release(a, 1);
        r.release(c, 13 * PAGE);
        r.release(b, 5000);
        assert_eq!(r.allocate(16 * PAGE, PAGE), Some(0));
    }

    #[test]
    fn nothing_lies_across_two_blocks() {
        const BLOCK: u64 = 8 * PAGE;
        let mut r = Region::of_blocks(BLOCK);
        for block in [1, 0, 2] {
            r.release(block * BLOCK, BLOCK);
        }
        let starts: Vec<_> = (0..6).map(|_| r.allocate(3 * PAGE, PAGE).unwrap() / PAGE).collect();
        assert_eq!(starts, [0, 3, 8, 11, 16, 19]);
        assert_eq!(r.allocate(3 * PAGE, PAGE), None);
        // The last pages of one block and the first of the next are free, and stay apart.
        r.release(8 * PAGE, 3 * PAGE);
        assert_eq!(r.allocate(5 * PAGE, PAGE), None);
        r.release(11 * PAGE, 3 * PAGE);
        assert_eq!(r.allocate(BLOCK, PAGE), Some(BLOCK));
    }

    #[test]
    fn alignment_leaves_the_gap_usable() {
        let mut r = Region::new(PAGE, 64 * PAGE);
        assert_eq!(r.allocate(PAGE, 16 * PAGE), Some(16 * PAGE));
        assert_eq!(r.allocate(15 * PAGE, PAGE), Some(PAGE));
    }
}
