//! Whether a device that offers to find pages by itself (on-demand paging) brings the bytes that are there. None is
//! believed: Soft-RoCE, which has it from Linux 6.15 on, leaves out where in a page a packet begins (seen on 7.3), so
//! that all but what begins with a page is wrong, and nobody is told. Two queue pairs of this process find out.

// UNSAFETY: a mapping of this module's own, which devices read and write. It is looked at when they have done so.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_ring::Reach;

use super::areas::Areas;
use super::choice::VerbsPort;
use super::verbs::{Device, Pair};
use super::works::{Done, Outcome, READ, Read, ReadTo, Use};

const PAGE: usize = 4096;
/// Two rings that nothing is written to, what is read, and where it is put.
const RING: usize = PAGE;
const FROM: usize = 4 * PAGE;
const TO: usize = 12 * PAGE;
const ALL: usize = 20 * PAGE;
/// From, to, bytes: of pages that there are and of some that nobody has written to, which begin, end and lie within
/// pages, and of several packets.
const READS: [(usize, usize, usize); 5] = [
    (FROM, TO, 16),
    (FROM + 24, TO + 40, 3 * PAGE),
    (FROM + PAGE + 2000, TO + 5 * PAGE - 8, 1500),
    (FROM + 5 * PAGE + 8, TO + 3 * PAGE + 800, 2 * PAGE),
    (FROM + 8, TO + 6 * PAGE + 2056, 4000),
];
const DONE_WITHIN: Duration = Duration::from_secs(1);

/// Shared, as a heap is.
struct Mapping(NonNull<u8>);

impl Mapping {
    fn new() -> Result<Mapping, String> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of whole pages.
        let at = unsafe { libc::mmap(null_mut(), ALL, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        match at {
            libc::MAP_FAILED => Err(format!("mapping {ALL} bytes failed: {}", std::io::Error::last_os_error())),
            at => Ok(Mapping(NonNull::new(at.cast()).expect("nothing is mapped at zero"))),
        }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < ALL);
        // SAFETY: inside of the mapping.
        unsafe { self.0.as_ptr().add(offset) }
    }

    fn copy(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= ALL);
        let mut copy = vec![0; bytes];
        // SAFETY: inside of the mapping, and no device writes there: each read is waited for.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset), copy.as_mut_ptr(), bytes) };
        copy
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and the pairs that know it are gone: they are dropped before it.
        unsafe { libc::munmap(self.0.as_ptr().cast(), ALL) };
    }
}

impl Device {
    /// The port that is wanted, or why it cannot be had and what to do. Its paging is tried each time: what is wrong
    /// with it is the driver's or the card's firmware, which may be another one the next time.
    pub fn open(wanted: &VerbsPort) -> Result<Arc<Device>, String> {
        let mut device = Arc::new(Device::open_untried(wanted)?);
        if device.finds_pages()
            && !is_trusted()
            && let Err(why) = is_right(&device)
        {
            Arc::get_mut(&mut device).expect("who has tried it has let go of it").leave_paging(why);
        }
        Ok(device)
    }
}

/// Whether a device's paging is used without being tried.
fn is_trusted() -> bool {
    #[cfg(debug_assertions)]
    return super::breaking::trusts_paging();
    #[cfg(not(debug_assertions))]
    false
}

/// What is wrong with what the device brings, or why it brings nothing.
fn is_right(device: &Arc<Device>) -> Result<(), String> {
    let mapping = Mapping::new()?;
    // The pages from the sixth on stay untouched.
    let written: Vec<u8> = (0..5 * PAGE).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    // SAFETY: so much lies ahead of TO.
    unsafe { std::ptr::copy_nonoverlapping(written.as_ptr(), mapping.at(FROM), written.len()) };
    let pair = |ring: usize| {
        let pair = Pair::to_try(device.clone())?;
        let reach = Reach { data: mapping.at(ring), bytes: RING, placed: mapping.at(ring + RING) };
        // SAFETY: the mapping outlives the pair.
        unsafe {
            pair.offer(reach)?;
            pair.find_pages_in(Areas::new(mapping.at(FROM) as u64, (ALL - FROM) as u64));
        }
        Ok::<Pair, String>(pair)
    };
    let (shows, reads) = (pair(0)?, pair(2 * RING)?);
    shows.connect(&reads.own())?;
    reads.connect(&shows.own())?;
    let mut expected = vec![0u8; ALL - TO];
    for (from, to, bytes) in READS {
        // SAFETY: both are in the mapping, and nobody else's.
        let (shown, read) = unsafe {
            let shown = shows.register(mapping.at(from), bytes, Use::ShownToRead)?;
            (shown, reads.register(mapping.at(to), bytes, Use::ReadInto)?)
        };
        let to_there = ReadTo::Known(read.slot, mapping.at(to) as u64);
        reads.read(&Read { to: to_there, address: mapping.at(from) as u64, key: shown.key, bytes })?;
        wait(&reads)?;
        expected[to - TO..][..bytes].copy_from_slice(&mapping.copy(from, bytes));
        let came = mapping.copy(TO, expected.len());
        if let Some(at) = (0..came.len()).find(|at| came[*at] != expected[*at]) {
            return Err(format!(
                "of {bytes} bytes from byte {} of a page to byte {} of one, another has come to byte {}",
                from % PAGE,
                to % PAGE,
                (TO + at) as i64 - to as i64
            ));
        }
    }
    Ok(())
}

fn wait(pair: &Pair) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        match pair.poll_sent()? {
            Some(Done { outcome: Outcome::Well, token: READ, .. }) => return Ok(()),
            Some(other) => return Err(format!("a read ended with {:?}", other.outcome)),
            None if begin.elapsed() > DONE_WITHIN => return Err(format!("a read was not done after {DONE_WITHIN:?}")),
            None => std::thread::yield_now(),
        }
    }
}
