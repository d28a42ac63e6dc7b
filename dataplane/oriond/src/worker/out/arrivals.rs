//! What has come to host memory, on its way to a client that has pages of its own.
//!
//! The one place through which every completion passes. Whoever is about to tell the client of one, the executor with a
//! reply or a driver's thread with a host function, first has this bring over what is there by now: what copies wrote,
//! and what kernels changed in mapped memory. Everything goes through the reply ring, in one order, and the carrier
//! sends no event before what was put into that ring ahead of it.
//!
//! **Once.** A copy's bytes are brought over once, ahead of the first completion that the client may have seen them by,
//! and never after that: the application may have written there since. So it has to be known exactly what is complete.
//! The executor asks the driver by an event. A host function must not call the driver, so the stream writes a word
//! behind each copy, and the function's thread looks at that.

// UNSAFETY: reads words that the device writes, and heap memory that graphs write.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_ring::{Heap, Producer};
use orion_transport::Mirror;
use orion_transport::mirror::{Notice, Scope, Side};
use orion_wire::Fault;
use orion_wire::message::carrier::{HeapSettled, HeapWritten};
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, op};

use crate::lines;
use crate::worker::out::records::append;

/// The driver's event behind a copy, and the context that it belongs to.
pub type SpareEvent = (u64, CUevent);

/// A place that the device writes `value` to behind a copy.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    at: usize,
    pub on_device: CUdeviceptr,
    pub value: u32,
}

impl Word {
    fn is_written(self) -> bool {
        // SAFETY: a word of a page that is never unmapped. Acquire: the device wrote the copy's bytes before it.
        unsafe { AtomicU32::from_ptr(self.at as *mut u32) }.load(Ordering::Acquire) == self.value
    }
}

/// A command that brings bytes to the heap, and that the client has not been told the end of.
pub struct Pending {
    /// Which of the client's commands.
    pub number: u64,
    /// Nothing until the command's work has been queued.
    pub event: Option<SpareEvent>,
    /// Nothing if the driver cannot: then a host function sees what there is, and the bytes come again.
    pub word: Option<Word>,
    pub ranges: Vec<HeapRange>,
    /// What it brings to memory that is kept in step, which comes as any change there does.
    pub in_step: Vec<HeapRange>,
    /// A graph's, of which a part may be complete when one of its own host functions runs: what the ranges held at the
    /// launch, as far as host functions were known then.
    pub before: Option<Vec<Vec<u8>>>,
}

// SAFETY: an event of the driver's is not tied to a thread, and only the executor uses it.
unsafe impl Send for Pending {}

pub struct Arrivals {
    replies: Producer,
    pub pending: Vec<Pending>,
    /// Where the executor has the driver copy to just now, or somebody waits for a copy: what is there comes with the
    /// end of the copy, and not as a change before that, or it would come twice.
    pub copying: Vec<HeapRange>,
    /// Brought over by a host function's thread; their events are the executor's to reuse.
    spent: Vec<Pending>,
    pub mirror: Mirror,
}

pub type Shared = Arc<Mutex<Arrivals>>;

pub fn lock(shared: &Shared) -> MutexGuard<'_, Arrivals> {
    shared.lock().expect("no panic happens under this lock")
}

impl Arrivals {
    pub fn new(replies: Producer) -> Shared {
        let mirror = Mirror::new(Side::Worker);
        Arc::new(Mutex::new(Arrivals { replies, pending: Vec::new(), copying: Vec::new(), spent: Vec::new(), mirror }))
    }

    pub fn replies(&mut self) -> &mut Producer {
        &mut self.replies
    }

    /// Puts into the ring what has come: the bytes of pending copies that `is_done`, and what kernels changed. Answers
    /// how many patches that made.
    ///
    /// Memory is compared first: whatever was written before the last write that is found has been written when the
    /// copies are asked about, and goes first. A flag does not overtake its data.
    pub fn bring(
        &mut self,
        heap: &Heap,
        scope: Scope,
        notice: Notice,
        is_done: impl FnMut(&Pending) -> bool,
    ) -> Result<usize, Fault> {
        let patches = match self.mirror.is_empty() {
            true => Vec::new(),
            false => {
                let written = self.pending.iter().flat_map(|p| &p.ranges).chain(&self.copying).copied().collect();
                self.mirror.leave_out(written);
                self.mirror.collect(heap, scope, notice)
            }
        };
        // The last one is asked about first: if it is done, so is by then whatever its stream did before it, and a host
        // that looks at its bytes alone finds the earlier ones. Order is kept: two copies into one buffer arrive in the
        // order in which they were made.
        let mut are_done: Vec<bool> = self.pending.iter().rev().map(is_done).collect();
        are_done.reverse();
        let mut are_done = are_done.into_iter();
        let done: Vec<Pending> = self.pending.extract_if(.., |_| are_done.next() == Some(true)).collect();
        for done in done {
            if !done.in_step.is_empty() {
                for patch in self.mirror.collect_within(heap, &done.in_step, notice) {
                    self.patch(&patch)?;
                }
            }
            self.settle(heap, done)?;
        }
        for patch in &patches {
            self.patch(patch)?;
        }
        Ok(patches.len())
    }

    /// A copy to these ranges is told of otherwise from now on, or is not made.
    pub fn no_more_copying(&mut self, ranges: &[HeapRange]) {
        for range in ranges {
            if let Some(at) = self.copying.iter().position(|copying| copying == range) {
                self.copying.swap_remove(at);
            }
        }
    }

    /// The copy is complete: its bytes go over, once.
    pub fn settle(&mut self, heap: &Heap, done: Pending) -> Result<(), Fault> {
        for range in &done.ranges {
            self.announce(heap, *range)?;
        }
        self.settled(done.number)?;
        self.spent.push(done);
        Ok(())
    }

    /// Has the carrier bring these bytes before the next record, as they are then.
    pub fn announce(&mut self, heap: &Heap, range: HeapRange) -> Result<(), Fault> {
        if !self.mirror.is_empty() {
            self.mirror.arrived(heap, range);
        }
        let mut body = Vec::new();
        HeapWritten { range: range.into() }.encode(&mut body);
        self.append(HeapWritten::OP, 0, &body)
    }

    /// Command `number` brings nothing more.
    pub fn settled(&mut self, number: u64) -> Result<(), Fault> {
        self.append(HeapSettled::OP, number, &[])
    }

    /// Bytes of host memory for the client's carrier to write.
    pub fn patch(&mut self, body: &[u8]) -> Result<(), Fault> {
        self.append(op::HEAP_PATCH, 0, body)
    }

    fn append(&mut self, op: u16, context: u64, body: &[u8]) -> Result<(), Fault> {
        let size = (HEADER_BYTES + body.len()) as u32;
        append(&mut self.replies, &Header { size, op, thread: 0, context, sequence: 0 }, body)
    }

    /// A host function is about to be asked for, by a thread of the driver's. One of a graph may look at what copies of
    /// that same graph brought, which is not complete as a whole.
    pub fn before_function(&mut self, heap: &Heap, in_graph: bool) -> Result<(), Fault> {
        self.bring(heap, Scope::All, Notice::default(), |pending| pending.word.is_some_and(Word::is_written))?;
        let mut seen = Vec::new();
        for pending in &self.pending {
            match (&pending.before, pending.word) {
                (Some(before), _) if in_graph => {
                    let changed =
                        pending.ranges.iter().zip(before).filter(|(range, before)| differs(heap, **range, before));
                    seen.extend(changed.map(|(range, _)| *range));
                }
                (None, None) => seen.extend_from_slice(&pending.ranges),
                _ => {}
            }
        }
        for range in seen {
            let mut body = Vec::new();
            HeapWritten { range: range.into() }.encode(&mut body);
            self.append(HeapWritten::OP, 0, &body)?;
        }
        self.replies.publish();
        Ok(())
    }

    /// Tells the client which of its patches were applied, if it waits to hear.
    pub fn acknowledge(&mut self, notice: Notice) -> Result<(), Fault> {
        match self.mirror.owes_acknowledgement() {
            true => {
                let bare = self.mirror.bare(notice);
                self.patch(&bare)
            }
            false => Ok(()),
        }
    }

    pub fn take_spent(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.spent)
    }
}

fn bytes_of(heap: &Heap, range: HeapRange) -> Vec<u8> {
    let Some(at) = heap.at(range.offset, range.bytes) else { return Vec::new() };
    let mut bytes = vec![0; range.bytes as usize];
    // SAFETY: the range lies inside the heap. What is being written meanwhile is written after the copy.
    unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

pub fn snapshot(heap: &Heap, ranges: &[HeapRange]) -> Vec<Vec<u8>> {
    ranges.iter().map(|range| bytes_of(heap, *range)).collect()
}

fn differs(heap: &Heap, range: HeapRange, before: &[u8]) -> bool {
    bytes_of(heap, range) != before
}

/// Words for the device to write. They lie in memory of the worker's own.
#[derive(Default)]
pub struct Words {
    free: Vec<(usize, CUdeviceptr)>,
    last: u32,
    /// Not waited for any more, but perhaps not written yet.
    late: Vec<Word>,
    refused: bool,
}

const PAGE_BYTES: usize = 4096;

impl Words {
    /// Whether there is one to take, or never will be.
    pub fn has_one(&mut self) -> bool {
        if self.free.is_empty() {
            std::mem::take(&mut self.late).into_iter().for_each(|word| self.put(word));
        }
        self.refused || !self.free.is_empty()
    }

    /// A word that nothing else writes to. Nothing if the driver cannot have one written.
    pub fn take(&mut self) -> Option<Word> {
        let (at, on_device) = self.free.pop()?;
        self.last = self.last.wrapping_add(1).max(1);
        Some(Word { at, on_device, value: self.last })
    }

    pub fn put(&mut self, word: Word) {
        match word.is_written() {
            true => self.free.push((word.at, word.on_device)),
            false => self.late.push(word),
        }
    }

    /// One that the device was not asked to write.
    pub fn give_back(&mut self, word: Word) {
        self.free.push((word.at, word.on_device));
    }

    /// The driver does not do it.
    pub fn refuse(&mut self) {
        lines::warn("the driver writes no words behind copies: host functions may see bytes of copies late");
        self.refused = true;
        self.forget();
    }

    /// The driver has forgotten every page.
    pub fn forget(&mut self) {
        self.free.clear();
        self.late.clear();
    }

    /// Registers a page of them, in the current context.
    pub fn add_page(&mut self, driver: &Driver) {
        let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let mut on_device = 0;
        // SAFETY: a fresh page, which is never unmapped, and a valid out pointer.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, how, -1, 0);
            let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
            if at == libc::MAP_FAILED
                || driver.cuMemHostRegister_v2(at, PAGE_BYTES, flags) != CUDA_SUCCESS
                || driver.cuMemHostGetDevicePointer_v2(&mut on_device, at, 0) != CUDA_SUCCESS
            {
                return self.refuse();
            }
            at as usize
        };
        self.free.extend((0..PAGE_BYTES).step_by(4).map(|offset| (at + offset, on_device + offset as u64)));
    }
}
