//! `__managed__` variables: memory of the driver's that the client's host has pages of the heap for.
//!
//! The driver places them, and no other process maps what it places. So their bytes are carried over: what the client
//! has changed before each command, what kernels have changed before each reply that tells of a completion, and both
//! around a host function. What has changed is told by what both had last. While a kernel runs the host stays away, as
//! the device's `concurrentManagedAccess` says; bytes that both change at once are one of the two's.

// UNSAFETY: reads and writes variables and pages of the heap by address.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use orion_ring::Heap;
use orion_wire::record::HeapRange;

/// All are compared with each command, so no more than that of a program's variables.
const BYTES_MAX: u64 = 4 << 20;
/// A variable has one for each row of pages that the client mapped for it.
const PIECES_MAX: usize = 4096;

/// What the driver said is managed, and so may be carried over: bytes by address, and the module or library.
#[derive(Default)]
pub struct Known(BTreeMap<u64, (u64, u64)>);

impl Known {
    pub fn found(&mut self, address: u64, bytes: u64, owner: u64) {
        self.0.insert(address, (bytes, owner));
    }

    /// Whose variable all of a range is.
    pub fn owner(&self, address: u64, bytes: u64) -> Option<u64> {
        let (at, (size, owner)) = self.0.range(..=address).next_back()?;
        (address - at).checked_add(bytes).filter(|end| end <= size).map(|_| *owner)
    }

    pub fn retain(&mut self, stays: impl Fn(u64, u64) -> bool) {
        self.0.retain(|address, (_, owner)| stays(*address, *owner));
    }
}

struct Piece {
    address: u64,
    range: HeapRange,
    owner: u64,
    /// What both had last.
    told: Box<[u8]>,
}

/// What is carried over, for the executor and for threads that run host functions.
pub struct Variables {
    heap: Heap,
    /// Whether there are any.
    any: AtomicBool,
    pieces: Mutex<Vec<Piece>>,
}

/// Why there is no more.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl Variables {
    pub fn new(heap: Heap) -> Arc<Variables> {
        Arc::new(Variables { heap, any: AtomicBool::new(false), pieces: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.pieces.lock().expect("no panic happens under this lock")
    }

    /// From now on a range of the heap has the bytes of a variable, which it gets now.
    ///
    /// # Safety
    /// The variable is there until [`Self::retain`] has dropped it.
    pub unsafe fn add(&self, address: u64, range: HeapRange, owner: u64) -> Result<(), Full> {
        let mut pieces = self.lock();
        pieces.retain(|piece| piece.address != address);
        let all: u64 = pieces.iter().map(|piece| piece.range.bytes).sum();
        if pieces.len() >= PIECES_MAX || all + range.bytes > BYTES_MAX {
            return Err(Full);
        }
        let to = self.heap.at(range.offset, range.bytes).ok_or(Full)?;
        let mut told = vec![0; range.bytes as usize].into_boxed_slice();
        // SAFETY: the caller's promise, and a range of the heap.
        unsafe {
            std::ptr::copy(address as *const u8, told.as_mut_ptr(), told.len());
            std::ptr::copy(told.as_ptr(), to, told.len());
        }
        pieces.push(Piece { address, range, owner, told });
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub fn retain(&self, stays: impl Fn(u64, u64) -> bool) {
        if self.any.load(Ordering::Relaxed) {
            let mut pieces = self.lock();
            pieces.retain(|piece| stays(piece.address, piece.owner));
            self.any.store(!pieces.is_empty(), Ordering::Relaxed);
        }
    }

    /// The heap's bytes for those of a variable, if all are carried over together.
    #[inline]
    pub fn at(&self, address: u64, bytes: u64) -> Option<HeapRange> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let pieces = self.lock();
        pieces.iter().find_map(|piece| {
            let inside = address.checked_sub(piece.address)?;
            let is_whole = inside.checked_add(bytes)? <= piece.range.bytes;
            is_whole.then(|| HeapRange { offset: piece.range.offset + inside, bytes })
        })
    }

    /// What the client has changed goes to the variables. One load where there are none.
    #[inline]
    pub fn give(&self) {
        if self.any.load(Ordering::Relaxed) {
            self.carry(true);
        }
    }

    /// What kernels have changed goes to the client's pages.
    #[inline]
    pub fn take(&self) {
        if self.any.load(Ordering::Relaxed) {
            self.carry(false);
        }
    }

    #[cold]
    fn carry(&self, is_given: bool) {
        for piece in self.lock().iter_mut() {
            let Some(pages) = self.heap.at(piece.range.offset, piece.range.bytes) else { continue };
            let variable = piece.address as *mut u8;
            let (from, to) = if is_given { (pages, variable) } else { (variable, pages) };
            // SAFETY: both have that many bytes, as `add` was promised; others may change them meanwhile.
            unsafe { merge(from, to, &mut piece.told) };
        }
    }
}

/// Brings `to` what has changed at `from` since both had `told`, and leaves the rest of it alone.
///
/// # Safety
/// Both have as many bytes as `told`, to which others may write; they are as far beyond a multiple of eight.
unsafe fn merge(from: *const u8, to: *mut u8, told: &mut [u8]) {
    let mut i = 0;
    while i < told.len() {
        let at = from.addr() + i;
        // SAFETY: within the bytes, and aligned as said.
        i += unsafe {
            if at.is_multiple_of(8) && told.len() - i >= 8 {
                word::<u64, 8>(from.add(i), to.add(i), &mut told[i..i + 8])
            } else if at.is_multiple_of(4) && told.len() - i >= 4 {
                word::<u32, 4>(from.add(i), to.add(i), &mut told[i..i + 4])
            } else if at.is_multiple_of(2) && told.len() - i >= 2 {
                word::<u16, 2>(from.add(i), to.add(i), &mut told[i..i + 2])
            } else {
                word::<u8, 1>(from.add(i), to.add(i), &mut told[i..=i])
            }
        };
    }
}

/// Reads a word at once, and writes the bytes of it that have changed, no others: the other side may be writing to
/// those. Bytes in a row are written at once as far as they are aligned.
///
/// # Safety
/// As [`merge`], of one aligned word.
unsafe fn word<T: Copy, const N: usize>(from: *const u8, to: *mut u8, told: &mut [u8]) -> usize {
    // SAFETY: aligned words of plain bytes, and parts of one.
    unsafe {
        let new = from.cast::<T>().read_volatile();
        let bytes: [u8; N] = (&raw const new).cast::<[u8; N]>().read();
        let has_changed = |i: usize| bytes[i] != told[i];
        let mut i = 0;
        while i < N {
            let run = (i..N).take_while(|i| has_changed(*i)).count();
            i += match run {
                0 => 1,
                run => {
                    let at_once = [8, 4, 2, 1].into_iter().find(|n| *n <= run && (to.addr() + i).is_multiple_of(*n));
                    let part = bytes.as_ptr().add(i);
                    match at_once {
                        Some(8) => to.add(i).cast::<u64>().write_volatile(part.cast::<u64>().read_unaligned()),
                        Some(4) => to.add(i).cast::<u32>().write_volatile(part.cast::<u32>().read_unaligned()),
                        Some(2) => to.add(i).cast::<u16>().write_volatile(part.cast::<u16>().read_unaligned()),
                        _ => to.add(i).write_volatile(bytes[i]),
                    }
                    at_once.unwrap_or(1)
                }
            };
        }
        told.copy_from_slice(&bytes);
    }
    N
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_driver_called_managed_is() {
        let mut known = Known::default();
        known.found(0x1000, 16, 7);
        known.found(0x2000, 4, 8);
        assert_eq!(
            (known.owner(0x1000, 16), known.owner(0x1008, 8), known.owner(0x2000, 4)),
            (Some(7), Some(7), Some(8))
        );
        for (address, bytes) in [(0xfff, 2), (0x1000, 17), (0x1010, 1), (0x2000, 5), (0x2004, 1), (0x1000, u64::MAX)] {
            assert_eq!(known.owner(address, bytes), None, "{bytes} at {address:#x}");
        }
        known.retain(|_, owner| owner != 7);
        assert_eq!((known.owner(0x1000, 1), known.owner(0x2000, 1)), (None, Some(8)));
    }

    /// As of two threads of a program, whose counters lie beside each other, one is at a kernel and one at the host.
    #[test]
    fn neighbours_are_changed_at_the_same_time() {
        use std::sync::atomic::AtomicU32;

        const ROUNDS: u32 = 300_000;
        #[repr(align(8))]
        struct Cells([AtomicU32; 2]);
        static VARIABLE: Cells = Cells([AtomicU32::new(0), AtomicU32::new(0)]);
        let (mut pages, mut told) = (Cells(Default::default()), [0u8; 8]);
        let variable = VARIABLE.0.as_ptr() as *mut u8;
        let kernel = std::thread::spawn(|| {
            for _ in 0..ROUNDS {
                VARIABLE.0[1].fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut round = 0;
        while !kernel.is_finished() || round < 1000 {
            round += 1;
            *pages.0[0].get_mut() = round;
            let at = pages.0.as_mut_ptr().cast::<u8>();
            // SAFETY: both have eight aligned bytes.
            unsafe {
                merge(at, variable, &mut told);
                merge(variable, at, &mut told);
            }
        }
        kernel.join().expect("it ends");
        let at = pages.0.as_mut_ptr().cast::<u8>();
        // SAFETY: as above.
        unsafe { merge(variable, at, &mut told) };
        let both = |cells: &Cells| cells.0.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        assert_eq!((both(&VARIABLE), both(&pages)), ([round, ROUNDS], [round, ROUNDS]));
    }

    #[test]
    fn what_each_side_changes_reaches_the_other_and_no_more() {
        #[repr(align(8))]
        struct Aligned([u8; 64]);
        let mut seed = 3u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..2_000 {
            let (first, bytes) = (random(8) as usize, 1 + random(40) as usize);
            let (mut a, mut b) = (Aligned([5; 64]), Aligned([5; 64]));
            let mut told = vec![5u8; bytes];
            let mut expected = [5u8; 64];
            // Each byte is changed by one of them, or by none.
            for (i, expected) in expected.iter_mut().enumerate().skip(first).take(bytes) {
                match random(4) {
                    0 => (a.0[i], *expected) = (6, 6),
                    1 => (b.0[i], *expected) = (7, 7),
                    _ => {}
                }
            }
            let (at_a, at_b) = (a.0[first..].as_mut_ptr(), b.0[first..].as_mut_ptr());
            // SAFETY: so many bytes of both.
            unsafe {
                merge(at_a, at_b, &mut told);
                merge(at_b, at_a, &mut told);
            }
            assert_eq!((a.0, b.0), (expected, expected), "{bytes} bytes from {first}");
            assert_eq!(told, expected[first..first + bytes]);
        }
    }
}
