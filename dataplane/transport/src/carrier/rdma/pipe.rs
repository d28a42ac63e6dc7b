//! What two ends write into each other's memory: records straight into the other side's ring, and a stream of bytes
//! each way for all else, which the session's frames go over as they would over a TCP connection.
//!
//! ```text
//! stage    |..records, their end..|  -- RDMA WRITE -->                 ring     |..records..|, where they end
//! out box  |......sent, not acknowledged......|..free..|               in box   |..free..|...arrived...|..free..|
//!            -- RDMA WRITE WITH IMMEDIATE, to the same offset -->      notice: how many bytes came
//!                                                      <-- WRITE WITH IMMEDIATE, no bytes: how many were taken
//! ```
//! The notice is placed behind the bytes that it tells of: that is what a reliable connection promises. It comes by a
//! completion, so whoever looks sees it without the system, and whoever sleeps is woken. Who reads a ring waits for no
//! notice: where records end is written behind them, and he looks at that.
//!
//! ```text
//! heap     |......a range, registered......|   -- SHOWN in the stream: where, and by which key -->
//!                                              <-- RDMA READ --           heap     |......the same range......|
//!                                              <-- WRITE WITH IMMEDIATE, no bytes: it was read; both let go of it
//! ```

// UNSAFETY: copies into and out of memory that the other side's device writes. It is copied by address, and looked at
// only as a copy.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use orion_ring::control::placed_words;
use orion_ring::{Heap, Reach, once};
use orion_wire::Fault;
use orion_wire::record::HeapRange;

use super::device::Pair;
use super::ends::End;
use super::limits::{ACKNOWLEDGED_SECONDS_MAX, BATCH_WORKS_MAX, RING_BYTES, shown_from_bytes};
use super::window::{Brought, In, LandingPart, Notice, Out, Reading, Upto, WORDS_BYTES};
use super::works::{Done, Outcome, Place, READ, Read, ReadTo, Use, Work};
use crate::carrier::contract::Death;
use crate::gather::Part;
use crate::holes::PAGE;
use crate::stream::{SHOWN_BYTES_MAX, Shown};

/// Of one write: small enough that the other side works on one while the next one is under way.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// Completions between two looks at what else there is.
const NOTICES_MAX: usize = 64;

pub struct Pipe {
    pair: Pair,
    out: Mutex<Out>,
    arrivals: Mutex<In>,
    /// What was wrong with what has come.
    broken: OnceLock<Death>,
    /// Of the thread that takes in.
    reading: Mutex<Reading>,
    shown_from: u64,
    moved: Moved,
    /// Why a range was not shown that is large enough.
    objection: OnceLock<String>,
}

/// Bytes by the way that they went.
#[derive(Debug, Default)]
struct Moved {
    taken: AtomicU64,
    shown: AtomicU64,
    read: AtomicU64,
    landed: AtomicU64,
}

/// The same, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// That were copied from the inbox.
    pub taken_bytes: u64,
    /// Of ranges that the other side's device was shown.
    pub shown_bytes: u64,
    /// That this one's read to where they belong, and that were copied from the landing.
    pub read_bytes: u64,
    pub landed_bytes: u64,
}

/// A transport that gives up says so by this number (IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR).
const NOT_ACKNOWLEDGED: u32 = 12;
const NOT_RECEIVED: u32 = 13;
/// And by these that there is nothing where it was to read, or none that it may read (IBV_WC_REM_INV_REQ_ERR,
/// IBV_WC_REM_ACCESS_ERR).
const NOT_READABLE: [u32; 2] = [9, 10];

const STAGE: u64 = 1 << 8;

/// What a token says: where the bytes end, of the stream or of the stage, and how many work requests are done with it.
fn token(up_to: Upto, works: u32) -> u64 {
    match up_to {
        Upto::Stream(position) => position << 9 | u64::from(works),
        Upto::Stage(position) => position << 9 | STAGE | u64::from(works),
    }
}

fn of_token(token: u64) -> (u32, Upto) {
    let up_to = if token & STAGE == 0 { Upto::Stream(token >> 9) } else { Upto::Stage(token >> 9) };
    ((token & 0xff) as u32, up_to)
}

/// Of a work that carries nothing.
fn note(out: &Out) -> u64 {
    token(Upto::Stream(out.position()), 1)
}

impl Pipe {
    pub fn new(pair: Pair) -> Pipe {
        Pipe {
            pair,
            out: Mutex::default(),
            arrivals: Mutex::default(),
            broken: OnceLock::new(),
            reading: Mutex::default(),
            shown_from: shown_from_bytes(),
            moved: Moved::default(),
            objection: OnceLock::new(),
        }
    }

    /// Lets the other side write into this ring.
    ///
    /// # Safety
    /// The ring stays mapped, and nothing else comes to lie there, for as long as the pipe is here.
    pub unsafe fn offer(&self, ring: Reach) -> Result<(), String> {
        // SAFETY: the caller vouches for it.
        unsafe { self.pair.offer(ring) }
    }

    /// Has the device find pages of this heap by itself, if it does such a thing; it has to be told of each range
    /// otherwise.
    ///
    /// # Safety
    /// The heap stays mapped, and nothing else comes to lie there, for as long as the pipe is here.
    pub unsafe fn find_pages_of(&self, heap: Heap) {
        // SAFETY: the caller vouches for it.
        unsafe { self.pair.find_pages_of(heap) }
    }

    /// What the other side has to know.
    pub fn own(&self) -> End {
        self.pair.own()
    }

    /// To the other side, once.
    pub fn connect(&self, peer: &End) -> Result<(), String> {
        self.pair.connect(peer)
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().expect("nothing panics under this lock")
    }

    fn arrivals(&self) -> MutexGuard<'_, In> {
        self.arrivals.lock().expect("nothing panics under this lock")
    }

    /// Sends from the beginning of the parts, and answers how many of their bytes that was: none where there is no
    /// room. Where they are `ahead` of records, none are written into the ring until they have been taken.
    ///
    /// # Safety
    /// The parts are readable.
    pub unsafe fn send(&self, parts: &[libc::iovec], ahead: bool) -> Result<usize, Death> {
        let mut out = self.out();
        self.reap(&mut out)?;
        let room = out.room().min(BATCH_BYTES_MAX);
        let at = (out.position() % RING_BYTES as u64) as usize;
        // SAFETY: the caller vouches for the parts; nothing else is written to what is free of the outbox.
        let n = unsafe { self.fill(at, room, parts) };
        if n == 0 {
            return Ok(0);
        }
        let notice = Some(Notice::Written { bytes: n as u32, ahead }.encode());
        let first = n.min(RING_BYTES - at);
        let works = 1 + u32::from(first < n);
        let end = Some(token(out.posted(n, works, ahead), works));
        let work = |at, bytes, notice, token| Work { from: at, to: Place::Inbox(at), bytes, notice, token };
        let all = match first < n {
            true => [work(at, first, None, None), work(0, n - first, notice, end)],
            false => [work(at, n, notice, end); 2],
        };
        self.pair.post(&all[..works as usize]).map_err(Death::Cut)?;
        Ok(n)
    }

    /// How many bytes of records could be written into the other side's ring now, behind `at` bytes that were, by
    /// either way.
    pub fn placeable(&self, at: u64) -> Result<usize, Death> {
        let mut out = self.out();
        self.reap(&mut out)?;
        Ok(out.placeable(at, self.pair.peer_ring_bytes())?)
    }

    /// Writes so many bytes of records there: no more than [`Self::placeable`] said.
    ///
    /// # Safety
    /// They are readable.
    pub unsafe fn place(&self, at: u64, records: *const u8, bytes: usize) -> Result<(), Death> {
        let mut out = self.out();
        let (from, up_to) = out.stage(bytes + WORDS_BYTES);
        let from = RING_BYTES + from;
        let words: [u8; WORDS_BYTES] = {
            let words = placed_words(at + bytes as u64).map(u64::to_le_bytes);
            std::array::from_fn(|i| words[i / 8][i % 8])
        };
        // SAFETY: `stage` gave so many bytes of the stage, which the device has done with; the caller vouches for the
        // records.
        unsafe {
            let to = self.pair.outbox().add(from);
            std::ptr::copy_nonoverlapping(records, to, bytes);
            std::ptr::copy_nonoverlapping(words.as_ptr(), to.add(bytes), WORDS_BYTES);
        }
        let ring = self.pair.peer_ring_bytes();
        let to = (at % ring as u64) as usize;
        let first = bytes.min(ring - to);
        let works = BATCH_WORKS_MAX - u32::from(first == bytes);
        let write = |from, to, bytes| Work { from, to, bytes, notice: None, token: None };
        let end = Work {
            from: from + bytes,
            to: Place::Placed,
            bytes: WORDS_BYTES,
            notice: Some(Notice::Placed(bytes as u32).encode()),
            token: Some(token(up_to, works)),
        };
        let all = [write(from, Place::Ring(to), first), write(from + first, Place::Ring(0), bytes - first), end];
        out.placed(works);
        let (whole, around) = ([all[0], end], &all[..]);
        self.pair.post(if first == bytes { &whole } else { around }).map_err(Death::Cut)
    }

    /// Copies at most `room` bytes into the outbox, from this offset around its end.
    unsafe fn fill(&self, at: usize, room: usize, parts: &[libc::iovec]) -> usize {
        let mut n = 0;
        for part in parts {
            let mut used = 0;
            while used < part.iov_len && n < room {
                let to = (at + n) % RING_BYTES;
                let bytes = (part.iov_len - used).min(room - n).min(RING_BYTES - to);
                // SAFETY: inside of the part, which the caller vouches for, and of the outbox.
                unsafe {
                    let from = part.iov_base.cast::<u8>().add(used);
                    std::ptr::copy_nonoverlapping(from, self.pair.outbox().add(to), bytes);
                }
                (used, n) = (used + bytes, n + bytes);
            }
        }
        n
    }

    /// Shows the beginning of a range to the other side's device, if it is large enough. Nothing is sent by this.
    ///
    /// # Safety
    /// The range is at this address, and stays mapped for as long as the pipe is here.
    pub unsafe fn show(&self, range: HeapRange, at: *mut u8) -> Part {
        if range.bytes < self.shown_from || self.pair.reads() == 0 {
            return Part::Inline(range.bytes);
        }
        if !self.out().may_show() {
            return Part::Striped(0);
        }
        // So that no page is registered twice.
        let bytes = range.bytes.min(SHOWN_BYTES_MAX - at as u64 % PAGE);
        // SAFETY: the caller vouches for it.
        match unsafe { self.pair.register(at, bytes as usize, Use::ShownToRead) } {
            Ok(registered) => {
                self.out().shown(registered.slot);
                self.moved.shown.fetch_add(bytes, Ordering::Relaxed);
                Part::Shown(Shown { range: HeapRange { bytes, ..range }, address: at as u64, key: registered.key })
            }
            Err(why) => {
                let _ = self.objection.set(why);
                Part::Inline(bytes)
            }
        }
    }

    /// From which size on [`Self::show`] does.
    pub fn shown_from(&self) -> u64 {
        self.shown_from
    }

    /// Whether [`Self::show`] could show something.
    pub fn may_show(&self) -> bool {
        self.out().may_show()
    }

    /// Whether either end's device reads what the other shows.
    pub fn reads(&self) -> bool {
        self.pair.reads() > 0
    }

    /// Why something went through the inbox that could have been read, if anything did.
    pub fn objection(&self) -> Option<&str> {
        self.objection.get().map(String::as_str)
    }

    pub fn tally(&self) -> Tally {
        let of = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let Moved { taken, shown, read, landed } = &self.moved;
        Tally { taken_bytes: of(taken), shown_bytes: of(shown), read_bytes: of(read), landed_bytes: of(landed) }
    }

    /// Goes on with what the other side shows: with these ranges too, each with where it belongs. Answers how many
    /// more are there completely; [`Self::have_read`] has to be told of them.
    ///
    /// # Safety
    /// Where they belong stays mapped, and is nobody else's, for as long as the pipe is here.
    pub unsafe fn read(&self, shown: Vec<(Shown, *mut u8)>) -> Result<usize, Death> {
        let mut reading = self.reading.lock().expect("nothing panics under this lock");
        if !shown.is_empty() {
            self.arrivals().shown(shown.len());
            shown.into_iter().for_each(|(shown, to)| reading.begin(shown, to as usize));
        }
        if reading.is_empty() {
            return Ok(0);
        }
        let done = {
            let mut out = self.out();
            self.reap(&mut out)?;
            out.take_reads()
        };
        let mut whole = 0;
        for _ in 0..done {
            match reading.completed() {
                Brought::Whole { slot, bytes } => {
                    self.pair.let_go(slot);
                    self.moved.read.fetch_add(bytes as u64, Ordering::Relaxed);
                    whole += 1;
                }
                Brought::Landed { to, bytes, next } => {
                    // SAFETY: so much of the landing was read, and it belongs there, says the range, whose place the
                    // caller vouched for.
                    unsafe { once::copy(self.pair.landing(), to as *mut u8, bytes) };
                    self.moved.landed.fetch_add(bytes as u64, Ordering::Relaxed);
                    match next {
                        Some(part) => self.read_to_landing(part)?,
                        None => whole += 1,
                    }
                }
            }
        }
        while let Some(next) = reading.next(self.pair.reads().into()) {
            let bytes = next.shown.range.bytes as usize;
            // SAFETY: the caller vouched for it.
            match unsafe { self.pair.register(next.to as *mut u8, bytes, Use::ReadInto) } {
                Ok(registered) => {
                    reading.reads_whole(registered.slot);
                    let Shown { address, key, .. } = next.shown;
                    let read = Read { to: ReadTo::Known(registered.slot, next.to as u64), address, key, bytes };
                    self.pair.read(&read).map_err(Death::Cut)?;
                }
                Err(why) => {
                    let _ = self.objection.set(why);
                    self.read_to_landing(reading.reads_to_landing())?;
                }
            }
        }
        Ok(whole)
    }

    fn read_to_landing(&self, LandingPart { address, key, bytes }: LandingPart) -> Result<(), Death> {
        self.pair.read(&Read { to: ReadTo::Landing, address, key, bytes }).map_err(Death::Cut)
    }

    /// Tells the other side that so many ranges more of what it shows are where they belong.
    pub fn have_read(&self, count: usize) -> Result<(), Death> {
        let mut arrivals = self.arrivals();
        arrivals.have_read(count);
        self.give_back(&mut arrivals)
    }

    fn is_reading(&self) -> bool {
        !self.reading.lock().expect("nothing panics under this lock").is_empty()
    }

    /// Whether [`Self::send`] could send something.
    pub fn has_room(&self) -> Result<bool, Death> {
        let mut out = self.out();
        self.reap(&mut out)?;
        Ok(out.room() > 0)
    }

    /// Whether what keeps [`Self::send`] from sending, or credits from being given, ends without a notice.
    pub fn waits_for_device(&self) -> bool {
        // One lock after the other: `look` takes both the other way around.
        let sending = self.out().waits_for_device();
        sending || self.arrivals().is_due()
    }

    /// Takes note of what the device has done with what was sent.
    fn reap(&self, out: &mut Out) -> Result<(), Death> {
        while let Some(Done { outcome, token, .. }) = self.pair.poll_sent().map_err(Death::Cut)? {
            match outcome {
                Outcome::Well if token == READ => out.has_read(),
                Outcome::Failed(status) if token == READ && NOT_READABLE.contains(&status) => {
                    let state = self.pair.state();
                    let what = "what it has shown cannot be read: it is not there, or not any more";
                    return Err(Death::Cut(format!("{what} (status {status}; here, {state})")));
                }
                Outcome::Well => {
                    let (works, up_to) = of_token(token);
                    out.completed(works, up_to);
                }
                other => return Err(self.death(other)),
            }
        }
        Ok(())
    }

    fn death(&self, outcome: Outcome) -> Death {
        let how = match outcome {
            Outcome::Failed(NOT_ACKNOWLEDGED) => {
                format!("nothing acknowledged what was written to it within {ACKNOWLEDGED_SECONDS_MAX} s")
            }
            Outcome::Failed(NOT_RECEIVED) => "it takes no notice of what is written to it".to_owned(),
            Outcome::Failed(status) => format!("the queue pair failed with status {status}"),
            Outcome::Flushed | Outcome::Well => "the queue pair is in error".to_owned(),
        };
        Death::Cut(format!("{how} (here, {})", self.pair.state()))
    }

    /// Takes note of what has come. True if anything has. What was wrong once is so for whoever looks afterwards: a
    /// notice comes once, and an engine that was about to sleep leaves it to its next look.
    pub fn look(&self) -> Result<bool, Death> {
        match self.broken.get() {
            Some(death) => Err(death.clone()),
            None => self.look_once().inspect_err(|death| drop(self.broken.set(death.clone()))),
        }
    }

    fn look_once(&self) -> Result<bool, Death> {
        // One lock after the other.
        let is_reading = self.is_reading();
        let mut arrivals = self.arrivals();
        let mut some = false;
        for _ in 0..NOTICES_MAX {
            let Some(done) = self.pair.poll_arrived().map_err(Death::Cut)? else { break };
            if done.outcome != Outcome::Well {
                // What was sent has failed before, and knows better why.
                self.reap(&mut self.out())?;
                return Err(self.death(done.outcome));
            }
            some = true;
            self.pair.post_receive().map_err(Death::Cut)?;
            match Notice::decode(done.notice) {
                Notice::Written { bytes, ahead } => arrivals.arrived(bytes, ahead)?,
                Notice::Placed(bytes) => arrivals.placed(bytes)?,
                Notice::Taken { bytes, batches } => self.out().given_back(bytes, batches)?,
                Notice::Room(bytes) => self.out().ring_given_back(bytes),
                // Where they come to an end, so does this.
                Notice::Read(ranges) => (0..ranges).try_for_each(|_| {
                    let slot = self.out().was_read()?;
                    self.pair.let_go(slot);
                    Ok::<_, Fault>(())
                })?,
            }
        }
        if is_reading {
            let mut out = self.out();
            self.reap(&mut out)?;
            some |= out.has_reads();
        }
        self.give_back(&mut arrivals)?;
        Ok(some)
    }

    /// Whether something has arrived that was not taken yet.
    pub fn has_arrivals(&self) -> bool {
        self.arrivals().has_arrivals()
    }

    /// Bytes that were written into this side's ring since this was asked before. They go ahead of what is in the
    /// inbox.
    pub fn take_placed(&self) -> usize {
        self.arrivals().take_placed()
    }

    /// Up to where bytes were taken from this side's ring: the other side hears of it now and then.
    pub fn ring_taken(&self, up_to: u64) -> Result<(), Death> {
        let mut arrivals = self.arrivals();
        arrivals.ring_taken(up_to);
        self.give_back(&mut arrivals)
    }

    /// Up to where bytes were taken from the other side's ring, as far as this one has heard.
    pub fn peer_ring_taken(&self) -> u64 {
        self.out().ring_taken()
    }

    /// Copies what has arrived, as much of it as lies in a row, and answers how much that was. It stays there until
    /// [`Self::take`].
    ///
    /// # Safety
    /// `to` is valid for `len` bytes.
    pub unsafe fn copy(&self, to: *mut u8, len: usize) -> usize {
        let (at, ready) = self.arrivals().ready();
        let n = ready.min(len);
        // SAFETY: inside of the inbox, and the caller vouches for the rest.
        unsafe { once::copy(self.pair.inbox().add(at), to, n) };
        n
    }

    /// Lets so many bytes that have arrived be written over: they are where they belong.
    pub fn take(&self, bytes: usize) -> Result<(), Death> {
        let mut arrivals = self.arrivals();
        arrivals.take(bytes);
        self.moved.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.give_back(&mut arrivals)
    }

    fn give_back(&self, arrivals: &mut In) -> Result<(), Death> {
        if !arrivals.is_due() {
            return Ok(());
        }
        let mut out = self.out();
        self.reap(&mut out)?;
        while arrivals.is_due() && out.may_note() {
            let work = Work::bare(Some(arrivals.give_back().encode()), note(&out));
            self.pair.post(&[work]).map_err(Death::Cut)?;
        }
        Ok(())
    }

    /// Writes nothing to the other side, so that its silence is noticed though nobody has anything to say.
    pub fn beat(&self) -> Result<(), Death> {
        let mut out = self.out();
        self.reap(&mut out)?;
        if !out.is_idle() || !out.may_note() {
            return Ok(());
        }
        self.pair.post(&[Work::bare(None, note(&out))]).map_err(Death::Cut)
    }

    /// Whether the port is up.
    pub fn is_up(&self) -> bool {
        self.pair.is_up()
    }

    /// How the port is doing now, in words.
    pub fn state(&self) -> String {
        self.pair.state()
    }

    /// Has the bell ring for the next notice, and for the next range that was read. False if there is one already.
    pub fn may_sleep(&self) -> Result<bool, Death> {
        self.pair.arm().map_err(Death::Cut)?;
        if self.is_reading() {
            self.pair.arm_sent().map_err(Death::Cut)?;
        }
        Ok(!self.look()?)
    }

    /// Readable when the bell has rung.
    pub fn bell(&self) -> RawFd {
        self.pair.bell()
    }

    /// Takes note of the bell's ringing.
    pub fn hear(&self) {
        self.pair.hear();
    }

    /// All that a forked child has of it.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.pair.descriptors()
    }
}

#[cfg(all(test, feature = "rdma"))]
mod tests {
    use std::time::{Duration, Instant};

    use orion_ring::memory::{Layout, Memory, Which};
    use orion_wire::record::{HEADER_BYTES, Header};

    use super::super::choice::VerbsPort;
    use super::super::device::Device;
    use super::*;

    /// Two ends of one stream, in one process.
    fn ends() -> [Pipe; 2] {
        with_rings().map(|(pipe, _)| pipe)
    }

    /// And the ring that each has.
    fn with_rings() -> [(Pipe, Memory); 2] {
        let device = Device::open(&VerbsPort::default()).expect("a device");
        let ends = [0, 1].map(|_| {
            let pipe = Pipe::new(Pair::new(device.clone()).expect("a queue pair"));
            let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
            let mut ring = memory.producer(Which::Command).expect("a ring");
            // SAFETY: memory is not unmapped when it is dropped.
            unsafe { pipe.offer(ring.beside_device()) }.expect("offering a ring");
            (pipe, memory)
        });
        ends[0].0.connect(&ends[1].0.own()).expect("connecting");
        ends[1].0.connect(&ends[0].0.own()).expect("connecting");
        ends
    }

    fn send(pipe: &Pipe, bytes: &[u8]) -> Result<usize, Death> {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the part is a slice.
        unsafe { pipe.send(&[part], false) }
    }

    /// What an end says in the end.
    fn end_of(mut what: impl FnMut() -> Result<(), Death>) -> Death {
        let begin = Instant::now();
        loop {
            if let Err(death) = what() {
                return death;
            }
            assert!(begin.elapsed() < Duration::from_secs(11), "it did not end within 11 s");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn bytes_come_through_both_ways_as_they_were_over_rdma() {
        let ends = ends();
        let pattern = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let total = 5 * RING_BYTES as u64 / 2;
        let begin = Instant::now();
        let sizes = [1usize, 3, 4096, 200, 100_000, 7, 300_000];
        std::thread::scope(|scope| {
            for (sender, receiver) in [(0, 1), (1, 0)] {
                let ends = &ends;
                scope.spawn(move || {
                    let (mut sent, mut turn) = (0u64, 0);
                    while sent < total {
                        let n = (sizes[turn % sizes.len()] as u64).min(total - sent);
                        turn += 1;
                        let bytes: Vec<u8> = (sent..sent + n).map(pattern).collect();
                        let mut at = 0;
                        while at < bytes.len() {
                            at += send(&ends[sender], &bytes[at..]).expect("sending");
                            // Who receives here may have all that he waits for: credits come all the same.
                            ends[sender].look().expect("looking");
                            let state = (&ends[sender].out, &ends[receiver].arrivals);
                            assert!(begin.elapsed() < Duration::from_secs(60), "{sent} of {total} sent: {state:?}");
                            std::thread::yield_now();
                        }
                        sent += n;
                    }
                });
                scope.spawn(move || {
                    let (mut got, mut buffer) = (0u64, vec![0; 77_777]);
                    while got < total {
                        ends[receiver].look().expect("looking");
                        // SAFETY: the buffer is ours.
                        let n = unsafe { ends[receiver].copy(buffer.as_mut_ptr(), buffer.len()) };
                        ends[receiver].take(n).expect("taking");
                        assert!(buffer[..n].iter().zip(got..).all(|(b, i)| *b == pattern(i)), "behind byte {got}");
                        got += n as u64;
                        assert!(begin.elapsed() < Duration::from_secs(60), "{got} of {total} came");
                        std::thread::yield_now();
                    }
                });
            }
        });
    }

    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn a_queue_pair_in_error_ends_both_ends_of_rdma() {
        let [here, there] = ends();
        here.pair.break_on_purpose();
        let death = end_of(|| here.look().map(drop)).of("the worker");
        assert!(death.contains("the queue pair is in error") && death.contains("rxe0 is up"), "{death}");
        let death = end_of(|| there.beat()).of("the client");
        assert!(death.contains("nothing acknowledged what was written to it within 8 s"), "{death}");
    }

    /// It had been lost where it came just as an engine went to sleep.
    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn a_notice_against_the_rules_is_found_by_whoever_looks_next_over_rdma() {
        let [here, there] = ends();
        let against = Notice::Placed(0).encode();
        here.pair.post(&[Work { token: None, ..Work::bare(Some(against), 0) }]).expect("posting");
        let seen = end_of(|| there.may_sleep().map(drop));
        assert!(matches!(seen, Death::Broke(_)), "{seen:?}");
        assert_eq!(there.look().expect_err("it was wrong"), seen);
        assert_eq!(there.may_sleep().expect_err("it was wrong"), seen);
    }

    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn a_bell_rings_for_who_sleeps_over_rdma() {
        let [here, there] = ends();
        let rung = |timeout| {
            let mut entry = libc::pollfd { fd: there.bell(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            unsafe { libc::poll(&raw mut entry, 1, timeout) > 0 }
        };
        assert!(there.may_sleep().expect("arming") && !rung(10));
        send(&here, b"news").expect("sending");
        assert!(rung(10_000), "it did not ring");
        there.hear();
        assert!(there.look().expect("looking") && there.has_arrivals() && !rung(0));
    }
    /// Who reads the ring is told by nobody; the other end's completions are not looked at meanwhile.
    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn records_come_into_a_ring_by_themselves_over_rdma() {
        let [(here, _), (there, memory)] = with_rings();
        let mut ring = memory.consumer(Which::Command).expect("a ring");
        let (mut at, mut body) = (0u64, Vec::new());
        // Around the ring's end, where a write is two.
        for i in 0..120u64 {
            let bytes = [24, 64, 20_000, 65_536 - 24][i as usize % 4];
            let header = Header { size: bytes as u32, op: 1, thread: 0, context: 0, sequence: i };
            let mut record = header.encode().to_vec();
            record.resize(bytes, i as u8);
            let begin = Instant::now();
            while here.placeable(at).expect("asking") < bytes {
                // Credits are all that there has to be said.
                there.look().expect("looking");
                there.ring_taken(at).expect("telling");
                here.look().expect("looking");
                assert!(begin.elapsed() < Duration::from_secs(10), "no room behind {at}");
            }
            // SAFETY: so many bytes are in the record.
            unsafe { here.place(at, record.as_ptr(), bytes) }.expect("placing");
            at += bytes as u64;
            let header = loop {
                if let Some(header) = ring.next().expect("positions") {
                    break header;
                }
                assert!(begin.elapsed() < Duration::from_secs(10), "it did not come");
                std::thread::yield_now();
            };
            ring.body(&header, &mut body);
            assert!(header.sequence == i && body == record[HEADER_BYTES..], "record {i}");
            ring.consume(bytes);
        }
    }

    /// One end shows ranges of its heap as there is room, and the other reads them to where they belong.
    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn what_is_shown_is_read_to_where_it_belongs_and_let_go_of_over_rdma() {
        const BYTES: u64 = 40 << 20;
        let [here, there] = ends();
        let heaps = [0, 1].map(|_| {
            let memory = Memory::create(Layout { heap_bytes: BYTES }).expect("memory");
            memory.map_heap(None).expect("a heap")
        });
        // Neither begins nor ends with a page.
        let whole = HeapRange { offset: 4096 + 24, bytes: BYTES - (12 << 10) };
        // SAFETY: heaps of this test alone, inside of them.
        let bytes_of = |i: usize, range: HeapRange| unsafe {
            std::slice::from_raw_parts_mut(
                heaps[i].at(range.offset, range.bytes).expect("inside"),
                range.bytes as usize,
            )
        };
        for (i, byte) in bytes_of(0, whole).iter_mut().enumerate() {
            *byte = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7];
        }
        let (mut rest, mut told, mut most, begin) = (whole, Vec::new(), 0, Instant::now());
        while rest.bytes > 0 || here.out().shown_count() > 0 {
            // SAFETY: the range is at this address of a heap that is not unmapped.
            let part = unsafe { here.show(rest, heaps[0].at(rest.offset, rest.bytes).expect("inside")) };
            let bytes = match part {
                Part::Shown(shown) => {
                    told.push((shown, heaps[1].at(shown.range.offset, shown.range.bytes).expect("inside")));
                    shown.range.bytes
                }
                Part::Striped(bytes) => bytes,
                // What is left at the end.
                Part::Inline(bytes) => {
                    assert!(bytes == rest.bytes && bytes < here.shown_from(), "{part:?}");
                    bytes_of(1, rest).copy_from_slice(bytes_of(0, rest));
                    bytes
                }
            };
            rest = HeapRange { offset: rest.offset + bytes, bytes: rest.bytes - bytes };
            most = most.max(here.out().shown_count());
            // SAFETY: as above.
            let count = unsafe { there.read(std::mem::take(&mut told)) }.expect("reading");
            there.have_read(count).expect("telling");
            there.look().expect("looking");
            here.look().expect("looking");
            assert!(begin.elapsed() < Duration::from_secs(60), "{rest:?} is left; {:?}", there.tally());
        }
        assert!(bytes_of(0, whole) == bytes_of(1, whole), "other bytes came");
        assert!(most > 1 && most <= crate::stream::SHOWN_MAX, "{most} at a time");
        assert_eq!((here.pair.registered(), there.pair.registered()), (0, 0));
        let tally = there.tally();
        assert_eq!((tally.read_bytes, tally.landed_bytes, tally.taken_bytes), (here.tally().shown_bytes, 0, 0));
        assert!(tally.read_bytes > whole.bytes - here.shown_from(), "{tally:?}");
    }

    /// Who is shown what is not there, or reads beside it or after it was let go of, loses his queue pair.
    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn what_is_not_shown_cannot_be_read_over_rdma() {
        type Change = fn(&mut Shown);
        let wrong: [(Change, &str); 5] = [
            (|shown| shown.key ^= 0x100, "another key"),
            (|shown| shown.address += 4096, "beside it, at its end"),
            (|shown| shown.address -= 1, "beside it, at its beginning"),
            (|shown| shown.range.bytes += 4096, "beyond it"),
            (|shown| shown.address = 0, "no pages"),
        ];
        for (change, what) in wrong {
            let [here, there] = ends();
            let memory = Memory::create(Layout { heap_bytes: 4 << 20 }).expect("memory");
            let heap = memory.map_heap(None).expect("a heap");
            let at = heap.at(1 << 20, 1 << 20).expect("inside");
            // SAFETY: a range of a heap that is not unmapped.
            let part = unsafe { here.show(HeapRange { offset: 1 << 20, bytes: 1 << 20 }, at) };
            let Part::Shown(mut shown) = part else { panic!("{part:?}") };
            change(&mut shown);
            let to = heap.at(3 << 20, 1 << 20).expect("inside");
            let mut told = vec![(shown, to)];
            // SAFETY: as above.
            let death = end_of(|| unsafe { there.read(std::mem::take(&mut told)) }.map(drop)).of("the client");
            assert!(death.contains("what it has shown cannot be read"), "{what}: {death}");
            assert!(there.look().is_err(), "{what}: it goes on");
        }
    }

    /// A key that was let go of leads nowhere.
    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn what_was_read_cannot_be_read_again_over_rdma() {
        let [here, there] = ends();
        let memory = Memory::create(Layout { heap_bytes: 4 << 20 }).expect("memory");
        let heap = memory.map_heap(None).expect("a heap");
        let [from, to] = [0, 2 << 20].map(|offset| heap.at(offset, 1 << 20).expect("inside"));
        // SAFETY: a range of a heap that is not unmapped.
        let part = unsafe { here.show(HeapRange { offset: 0, bytes: 1 << 20 }, from) };
        let Part::Shown(shown) = part else { panic!("{part:?}") };
        let (mut told, begin) = (vec![(shown, to)], Instant::now());
        while here.pair.registered() > 0 {
            // SAFETY: as above.
            let count = unsafe { there.read(std::mem::take(&mut told)) }.expect("reading");
            there.have_read(count).expect("telling");
            there.look().expect("looking");
            here.look().expect("looking");
            assert!(begin.elapsed() < Duration::from_secs(10), "it was not read");
        }
        let mut told = vec![(shown, to)];
        // SAFETY: as above.
        let death = end_of(|| unsafe { there.read(std::mem::take(&mut told)) }.map(drop)).of("the client");
        assert!(death.contains("what it has shown cannot be read"), "{death}");
        // Who says to have read what was not shown breaks the rules.
        let [here, there] = ends();
        there.pair.post(&[Work { token: None, ..Work::bare(Some(Notice::Read(1).encode()), 0) }]).expect("posting");
        let seen = end_of(|| here.look().map(drop));
        assert_eq!(seen, Death::Broke(Fault("more ranges were read than were shown")));
    }

    /// So much memory may be locked by who has no right to more.
    fn may_lock(bytes: u64) {
        // SAFETY: plain calls with locals.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit), 0);
            limit.rlim_cur = bytes;
            limit.rlim_max = limit.rlim_max.max(bytes);
            assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
        }
    }

    /// This thread, which ends with its test, has no rights but a user's.
    fn give_up_rights() {
        // Version 3, of this thread; none is effective.
        let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
        // SAFETY: a plain call with locals.
        assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }, 0);
    }

    fn locked_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("reading /proc");
        let pinned = status.lines().find_map(|line| line.strip_prefix("VmPin:")).expect("VmPin");
        pinned.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    #[test]
    #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
    fn where_no_more_memory_may_be_locked_ranges_are_copied_over_rdma() {
        may_lock(u64::MAX);
        // Before there is a device: who opens one is who may use it.
        give_up_rights();
        let [here, there] = ends();
        let memory = Memory::create(Layout { heap_bytes: 8 << 20 }).expect("memory");
        let heap = memory.map_heap(None).expect("a heap");
        let range = HeapRange { offset: 24, bytes: (1 << 20) + 77 };
        let [from, to] = [24, 4 << 20].map(|offset| heap.at(offset, range.bytes).expect("inside"));
        // SAFETY: inside of a heap of this test alone, where they lie apart.
        let bytes_at = |at: *mut u8| unsafe { std::slice::from_raw_parts_mut(at, range.bytes as usize) };
        bytes_at(from).iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 / 3) as u8);
        // SAFETY: a range of a heap that is not unmapped.
        let Part::Shown(shown) = (unsafe { here.show(range, from) }) else { panic!("it may be locked still") };
        may_lock(locked_bytes());
        // SAFETY: as above.
        assert_eq!(unsafe { here.show(range, from) }, Part::Inline(range.bytes));
        let why = here.objection().expect("it says why").to_owned();
        assert!(why.contains("raise the limit on locked memory (ulimit -l, LimitMEMLOCK=)"), "{why}");
        let (mut told, begin) = (vec![(shown, to)], Instant::now());
        // SAFETY: as above.
        while unsafe { there.read(std::mem::take(&mut told)) }.expect("reading") == 0 {
            assert!(begin.elapsed() < Duration::from_secs(20), "it was not read: {:?}", there.tally());
        }
        assert!(bytes_at(from) == bytes_at(to), "other bytes came");
        let tally = there.tally();
        assert_eq!((tally.read_bytes, tally.landed_bytes, there.pair.registered()), (0, range.bytes, 0));
        assert!(there.objection().is_some());
        may_lock(u64::MAX);
    }
}
