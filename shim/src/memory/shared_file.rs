//! Memory of files that several programs map, registered: NCCL's between GPUs that do not reach each other's memory,
//! and MPI's.
//!
//! Its pages have to stay the file's. So the worker gets the file's descriptor, maps it where it lies here and
//! registers that: a host pointer is a device pointer as in the heap, and what one program's GPU writes another's sees.
//! The file is found by the mapping: by its path, or by a descriptor of this process, whichever has the mapping's
//! device and inode.

// UNSAFETY: asks the system about descriptors, and owns those that it opens.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orion_cuda::sys::*;
use orion_wire::message::address::{ClaimedHost, ClaimedPlace};
use orion_wire::message::host_memory::{MemHostRegister, MemHostUnregister, PagesOf};
use orion_wire::record::HeapRange;

use crate::memory::mappings;
use crate::session::call::call;
use crate::state::heap::PAGE;
use crate::state::session::Session;

/// Has the worker map and register these pages, which are a file's. Answers where its mapping begins, or why there is
/// none.
pub fn share(s: &Session, first: u64, last: u64) -> Result<u64, String> {
    let mapping = mapping_of(first, last)?;
    let file = open(&mapping)?;
    let page = page_bytes(&file, &mapping)?;
    let (first, last) = (first / page * page, last.next_multiple_of(page));
    let mapping = mapping_of(first, last)?;
    s.carrier.connection.hand_over(file.as_fd()).map_err(|e| match e.kind() {
        ErrorKind::Unsupported => format!(
            "it is of a file that several programs map ({}), which the GPU's host cannot map over {}; a program on the \
             GPU's host that reaches its server by a socket (shm) can use it so",
            mapping.name, s.server
        ),
        _ => format!("handing the descriptor of {} to the worker failed: {e}", mapping.name),
    })?;
    if page == PAGE {
        make_pages(&file, mapping.offset, last - first);
    }
    let range = HeapRange { offset: mapping.offset, bytes: last - first };
    let q = MemHostRegister { pages: PagesOf::File, range: range.into(), address: ClaimedPlace::new(first) };
    call(MemHostRegister::OP, |w| q.encode(w), |_| Ok(()))
        .map_err(|code| format!("the worker cannot map {} at {first:#x} ({code})", mapping.name))?;
    Ok(first)
}

/// What a signal may interrupt costs no more than this.
const PIECE: u64 = 4 << 20;
const TRIES_MAX: usize = 100;

/// Has the kernel make the pages of a file in memory that nobody has touched yet, as this program's. The worker pins
/// them, and what is made then counts as the worker's, which may have no more than is set aside for its session. On the
/// GPU's own driver they are made here, too. By a call, which ends well also where the file is cut short meanwhile;
/// where it fails the worker says what is wrong.
fn make_pages(file: &OwnedFd, offset: u64, bytes: u64) {
    // A file that may not grow must not be asked for the rest of its last page.
    let Ok(file) = file.try_clone().map(std::fs::File::from) else { return };
    let end = (offset + bytes).min(file.metadata().map_or(0, |file| file.len()));
    for at in (offset..end).step_by(PIECE as usize) {
        let piece = PIECE.min(end - at) as libc::off_t;
        let make = || {
            // SAFETY: a plain call about a descriptor of ours.
            match unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, at as libc::off_t, piece) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error().kind()),
            }
        };
        // Interrupted, it has undone what it did.
        let made = (0..TRIES_MAX).map(|_| make()).find(|made| *made != Err(ErrorKind::Interrupted));
        if made != Some(Ok(())) {
            return;
        }
    }
}

/// Ends what [`share`] began, by what it answered.
pub fn leave(mapped_at: u64) -> Result<(), CUresult> {
    let q = MemHostUnregister { address: ClaimedHost::new(mapped_at) };
    call(MemHostUnregister::OP, |w| q.encode(w), |_| Ok(()))
}

/// What is known of pages that are of one file.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// The mapping that the pages begin in, as `/proc/self/map_files` names it.
    line: String,
    device: u64,
    inode: u64,
    /// Of the first of the pages in the file.
    offset: u64,
    /// A path, with " (deleted)" behind it if it is none any more; bytes that are no text are lost.
    name: String,
}

fn mapping_of(first: u64, last: u64) -> Result<Mapping, String> {
    let mut pages = Pages { first, at: first, found: None, is_one: true };
    mappings::each(first, last, |mapping| pages.see(mapping))
        .map_err(|e| format!("reading /proc/self/maps failed: {e}"))?;
    pages.up_to(last).ok_or_else(|| "it lies in mappings of several files, or of several parts of one".to_owned())
}

/// What is known of the pages from one on, mapping by mapping.
struct Pages {
    first: u64,
    /// Where what is known ends.
    at: u64,
    found: Option<Mapping>,
    /// Whether all of them are of one file, one behind the other.
    is_one: bool,
}

impl Pages {
    fn see(&mut self, mapping: &mappings::Mapping) {
        let this = Mapping {
            line: format!("{:x}-{:x}", mapping.start, mapping.end),
            device: mapping.device,
            inode: mapping.inode,
            offset: mapping.offset + self.at.saturating_sub(mapping.start),
            name: String::from_utf8_lossy(mapping.name).into_owned(),
        };
        self.is_one &= mapping.start <= self.at;
        match &self.found {
            None => self.found = Some(this),
            Some(file) => {
                let follows = this.offset == file.offset + (self.at - self.first);
                self.is_one &= follows && (this.device, this.inode) == (file.device, file.inode);
            }
        }
        self.at = mapping.end;
    }

    fn up_to(self, last: u64) -> Option<Mapping> {
        self.found.filter(|_| self.is_one && self.at >= last)
    }
}

impl Mapping {
    fn is_of(&self, file: &std::fs::Metadata) -> bool {
        file.is_file() && (file.dev(), file.ino()) == (self.device, self.inode)
    }

    /// Opened, if it is the mapping's file. What it is is looked at first: opening a device may do something.
    fn opened(&self, path: &Path) -> Option<OwnedFd> {
        let is_it = |file: std::io::Result<std::fs::Metadata>| file.is_ok_and(|file| self.is_of(&file));
        if !is_it(std::fs::metadata(path)) {
            return None;
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).ok()?;
        is_it(file.metadata()).then(|| file.into())
    }
}

fn open(mapping: &Mapping) -> Result<OwnedFd, String> {
    // The first needs a capability, and the second a name that the file still has.
    let by_mapping = PathBuf::from("/proc/self/map_files").join(&mapping.line);
    let by_path = || mapping.opened(Path::new(&mapping.name));
    mapping.opened(&by_mapping).or_else(by_path).or_else(|| by_descriptor(mapping)).ok_or_else(|| {
        format!(
            "it is of a file that several programs map ({}), and this one can neither open it by its name for reading \
             and writing nor has a descriptor of it",
            mapping.name
        )
    })
}

/// One that this process has.
fn by_descriptor(mapping: &Mapping) -> Option<OwnedFd> {
    for entry in std::fs::read_dir("/proc/self/fd").ok()?.flatten() {
        if !std::fs::metadata(entry.path()).is_ok_and(|file| mapping.is_of(&file)) {
            continue;
        }
        let again = mapping.opened(&entry.path()).or_else(|| {
            // Its mode may forbid what the descriptor allows.
            let number = entry.file_name().to_str()?.parse::<i32>().ok()?;
            // SAFETY: a number that was a descriptor's; the new one is owned by nobody else.
            let copy = unsafe {
                let copy = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0);
                if copy < 0 {
                    return None;
                }
                OwnedFd::from_raw_fd(copy)
            };
            let file = std::fs::File::from(copy);
            file.metadata().is_ok_and(|file| mapping.is_of(&file)).then(|| file.into())
        });
        if again.is_some() {
            return again;
        }
    }
    None
}

/// Of what pages a file in memory is made.
fn page_bytes(file: &OwnedFd, mapping: &Mapping) -> Result<u64, String> {
    // SAFETY: an all-zero structure is valid, and valid for writes; the descriptor is open.
    let system = unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut system) != 0 {
            return Err(format!("fstatfs of {} failed: {}", mapping.name, std::io::Error::last_os_error()));
        }
        system
    };
    match system.f_type {
        libc::TMPFS_MAGIC => Ok(PAGE),
        libc::HUGETLBFS_MAGIC => Ok(system.f_bsize as u64),
        other => Err(format!(
            "it is of a file that lies in no memory (tmpfs, hugetlbfs) but in a file system {other:#x} ({})",
            mapping.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000004000 rw-s 00002000 00:1c 77                         /dev/shm/nccl-a b (deleted)
7f0000004000-7f0000006000 rw-s 00006000 00:1c 77                         /dev/shm/nccl-a b (deleted)
7f0000006000-7f0000007000 rw-s 00000000 00:1c 77                         /dev/shm/nccl-a b (deleted)
7f0000007000-7f0000008000 rw-s 00001000 00:1c 78                         /dev/shm/other
7f0000009000-7f000000a000 rw-s 00000000 00:01 9                          /dev/zero (deleted)
";

    fn mapping_in(maps: &str, first: u64, last: u64) -> Option<Mapping> {
        let mut pages = Pages { first, at: first, found: None, is_one: true };
        mappings::in_text(maps.as_bytes(), first, last, |mapping| pages.see(mapping)).expect("text");
        pages.up_to(last)
    }

    #[test]
    fn the_file_of_pages_is_found_where_it_is_one() {
        let m = mapping_in(MAPS, 0x7f0000001000, 0x7f0000006000).expect("parts of one file that follow each other");
        assert_eq!((m.device, m.inode, m.offset), (libc::makedev(0, 0x1c), 77, 0x3000));
        assert_eq!((m.line.as_str(), m.name.as_str()), ("7f0000000000-7f0000004000", "/dev/shm/nccl-a b (deleted)"));
        // Another part of the file, another file, nothing.
        for (first, last) in [(0x5000, 0x7000), (0x6000, 0x8000), (0x7000, 0xa000), (0xa000, 0xb000)] {
            assert_eq!(mapping_in(MAPS, 0x7f0000000000 + first, 0x7f0000000000 + last), None);
        }
    }

    #[test]
    fn pages_that_nobody_has_touched_are_made_as_this_programs() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        // SAFETY: a new descriptor, which the file owns.
        let file = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            std::fs::File::from_raw_fd(libc::memfd_create(c"orion-shim-test".as_ptr(), flags))
        };
        let bytes = 2 * PIECE + 3 * PAGE + 5;
        file.set_len(bytes).expect("room in memory");
        file.write_all_at(b"kept", 2 * PAGE).expect("writing");
        // SAFETY: a descriptor of ours.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) }, 0);
        let fd = OwnedFd::from(file.try_clone().expect("a copy"));
        let pages = || file.metadata().expect("it is there").blocks() * 512 / PAGE;
        // A huge page at most.
        assert!(pages() <= 512);
        make_pages(&fd, 0, bytes.next_multiple_of(PAGE));
        assert!(pages() >= bytes.div_ceil(PAGE));
        assert_eq!(file.metadata().expect("it is there").len(), bytes);
        let mut kept = [0; 4];
        file.read_exact_at(&mut kept, 2 * PAGE).expect("reading");
        assert_eq!(&kept, b"kept");
        // Of one that was cut short there is nothing to be made.
        make_pages(&fd, 100 * PIECE, PAGE);
    }

    /// Of a file that has no name any more, the descriptor is what there is.
    #[test]
    fn a_file_is_opened_by_its_name_or_by_a_descriptor() {
        let path = PathBuf::from(format!("/dev/shm/orion-shared-file-{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file");
        file.write_all(&[0; 4096]).expect("a page");
        let is = file.metadata().expect("it is there");
        let name = path.display().to_string();
        let mut mapping = Mapping { line: String::new(), device: is.dev(), inode: is.ino(), offset: 0, name };
        let is_it = |fd: Result<OwnedFd, String>| {
            let found = std::fs::File::from(fd.expect("it is found")).metadata().expect("it is there");
            assert_eq!((found.dev(), found.ino()), (is.dev(), is.ino()));
        };
        is_it(open(&mapping));
        std::fs::remove_file(&path).expect("removing");
        is_it(open(&mapping));
        drop(file);
        assert!(open(&mapping).is_err_and(|why| why.contains("nor has a descriptor")));
        // Whatever else is there by that name is not taken for it.
        mapping.name = "/dev/shm".to_owned();
        assert!(open(&mapping).is_err());
    }
}
