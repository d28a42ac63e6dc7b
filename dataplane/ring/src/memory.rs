//! The memfd behind a session, and how each side maps it.

// UNSAFETY: maps memory and hands out raw pointers into it; nothing here makes a reference to bytes that a
// peer can write.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::bell::{Bell, Futex};
use crate::control::Control;
use crate::ring::{Consumer, Producer, RingView};
use crate::sealed::sealed;

/// 10,000 launches, ten times what a GPU's own queue holds, and small enough that its lines are still in a cache a lap
/// later: 8 MiB made a launch 20 ns dearer.
pub const COMMAND_BYTES: u64 = 2 << 20;
pub const REPLY_BYTES: u64 = 4 << 20;
pub const EVENT_BYTES: u64 = 1 << 20;
pub const HEAP_OFFSET: u64 = 32 << 20;
/// A multiple of this in the file is one in memory too, so that the kernel can map whole huge pages.
const HUGE_PAGE: u64 = 2 << 20;
const _: () = assert!(HEAP_OFFSET.is_multiple_of(HUGE_PAGE));
/// Of `linux/mman.h`; libc has no name for it on this target yet.
const MADV_COLLAPSE: libc::c_int = 25;
const CONTROL_OFFSET: u64 = 4096;
const CONTROL_STRIDE: u64 = 4096;
const DATA_OFFSET: u64 = 1 << 20;
const MAGIC: u64 = u64::from_le_bytes(*b"orionmem");

/// Sizes that the server chose; the client learns them in Welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub heap_bytes: u64,
}

impl Layout {
    pub fn memory_bytes(self) -> u64 {
        HEAP_OFFSET + self.heap_bytes
    }
}

/// Which of the three rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Command,
    Reply,
    Event,
}

impl Which {
    fn index(self) -> u64 {
        self as u64
    }

    /// Where its words (`control::Control`) and its bytes lie from where the memory begins, and how many these are: for
    /// whoever cannot map it as [`Memory`] does.
    pub fn place(self) -> (u64, u64, u64) {
        let (data, bytes) = self.data();
        (self.control(), data, bytes)
    }

    fn control(self) -> u64 {
        CONTROL_OFFSET + self.index() * CONTROL_STRIDE
    }

    fn data(self) -> (u64, u64) {
        match self {
            Which::Command => (DATA_OFFSET, COMMAND_BYTES),
            Which::Reply => (DATA_OFFSET + COMMAND_BYTES, REPLY_BYTES),
            Which::Event => (DATA_OFFSET + COMMAND_BYTES + REPLY_BYTES, EVENT_BYTES),
        }
    }
}

/// One side's mapping of header and rings. Dropping it does not unmap anything, because application threads may
/// still be looking at it while the process exits; see [`Memory::unmap_all`].
pub struct Memory {
    fd: OwnedFd,
    /// Where in the file it begins: a file may hold more than one session's.
    offset: u64,
    layout: Layout,
    base: *mut u8,
    bell: Arc<dyn Bell>,
    /// Everything mapped so far, for [`Memory::unmap_all`].
    mapped: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: `base` points to a mapping that only `unmap_all` removes, whose caller vouches for it; all access goes
// through atomics or the copy routines of `ring`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(fd: OwnedFd, offset: u64, layout: Layout) -> io::Result<Memory> {
        let base = map_front(fd.as_fd(), offset)?;
        let mapped = Mutex::new(vec![(base as usize, DATA_OFFSET as usize)]);
        Ok(Memory { fd, offset, layout, base, bell: Arc::new(Futex), mapped })
    }

    /// The ends that are made from now on ring the other side, and are rung, in this way; without it by [`Futex`].
    pub fn with_bell(self, bell: Arc<dyn Bell>) -> Memory {
        Memory { bell, ..self }
    }

    fn note(&self, base: *mut u8, bytes: usize) {
        self.mapped.lock().expect("nothing panics under this lock").push((base as usize, bytes));
    }

    /// Removes every mapping, for a process that outlives its sessions.
    ///
    /// # Safety
    /// No ring end and no heap made from this memory is used afterwards, by this process or by the kernel on its
    /// behalf (requests under way in an io_uring).
    pub unsafe fn unmap_all(self) {
        for (base, bytes) in self.mapped.into_inner().expect("nothing panics under this lock") {
            // SAFETY: these are our own mappings, and the caller vouches that nothing refers to them any more.
            unsafe { libc::munmap(base as *mut libc::c_void, bytes) };
        }
    }

    /// Creates and seals the memory of a new session. The heap is sparse: pages cost only once touched.
    pub fn create(layout: Layout) -> io::Result<Memory> {
        Memory::create_in(sealed(c"orion-session", layout.memory_bytes())?, 0, layout)
    }

    /// The memory of a new session in a file that somebody else has made, from `offset` on, where it holds zeros.
    /// Whoever can shrink that file can end whoever maps it.
    pub fn create_in(fd: OwnedFd, offset: u64, layout: Layout) -> io::Result<Memory> {
        let memory = Memory::new(fd, offset, layout)?;
        // SAFETY: the header page is mapped and aligned; whoever shares it looks at it once he is told.
        unsafe { memory.base.cast::<u64>().write_volatile(MAGIC) };
        Ok(memory)
    }

    /// Maps memory that the peer created, after checking that it has the size it was announced with.
    pub fn open(fd: OwnedFd, layout: Layout) -> io::Result<Memory> {
        let bytes = file_bytes(fd.as_fd())?;
        if bytes != layout.memory_bytes() {
            let announced = layout.memory_bytes();
            return Err(io::Error::other(format!("session memory has {bytes} bytes where {announced} were announced")));
        }
        Memory::open_in(fd, 0, layout)
    }

    /// As [`Memory::open`], of a file that holds more, from `offset` on.
    pub fn open_in(fd: OwnedFd, offset: u64, layout: Layout) -> io::Result<Memory> {
        let bytes = file_bytes(fd.as_fd())?;
        if offset.checked_add(layout.memory_bytes()).is_none_or(|end| end > bytes) {
            return Err(io::Error::other(format!("session memory at {offset:#x} would end beyond {bytes:#x}")));
        }
        let memory = Memory::new(fd, offset, layout)?;
        // SAFETY: the header page is mapped and aligned; the value is only compared.
        if unsafe { memory.base.cast::<u64>().read_volatile() } != MAGIC {
            return Err(io::Error::other("session memory does not begin with Orion's magic"));
        }
        Ok(memory)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where in the file the heap begins.
    pub fn heap_at(&self) -> u64 {
        self.offset + HEAP_OFFSET
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    fn ring(&self, which: Which) -> io::Result<RingView> {
        let (offset, bytes) = which.data();
        let data = map_twice(self.fd.as_fd(), self.offset + offset, bytes as usize)?;
        self.note(data, 2 * bytes as usize);
        // SAFETY: the control page lies inside the mapped front part; the mapping is never removed, so 'static
        // is the life of the process; all fields are atomics, so a hostile peer can only change values.
        let control = unsafe { &*self.base.add(which.control() as usize).cast::<Control>() };
        Ok(RingView::new(control, data, bytes, which.index() as usize))
    }

    /// The writing end of a ring. At most one per ring and session may exist.
    pub fn producer(&self, which: Which) -> io::Result<Producer> {
        Ok(Producer::new(self.ring(which)?, self.bell.clone()))
    }

    /// The reading end of a ring. At most one per ring and session may exist.
    pub fn consumer(&self, which: Which) -> io::Result<Consumer> {
        Ok(Consumer::new(self.ring(which)?, self.bell.clone()))
    }

    /// Maps the heap, at exactly `at` where given, else where it can have huge pages. An address in use is an error,
    /// never an overwrite.
    pub fn map_heap(&self, at: Option<u64>) -> io::Result<Heap> {
        let bytes = self.layout.heap_bytes as usize;
        let map = |at: *mut libc::c_void, flags| {
            // SAFETY: replaces at most what `reserve` has reserved for it; the range lies inside the sealed file.
            let base = unsafe {
                libc::mmap(
                    at,
                    bytes,
                    libc::PROT_NONE,
                    libc::MAP_SHARED | libc::MAP_NORESERVE | flags,
                    self.fd.as_raw_fd(),
                    (self.offset + HEAP_OFFSET) as libc::off_t,
                )
            };
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // Most of it is never used. A program that has asked for all of its memory to be locked (`mlockall`) would
            // get a page for each of it, and so would whoever writes a core; the driver's memory is in no core either.
            // SAFETY: the mapping that was just made.
            unsafe {
                libc::munlock(base, bytes);
                libc::madvise(base, bytes, libc::MADV_DONTDUMP);
                match libc::mprotect(base, bytes, libc::PROT_READ | libc::PROT_WRITE) {
                    0 => Ok(base),
                    _ => Err(io::Error::last_os_error()),
                }
            }
        };
        let base = match at {
            None => map(reserve(bytes)?, libc::MAP_FIXED)?,
            Some(at) => {
                let base = map(at as *mut libc::c_void, libc::MAP_FIXED_NOREPLACE)?;
                if at != base as u64 {
                    // A kernel older than 4.17 takes the address as a hint only.
                    // SAFETY: unmaps what was just mapped.
                    unsafe { libc::munmap(base, bytes) };
                    return Err(io::Error::other("the kernel cannot map at a fixed address without replacing"));
                }
                base
            }
        };
        self.note(base.cast(), bytes);
        Ok(Heap { base: base.cast(), bytes: self.layout.heap_bytes, open: None })
    }

    /// Maps the heap in `bounds`: where the system would have it, or else as high as can be. Elsewhere if there is no
    /// place in them.
    pub fn map_heap_within(&self, bounds: Range<u64>) -> io::Result<Heap> {
        let bytes = self.layout.heap_bytes;
        let Some(highest) = bounds.end.checked_sub(bytes).map(|at| at & !(HUGE_PAGE - 1)) else {
            return self.map_heap(None);
        };
        let chosen = reserve(bytes as usize)?;
        // SAFETY: a reservation that nobody has seen.
        unsafe { libc::munmap(chosen, bytes as usize) };
        if (bounds.start..=highest).contains(&(chosen as u64)) {
            return self.map_heap(None);
        }
        let below = |at: &u64| at.checked_sub(1 << 38);
        let places = std::iter::successors(Some(highest), below).take_while(|at| *at >= bounds.start);
        places.map(|at| self.map_heap(Some(at))).find_map(Result::ok).map_or_else(|| self.map_heap(None), Ok)
    }
}

/// Address space for `bytes`, at a multiple of [`HUGE_PAGE`].
fn reserve(bytes: usize) -> io::Result<*mut libc::c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let slack = HUGE_PAGE as usize;
    // SAFETY: a mapping that replaces nothing.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes + slack, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let before = base.align_offset(slack);
    // SAFETY: what lies before and behind `bytes` of it is this function's own mapping, which nobody has seen.
    unsafe {
        let at = base.byte_add(before);
        for (rest, len) in [(base, before), (at.byte_add(bytes), slack - before)] {
            if len > 0 && libc::munmap(rest, len) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(at)
    }
}

/// One side's mapping of the host heap; never unmapped (see [`Memory`]).
#[derive(Clone, Copy)]
pub struct Heap {
    base: *mut u8,
    bytes: u64,
    /// Where not all of it can be read and written, what can: a bit for each [`Heap::PIECE`].
    open: Option<&'static [AtomicU64]>,
}

// SAFETY: a plain address range; every access is an explicit copy or belongs to the application.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is opened at a time: two megabytes, or what is left of the heap.
    pub const PIECE: u64 = HUGE_PAGE;

    /// Pointer to `offset`, if `offset + len` lies inside the heap, and can be read and written.
    pub fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        let is_there = end <= self.bytes && self.open.is_none_or(|open| pieces(offset, len).all(|i| has(open, i)));
        // SAFETY: the range was just checked to lie inside the mapping.
        is_there.then(|| unsafe { self.base.add(offset as usize) })
    }

    /// One that can be closed. What it takes to know what is open stays for the life of the process.
    #[must_use]
    pub fn closable(self) -> Heap {
        let words = self.bytes.div_ceil(Heap::PIECE).div_ceil(64);
        let open: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(u64::MAX)).collect();
        Heap { open: Some(open.leak()), ..self }
    }

    /// Nobody may read or write it any more, but for what is opened. A range elsewhere that the other side names is a
    /// fault, and not the process's end.
    pub fn close(&self) -> io::Result<()> {
        let open = self.open.ok_or(io::ErrorKind::Unsupported)?;
        self.protect(0, self.bytes, libc::PROT_NONE)?;
        open.iter().for_each(|word| word.store(0, Ordering::Release));
        Ok(())
    }

    /// Opens the pieces that a range lies in.
    pub fn open(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let begin = offset - offset % Heap::PIECE;
        self.protect(
            begin,
            end.next_multiple_of(Heap::PIECE).min(self.bytes) - begin,
            libc::PROT_READ | libc::PROT_WRITE,
        )?;
        if let Some(open) = self.open {
            pieces(offset, len).for_each(|i| {
                open[i as usize / 64].fetch_or(1 << (i % 64), Ordering::Release);
            });
        }
        Ok(())
    }

    fn protect(&self, offset: u64, len: u64, access: libc::c_int) -> io::Result<()> {
        // SAFETY: a range of the mapping, say the callers. Whoever closes it has nobody who uses it.
        match unsafe { libc::mprotect(self.base.add(offset as usize).cast(), len as usize, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Asks for huge pages where a range of the heap covers whole ones: touching and pinning them takes less. Linux 6.1
    /// and newer; where it cannot (no free ones, `shmem_enabled` is `deny`) pages stay small.
    pub fn make_huge(&self, offset: u64, len: u64) {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.bytes) else { return };
        for at in (offset.next_multiple_of(HUGE_PAGE)..end).step_by(HUGE_PAGE as usize) {
            if end - at < HUGE_PAGE {
                return;
            }
            // Where there is no page yet nothing is collapsed, so one is touched.
            // SAFETY: inside the mapping; both keep what is there.
            let done = unsafe {
                let at = self.base.add(at as usize);
                at.read_volatile();
                libc::madvise(at.cast(), HUGE_PAGE as usize, MADV_COLLAPSE)
            };
            if done != 0 {
                return;
            }
        }
    }

    /// Offset of a pointer into the heap with `len` bytes behind it.
    pub fn offset_of(&self, p: u64, len: u64) -> Option<u64> {
        let offset = p.checked_sub(self.base as u64)?;
        (offset.checked_add(len)? <= self.bytes).then_some(offset)
    }
}

/// Which pieces of a heap a range lies in, that is not empty.
fn pieces(offset: u64, len: u64) -> Range<u64> {
    if len == 0 { 0..0 } else { offset / Heap::PIECE..(offset + len).div_ceil(Heap::PIECE) }
}

fn has(open: &[AtomicU64], piece: u64) -> bool {
    open[piece as usize / 64].load(Ordering::Acquire) >> (piece % 64) & 1 == 1
}

fn file_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: an all-zero stat is a valid value for fstat to overwrite.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writes.
    match unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } {
        0 => Ok(stat.st_size as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Header and control pages.
fn map_front(fd: BorrowedFd<'_>, offset: u64) -> io::Result<*mut u8> {
    // SAFETY: a fresh mapping of the first pages of the file.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            DATA_OFFSET as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Maps `bytes` at `offset` twice in a row, so that a record never has to be split at the end of the ring.
fn map_twice(fd: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: reserves address space nobody uses, then replaces exactly that reservation.
    unsafe {
        let base = libc::mmap(
            ptr::null_mut(),
            2 * bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for half in 0..2 {
            let at = base.cast::<u8>().add(half * bytes);
            let mapped = libc::mmap(
                at.cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                fd.as_raw_fd(),
                offset as libc::off_t,
            );
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(base.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_open_is_nowhere() {
        let bytes = 3 * Heap::PIECE + 8192;
        let memory = Memory::create(Layout { heap_bytes: bytes }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        assert!(heap.close().is_err() && heap.at(0, bytes).is_some());
        let heap = heap.closable();
        let copy = heap;
        assert!(heap.at(0, bytes).is_some() && heap.at(0, bytes + 1).is_none());
        heap.close().unwrap();
        assert!((0..bytes).step_by(4096).all(|at| copy.at(at, 1).is_none()));
        assert!(heap.open(bytes - 4096, 4097).is_err() && heap.open(u64::MAX, 2).is_err());
        // The end of one, all of the next, and the last, which is short.
        heap.open(Heap::PIECE - 1, 2).unwrap();
        heap.open(bytes - 1, 1).unwrap();
        let open = 0..2 * Heap::PIECE;
        for at in (0..bytes).step_by(4096) {
            let found = copy.at(at, 4096);
            assert_eq!(found.is_some(), open.contains(&at) || at >= 3 * Heap::PIECE, "{at}");
            // SAFETY: what is open can be written to.
            found.into_iter().for_each(|at| unsafe { at.write(1) });
        }
        assert!(heap.at(open.end - 1, 2).is_none() && heap.at(0, open.end).is_some() && heap.at(0, bytes).is_none());
    }

    #[test]
    fn huge_pages_keep_what_is_there() {
        const HUGE: usize = HUGE_PAGE as usize;
        let memory = Memory::create(Layout { heap_bytes: 4 * HUGE_PAGE }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        assert!((heap.base() as u64).is_multiple_of(HUGE_PAGE));
        let byte = |at: usize| heap.at(at as u64, 1).unwrap();
        let marks = [0, 5000, HUGE - 1, HUGE, 2 * HUGE + 7, 3 * HUGE - 1, 4 * HUGE - 1];
        for (i, at) in marks.into_iter().enumerate() {
            // SAFETY: inside the heap, which nobody else has.
            unsafe { byte(at).write(i as u8 + 1) };
        }
        // Whole ones, none that is whole, and what is not in the heap.
        for (offset, len) in [(4096, 4 * HUGE_PAGE - 4096), (4096, HUGE_PAGE), (0, 5 * HUGE_PAGE), (u64::MAX, 2)] {
            heap.make_huge(offset, len);
        }
        for (i, at) in marks.into_iter().enumerate() {
            // SAFETY: as above.
            assert_eq!(unsafe { byte(at).read() }, i as u8 + 1);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { byte(HUGE + 1).read() }, 0);
    }
}
