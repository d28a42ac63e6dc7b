//! The main connection: the engine copies between it and the session memory that the worker sees.

// UNSAFETY: hands pointers into session memory and into its own boxed buffers to the kernel. `Carried` is boxed
// and freed only when no request of its own is under way, and the session memory is unmapped only when its last
// connection is gone.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_tls::handshake::Secured;
use orion_transport::carrier::Death;
use orion_transport::sealed::{Heard, Opening, Sealing};
use orion_transport::standstill::{LOOK_SECONDS, Standstill};
use orion_transport::{Blocked, Striper};
use orion_wire::Fault;
use tracing::{info, warn};

use super::shared::{Address, LANE_CHUNKS_MAX, Lanes, Shared};
use crate::engine::carrier::contract::{Connection, Main};
use crate::engine::carrier::worker_side::{Collected, Heard as OfWorker, WorkerSide};
use crate::engine::core::{has_hung_up, shutdown};
use crate::engine::io_ring::{Did, Done, Io, Timespec, is_again, is_cancelled};
use crate::engine::mail::Kick;

const RECEIVE_BYTES: usize = 256 << 10;
/// How often a client is told something whose system does not look whether we are still there, and how often it is
/// looked whether one takes what it is sent: several times in [`orion_transport::socket::SILENCE_SECONDS_MAX`].
static TIME: Timespec = Timespec::new().sec(LOOK_SECONDS);

/// The main connection.
pub struct Carried {
    tcp: OwnedFd,
    shared: Arc<Shared>,
    worker: WorkerSide,
    striper: Striper,
    message: Box<libc::msghdr>,
    buffer: Box<[u8]>,
    unread: std::ops::Range<usize>,
    receiving: Receiving,
    /// Where the connection is encrypted.
    sealed: Option<Box<Sealed>>,
    /// Whether the io_uring waits until it is time for the next beat or look, and whether a beat is to be sent.
    time_awaited: bool,
    beat_due: bool,
    standstill: Standstill,
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
        self.shared.main_is_at(Address { post, slot });
        self.worker.begin(io, slot, self.tcp.as_raw_fd());
        if self.has_time_to_await() {
            self.await_time(io, slot);
        }
    }

    fn done(&mut self, io: &mut Io, slot: u32, done: Done) {
        match self.worker.done(&done) {
            OfWorker::NotOurs => {}
            OfWorker::WorkerGone => return self.end("the worker", Death::Gone),
            OfWorker::Nothing => return,
        }
        match done.did {
            Did::Receive => self.received(done.result),
            Did::Send => self.sent(io, slot, done.result),
            Did::Hangup => self.end("the client", Death::Gone),
            Did::Time => {
                self.time_awaited = false;
                // Also where it was cancelled, so that moves do not put it off for ever.
                self.beat_due = self.shared.beats;
                if !self.ending && self.has_time_to_await() && !self.worker.is_leaving() {
                    self.await_time(io, slot);
                }
            }
            Did::Cancel => {}
            other => unreachable!("a carried session never asks for {other:?}"),
        }
    }

    fn leave(&mut self, io: &mut Io, slot: u32) -> bool {
        // What is being sent is not cancelled: Linux before 6.1 does not say then how much has gone.
        if self.ending || self.worker.is_sending() {
            return false;
        }
        self.worker.leave(io, slot);
        if self.receiving != Receiving::Nothing {
            self.worker.cancel(io, slot, Did::Receive);
        }
        if self.time_awaited {
            self.worker.cancel(io, slot, Did::Time);
        }
        true
    }

    fn may_go(&self) -> bool {
        self.worker.is_leaving() && self.worker.under_way == 0 && !self.ending
    }

    fn pump(&mut self, io: &mut Io, slot: u32) -> bool {
        if !self.ending && self.shared.is_over() {
            // A client that ends closes all its connections, and this is the first that was looked at.
            let who = if has_hung_up(self.tcp.as_fd()) { "the client" } else { "the client's bulk connection" };
            self.end(who, Death::Gone);
        }
        if self.ending {
            if std::mem::take(&mut self.time_awaited) {
                self.worker.cancel(io, slot, Did::Time);
            }
            return false;
        }
        if self.worker.is_leaving() {
            return false;
        }
        let sent = self.pass_on(io, slot).map_err(|fault| ("the worker", fault));
        let moved = sent.and_then(|sent| match self.take_in(io, slot) {
            Ok(taken) => Ok(sent | taken),
            Err(fault) => Err((self.worker.who_broke(), fault)),
        });
        moved.unwrap_or_else(|(who, fault)| {
            warn!(session = self.shared.session, who, rule = fault.0, "protocol broken, session ends");
            self.end(who, fault.into());
            true
        })
    }

    fn park(&mut self, io: &mut Io, slot: u32) -> bool {
        if self.ending || self.worker.is_leaving() {
            return true;
        }
        if !self.worker.park(io, slot, true) {
            return false;
        }
        if !self.worker.is_sending() && self.worker.gather().waits_for_room() {
            self.shared.room_waits.store(true, Ordering::SeqCst);
            if self.shared.queued.load(Ordering::SeqCst) <= LANE_CHUNKS_MAX / 2 {
                return false;
            }
        }
        if matches!(self.worker.blocked(), Some(Blocked::Barrier)) {
            self.shared.barrier_waits.store(true, Ordering::SeqCst);
            if !self.worker.is_behind_barrier(&self.shared.counts) {
                return false;
            }
        }
        !self.shared.is_over()
    }

    fn is_finished(&self) -> bool {
        self.ending && self.worker.under_way == 0
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
        Ok(Box::new(Carried {
            tcp,
            worker: WorkerSide::new(shared.memory(), shared.heap, attach)?,
            shared,
            striper: Striper::default(),
            // SAFETY: an all-zero msghdr is valid.
            message: Box::new(unsafe { std::mem::zeroed() }),
            buffer,
            unread: 0..0,
            receiving: Receiving::Nothing,
            sealed,
            time_awaited: false,
            beat_due: false,
            standstill: Standstill::default(),
            ending: false,
        }))
    }

    /// For the next beat, or to look whether the client takes what it was sent.
    fn has_time_to_await(&mut self) -> bool {
        self.standstill.look(self.tcp.as_fd()) || self.shared.beats
    }

    fn await_time(&mut self, io: &mut Io, slot: u32) {
        self.time_awaited = true;
        self.worker.under_way += 1;
        io.wait_time(slot, &TIME);
    }

    fn received(&mut self, result: i32) {
        let how = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        match result {
            n if n > 0 && self.sealed.is_some() => {
                self.sealed.as_mut().expect("just seen").opening.received(n as usize);
            }
            n if n > 0 => match how {
                Receiving::InPlace => self.worker.received_in_place(n as usize),
                _ => self.unread = 0..n as usize,
            },
            0 if self.worker.is_between_frames() => self.end("the client", Death::Gone),
            0 => self.end("the client", Death::Cut("it ended within a frame".into())),
            e if is_again(e) || is_cancelled(e) => {}
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
            None => self.worker.gather().advance(sent),
        }
        if self.worker.gather().is_empty() && self.sealed.as_ref().is_none_or(|sealed| sealed.sealing.is_empty()) {
            self.worker.sent();
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
            None => self.worker.gather().parts(),
        };
        self.message.msg_iov = parts.as_ptr().cast_mut();
        self.message.msg_iovlen = parts.len();
        self.worker.under_way += 1;
        // SAFETY: message, parts and what they point to stay until the completion: the batch is not touched while it
        // is being sent, and the ring bytes are consumed after it.
        unsafe { io.send_message(slot, Did::Send, self.tcp.as_raw_fd(), &raw const *self.message) };
        self.standstill.sent();
        if !self.time_awaited {
            self.await_time(io, slot);
        }
    }

    /// Makes records of what is next, if the last ones have gone.
    fn seal(&mut self) -> Result<(), String> {
        let Some(sealed) = self.sealed.as_mut().filter(|sealed| sealed.sealing.is_empty()) else { return Ok(()) };
        // SAFETY: the parts lead into the batch, which is not touched while it is sent, and into session memory.
        let taken = unsafe { sealed.sealing.take(self.worker.gather().parts()) }?;
        self.worker.gather().advance(taken);
        Ok(())
    }

    /// What the worker has written, to the client.
    fn pass_on(&mut self, io: &mut Io, slot: u32) -> Result<bool, Fault> {
        if self.worker.is_sending() {
            return Ok(false);
        }
        // A beat says once more what was said before.
        let beat = std::mem::take(&mut self.beat_due).then(|| self.worker.told_taken());
        if let Some(up_to) = self.worker.newly_taken()?.or(beat) {
            self.worker.gather().taken(up_to);
        }
        let collected = self.worker.collect(&mut Lanes { shared: &self.shared, striper: &mut self.striper })?;
        if collected == Collected::Batch {
            self.send(io, slot);
        }
        Ok(collected != Collected::Nothing)
    }

    /// What the client has sent, to the worker.
    fn take_in(&mut self, io: &mut Io, slot: u32) -> Result<bool, Fault> {
        let (progress, is_used_up) = match self.sealed.is_some() {
            true => (self.take_sealed()?, self.worker.blocked().is_none()),
            false => (self.take_plain()?, self.unread.is_empty()),
        };
        if is_used_up && self.receiving == Receiving::Nothing && !self.ending {
            self.receive(io, slot);
        }
        Ok(progress)
    }

    fn take_plain(&mut self) -> Result<bool, Fault> {
        if self.unread.is_empty() && self.worker.blocked().is_none() {
            return Ok(false);
        }
        let used = self.worker.feed(&self.buffer[self.unread.clone()], &self.shared.counts)?;
        self.unread.start += used;
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
            let end = match self.worker.blocked() {
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
            let used = self.worker.feed(opening.plain(), &self.shared.counts)?;
            opening.used(used);
            progress |= used > 0;
            if self.worker.blocked().is_some() {
                return Ok(progress);
            }
        }
    }

    fn receive(&mut self, io: &mut Io, slot: u32) {
        self.worker.under_way += 1;
        let (to, len) = match (&mut self.sealed, self.worker.in_place()) {
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

    fn end(&mut self, who: &str, death: Death) {
        if self.ending {
            return;
        }
        self.ending = true;
        info!(session = self.shared.session, why = death.of(who), "session ends");
        self.shared.end();
        shutdown(&self.tcp);
        self.worker.end();
    }
}

#[cfg(test)]
mod tests;
