//! Pages of a session's heap that nobody has written to: a program may have a hundred megabytes of pinned memory and
//! use a few hundred pages of it.
//!
//! The heap is a file in memory, and such a page is a hole in it. Whoever writes there, by whichever mapping, in
//! whichever process, by a call of the system's or by a device, first gets a page, which is no hole from then on, even
//! if it goes to swap. So a hole holds zeros at the moment at which it is asked for, as surely as if it had been read.
//! To read it would make a page of it. What page tables know (bits of `userfaultfd` and of `/proc/PID/pagemap`) is
//! less: they do not see what comes by other mappings, from a forked child, or by whoever has pinned the page before.
//!
//! Asked by `lseek(SEEK_DATA)`. Before Linux 6.4 it may take a page that is just being made part of a huge one for a
//! hole ("mm/khugepaged: maintain page cache uptodate flag"), so it is not asked there.

// UNSAFETY: asks about a descriptor whose number may be anybody's, and moves that file's position if it is ours.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::AtomicU64;

use orion_ring::{Heap, Memory};
use orion_wire::record::HeapRange;

use crate::kept::Identity;
use crate::stream::FRAME_LEN_MAX;

pub const PAGE: u64 = 4096;
/// The first Linux of which holes are believed.
const LINUX_MIN: (u32, u32) = (6, 4);
/// Of a range that begins with a hole so many bytes are sent between two questions.
const STEP: u64 = 64 << 10;

/// What holes are sent from. Atomics, so that the library has no megabyte of zeros in its file.
static ZEROS: [AtomicU64; FRAME_LEN_MAX as usize / 8] = [const { AtomicU64::new(0) }; FRAME_LEN_MAX as usize / 8];

/// The file behind a heap. Whoever has closed its descriptor, as a daemon does with all, has no holes any more.
#[derive(Debug, Clone, Copy)]
pub struct Holes {
    fd: RawFd,
    identity: Identity,
    /// Where in the file the heap begins.
    heap_at: u64,
}

impl Holes {
    /// Nothing where holes cannot be told from pages: in other files than those of `tmpfs`, and on an older Linux.
    #[must_use]
    pub fn of(memory: &Memory) -> Option<Holes> {
        let (fd, heap_at) = (memory.fd().as_raw_fd(), memory.heap_at());
        let identity = Identity::of(fd)?;
        (linux() >= LINUX_MIN && is_tmpfs(fd)).then_some(Holes { fd, identity, heap_at })
    }

    /// Where the hole ends in which `offset` of the heap lies, at most at `end`. `offset` itself where there is none,
    /// or where that is not known.
    #[must_use]
    pub fn end(&self, offset: u64, end: u64) -> u64 {
        if Identity::of(self.fd) != Some(self.identity) {
            return offset;
        }
        // SAFETY: a plain call; nobody uses the position of this file.
        let found = unsafe { libc::lseek(self.fd, (self.heap_at + offset) as libc::off_t, libc::SEEK_DATA) };
        match u64::try_from(found) {
            Ok(at) => at.saturating_sub(self.heap_at).clamp(offset, end),
            // Nothing behind it but holes.
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => end,
            Err(_) => offset,
        }
    }

    /// From where to send a range that lies in the heap, at most [`FRAME_LEN_MAX`] bytes, in at most `parts_max` parts,
    /// without making pages of holes. Of a range that does not begin with a hole nothing further is asked.
    pub fn sources(&self, heap: &Heap, range: HeapRange, parts_max: usize, mut part: impl FnMut(*mut u8, usize)) {
        let end = range.offset + range.bytes;
        let (mut at, mut parts, mut has_holes) = (range.offset, 0, false);
        while at < end {
            parts += 1;
            let until = if parts < parts_max { self.end(at, end) } else { at };
            if until > at {
                has_holes = true;
                part(ZEROS.as_ptr().cast_mut().cast(), (until - at) as usize);
                at = until;
                continue;
            }
            let until = if has_holes && parts < parts_max { end.min(at + STEP) } else { end };
            part(heap.at(at, until - at).expect("the range was checked"), (until - at) as usize);
            at = until;
        }
    }
}

fn is_tmpfs(fd: RawFd) -> bool {
    // SAFETY: an all-zero statfs is valid, and valid for writes.
    unsafe {
        let mut of: libc::statfs = std::mem::zeroed();
        libc::fstatfs(fd, &raw mut of) == 0 && of.f_type == libc::TMPFS_MAGIC
    }
}

/// Its version, or 0.0.
fn linux() -> (u32, u32) {
    // SAFETY: an all-zero utsname is valid, and valid for writes; the system ends its texts with a zero.
    let release = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut name);
        std::ffi::CStr::from_ptr(name.release.as_ptr()).to_string_lossy().into_owned()
    };
    version(&release)
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_ring::memory::Layout;

    #[test]
    fn a_page_is_no_hole_once_anybody_has_written_to_it() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (heap, again) = (memory.map_heap(None).unwrap(), memory.map_heap(None).unwrap());
        let Some(holes) = Holes::of(&memory) else { return assert!(linux() < LINUX_MIN, "{:?}", linux()) };
        let end = heap.bytes();
        assert_eq!(holes.end(0, end), end);
        // By a mapping of its own, by another, by a call of the system's, and by a forked child.
        // SAFETY: inside the heap, which nobody else has.
        unsafe { heap.at(5 * PAGE, 1).unwrap().write(1) };
        assert_eq!((holes.end(0, end), holes.end(5 * PAGE, end)), (5 * PAGE, 5 * PAGE));
        // SAFETY: as above.
        unsafe { again.at(3 * PAGE + 17, 1).unwrap().write(1) };
        assert_eq!(holes.end(0, end), 3 * PAGE);
        assert_eq!((holes.end(4 * PAGE, end), holes.end(6 * PAGE, end)), (5 * PAGE, end));
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let at = heap.at(2 * PAGE, 1).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::read(zero.as_raw_fd(), at.cast(), 1) }, 1);
        assert_eq!(holes.end(0, end), 2 * PAGE);
        let at = heap.at(PAGE, 1).unwrap();
        // SAFETY: the child writes one byte and ends.
        unsafe {
            match libc::fork() {
                0 => {
                    at.write_volatile(1);
                    libc::_exit(0)
                }
                child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
            }
        }
        assert_eq!(holes.end(0, end), PAGE);
    }

    #[test]
    fn what_is_sent_is_what_a_reader_finds_and_makes_no_pages_where_it_begins_with_a_hole() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let written = [(20u64, 1u8), (21, 2), (60, 3), (200, 4)];
        for (page, value) in written {
            // SAFETY: inside the heap, which nobody else has.
            unsafe { heap.at(page * PAGE + 9, 1).unwrap().write(value) };
        }
        let Some(holes) = Holes::of(&memory) else { return assert!(linux() < LINUX_MIN, "{:?}", linux()) };
        for parts_max in [1, 3, 8, 100] {
            let (mut sent, mut parts) = (Vec::new(), 0);
            holes.sources(&heap, HeapRange { offset: 0, bytes: heap.bytes() }, parts_max, |from, bytes| {
                parts += 1;
                if parts_max == 100 {
                    // SAFETY: `sources` gives readable parts.
                    sent.extend_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
                }
            });
            assert!(parts <= parts_max, "{parts} of {parts_max}");
            if parts_max == 100 {
                assert_eq!(sent.len() as u64, heap.bytes());
                let set: Vec<(usize, u8)> = sent.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect();
                assert_eq!(set, written.map(|(page, value)| ((page * PAGE + 9) as usize, value)));
                assert_eq!(holes.end(0, heap.bytes()), 20 * PAGE, "reading made pages");
            }
        }
    }

    #[test]
    fn versions_are_read_from_what_the_system_calls_itself() {
        assert_eq!(version("6.18.44-fc-v669"), (6, 18));
        assert_eq!(version("5.15.0"), (5, 15));
        assert_eq!(version("6.4-rc1"), (6, 4));
        assert_eq!(version(""), (0, 0));
    }
}
