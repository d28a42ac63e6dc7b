//! The main connection: the engine copies between it and the session memory that the worker sees.

// UNSAFETY: hands pointers into session memory and into its own boxed buffers to the kernel. `Carried` is boxed
// and freed only when no request of its own is under way (`under_way`), and the session memory is unmapped only when
// its last connection is gone.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_ring::Consumer;
use orion_ring::bell::Seat;
use orion_ring::memory::Which;
use orion_tls::handshake::Secured;
use orion_transport::carrier::Death;
use orion_transport::sealed::{Heard, Opening, Sealing};
use orion_transport::stream::{Frame, TAKEN_BYTES_MIN};
use orion_transport::{Blocked, Gather, Scatter, Striper};
use orion_wire::Fault;
use tracing::{info, warn};

use super::shared::{Address, LANE_CHUNKS_MAX, Lanes, Shared};
use crate::engine::carrier::contract::{Connection, Main};
use crate::engine::core::{has_hung_up, shutdown};
use crate::engine::io_ring::{Did, Done, Io, is_again};
use crate::engine::mail::Kick;

const RECEIVE_BYTES: usize = 256 << 10;
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
    /// Where the connection is encrypted.
    sealed: Option<Box<Sealed>>,
    attach_byte: Box<[u8; 64]>,
    futex_armed: [bool; 3],
    under_way: u32,
    ending: bool,
}

struct Sealed {
    sealing: Sealing,
    opening: Opening,
}

#[derive(PartialEq, Eq)]
enum Receiving {
    Nothing,
    IntoBuffer,
    InPlace,
}

// SAFETY: the raw pointers inside lead to this object's own boxes or to session memory; neither is tied to a thread.
unsafe impl Send for Carried {}

impl Main for Carried {
    fn session(&self) -> u64 {
        self.shared.session
    }

    fn begin(&mut self, io: &mut Io, slot: u32, post: Arc<dyn Kick>) {
        let _ = self.shared.main.set(Address { post, slot });
        // While a ring is full or a barrier closed nothing is received, and yet a client's end has to be noticed.
        self.under_way += 1;
        io.wait_hangup(slot, self.tcp.as_raw_fd());
        self.watch_worker(io, slot);
    }

    fn done(&mut self, io: &mut Io, slot: u32, done: Done) {
        self.under_way -= 1;
        match done.did {
            Did::Receive => self.received(done.result),
            Did::Send => self.sent(io, slot, done.result),
            Did::ReceiveAttach => match done.result {
                // Nothing is ever sent there; bytes are ignored.
                n if n > 0 && !self.ending => self.watch_worker(io, slot),
                _ => self.end("the worker", Death::Gone),
            },
            Did::Hangup => self.end("the client", Death::Gone),
            Did::FutexReply => self.futex_armed[0] = false,
            Did::FutexEvent => self.futex_armed[1] = false,
            Did::FutexRoom => self.futex_armed[2] = false,
            other => unreachable!("a carried session never asks for {other:?}"),
        }
    }

    fn pump(&mut self, io: &mut Io, slot: u32) -> bool {
        if !self.ending && self.shared.is_over() {
            // A client that ends closes all its connections, and this is the first that was looked at.
            let who = if has_hung_up(self.tcp.as_fd()) { "the client" } else { "the client's bulk connection" };
            self.end(who, Death::Gone);
        }
        if self.ending {
            return false;
        }
        let sent = self.pass_on(io, slot).map_err(|fault| ("the worker", fault));
        let moved = sent.and_then(|sent| match self.take_in(io, slot) {
            Ok(taken) => Ok(sent | taken),
            // Where its bytes have no room it may be that the worker says what cannot be of the ring.
            Err(fault) if self.scatter.ring(0).room().is_err() => Err(("the worker", fault)),
            Err(fault) => Err(("the client", fault)),
        });
        moved.unwrap_or_else(|(who, fault)| {
            warn!(session = self.shared.session, who, rule = fault.0, "protocol broken, session ends");
            self.end(who, fault.into());
            true
        })
    }

    fn park(&mut self, io: &mut Io, slot: u32) -> bool {
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

    fn is_finished(&self) -> bool {
        self.ending && self.under_way == 0
    }
}

impl Carried {
    pub fn new(client: Connection, attach: OwnedFd, shared: Arc<Shared>) -> std::io::Result<Box<Carried>> {
        let Connection { socket: tcp, secured } = client;
        let sealed = secured.map(|secured| {
            let Secured { sealer, opener, .. } = *secured;
            Box::new(Sealed { sealing: Sealing::new(sealer), opening: Opening::new(opener, RECEIVE_BYTES) })
        });
        let buffer = if sealed.is_some() { Box::default() } else { vec![0; RECEIVE_BYTES].into() };
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
            buffer,
            unread: 0..0,
            receiving: Receiving::Nothing,
            blocked: None,
            sealed,
            attach_byte: Box::new([0; 64]),
            futex_armed: [false; 3],
            under_way: 0,
            ending: false,
        }))
    }

    fn watch_worker(&mut self, io: &mut Io, slot: u32) {
        self.under_way += 1;
        // SAFETY: the box lives as long as requests are under way.
        unsafe { io.receive(slot, Did::ReceiveAttach, self.attach.as_raw_fd(), self.attach_byte.as_mut_ptr(), 64, 0) };
    }

    fn received(&mut self, result: i32) {
        let how = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        match result {
            n if n > 0 && self.sealed.is_some() => {
                self.sealed.as_mut().expect("just seen").opening.received(n as usize);
            }
            n if n > 0 => match how {
                Receiving::InPlace => self.scatter.received_in_place(n as usize),
                _ => self.unread = 0..n as usize,
            },
            0 if self.scatter.is_between_frames() => self.end("the client", Death::Gone),
            0 => self.end("the client", Death::Cut("it ended within a frame".into())),
            e if is_again(e) => {}
            e => self.end("the client", std::io::Error::from_raw_os_error(-e).into()),
        }
    }

    fn sent(&mut self, io: &mut Io, slot: u32, result: i32) {
        if result < 0 && !is_again(result) {
            return self.end("the client", std::io::Error::from_raw_os_error(-result).into());
        }
        let sent = result.max(0) as usize;
        match &mut self.sealed {
            Some(sealed) => sealed.sealing.advance(sent),
            None => self.gather.advance(sent),
        }
        if self.gather.is_empty() && self.sealed.as_ref().is_none_or(|sealed| sealed.sealing.is_empty()) {
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
        if let Err(why) = self.seal() {
            return self.end("the client", Death::Cut(why));
        }
        let parts = match &mut self.sealed {
            Some(sealed) => sealed.sealing.parts(),
            None => self.gather.parts(),
        };
        self.message.msg_iov = parts.as_ptr().cast_mut();
        self.message.msg_iovlen = parts.len();
        self.under_way += 1;
        // SAFETY: message, parts and what they point to stay until the completion: the batch is not touched while
        // `sending` is set, and the ring bytes are consumed after it.
        unsafe { io.send_message(slot, Did::Send, self.tcp.as_raw_fd(), &raw const *self.message) };
    }

    /// Makes records of what is next, if the last ones have gone.
    fn seal(&mut self) -> Result<(), String> {
        let Some(sealed) = self.sealed.as_mut().filter(|sealed| sealed.sealing.is_empty()) else { return Ok(()) };
        // SAFETY: the parts lead into the batch, which is not touched while it is sent, and into session memory.
        let taken = unsafe { sealed.sealing.take(self.gather.parts()) }?;
        self.gather.advance(taken);
        Ok(())
    }

    /// What the worker has written, to the client.
    fn pass_on(&mut self, io: &mut Io, slot: u32) -> Result<bool, Fault> {
        if self.sending.is_some() {
            return Ok(false);
        }
        if let Some(up_to) = self.newly_taken()? {
            self.gather.taken(up_to);
        }
        let mut lanes = Lanes { shared: &self.shared, striper: &mut self.striper };
        let heap = &self.shared.heap;
        // No event overtakes what was put into the reply ring before it: a host function is asked for behind the bytes
        // that it may look at, and memory is given back behind the last bytes that come there. So what is ready of the
        // events is looked at first, and goes last.
        let ready = self.event.ready().map_err(|_| Fault("ring positions are impossible"))? as usize;
        let reply = self.gather.collect(Frame::Reply, &mut self.reply, heap, &mut lanes)?;
        let event = match self.gather.has_drained() {
            true => self.gather.collect_seen(ready, Frame::Event, &mut self.event, heap, &mut lanes)?,
            false => 0,
        };
        if !self.gather.is_empty() {
            self.sending = Some((reply, event));
            self.send(io, slot);
            return Ok(true);
        }
        if reply + event > 0 {
            self.reply.consume(reply);
            self.event.consume(event);
        }
        Ok(reply + event > 0)
    }

    /// What the client has sent, to the worker.
    fn take_in(&mut self, io: &mut Io, slot: u32) -> Result<bool, Fault> {
        let (progress, is_used_up) = match self.sealed.is_some() {
            true => (self.take_sealed()?, self.blocked.is_none()),
            false => (self.take_plain()?, self.unread.is_empty()),
        };
        if is_used_up && self.receiving == Receiving::Nothing && !self.ending {
            self.receive(io, slot);
        }
        Ok(progress)
    }

    fn take_plain(&mut self) -> Result<bool, Fault> {
        if self.unread.is_empty() && self.blocked.is_none() {
            return Ok(false);
        }
        let (used, blocked) = self.scatter.feed(&self.buffer[self.unread.clone()], &self.shared.counts)?;
        self.unread.start += used;
        self.blocked = blocked;
        Ok(used > 0)
    }

    /// As [`Self::take_plain`], of records, each where it was received. Nothing more is received while there is a whole
    /// one.
    fn take_sealed(&mut self) -> Result<bool, Fault> {
        if self.receiving != Receiving::Nothing {
            return Ok(false);
        }
        let opening = &mut self.sealed.as_mut().expect("the caller looked").opening;
        let mut progress = false;
        loop {
            let end = match self.blocked {
                Some(_) => None,
                None => match opening.open() {
                    Ok(Heard::Bytes) => None,
                    Ok(Heard::Nothing) => return Ok(progress),
                    Ok(Heard::End) => Some(Death::Gone),
                    Err(why) => Some(Death::Cut(why)),
                },
            };
            if let Some(death) = end {
                self.end("the client", death);
                return Ok(true);
            }
            let (used, blocked) = self.scatter.feed(opening.plain(), &self.shared.counts)?;
            opening.used(used);
            self.blocked = blocked;
            progress |= used > 0;
            if blocked.is_some() {
                return Ok(progress);
            }
        }
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
        let (to, len) = match (&mut self.sealed, self.scatter.in_place()) {
            (Some(sealed), _) => {
                self.receiving = Receiving::IntoBuffer;
                sealed.opening.room()
            }
            (None, Some(place)) => {
                self.receiving = Receiving::InPlace;
                place
            }
            (None, None) => {
                self.receiving = Receiving::IntoBuffer;
                (self.buffer.as_mut_ptr(), self.buffer.len())
            }
        };
        // SAFETY: the buffer is boxed and left alone while `receiving` is set; the heap stays mapped.
        unsafe { io.receive(slot, Did::Receive, self.tcp.as_raw_fd(), to, len, 0) };
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

    fn end(&mut self, who: &str, death: Death) {
        if self.ending {
            return;
        }
        self.ending = true;
        info!(session = self.shared.session, why = death.of(who), "session ends");
        self.shared.end();
        shutdown(&self.tcp);
        shutdown(&self.attach);
        // The worker may be gone, so nobody else ends what waits for these.
        self.reply.rouse();
        self.event.rouse();
        self.scatter.ring(0).rouse();
    }
}
