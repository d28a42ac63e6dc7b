//! One session: first its client says where its queue pair is, then the engine copies.

// UNSAFETY: hands pointers into its own boxed buffers to the kernel. `Carried` is boxed and freed only when no request
// of its own is under way, and the session memory is unmapped only when it is gone.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use orion_tls::handshake::Secured;
use orion_tls::record::Outgoing;
use orion_transport::carrier::Death;
use orion_transport::carrier::rdma::Pair;
use orion_transport::carrier::rdma::ends::End;
use orion_transport::carrier::rdma::pipe::{Pipe, Tally};
use orion_transport::carrier::rdma::placing::{Failed, place};
use orion_transport::carrier::rdma::showing::{Showing, read_shown};
use orion_transport::sealed::{Heard, Opening};
use orion_transport::stream::Frame;
use orion_transport::{Blocked, LaneCounts, fds};
use orion_wire::Fault;
use orion_wire::hello::{FRAME_HEADER_BYTES, frame, frame_header, kind};
use orion_wire::refusal::{Reason, Refusal};
use tracing::{info, warn};

use super::shared::Shared;
use crate::engine::carrier::contract::{Connection, Main};
use crate::engine::carrier::worker_side::{Collected, Heard as OfWorker, WorkerSide};
use crate::engine::core::shutdown;
use crate::engine::io_ring::{Did, Done, Io, is_again};
use crate::engine::mail::Kick;

/// Of the one frame that the client says by TCP.
const ENDS_BYTES_MAX: usize = 4 << 10;
/// Taken from the inbox at once.
const TAKE_BYTES: usize = 128 << 10;
const IMPOSSIBLE: Fault = Fault("ring positions are impossible");
/// Writes of one turn, so that others have theirs.
const WRITES_PER_TURN: usize = 8;

// The pipe goes first, and with it the keys to the session's memory.
pub struct Carried {
    pipe: Option<Pipe>,
    tcp: OwnedFd,
    shared: Arc<Shared>,
    worker: WorkerSide,
    /// What the client says by TCP, until it has said where its queue pair is.
    hearing: Option<Hearing>,
    buffer: Box<[u8]>,
    /// Of the inbox in the buffer, until all of it is where it belongs.
    copied: usize,
    unread: std::ops::Range<usize>,
    bell: BellWait,
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
        self.worker.begin(io, slot, self.tcp.as_raw_fd());
        self.listen(io, slot);
    }

    fn done(&mut self, io: &mut Io, slot: u32, done: Done) {
        match self.worker.done(&done) {
            OfWorker::NotOurs => {}
            OfWorker::WorkerGone => return self.end("the worker", Death::Gone),
            OfWorker::Nothing => return,
        }
        match done.did {
            Did::Receive if self.ending => {}
            Did::Receive => match done.result {
                n if n > 0 => self.told(io, slot, n as usize),
                e if is_again(e) => self.listen(io, slot),
                0 => self.end("the client", Death::Gone),
                e => self.end("the client", std::io::Error::from_raw_os_error(-e).into()),
            },
            Did::Hangup => self.end("the client", Death::Gone),
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

    fn leave(&mut self, io: &mut Io, slot: u32) -> bool {
        // Until its queue pair is known it has nothing to do.
        if self.ending || self.pipe.is_none() {
            return false;
        }
        self.worker.leave(io, slot);
        self.silence(io, slot);
        true
    }

    fn may_go(&self) -> bool {
        self.worker.is_leaving() && self.worker.under_way == 0 && !self.ending
    }

    fn pump(&mut self, io: &mut Io, slot: u32) -> bool {
        if self.ending {
            self.silence(io, slot);
        }
        if self.ending || self.worker.is_leaving() || self.pipe.is_none() {
            return false;
        }
        let sent = self.pass_on();
        let moved = sent.and_then(|sent| match self.take_in() {
            Ok(taken) => Ok(sent | taken),
            Err(death) => Err((self.worker.who_broke(), death)),
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
        if self.ending || self.worker.is_leaving() || self.pipe.is_none() {
            return true;
        }
        let waits_for_room = self.worker.gather().waits_for_room();
        // While a range waits to be shown nothing behind it is looked at.
        if !self.worker.park(io, slot, !waits_for_room) {
            return false;
        }
        let pipe = self.pipe.as_ref().expect("looked at above");
        // A device that has to go on rings for nobody; what goes wrong is found again by the next pump.
        if pipe.waits_for_device() {
            return false;
        }
        // The last of what was shown may just have been read.
        if waits_for_room && pipe.may_show() {
            return false;
        }
        if self.worker.blocked().is_none() && (!self.unread.is_empty() || pipe.has_arrivals()) {
            return false;
        }
        let sleeps = pipe.may_sleep().unwrap_or(false);
        if sleeps && self.bell == BellWait::Not {
            self.bell = BellWait::Armed;
            self.worker.under_way += 1;
            io.wait_readable(slot, Did::Bell, pipe.bell());
        }
        sleeps
    }

    fn is_finished(&self) -> bool {
        self.ending && self.worker.under_way == 0
    }
}

impl Carried {
    pub fn new(client: Connection, attach: OwnedFd, shared: Arc<Shared>) -> std::io::Result<Box<Carried>> {
        let Connection { socket: tcp, secured } = client;
        Ok(Box::new(Carried {
            tcp,
            worker: WorkerSide::new(shared.mapped.memory(), shared.heap, attach)?,
            shared,
            hearing: Some(Hearing::new(secured)),
            pipe: None,
            buffer: vec![0; TAKE_BYTES].into(),
            copied: 0,
            unread: 0..0,
            bell: BellWait::Not,
            ending: false,
        }))
    }

    /// The bell rings for nobody any more.
    fn silence(&mut self, io: &mut Io, slot: u32) {
        if self.bell == BellWait::Armed {
            self.bell = BellWait::Cancelled;
            self.worker.cancel(io, slot, Did::Bell);
        }
    }

    fn listen(&mut self, io: &mut Io, slot: u32) {
        let Some(hearing) = &mut self.hearing else { return };
        let (to, len) = hearing.room();
        self.worker.under_way += 1;
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
        // SAFETY: the session's memory is unmapped when this object is gone, and with it the pipe.
        unsafe {
            pipe.offer(self.worker.commands().beside_device())?;
            pipe.find_pages_of(self.shared.heap);
        }
        pipe.connect(peer)?;
        if pipe.reads() {
            self.worker.scatter().let_device_read();
        }
        let own = pipe.own();
        self.pipe = Some(pipe);
        Ok(own)
    }

    /// What the worker has written, to the client. With an error comes who broke the rule, if it is one.
    fn pass_on(&mut self) -> Result<bool, (&'static str, Death)> {
        let the_worker = |fault: Fault| ("the worker", Death::from(fault));
        let the_client = |death| ("the client", death);
        let mut progress = false;
        if let Some(up_to) = self.worker.newly_taken().map_err(the_worker)? {
            self.pipe().ring_taken(up_to).map_err(the_client)?;
        }
        let pipe = self.pipe.as_ref().expect("the caller looked");
        let mut showing = Showing { pipe, heap: self.shared.heap, holes: None };
        for _ in 0..WRITES_PER_TURN {
            if !self.worker.is_sending() {
                progress |= place_replies(pipe, &mut self.worker).map_err(|failed| match failed {
                    Failed::Own(fault) => the_worker(fault),
                    Failed::Other(death) => the_client(death),
                })?;
                match self.worker.collect(&mut showing).map_err(the_worker)? {
                    Collected::Nothing => break,
                    Collected::Passed => {
                        progress = true;
                        continue;
                    }
                    Collected::Batch => {}
                }
            }
            let gather = self.worker.gather();
            // SAFETY: the parts lead into the batch and into session memory; neither changes until they are copied.
            let n = unsafe { pipe.send(gather.parts(), gather.is_ahead()) }.map_err(the_client)?;
            if n == 0 {
                break;
            }
            progress = true;
            gather.advance(n);
            if gather.is_empty() {
                self.worker.sent();
            }
        }
        Ok(progress)
    }

    fn pipe(&self) -> &Pipe {
        self.pipe.as_ref().expect("the caller looked")
    }

    /// What the client has sent, to the worker.
    fn take_in(&mut self) -> Result<bool, Death> {
        let mut progress = self.pipe().look()?;
        self.have_placed()?;
        let pipe = self.pipe.as_ref().expect("the caller looked");
        progress |= read_shown(pipe, self.worker.scatter())?;
        if self.unread.is_empty() && self.worker.blocked().is_none() {
            if let Some((to, len)) = self.worker.in_place() {
                // SAFETY: `in_place` gave `len` writable bytes of the heap.
                let n = unsafe { pipe.copy(to, len) };
                self.worker.received_in_place(n);
                pipe.take(n)?;
                return Ok(progress | (n > 0));
            }
            // SAFETY: the buffer is ours.
            self.copied = unsafe { pipe.copy(self.buffer.as_mut_ptr(), self.buffer.len()) };
            self.unread = 0..self.copied;
        }
        if !self.unread.is_empty() || self.worker.blocked().is_some() {
            let used = self.worker.feed(&self.buffer[self.unread.clone()], &LaneCounts::default())?;
            self.unread.start += used;
            progress |= used > 0;
            if matches!(self.worker.blocked(), Some(Blocked::Barrier)) {
                return Err(Fault("a barrier where there are no lanes").into());
            }
            // What was shown just now is read from now on.
            progress |= read_shown(pipe, self.worker.scatter())?;
            if self.unread.is_empty() && self.worker.blocked().is_none() {
                pipe.take(std::mem::take(&mut self.copied))?;
            }
        }
        Ok(progress)
    }

    /// Wakes a worker that sleeps, for what the client's device has written into its ring.
    fn have_placed(&mut self) -> Result<(), Death> {
        let bytes = self.pipe().take_placed();
        let placed = bytes == 0 || self.worker.commands().placed(bytes).map_err(|_| IMPOSSIBLE)?;
        if placed { Ok(()) } else { Err(Fault("more commands were written than there is room for").into()) }
    }

    fn end(&mut self, who: &str, death: Death) {
        if self.ending {
            return;
        }
        self.ending = true;
        let (session, why) = (self.shared.session, death.of(who));
        match &self.pipe {
            Some(pipe) => {
                let Tally { taken_bytes: inbox_bytes, shown_bytes, read_bytes, landed_bytes } = pipe.tally();
                info!(session, why, inbox_bytes, read_bytes, landed_bytes, shown_bytes, "session ends");
                if let Some(why) = pipe.objection() {
                    warn!(session, why, "bytes were copied that a device could have read");
                }
            }
            None => info!(session, why, "session ends"),
        }
        shutdown(&self.tcp);
        self.worker.end();
    }
}

/// Replies that go straight into the client's ring.
fn place_replies(pipe: &Pipe, worker: &mut WorkerSide) -> Result<bool, Failed> {
    let (gather, replies) = worker.replies();
    let bytes = place(pipe, gather, Frame::Reply, replies)?;
    if bytes > 0 {
        replies.consume(bytes);
    }
    Ok(bytes > 0)
}
