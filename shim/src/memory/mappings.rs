//! What is mapped where in this process.
//!
//! Asked of the kernel mapping by mapping where it answers that (`PROCMAP_QUERY`, Linux 6.11), else read from the text
//! of `/proc/self/maps` up to the place: a process with ten thousand mappings takes ten milliseconds to read all of it.
//! To ask allocates nothing, so that the child of a fork may.

// UNSAFETY: an ioctl without a safe interface.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PATH: &str = "/proc/self/maps";

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub is_writable: bool,
    pub is_shared: bool,
    /// Of its first byte in its file.
    pub offset: u64,
    /// Of its file, as `stat` has it; none has 0.
    pub device: u64,
    pub inode: u64,
    /// Its file's path, with " (deleted)" behind it if it is none any more; or the kernel's word for it, as `[heap]`.
    pub name: &'a [u8],
}

impl Mapping<'_> {
    /// What `mmap` and `mprotect` take.
    pub fn protection(&self) -> libc::c_int {
        let of = |is: bool, what| if is { what } else { libc::PROT_NONE };
        of(self.is_readable, libc::PROT_READ) | of(self.is_writable, libc::PROT_WRITE)
    }
}

/// Tells of each mapping that has a byte of a range, in their order.
pub fn each(first: u64, last: u64, mut tell: impl FnMut(&Mapping<'_>)) -> io::Result<()> {
    let maps = File::open(PATH)?;
    match asked(&maps, first, last, &mut tell) {
        Err(e) if is_no_answer(&e) => in_text(maps, first, last, tell),
        answer => answer,
    }
}

/// As [`each`], where that takes no reading of a text. Nothing where it does.
pub fn each_if_asked(first: u64, last: u64, mut tell: impl FnMut(&Mapping<'_>)) -> Option<io::Result<()>> {
    match File::open(PATH).and_then(|maps| asked(&maps, first, last, &mut tell)) {
        Err(e) if is_no_answer(&e) => None,
        answer => Some(answer),
    }
}

fn is_no_answer(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOTTY | libc::EPERM | libc::ENOSYS))
}

/// Paths may be so long; the rest of longer ones is left out.
const NAME_BYTES_MAX: usize = libc::PATH_MAX as usize;

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_address: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device_major: u32,
    device_minor: u32,
    name_bytes: u32,
    build_id_bytes: u32,
    name_at: u64,
    build_id_at: u64,
}

// From Linux's fs.h.
const QUERY: libc::c_ulong = 0xc068_6611;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 0x10;

/// Fails before it has told anything if the kernel does not answer such.
fn asked(maps: &File, first: u64, last: u64, tell: &mut impl FnMut(&Mapping<'_>)) -> io::Result<()> {
    let (mut at, mut name) = (first, [0u8; NAME_BYTES_MAX]);
    while at < last {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_address: at,
            name_bytes: name.len() as u32,
            name_at: name.as_mut_ptr() as u64,
            ..Query::default()
        };
        // SAFETY: the kernel reads and writes as much as `size` says, and the name's bytes, which nobody else uses.
        if unsafe { libc::ioctl(maps.as_raw_fd(), QUERY as _, &raw mut query) } < 0 {
            match io::Error::last_os_error() {
                // There is none from here on.
                e if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
                e => return Err(e),
            }
        }
        if query.start >= last {
            return Ok(());
        }
        let has = |flag| query.flags & flag != 0;
        // Its length is told with the 0 behind it.
        let named = (query.name_bytes as usize).saturating_sub(1).min(name.len());
        tell(&Mapping {
            start: query.start,
            end: query.end,
            is_readable: has(READABLE),
            is_writable: has(WRITABLE),
            is_shared: has(SHARED),
            offset: query.offset,
            device: libc::makedev(query.device_major, query.device_minor),
            inode: query.inode,
            name: &name[..named],
        });
        at = query.end;
    }
    Ok(())
}

/// As [`each`], from the text of `/proc/self/maps`.
pub fn in_text(text: impl Read, first: u64, last: u64, mut tell: impl FnMut(&Mapping<'_>)) -> io::Result<()> {
    let mut lines = Lines { text, buffer: [0; LINE_BYTES_MAX], begin: 0, end: 0 };
    while let Some(line) = lines.next()? {
        let Some(mapping) = parse(line) else {
            return Err(io::Error::other("a line of it that cannot be read"));
        };
        if mapping.start >= last {
            break;
        }
        if mapping.end > first {
            tell(&mapping);
        }
    }
    Ok(())
}

const LINE_BYTES_MAX: usize = NAME_BYTES_MAX + 128;

/// Its lines, without what is beyond [`LINE_BYTES_MAX`] of one.
struct Lines<R> {
    text: R,
    buffer: [u8; LINE_BYTES_MAX],
    begin: usize,
    end: usize,
}

impl<R: Read> Lines<R> {
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut seen = 0;
        loop {
            let unread = &self.buffer[self.begin..self.end];
            if let Some(at) = unread[seen..].iter().position(|byte| *byte == b'\n') {
                let line = self.begin..self.begin + seen + at;
                self.begin = line.end + 1;
                return Ok(Some(&self.buffer[line]));
            }
            seen = unread.len();
            if seen == self.buffer.len() {
                // A name that is longer than paths may be: what is known of it will do, and the rest goes by.
                self.buffer[seen - 1] = b'\n';
                continue_behind_line(&mut self.text)?;
                seen = 0;
                continue;
            }
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, seen);
            match self.text.read(&mut self.buffer[seen..]) {
                Ok(0) if seen == 0 => return Ok(None),
                Ok(0) => return Err(io::Error::other("its last line has no end")),
                Ok(bytes) => self.end += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Reads up to the end of a line.
fn continue_behind_line(text: &mut impl Read) -> io::Result<()> {
    let mut byte = [0];
    loop {
        text.read_exact(&mut byte)?;
        if byte == [b'\n'] {
            return Ok(());
        }
    }
}

fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let mut rest = line;
    let mut field = |end: u8| {
        let at = rest.iter().position(|byte| *byte == end)?;
        let found = &rest[..at];
        rest = &rest[at + 1..];
        Some(found)
    };
    let hex = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    let (start, end) = (hex(field(b'-')?)?, hex(field(b' ')?)?);
    let permissions = field(b' ')?;
    let offset = hex(field(b' ')?)?;
    let (major, minor) = (hex(field(b':')?)?, hex(field(b' ')?)?);
    // A blank is behind it whether a name follows or not.
    let inode = match field(b' ') {
        Some(inode) => inode,
        None => std::mem::take(&mut rest),
    };
    let [readable, writable, _, shared] = *permissions else { return None };
    Some(Mapping {
        start,
        end,
        is_readable: readable == b'r',
        is_writable: writable == b'w',
        is_shared: shared == b's',
        offset,
        device: libc::makedev(major as u32, minor as u32),
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        name: rest.trim_ascii_start(),
    })
}

/// How many mappings there are, as far as is known.
struct Count {
    at: Instant,
    /// Then, and what has come since, at most.
    counted: u64,
    since: u64,
    /// That the system allows.
    most: u64,
}

static COUNT: Mutex<Option<Count>> = Mutex::new(None);

/// Counting ten thousand takes ten milliseconds.
const COUNTED_FOR: Duration = Duration::from_secs(1);

/// Notes that so many mappings are about to be made, if there is room for them: the half of what the system lets a
/// process have (`vm.max_map_count`) is the program's, for memory, files and threads. Else both numbers.
pub fn take_room(more: u64) -> Result<(), (u64, u64)> {
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = |count: &Count| count.counted + count.since + more > count.most / 2;
    let is_to_be_counted = |count: &Count| is_full(count) && count.at.elapsed() > COUNTED_FOR;
    if count.as_ref().is_none_or(is_to_be_counted) {
        // Where nobody can count them nobody is kept from anything.
        *count = counted().ok().map(|counted| Count { at: Instant::now(), counted, since: 0, most: most() });
    }
    match count.as_mut() {
        Some(count) if is_full(count) => Err((count.counted + count.since, count.most)),
        Some(count) => {
            count.since += more;
            Ok(())
        }
        None => Ok(()),
    }
}

fn counted() -> io::Result<u64> {
    let (mut maps, mut buffer, mut lines) = (File::open(PATH)?, [0u8; 4096], 0);
    loop {
        match maps.read(&mut buffer) {
            Ok(0) => return Ok(lines),
            Ok(bytes) => lines += buffer[..bytes].iter().filter(|byte| **byte == b'\n').count() as u64,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn most() -> u64 {
    const USUAL: u64 = 65_530;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, first: u64, last: u64) -> Vec<(u64, u64, String)> {
        let mut found = Vec::new();
        let name = |mapping: &Mapping| String::from_utf8_lossy(mapping.name).into_owned();
        in_text(text.as_bytes(), first, last, |m| found.push((m.start, m.end, name(m)))).expect("text");
        found
    }

    #[test]
    fn a_line_says_what_is_mapped() {
        let line = b"7f0000000000-7f0000004000 rw-s 00002000 00:1c 77                         /dev/shm/a b (deleted)";
        let mapping = Mapping {
            start: 0x7f00_0000_0000,
            end: 0x7f00_0000_4000,
            is_readable: true,
            is_writable: true,
            is_shared: true,
            offset: 0x2000,
            device: libc::makedev(0, 0x1c),
            inode: 77,
            name: b"/dev/shm/a b (deleted)",
        };
        assert_eq!(parse(line), Some(mapping));
        let none = parse(b"1000-2000 ---p 00000000 00:00 0 ").expect("a mapping");
        assert_eq!((none.protection(), none.is_shared, none.name), (libc::PROT_NONE, false, &b""[..]));
        for line in ["", "1000-2000", "1000-2000 rw 0 0:0 0 ", "x-2000 rw-p 0 0:0 0 ", "1000-2000 rw-p 0 0:0 z "] {
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn what_has_a_byte_of_the_range_is_told() {
        let long = "n".repeat(2 * LINE_BYTES_MAX);
        let text = format!("1000-2000 rw-p 0 0:0 0 \n2000-3000 rw-p 0 0:0 0 {long}\n4000-5000 rw-p 0 0:0 0 [heap]\n");
        let starts = |first, last| all(&text, first, last).iter().map(|m| m.0).collect::<Vec<_>>();
        assert_eq!(starts(0, u64::MAX), [0x1000, 0x2000, 0x4000]);
        assert_eq!(starts(0x1fff, 0x2001), [0x1000, 0x2000]);
        assert_eq!(starts(0x3000, 0x4000), [0; 0]);
        assert_eq!(all(&text, 0x4000, 0x4001), [(0x4000, 0x5000, "[heap]".to_owned())]);
        assert!(long.starts_with(&all(&text, 0x2000, 0x2001)[0].2));
        assert!(in_text(&b"1000-2000 rw-p 0 0:0 0"[..], 0, 1, |_| ()).is_err());
    }

    /// The kernel's answers are those of its text.
    #[test]
    fn both_ways_of_asking_agree() {
        let page = 4096;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping, whose second page is made unreadable.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4 * page, access, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.byte_add(page), page, libc::PROT_NONE), 0);
            at as u64
        };
        let page = page as u64;
        let (mut by_question, mut by_text) = (Vec::new(), Vec::new());
        let told = |m: &Mapping| (m.start, m.end, m.protection(), m.is_shared, m.offset, m.inode, m.name.to_vec());
        let (first, last) = (at + page, at + 3 * page);
        each(first, last, |m| by_question.push(told(m))).expect("there is /proc");
        in_text(File::open(PATH).expect("there is /proc"), first, last, |m| by_text.push(told(m))).expect("text");
        assert_eq!(by_question, by_text);
        assert_eq!((by_text.len(), by_text[0].0, by_text[0].2), (2, at + page, libc::PROT_NONE));
        // This program's own file.
        let here = both_ways_of_asking_agree as fn() as usize as u64;
        let (mut file, mut of_text) = (Vec::new(), Vec::new());
        each(here, here + 1, |m| file.push((told(m), m.device))).expect("there is /proc");
        in_text(File::open(PATH).expect("it"), here, here + 1, |m| of_text.push((told(m), m.device))).expect("text");
        assert_eq!(file, of_text);
        assert!(file.len() == 1 && file[0].0.6.starts_with(b"/"), "{file:?}");
    }

    #[test]
    fn half_of_what_a_process_may_have_is_the_programs() {
        let most = most();
        assert!(take_room(3).is_ok());
        let (now, of) = take_room(most).expect_err("more than there is room for");
        assert!(now < of && of == most);
        // It is not counted.
        assert!(take_room(3).is_ok());
    }
}
