//! Bytes too many for a record: they travel through the host heap by reference.

// UNSAFETY: copies between the application's memory and the heap.

use orion_cuda::sys::*;
use orion_wire::message::carrier::HeapWritten;
use orion_wire::message::image;
use orion_wire::record::HeapRange;

use crate::state::heap::PAGE;
use crate::state::session::Session;

/// Up to here a payload lies in the record itself.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// A range of the heap in use by this call; given back when dropped.
pub struct Loan {
    s: &'static Session,
    pub range: HeapRange,
}

impl Loan {
    /// Borrows room for `bytes` outside the staging part.
    pub fn general(s: &'static Session, bytes: usize) -> Result<Loan, CUresult> {
        let mut allocator = s.heap_allocator.lock();
        let offset = allocator.take(bytes as u64, PAGE).ok_or_else(|| {
            crate::say!("the session's host heap is full: {bytes} more bytes were needed");
            CUDA_ERROR_OUT_OF_MEMORY
        })?;
        Ok(Loan { s, range: HeapRange { offset, bytes: bytes as u64 } })
    }

    pub fn pointer(&self) -> *mut u8 {
        self.s.heap.at(self.range.offset, self.range.bytes).expect("loans lie inside the heap")
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // Images and the like are used once; their pages go back to the system.
        if self.range.bytes >= 1 << 20 {
            // SAFETY: the range is ours alone until it is released below.
            unsafe { libc::madvise(self.pointer().cast(), self.range.bytes as usize, libc::MADV_REMOVE) };
        }
        let mut allocator = self.s.heap_allocator.lock();
        allocator.release(self.range.offset, self.range.bytes);
    }
}

/// A byte string on its way: in the record, or on loan from the heap until the call has been answered.
pub enum Payload<'a> {
    Inline(&'a [u8]),
    Heap(Loan),
}

impl<'a> Payload<'a> {
    pub fn new(s: &'static Session, bytes: &'a [u8]) -> Result<Payload<'a>, CUresult> {
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Payload::Inline(bytes));
        }
        let loan = Loan::general(s, bytes.len())?;
        // SAFETY: the loan has room for all of them and does not overlap the application's memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), loan.pointer(), bytes.len()) };
        announce(s, loan.range);
        Ok(Payload::Heap(loan))
    }

    /// What the worker is told.
    pub fn told(&self) -> image::Payload<'a> {
        match self {
            Payload::Inline(bytes) => image::Payload::Inline((*bytes).into()),
            Payload::Heap(loan) => image::Payload::Heap(loan.range.into()),
        }
    }
}

/// Has a carrier bring a range of the heap over before the next record.
pub fn announce(s: &'static Session, range: HeapRange) {
    if s.pages.must_bring() && range.bytes > 0 {
        // Also where no context of the session's is current.
        crate::session::call::post_to(s, HeapWritten::OP, |w| HeapWritten { range: range.into() }.encode(w));
    }
}
