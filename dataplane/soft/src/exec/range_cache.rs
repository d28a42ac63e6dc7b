//! Which ranges of device memory a warp knows.

use crate::vram;

/// The ranges a warp touched last; most warps walk a handful of buffers.
#[derive(Default)]
pub struct RangeCache {
    generation: u64,
    entries: [(u64, u64, bool); 4],
    next: usize,
}

impl RangeCache {
    #[inline]
    pub fn check(&mut self, at: u64, bytes: u64, write: bool) -> bool {
        let generation = vram::generation();
        if self.generation == generation {
            for &(base, reach, writable) in &self.entries {
                if at.wrapping_sub(base) < reach && at - base + bytes <= reach && (writable || !write) {
                    return true;
                }
            }
        }
        self.refill(generation, at, bytes, write)
    }

    #[cold]
    fn refill(&mut self, generation: u64, at: u64, bytes: u64, write: bool) -> bool {
        if self.generation != generation {
            self.entries = Default::default();
            self.generation = generation;
        }
        let Some(r) = vram::find(at) else { return false };
        if (write && !r.writable) || at - r.base + bytes > r.reach {
            return false;
        }
        self.entries[self.next] = (r.base, r.reach, r.writable);
        self.next = (self.next + 1) % self.entries.len();
        true
    }
}
