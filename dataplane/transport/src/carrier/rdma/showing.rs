//! Which ranges of the heap are shown to the other side's device, and reading of what it shows.

// UNSAFETY: hands ranges of a heap to the pipe by address.

use orion_ring::Heap;
use orion_wire::record::HeapRange;

use super::pipe::Pipe;
use crate::carrier::contract::Death;
use crate::gather::{Part, Stripe};
use crate::holes::Holes;
use crate::lanes::LANES_MAX;
use crate::scatter::Scatter;

/// Shows what is large.
pub struct Showing<'a> {
    pub pipe: &'a Pipe,
    /// Which stays mapped for as long as the pipe is there.
    pub heap: Heap,
    /// A device that reads a page makes it: those that nobody has written to are sent instead.
    pub holes: Option<Holes>,
}

impl Stripe for Showing<'_> {
    fn stripe(&mut self, range: HeapRange) -> Part {
        if range.bytes < self.pipe.shown_from() {
            return Part::Inline(range.bytes);
        }
        let hole_ends = self.holes.map_or(range.offset, |holes| holes.end(range.offset, range.offset + range.bytes));
        if hole_ends > range.offset {
            return Part::Inline(hole_ends - range.offset);
        }
        let at = self.heap.at(range.offset, range.bytes).expect("the range was checked");
        // SAFETY: a range of the heap, of which whoever has made this said that it stays.
        unsafe { self.pipe.show(range, at) }
    }

    /// Each range is told of where it is shown.
    fn barrier(&self) -> [u64; LANES_MAX] {
        unreachable!("nothing goes by lanes")
    }
}

/// Goes on with what the other side shows. True if some of it is there that was not before.
pub fn read_shown(pipe: &Pipe, scatter: &mut Scatter) -> Result<bool, Death> {
    let shown = scatter.shown();
    // SAFETY: the heap of a scatter is not unmapped before its carrier is gone.
    let whole = unsafe { pipe.read(shown)? };
    if whole > 0 {
        // Before the other side knows: what it then sends is seen by an application that may look.
        scatter.have_read(whole);
        pipe.have_read(whole)?;
    }
    Ok(whole > 0)
}
