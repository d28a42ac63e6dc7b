//! One session: first its client says where its queue pair is, then the engine copies.

// UNSAFETY: hands pointers into its own boxed buffers to the kernel. `Carried` is boxed and freed only when no request
// of its own is under way (`under_way`), and the session memory is unmapped only when it is gone.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use orion_ring::Consumer;
use orion_ring::bell::Seat;
use orion_ring::memory::Which;
use orion_tls::handshake::Secured;
use orion_tls::record::Outgoing;
use orion_transport::carrier::Death;
use orion_transport::carrier::rdma::ends::End;
use orion_transport::carrier::rdma::pipe::Pipe;
use orion_transport::carrier::rdma::{NoLanes, Pair};
use orion_transport::sealed::{Heard, Opening};
use orion_transport::stream::{Frame, TAKEN_BYTES_MIN};
use orion_transport::{Blocked, Gather, LaneCounts, Scatter, fds};
use orion_wire::Fault;
use orion_wire::hello::{FRAME_HEADER_BYTES, frame, frame_header, kind};
use orion_wire::refusal::{Reason, Refusal};
use tracing::{info, warn};

use super::shared::Shared;
use crate::engine::carrier::contract::{Connection, Main};
use crate::engine::core::shutdown;
use crate::engine::io_ring::{Did, Done, Io, is_again};
use crate::engine::mail::Kick;

/// Of the one frame that the client says by TCP.
const ENDS_BYTES_MAX: usize = 4 << 10;
/// Taken from the inbox at once.
const TAKE_BYTES: usize = 128 << 10;
/// Writes of one turn, so that others have theirs.
const WRITES_PER_TURN: usize = 8;

pub struct Carried {
    tcp: OwnedFd,
    attach: OwnedFd,
    shared: Arc<Shared>,
    /// What the client says by TCP, until it has said where its queue pair is.
    hearing: Option<Hearing>,
    pipe: Option<Pipe>,
    scatter: Scatter,
    reply: Consumer,
    event: Consumer,
    gather: Gather,
    /// Ring bytes in the batch being sent: reply, event.
    sending: Option<(usize, usize)>,
    /// Command bytes that the client knows the worker has taken.
    taken_told: u64,
    turn: u32,
    buffer: Box<[u8]>,
    unread: std::ops::Range<usize>,
    blocked: Option<Blocked>,
    attach_byte: Box<[u8; 64]>,
    futex_armed: [bool; 3],
    bell: BellWait,
    under_way: u32,
    ending: bool,
}

/// Whether the io_uring waits for the pipe's bell.
#[derive(PartialEq, Eq)]
enum BellWait {
    Not,
    Armed,
    Cancelled,
}

/// One frame, as it comes.
struct Hearing {
    plain: Vec<u8>,
    /// What is received, where nothing is encrypted.
    buffer: Box<[u8]>,
    sealed: Option<(Opening, orion_tls::record::Sealer)>,
}

impl Hearing {
    fn new(secured: Option<Box<Secured>>) -> Hearing {
        let sealed = secured.map(|secured| {
            let Secured { sealer, opener, .. } = *secured;
            (Opening::new(opener, ENDS_BYTES_MAX), sealer)
        });
        Hearing { plain: Vec::new(), buffer: vec![0; ENDS_BYTES_MAX].into(), sealed }
    }

    fn room(&mut self) -> (*mut u8, usize) {
        match &mut self.sealed {
            Some((opening, _)) => opening.room(),
            None => (self.buffer.as_mut_ptr(), self.buffer.len()),
        }
    }

    /// So many bytes have come. The frame's body, once it is whole.
    fn received(&mut self, n: usize) -> Result<Option<Vec<u8>>, String> {
        match &mut self.sealed {
            None => self.plain.extend_from_slice(&self.buffer[..n]),
            Some((opening, _)) => {
                opening.received(n);
                while let Heard::Bytes = opening.open()? {
                    let plain = opening.plain();
                    self.plain.extend_from_slice(plain);
                    let used = plain.len();
                    opening.used(used);
                }
            }
        }
        if self.plain.len() > ENDS_BYTES_MAX {
            return Err("it says too much before its queue pair is known".into());
        }
        let Some(header) = self.plain.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let (kind, len) = frame_header(header).map_err(|fault| fault.0.to_owned())?;
        if kind != kind::ENDS || FRAME_HEADER_BYTES + len > ENDS_BYTES_MAX {
            return Err(format!("it does not say where its queue pair is (frame kind {kind}): does it come by RDMA?"));
        }
        match self.plain.len().cmp(&(FRAME_HEADER_BYTES + len)) {
            std::cmp::Ordering::Less => Ok(None),
            std::cmp::Ordering::Equal => Ok(Some(self.plain.split_off(FRAME_HEADER_BYTES))),
            std::cmp::Ordering::Greater => Err("it says more than where its queue pair is".into()),
        }
    }

    /// A fresh connection takes these few bytes at once.
    fn answer(&mut self, socket: &OwnedFd, frame: &[u8]) -> Result<(), String> {
        let mut out = Outgoing::default();
        let sealed = match &mut self.sealed {
            None => frame.to_vec(),
            Some((_, sealer)) => {
                sealer.seal(frame, &mut out)?;
                out.slices().flatten().copied().collect()
            }
        };
        match fds::send_some(socket.as_fd(), &sealed, &[], libc::MSG_DONTWAIT) {
            Ok(n) if n == sealed.len() => Ok(()),
            Ok(n) => Err(format!("of {} bytes it took {n}", sealed.len())),
            Err(e) => Err(e.to_string()),
        }
    }
}

// SAFETY: the raw pointers inside lead to this object's own boxes or to session memory; neither is tied to a thread.
unsafe impl Send for Carried {}

impl Main for Carried {
    fn session(&self) -> u64 {
        self.shared.session
    }

    fn begin(&mut self, io: &mut Io, slot: u32, _: Arc<dyn Kick>) {
        self.under_way += 1;
        io.wait_hangup(slot, self.tcp.as_raw_fd());
        self.watch_worker(io, slot);
        self.listen(io, slot);
    }

    fn done(&mut self, io: &mut Io, slot: u32, done: Done) {
        self.under_way -= 1;
        match done.did {
            Did::Receive if self.ending => {}
            Did::Receive => match done.result {
                n if n > 0 => self.told(io, slot, n as usize),
                e if is_again(e) => self.listen(io, slot),
                0 => self.end("the client", Death::Gone),
                e => self.end("the client", std::io::Error::from_raw_os_error(-e).into()),
            },
            Did::ReceiveAttach => match done.result {
                // Nothing is ever sent there; bytes are ignored.
                n if n > 0 && !self.ending => self.watch_worker(io, slot),
                _ => self.end("the worker", Death::Gone),
            },
            Did::Hangup => self.end("the client", Death::Gone),
            Did::FutexReply => self.futex_armed[0] = false,
            Did::FutexEvent => self.futex_armed[1] = false,
            Did::FutexRoom => self.futex_armed[2] = false,
            Did::Bell => {
                self.bell = BellWait::Not;
                if let Some(pipe) = &self.pipe {
                    pipe.hear();
                }
            }
            Did::Cancel => {}
            other => unreachable!("a carried session never asks for {other:?}"),
        }
    }

    fn pump(&mut self, io: &mut Io, slot: u32) -> bool {
        if self.ending && self.bell == BellWait::Armed {
            // It rings for nobody any more.
            self.bell = BellWait::Cancelled;
            self.under_way += 1;
            io.cancel(slot, Did::Bell, Did::Cancel);
        }
        if self.ending || self.pipe.is_none() {
            return false;
        }
        let sent = self.pass_on().map_err(|death| ("the worker", death));
        let moved = sent.and_then(|sent| match self.take_in() {
            Ok(taken) => Ok(sent | taken),
            // Where its bytes have no room it may be that the worker says what cannot be of the ring.
            Err(death) if self.scatter.ring(0).room().is_err() => Err(("the worker", death)),
            Err(death) => Err(("the client", death)),
        });
        moved.unwrap_or_else(|(who, death)| {
            match &death {
                Death::Broke(fault) => {
                    warn!(session = self.shared.session, who, rule = fault.0, "protocol broken, session ends");
                    self.end(who, death);
                }
                // Whatever the engine was about to do, it was the way to the client that broke.
                _ => self.end("the client", death),
            }
            true
        })
    }

    fn park(&mut self, io: &mut Io, slot: u32) -> bool {
        if self.ending || self.pipe.is_none() {
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
        let pipe = self.pipe.as_ref().expect("looked at above");
        // A device that has to go on rings for nobody; what goes wrong is found again by the next pump.
        if pipe.waits_for_device() {
            return false;
        }
        if self.blocked.is_none() && (!self.unread.is_empty() || pipe.has_arrivals()) {
            return false;
        }
        let sleeps = pipe.may_sleep().unwrap_or(false);
        if sleeps && self.bell == BellWait::Not {
            self.bell = BellWait::Armed;
            self.under_way += 1;
            io.wait_readable(slot, Did::Bell, pipe.bell());
        }
        sleeps
    }

    fn is_finished(&self) -> bool {
        self.ending && self.under_way == 0
    }
}

impl Carried {
    pub fn new(client: Connection, attach: OwnedFd, shared: Arc<Shared>) -> std::io::Result<Box<Carried>> {
        let Connection { socket: tcp, secured } = client;
        let memory = shared.mapped.memory();
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
            hearing: Some(Hearing::new(secured)),
            pipe: None,
            gather: Gather::default(),
            sending: None,
            taken_told: 0,
            turn: 0,
            buffer: vec![0; TAKE_BYTES].into(),
            unread: 0..0,
            blocked: None,
            attach_byte: Box::new([0; 64]),
            futex_armed: [false; 3],
            bell: BellWait::Not,
            under_way: 0,
            ending: false,
        }))
    }

    fn watch_worker(&mut self, io: &mut Io, slot: u32) {
        self.under_way += 1;
        // SAFETY: the box lives as long as requests are under way.
        unsafe { io.receive(slot, Did::ReceiveAttach, self.attach.as_raw_fd(), self.attach_byte.as_mut_ptr(), 64, 0) };
    }

    fn listen(&mut self, io: &mut Io, slot: u32) {
        let Some(hearing) = &mut self.hearing else { return };
        let (to, len) = hearing.room();
        self.under_way += 1;
        // SAFETY: the buffer is boxed, and left alone until the completion.
        unsafe { io.receive(slot, Did::Receive, self.tcp.as_raw_fd(), to, len, 0) };
    }

    /// The client has said something by TCP: where its queue pair is, or a part of it.
    fn told(&mut self, io: &mut Io, slot: u32, n: usize) {
        let mut hearing = self.hearing.take().expect("nothing is received after it");
        let session = self.shared.session;
        match hearing.received(n) {
            Ok(None) => {
                self.hearing = Some(hearing);
                self.listen(io, slot);
            }
            Err(rule) => {
                warn!(session, who = "the client", rule, "protocol broken, session ends");
                self.end("the client", Death::Cut(rule));
            }
            Ok(Some(body)) => {
                let made = End::decode(&body).map_err(|fault| fault.0.to_owned()).and_then(|peer| self.connect(&peer));
                let (answer, failed) = match made {
                    Ok(own) => (frame(kind::ENDS, &own.encode()), None),
                    Err(why) => (frame(kind::REFUSED, &Refusal::new(Reason::Other, why.clone()).encode()), Some(why)),
                };
                let said = hearing.answer(&self.tcp, &answer);
                if let Some(why) = failed {
                    warn!(session, why, "a session over RDMA is not to be had");
                    self.end("the client", Death::Cut(why));
                } else if let Err(why) = said {
                    self.end("the client", Death::Cut(why));
                }
            }
        }
    }

    fn connect(&mut self, peer: &End) -> Result<End, String> {
        let pipe = Pipe::new(Pair::new(self.shared.device.clone())?);
        pipe.connect(peer)?;
        let own = pipe.own();
        self.pipe = Some(pipe);
        Ok(own)
    }

    /// What the worker has written, to the client.
    fn pass_on(&mut self) -> Result<bool, Death> {
        let mut progress = false;
        for _ in 0..WRITES_PER_TURN {
            if self.sending.is_none() && !self.collect()? {
                break;
            }
            let pipe = self.pipe.as_ref().expect("the caller looked");
            // SAFETY: the parts lead into the batch and into session memory; neither changes until they are copied.
            let n = unsafe { pipe.send(self.gather.parts()) }?;
            if n == 0 {
                break;
            }
            progress = true;
            self.gather.advance(n);
            if self.gather.is_empty() {
                self.gather.clear();
                let (reply, event) = self.sending.take().expect("it was being sent");
                self.reply.consume(reply);
                self.event.consume(event);
            }
        }
        Ok(progress)
    }

    /// Makes a batch of what is ready. False if nothing is.
    fn collect(&mut self) -> Result<bool, Fault> {
        if let Some(up_to) = self.newly_taken()? {
            self.gather.taken(up_to);
        }
        let heap = &self.shared.heap;
        // No event overtakes what was put into the reply ring before it: see the other carrier that copies.
        let ready = self.event.ready().map_err(|_| Fault("ring positions are impossible"))? as usize;
        let reply = self.gather.collect(Frame::Reply, &mut self.reply, heap, &mut NoLanes)?;
        let event = match self.gather.has_drained() {
            true => self.gather.collect_seen(ready, Frame::Event, &mut self.event, heap, &mut NoLanes)?,
            false => 0,
        };
        if !self.gather.is_empty() {
            self.sending = Some((reply, event));
            return Ok(true);
        }
        self.reply.consume(reply);
        self.event.consume(event);
        Ok(false)
    }

    /// What the client has sent, to the worker.
    fn take_in(&mut self) -> Result<bool, Death> {
        let pipe = self.pipe.as_ref().expect("the caller looked");
        let mut progress = pipe.look()?;
        if self.unread.is_empty() && self.blocked.is_none() {
            if let Some((to, len)) = self.scatter.in_place() {
                // SAFETY: `in_place` gave `len` writable bytes of the heap.
                let n = unsafe { pipe.copy(to, len) };
                self.scatter.received_in_place(n);
                pipe.take(n)?;
                return Ok(progress | (n > 0));
            }
            // SAFETY: the buffer is ours.
            let n = unsafe { pipe.copy(self.buffer.as_mut_ptr(), self.buffer.len()) };
            pipe.take(n)?;
            self.unread = 0..n;
        }
        if !self.unread.is_empty() || self.blocked.is_some() {
            let (used, blocked) = self.scatter.feed(&self.buffer[self.unread.clone()], &LaneCounts::default())?;
            self.unread.start += used;
            self.blocked = blocked;
            progress |= used > 0;
            if matches!(blocked, Some(Blocked::Barrier)) {
                return Err(Fault("a barrier where there are no lanes").into());
            }
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
        shutdown(&self.tcp);
        shutdown(&self.attach);
        // The worker may be gone, so nobody else ends what waits for these.
        self.reply.rouse();
        self.event.rouse();
        self.scatter.ring(0).rouse();
    }
}
