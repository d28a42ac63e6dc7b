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

// UNSAFETY: copies into and out of memory that the other side's device writes. It is copied by address, and looked at
// only as a copy.

use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, OnceLock};

use orion_ring::Reach;
use orion_ring::control::placed_words;

use super::device::Pair;
use super::ends::End;
use super::limits::{ACKNOWLEDGED_SECONDS_MAX, BATCH_WORKS_MAX, RING_BYTES};
use super::window::{In, Notice, Out, Upto, WORDS_BYTES};
use super::works::{Done, Outcome, Place, Work};
use crate::carrier::contract::Death;

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
}

/// A transport that gives up says so by this number (IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR).
const NOT_ACKNOWLEDGED: u32 = 12;
const NOT_RECEIVED: u32 = 13;

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
        Pipe { pair, out: Mutex::default(), arrivals: Mutex::default(), broken: OnceLock::new() }
    }

    /// Lets the other side write into this ring.
    ///
    /// # Safety
    /// The ring stays mapped, and nothing else comes to lie there, for as long as the pipe is here.
    pub unsafe fn offer(&self, ring: Reach) -> Result<(), String> {
        // SAFETY: the caller vouches for it.
        unsafe { self.pair.offer(ring) }
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
            }
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
        unsafe { std::ptr::copy_nonoverlapping(self.pair.inbox().add(at), to, n) };
        n
    }

    /// Lets so many bytes that have arrived be written over: they are where they belong.
    pub fn take(&self, bytes: usize) -> Result<(), Death> {
        let mut arrivals = self.arrivals();
        arrivals.take(bytes);
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

    /// Has the bell ring for the next notice. False if there is one already.
    pub fn may_sleep(&self) -> Result<bool, Death> {
        self.pair.arm().map_err(Death::Cut)?;
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
    fn end_of(what: impl Fn() -> Result<(), Death>) -> Death {
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
}
