//! A TCP client's session: the engine copies between the connection and the session memory that the worker sees.

// UNSAFETY: hands pointers into session memory and into its own boxed buffers to the kernel. `Carried` and `Lane` are
// boxed and freed only when no request of theirs is under way (`under_way`), and the session memory is unmapped only
// when the last of them is gone.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};

use orion_ring::bell::Seat;
use orion_ring::memory::Which;
use orion_ring::{Consumer, Heap, Memory};
use orion_transport::gather::Stripe;
use orion_transport::lanes::CHUNK_BYTES_MIN;
use orion_transport::stream::{Frame, STREAM_HEADER_BYTES, STRIPE_BYTES_MIN, StreamHeader, TAKEN_BYTES_MIN};
use orion_transport::{Blocked, Gather, LANES_MAX, LaneCounts, Scatter, Striper};
use orion_wire::Fault;
use orion_wire::record::HeapRange;
use tracing::{info, warn};

use super::core::shutdown;
use super::io_ring::{Did, Done, Io};
use super::mail::Kick;
use super::workers::nursery::Order;

const RECEIVE_BYTES: usize = 256 << 10;
/// Chunks of one session that wait for its lanes: 64 MiB or more of heap, and 16 bytes of ours each. A client that does
/// not read its lanes is not served beyond that.
const LANE_CHUNKS_MAX: usize = 512;

/// What the main connection and the lanes of a session have in common. They may live on different engines.
pub struct Shared {
    pub session: u64,
    pub heap: Heap,
    counts: LaneCounts,
    /// The main connection is parked at a barrier: whoever counts bytes up kicks it.
    barrier_waits: AtomicBool,
    /// Something waits for room on the lanes: whoever takes chunks from there kicks the main connection.
    room_waits: AtomicBool,
    /// Chunks in `outgoing`.
    queued: AtomicUsize,
    over: AtomicBool,
    main: OnceLock<Address>,
    lanes: Mutex<[Option<Address>; LANES_MAX]>,
    /// Lanes that somebody was let in for, a bit each.
    claimed: AtomicUsize,
    /// Lanes 0 up to this have joined.
    joined: AtomicUsize,
    outgoing: [Mutex<VecDeque<HeapRange>>; LANES_MAX],
    mapped: Mapped,
}

/// An engine's mailbox and the slot of an object there.
struct Address {
    post: Arc<dyn Kick>,
    slot: u32,
}

impl Address {
    fn kick(&self) {
        self.post.kick(self.slot);
    }
}

/// Unmaps when the last user is gone. Unmapping a large heap takes milliseconds, so somebody else does it.
struct Mapped {
    memory: Option<Memory>,
    nursery: Sender<Order>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // Without a nursery the process is about to exit.
            let _ = self.nursery.send(Order::Unmap(memory));
        }
    }
}

impl Shared {
    pub fn new(session: u64, memory: Memory, nursery: Sender<Order>) -> std::io::Result<Shared> {
        // Owned from here on, so that a failure below unmaps what was mapped so far.
        let mapped = Mapped { memory: Some(memory), nursery };
        let heap = mapped.memory.as_ref().expect("just put there").map_heap(None)?;
        Ok(Shared {
            session,
            heap,
            counts: LaneCounts::default(),
            barrier_waits: AtomicBool::new(false),
            room_waits: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            main: OnceLock::new(),
            lanes: Mutex::default(),
            claimed: AtomicUsize::new(0),
            joined: AtomicUsize::new(0),
            outgoing: Default::default(),
            mapped,
        })
    }

    fn memory(&self) -> &Memory {
        self.mapped.memory.as_ref().expect("taken only when dropped")
    }

    /// Lets one connection in for a lane, once in the life of the session: the end of a lane is the end of the session.
    pub fn claim_lane(&self, index: usize) -> bool {
        index < LANES_MAX && !self.is_over() && self.claimed.fetch_or(1 << index, Ordering::SeqCst) >> index & 1 == 0
    }

    /// Takes a chunk to send from a lane's queue.
    fn next_chunk(&self, lane: usize) -> Option<HeapRange> {
        let chunk = self.outgoing[lane].lock().expect("nothing panics under this lock").pop_front()?;
        let left = self.queued.fetch_sub(1, Ordering::SeqCst) - 1;
        // SeqCst pairs with `park`: either we see that somebody waits or he sees that there is room.
        if left <= LANE_CHUNKS_MAX / 2
            && self.room_waits.load(Ordering::SeqCst)
            && self.room_waits.swap(false, Ordering::SeqCst)
            && let Some(main) = self.main.get()
        {
            main.kick();
        }
        Some(chunk)
    }

    /// Ends the session for everybody who carries it.
    fn end(&self) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(main) = self.main.get() {
            main.kick();
        }
        self.lanes.lock().expect("nothing panics under this lock").iter().flatten().for_each(Address::kick);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

struct Lanes<'a> {
    shared: &'a Shared,
    striper: &'a mut Striper,
}

impl Stripe for Lanes<'_> {
    fn stripe(&mut self, range: HeapRange) -> Option<u64> {
        // Acquire pairs with the Release in `Lane::new`: the lanes' addresses are in the table.
        let joined = self.shared.joined.load(Ordering::Acquire);
        if range.bytes < STRIPE_BYTES_MIN || joined == 0 {
            return None;
        }
        let room = LANE_CHUNKS_MAX.saturating_sub(self.shared.queued.load(Ordering::SeqCst)) as u64;
        let range = HeapRange { bytes: range.bytes.min(room * CHUNK_BYTES_MIN), ..range };
        let mut touched = 0u32;
        self.striper.deal(range, joined, |lane, chunk| {
            self.shared.queued.fetch_add(1, Ordering::SeqCst);
            self.shared.outgoing[lane].lock().expect("nothing panics under this lock").push_back(chunk);
            touched |= 1 << lane;
        });
        let lanes = self.shared.lanes.lock().expect("nothing panics under this lock");
        for (index, lane) in lanes.iter().enumerate() {
            if let (Some(lane), true) = (lane, touched >> index & 1 == 1) {
                lane.kick();
            }
        }
        Some(range.bytes)
    }

    fn barrier(&self) -> [u64; LANES_MAX] {
        *self.striper.sent()
    }
}

/// The main connection.
pub struct Carried {
    tcp: OwnedFd,
    attach: OwnedFd,
    shared: Arc<Shared>,
    scatter: Scatter,
    reply: Consumer,
    event: Consumer,
    striper: Striper,
    gather: Gather,
    message: Box<libc::msghdr>,
    /// Ring bytes in the batch being sent: reply, event.
    sending: Option<(usize, usize)>,
    /// Command bytes that the client knows the worker has taken.
    taken_told: u64,
    turn: u32,
    buffer: Box<[u8]>,
    unread: std::ops::Range<usize>,
    receiving: Receiving,
    blocked: Option<Blocked>,
    attach_byte: Box<[u8; 64]>,
    futex_armed: [bool; 3],
    under_way: u32,
    ending: bool,
}

#[derive(PartialEq, Eq)]
enum Receiving {
    Nothing,
    IntoBuffer,
    InPlace,
}

// SAFETY: the raw pointers inside lead to this object's own boxes or to session memory; neither is tied to a thread.
unsafe impl Send for Carried {}

impl Carried {
    pub fn new(tcp: OwnedFd, attach: OwnedFd, shared: Arc<Shared>) -> std::io::Result<Box<Carried>> {
        let memory = shared.memory();
        let command = memory.producer(Which::Command)?;
        let (reply, event) = (memory.consumer(Which::Reply)?, memory.consumer(Which::Event)?);
        let heap = shared.heap;
        Ok(Box::new(Carried {
            tcp,
            attach,
            scatter: Scatter::new(vec![(Frame::Command, command)], heap),
            reply,
            event,
            shared,
            striper: Striper::default(),
            gather: Gather::default(),
            // SAFETY: an all-zero msghdr is valid.
            message: Box::new(unsafe { std::mem::zeroed() }),
            sending: None,
            taken_told: 0,
            turn: 0,
            buffer: vec![0; RECEIVE_BYTES].into(),
            unread: 0..0,
            receiving: Receiving::Nothing,
            blocked: None,
            attach_byte: Box::new([0; 64]),
            futex_armed: [false; 3],
            under_way: 0,
            ending: false,
        }))
    }

    /// Called once, on the engine that carries the session from now on.
    pub fn begin(&mut self, io: &mut Io, slot: u32, post: Arc<dyn Kick>) {
        let _ = self.shared.main.set(Address { post, slot });
        // While a ring is full or a barrier closed nothing is received, and yet a client's end has to be noticed.
        self.under_way += 1;
        io.wait_hangup(slot, self.tcp.as_raw_fd());
        self.watch_worker(io, slot);
    }

    pub fn session(&self) -> u64 {
        self.shared.session
    }

    /// Nothing refers to this object any more.
    pub fn is_finished(&self) -> bool {
        self.ending && self.under_way == 0
    }

    fn watch_worker(&mut self, io: &mut Io, slot: u32) {
        self.under_way += 1;
        // SAFETY: the box lives as long as requests are under way.
        unsafe { io.receive(slot, Did::ReceiveAttach, self.attach.as_raw_fd(), self.attach_byte.as_mut_ptr(), 64, 0) };
    }

    pub fn done(&mut self, io: &mut Io, slot: u32, done: Done) {
        self.under_way -= 1;
        match done.did {
            Did::Receive => self.received(done.result),
            Did::Send => self.sent(io, slot, done.result),
            Did::ReceiveAttach => match done.result {
                // Nothing is ever sent there; bytes are ignored.
                n if n > 0 && !self.ending => self.watch_worker(io, slot),
                _ => self.end("the worker is gone"),
            },
            Did::Hangup => self.end("the client closed the connection"),
            Did::FutexReply => self.futex_armed[0] = false,
            Did::FutexEvent => self.futex_armed[1] = false,
            Did::FutexRoom => self.futex_armed[2] = false,
            other => unreachable!("a carried session never asks for {other:?}"),
        }
    }

    fn received(&mut self, result: i32) {
        let how = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        match result {
            n if n > 0 => match how {
                Receiving::InPlace => self.scatter.received_in_place(n as usize),
                _ => self.unread = 0..n as usize,
            },
            0 if self.scatter.is_between_frames() => self.end("the client closed the connection"),
            0 => self.end("the client's connection was cut"),
            e if is_again(e) => {}
            e => self.end(&describe(e)),
        }
    }

    fn sent(&mut self, io: &mut Io, slot: u32, result: i32) {
        if result < 0 && !is_again(result) {
            return self.end(&describe(result));
        }
        self.gather.advance(result.max(0) as usize);
        if self.gather.is_empty() {
            self.gather.clear();
            if let Some((reply, event)) = self.sending.take() {
                self.reply.consume(reply);
                self.event.consume(event);
            }
        } else if !self.ending {
            self.send(io, slot);
        }
    }

    fn send(&mut self, io: &mut Io, slot: u32) {
        let parts = self.gather.parts();
        self.message.msg_iov = parts.as_ptr().cast_mut();
        self.message.msg_iovlen = parts.len();
        self.under_way += 1;
        // SAFETY: message, parts and what they point to stay until the completion: the batch is not touched while
        // `sending` is set, and the ring bytes are consumed after it.
        unsafe { io.send_message(slot, Did::Send, self.tcp.as_raw_fd(), &raw const *self.message) };
    }

    /// Moves whatever can be moved. True if something was.
    pub fn pump(&mut self, io: &mut Io, slot: u32) -> bool {
        if !self.ending && self.shared.is_over() {
            self.end("a bulk connection ended");
        }
        if self.ending {
            return false;
        }
        match self.try_pump(io, slot) {
            Ok(progress) => progress,
            Err(fault) => {
                warn!(session = self.shared.session, rule = fault.0, "protocol broken, session ends");
                self.end("the protocol was broken");
                true
            }
        }
    }

    fn try_pump(&mut self, io: &mut Io, slot: u32) -> Result<bool, Fault> {
        let mut progress = false;
        if self.sending.is_none() {
            if let Some(up_to) = self.newly_taken()? {
                self.gather.taken(up_to);
            }
            let mut lanes = Lanes { shared: &self.shared, striper: &mut self.striper };
            let heap = &self.shared.heap;
            // No event overtakes what was put into the reply ring before it: a host function is asked for behind the
            // bytes that it may look at, and memory is given back behind the last bytes that come there. So what is
            // ready of the events is looked at first, and goes last.
            let ready = self.event.ready().map_err(|_| Fault("ring positions are impossible"))? as usize;
            let reply = self.gather.collect(Frame::Reply, &mut self.reply, heap, &mut lanes)?;
            let event = match self.gather.has_drained() {
                true => self.gather.collect_seen(ready, Frame::Event, &mut self.event, heap, &mut lanes)?,
                false => 0,
            };
            if !self.gather.is_empty() {
                self.sending = Some((reply, event));
                self.send(io, slot);
                progress = true;
            } else if reply + event > 0 {
                self.reply.consume(reply);
                self.event.consume(event);
                progress = true;
            }
        }
        if !self.unread.is_empty() || self.blocked.is_some() {
            let (used, blocked) = self.scatter.feed(&self.buffer[self.unread.clone()], &self.shared.counts)?;
            self.unread.start += used;
            self.blocked = blocked;
            progress |= used > 0;
        }
        if self.unread.is_empty() && self.receiving == Receiving::Nothing {
            self.receive(io, slot);
        }
        Ok(progress)
    }

    /// Up to where the worker has taken the client's commands, if that is worth a message.
    fn newly_taken(&mut self) -> Result<Option<u64>, Fault> {
        let ring = self.scatter.ring(0);
        self.turn = self.turn.wrapping_add(1);
        // The worker writes that position with every command: looking at it all the time would slow it down.
        if ring.outstanding_seen() >= TAKEN_BYTES_MIN && self.turn.is_multiple_of(16) {
            ring.room().map_err(|_| Fault("ring positions are impossible"))?;
        }
        let taken = ring.taken_seen();
        if taken.saturating_sub(self.taken_told) < TAKEN_BYTES_MIN {
            return Ok(None);
        }
        self.taken_told = taken;
        Ok(Some(taken))
    }

    fn receive(&mut self, io: &mut Io, slot: u32) {
        self.under_way += 1;
        let (to, len) = match self.scatter.in_place() {
            Some(place) => {
                self.receiving = Receiving::InPlace;
                place
            }
            None => {
                self.receiving = Receiving::IntoBuffer;
                (self.buffer.as_mut_ptr(), self.buffer.len())
            }
        };
        // SAFETY: the buffer is boxed and left alone while `receiving` is set; the heap stays mapped.
        unsafe { io.receive(slot, Did::Receive, self.tcp.as_raw_fd(), to, len, 0) };
    }

    /// Arranges to be woken by everything that could make `pump` useful. False if something already could.
    pub fn park(&mut self, io: &mut Io, slot: u32) -> bool {
        if self.ending {
            return true;
        }
        if self.sending.is_none() {
            if !self.reply.may_sleep() || !self.event.may_sleep() {
                return false;
            }
            self.arm(io, slot, 0, Did::FutexReply, self.reply.seat());
            self.arm(io, slot, 1, Did::FutexEvent, self.event.seat());
        }
        let ring = self.scatter.ring(0);
        if matches!(self.blocked, Some(Blocked::Room(_))) || ring.outstanding_seen() >= TAKEN_BYTES_MIN {
            if !ring.may_sleep() {
                // What the worker has taken is looked at only now and then; now it is known. Impossible positions are
                // found again by whoever needs room.
                let _ = ring.room();
                return false;
            }
            let seat = ring.seat();
            self.arm(io, slot, 2, Did::FutexRoom, seat);
        }
        if self.sending.is_none() && self.gather.waits_for_lanes() {
            self.shared.room_waits.store(true, Ordering::SeqCst);
            if self.shared.queued.load(Ordering::SeqCst) <= LANE_CHUNKS_MAX / 2 {
                return false;
            }
        }
        if matches!(self.blocked, Some(Blocked::Barrier)) {
            self.shared.barrier_waits.store(true, Ordering::SeqCst);
            if !matches!(self.scatter.feed(&[], &self.shared.counts), Ok((_, Some(Blocked::Barrier)))) {
                return false;
            }
        }
        !self.shared.is_over()
    }

    /// Waits in the io_uring for the worker's bell, which is the word in the pages.
    fn arm(&mut self, io: &mut Io, slot: u32, index: usize, did: Did, seat: Seat) {
        if !io.has_futex() || self.futex_armed[index] {
            return;
        }
        self.futex_armed[index] = true;
        self.under_way += 1;
        io.wait_futex(slot, did, seat.flag);
    }

    pub fn end(&mut self, why: &str) {
        if self.ending {
            return;
        }
        self.ending = true;
        info!(session = self.shared.session, why, "session ends");
        self.shared.end();
        shutdown(&self.tcp);
        shutdown(&self.attach);
        // The worker may be gone, so nobody else ends what waits for these.
        self.reply.rouse();
        self.event.rouse();
        self.scatter.ring(0).rouse();
    }
}

/// A connection for bulk data.
pub struct Lane {
    socket: OwnedFd,
    shared: Arc<Shared>,
    index: usize,
    header: [u8; STREAM_HEADER_BYTES],
    have: usize,
    /// The chunk being received.
    chunk: HeapRange,
    out_header: [u8; STREAM_HEADER_BYTES],
    out_parts: [libc::iovec; 2],
    out_first: usize,
    message: libc::msghdr,
    sending: bool,
    under_way: u32,
    ending: bool,
}

// SAFETY: as for `Carried`.
unsafe impl Send for Lane {}

impl Lane {
    pub fn new(socket: OwnedFd, shared: Arc<Shared>, index: usize) -> Box<Lane> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Box::new(Lane {
            socket,
            shared,
            index,
            header: [0; STREAM_HEADER_BYTES],
            have: 0,
            chunk: HeapRange::default(),
            out_header: [0; STREAM_HEADER_BYTES],
            out_parts: [nothing; 2],
            out_first: 2,
            // SAFETY: an all-zero msghdr is valid.
            message: unsafe { std::mem::zeroed() },
            sending: false,
            under_way: 0,
            ending: false,
        })
    }

    /// Called once, on the engine that serves the lane from now on.
    pub fn begin(&mut self, io: &mut Io, slot: u32, post: Arc<dyn Kick>) {
        {
            let mut lanes = self.shared.lanes.lock().expect("nothing panics under this lock");
            lanes[self.index] = Some(Address { post, slot });
            let joined = lanes.iter().take_while(|l| l.is_some()).count();
            self.shared.joined.store(joined, Ordering::Release);
        }
        self.receive(io, slot);
        self.kicked(io, slot);
    }

    pub fn is_finished(&self) -> bool {
        self.ending && self.under_way == 0
    }

    /// There may be chunks to send, or the session may be over.
    pub fn kicked(&mut self, io: &mut Io, slot: u32) {
        if self.shared.is_over() {
            return self.end();
        }
        if self.sending || self.ending {
            return;
        }
        let Some(chunk) = self.shared.next_chunk(self.index) else { return };
        let from = self.shared.heap.at(chunk.offset, chunk.bytes).expect("the range was checked when it was dealt");
        self.out_header = StreamHeader { frame: Frame::Chunk, len: chunk.bytes as u32, offset: chunk.offset }.encode();
        self.out_parts = [
            libc::iovec { iov_base: self.out_header.as_mut_ptr().cast(), iov_len: STREAM_HEADER_BYTES },
            libc::iovec { iov_base: from.cast(), iov_len: chunk.bytes as usize },
        ];
        self.out_first = 0;
        self.send(io, slot);
    }

    fn send(&mut self, io: &mut Io, slot: u32) {
        self.sending = true;
        self.under_way += 1;
        self.message.msg_iov = self.out_parts[self.out_first..].as_mut_ptr();
        self.message.msg_iovlen = self.out_parts.len() - self.out_first;
        // SAFETY: this object is boxed and leaves these fields alone while `sending` is set.
        unsafe { io.send_message(slot, Did::Send, self.socket.as_raw_fd(), &raw const self.message) };
    }

    fn receive(&mut self, io: &mut Io, slot: u32) {
        let (to, len) = if self.have < STREAM_HEADER_BYTES {
            (self.header[self.have..].as_mut_ptr(), STREAM_HEADER_BYTES - self.have)
        } else {
            let at = self.shared.heap.at(self.chunk.offset, self.chunk.bytes).expect("the header was checked");
            (at, self.chunk.bytes as usize)
        };
        self.under_way += 1;
        // SAFETY: the header is boxed with this object, the heap stays mapped.
        unsafe { io.receive(slot, Did::Receive, self.socket.as_raw_fd(), to, len, libc::MSG_WAITALL) };
    }

    pub fn done(&mut self, io: &mut Io, slot: u32, done: Done) {
        self.under_way -= 1;
        match done.did {
            Did::Receive => match done.result {
                n if n > 0 => {
                    if let Err(fault) = self.received(n as usize) {
                        let (session, lane) = (self.shared.session, self.index);
                        warn!(session, lane, rule = fault.0, "protocol broken, session ends");
                        return self.end();
                    }
                    if !self.ending {
                        self.receive(io, slot);
                    }
                }
                e if is_again(e) && !self.ending => self.receive(io, slot),
                _ => self.end(),
            },
            Did::Send => {
                self.sending = false;
                if done.result < 0 && !is_again(done.result) {
                    return self.end();
                }
                let mut sent = done.result.max(0) as usize;
                while self.out_first < 2 && sent >= self.out_parts[self.out_first].iov_len {
                    sent -= self.out_parts[self.out_first].iov_len;
                    self.out_first += 1;
                }
                if self.ending {
                    return;
                }
                if self.out_first == 2 {
                    return self.kicked(io, slot);
                }
                let part = &mut self.out_parts[self.out_first];
                // SAFETY: `sent` is less than the part's length.
                part.iov_base = unsafe { part.iov_base.cast::<u8>().add(sent) }.cast();
                part.iov_len -= sent;
                self.send(io, slot);
            }
            other => unreachable!("a lane never asks for {other:?}"),
        }
    }

    fn received(&mut self, n: usize) -> Result<(), Fault> {
        if self.have < STREAM_HEADER_BYTES {
            self.have += n;
            if self.have == STREAM_HEADER_BYTES {
                let header = StreamHeader::decode(&self.header, self.shared.heap.bytes())?;
                if header.frame != Frame::Chunk {
                    return Err(Fault("a lane carries chunks only"));
                }
                self.chunk = HeapRange { offset: header.offset, bytes: header.len as u64 };
            }
        } else {
            self.chunk.offset += n as u64;
            self.chunk.bytes -= n as u64;
            self.shared.counts.add(self.index, n as u64);
            if self.shared.barrier_waits.load(Ordering::SeqCst)
                && self.shared.barrier_waits.swap(false, Ordering::SeqCst)
                && let Some(main) = self.shared.main.get()
            {
                main.kick();
            }
        }
        if self.have == STREAM_HEADER_BYTES && self.chunk.bytes == 0 {
            self.have = 0;
        }
        Ok(())
    }

    fn end(&mut self) {
        if !self.ending {
            self.ending = true;
            shutdown(&self.socket);
            self.shared.end();
        }
    }
}

fn is_again(result: i32) -> bool {
    matches!(-result, libc::EAGAIN | libc::EINTR)
}

fn describe(result: i32) -> String {
    std::io::Error::from_raw_os_error(-result).to_string()
}
