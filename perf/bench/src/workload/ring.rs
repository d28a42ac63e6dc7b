//! Session memory alone: one process posts, another takes.

// UNSAFETY: passes a descriptor to a child process and maps what it refers to.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use orion_ring::memory::{Layout, Which};
use orion_ring::{Consumer, Memory, Producer, Spin};
use orion_wire::record::{HEADER_BYTES, Header};

use crate::child::{Running, Task};
use crate::report::{Better, Sample};
use crate::timing::Times;

const LAYOUT: Layout = Layout { heap_bytes: 1 << 20 };
/// A launch with eight pointers.
const BODY: [u8; 120] = [7; 120];
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
    crate::child::wait_for_start()?;
    // SAFETY: the parent left this descriptor for us to own.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let memory = Memory::open(fd, LAYOUT).map_err(|e| format!("mapping session memory failed: {e}"))?;
    let mut commands = memory.consumer(Which::Command).map_err(|e| e.to_string())?;
    let mut replies = memory.producer(Which::Reply).map_err(|e| e.to_string())?;
    let mut body = Vec::new();
    loop {
        let header = next(&mut commands)?;
        commands.body(&header, &mut body);
        commands.consume(header.size as usize);
        if header.sequence != 0 {
            push(&mut replies, &header, &body)?;
        }
        if header.op == END {
            return Ok(());
        }
    }
}

struct Ends {
    commands: Producer,
    replies: Consumer,
}

impl Ends {
    fn new(memory: &Memory) -> Result<Ends, String> {
        let failed = |e: std::io::Error| format!("mapping a ring failed: {e}");
        Ok(Ends {
            commands: memory.producer(Which::Command).map_err(failed)?,
            replies: memory.consumer(Which::Reply).map_err(failed)?,
        })
    }

    fn measure(&mut self, batches: u32) -> Result<Vec<Sample>, String> {
        let (mut round_trips, mut posts) = (Times::new(), Times::new());
        for _ in 0..batches * 100 {
            let start = Instant::now();
            self.call()?;
            round_trips.record(start.elapsed());
        }
        for _ in 0..batches {
            let start = Instant::now();
            for _ in 0..BURST {
                self.push(1, 0)?;
            }
            posts.record_batch(start.elapsed(), BURST);
            self.call()?;
        }
        let (count, start) = (batches * BURST, Instant::now());
        for _ in 0..count {
            self.push(1, 0)?;
        }
        self.call()?;
        let rate = f64::from(count) / start.elapsed().as_secs_f64();
        Ok(vec![
            Sample::of_times("round trip of 144 bytes", "ns", &round_trips),
            Sample::of_times("post of 144 bytes", "ns", &posts),
            Sample::new("records passed", "per s", Better::Higher, rate),
        ])
    }

    fn push(&mut self, op: u16, sequence: u64) -> Result<(), String> {
        push(&mut self.commands, &Header { size: 0, op, thread: 1, context: 0, sequence }, &BODY)
    }

    fn call(&mut self) -> Result<(), String> {
        self.push(1, 1)?;
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
