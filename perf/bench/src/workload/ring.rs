//! Session memory alone: one process posts, another takes, and answers by a record or, as Orion does not, in a line.

// UNSAFETY: passes a descriptor to a child process and maps what it refers to; two processes share a line of it.

use std::hint::black_box;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orion_ring::memory::{Layout, Which};
use orion_ring::{Consumer, Memory, Producer, Spin};
use orion_wire::record::{HEADER_BYTES, Header};

use crate::report::{Better, Sample};
use crate::task::{Running, Task};
use crate::timing::Times;

const LAYOUT: Layout = Layout { heap_bytes: 1 << 20 };
/// A launch with eight pointers.
const BODY: [u8; 120] = [7; 120];
/// What a call with an answer usually answers.
const ANSWER: [u8; 16] = [9; 16];
/// Asks for nothing, or with a sequence number for itself.
const PLAIN: u16 = 1;
/// Asks for a record with [`ANSWER`], and for the same in the [`Line`].
const ANSWERED: u16 = 2;
const ANSWERED_IN_LINE: u16 = 3;
/// Tells the peer to end.
const END: u16 = 0x7fff;
/// Records between two waits for the peer: the ring holds them all.
const BURST: u32 = 1000;

pub fn measure(quick: bool) -> Result<Vec<Sample>, String> {
    let memory = Memory::create(LAYOUT).map_err(|e| format!("creating session memory failed: {e}"))?;
    let fd = memory.fd().as_raw_fd();
    // SAFETY: a plain call on a descriptor we own; the child is to inherit it.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    let mut peer = Running::start(&Task::RingPeer { fd }, None)?;
    peer.go()?;
    let mut ends = Ends::new(&memory)?;
    let samples = ends.measure(if quick { 20 } else { 200 })?;
    ends.push(END, 1)?;
    Ok(samples)
}

/// Takes records and answers those that ask for it.
pub fn peer(fd: i32) -> Result<(), String> {
    crate::task::wait_for_start()?;
    // SAFETY: the parent left this descriptor for us to own.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let memory = Memory::open(fd, LAYOUT).map_err(|e| format!("mapping session memory failed: {e}"))?;
    let mut commands = memory.consumer(Which::Command).map_err(|e| e.to_string())?;
    let mut replies = memory.producer(Which::Reply).map_err(|e| e.to_string())?;
    let line = Line::of(&memory)?;
    let mut body = Vec::new();
    loop {
        let header = next(&mut commands)?;
        commands.body(&header, &mut body);
        commands.consume(header.size as usize);
        match (header.op, header.sequence) {
            (ANSWERED, _) => push(&mut replies, &header, &ANSWER)?,
            (ANSWERED_IN_LINE, sequence) => line.answer(sequence, &ANSWER),
            (_, 0) => {}
            _ => push(&mut replies, &header, &body)?,
        }
        if header.op == END {
            return Ok(());
        }
    }
}

/// An answer that one thread waits for, in one cache line: the other way to answer, without a ring.
#[repr(C, align(64))]
struct Line {
    sequence: AtomicU64,
    body: [AtomicU64; ANSWER.len() / 8],
    /// 1 while who waits sleeps, and then has to be woken. Here nobody does, but looking costs.
    sleeps: AtomicU32,
}

impl Line {
    fn of(memory: &Memory) -> Result<&'static Line, String> {
        let heap = memory.map_heap(None).map_err(|e| format!("mapping the heap failed: {e}"))?;
        // SAFETY: the heap is larger, aligned to pages, stays mapped, and is only accessed through atomics.
        Ok(unsafe { &*heap.base().cast::<Line>() })
    }

    fn answer(&self, sequence: u64, body: &[u8; ANSWER.len()]) {
        for (word, bytes) in self.body.iter().zip(body.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.sequence.store(sequence, Ordering::SeqCst);
        assert_eq!(self.sleeps.load(Ordering::SeqCst), 0, "nobody sleeps here");
    }

    fn wait(&self, sequence: u64) -> [u64; ANSWER.len() / 8] {
        while !spin().until(|| self.sequence.load(Ordering::Acquire) == sequence) {}
        self.body.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

struct Ends {
    commands: Producer,
    replies: Consumer,
    line: &'static Line,
}

impl Ends {
    fn new(memory: &Memory) -> Result<Ends, String> {
        let failed = |e: std::io::Error| format!("mapping a ring failed: {e}");
        Ok(Ends {
            commands: memory.producer(Which::Command).map_err(failed)?,
            replies: memory.consumer(Which::Reply).map_err(failed)?,
            line: Line::of(memory)?,
        })
    }

    fn measure(&mut self, batches: u32) -> Result<Vec<Sample>, String> {
        let [mut round_trips, mut by_record, mut in_line, mut posts] = std::array::from_fn(|_| Times::new());
        for sequence in 1..=batches * 100 {
            let start = Instant::now();
            self.call(PLAIN)?;
            round_trips.record(start.elapsed());
            let start = Instant::now();
            self.call(ANSWERED)?;
            by_record.record(start.elapsed());
            let start = Instant::now();
            self.push(ANSWERED_IN_LINE, sequence.into())?;
            black_box(self.line.wait(sequence.into()));
            in_line.record(start.elapsed());
        }
        for _ in 0..batches {
            let start = Instant::now();
            for _ in 0..BURST {
                self.push(PLAIN, 0)?;
            }
            posts.record_batch(start.elapsed(), BURST);
            self.call(PLAIN)?;
        }
        let (count, start) = (batches * BURST, Instant::now());
        for _ in 0..count {
            self.push(PLAIN, 0)?;
        }
        self.call(PLAIN)?;
        let rate = f64::from(count) / start.elapsed().as_secs_f64();
        Ok(vec![
            Sample::of_times("round trip of 144 bytes", "ns", &round_trips),
            Sample::of_times("144 bytes, answered by a record of 40", "ns", &by_record),
            Sample::of_times("144 bytes, answered by 16 in a line", "ns", &in_line),
            Sample::of_times("post of 144 bytes", "ns", &posts),
            Sample::new("records passed", "per s", Better::Higher, rate),
        ])
    }

    fn push(&mut self, op: u16, sequence: u64) -> Result<(), String> {
        push(&mut self.commands, &Header { size: 0, op, thread: 1, context: 0, sequence }, &BODY)
    }

    fn call(&mut self, op: u16) -> Result<(), String> {
        self.push(op, 1)?;
        let header = next(&mut self.replies)?;
        self.replies.consume(header.size as usize);
        Ok(())
    }
}

fn spin() -> Spin {
    Spin::adaptive(Duration::from_millis(20))
}

fn push(ring: &mut Producer, header: &Header, body: &[u8]) -> Result<(), String> {
    let size = HEADER_BYTES + body.len();
    let header = Header { size: size as u32, ..*header }.encode();
    while !ring.push(&[&header, body]).map_err(|e| e.to_string())? {
        ring.wait_room(size, spin(), Duration::from_millis(100)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn next(ring: &mut Consumer) -> Result<Header, String> {
    loop {
        if let Some(header) = ring.next().map_err(|e| e.to_string())? {
            return Ok(header);
        }
        if !spin().until(|| ring.has_news() != Ok(false)) {
            ring.sleep(Duration::from_millis(100));
        }
    }
}
