//! The worker's side of a session that an engine carries: its rings and its connection, whatever the client comes by.

// UNSAFETY: hands a pointer into its own boxed bytes to the kernel. They are freed with the carrier that has this, when
// no request is under way (`under_way`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use orion_ring::bell::Seat;
use orion_ring::memory::Which;
use orion_ring::{Consumer, Heap, Memory, Producer};
use orion_transport::gather::Stripe;
use orion_transport::stream::{Frame, TAKEN_BYTES_MIN};
use orion_transport::{Blocked, Gather, LaneCounts, Scatter};
use orion_wire::Fault;

use crate::engine::core::shutdown;
use crate::engine::io_ring::{Did, Done, Io, is_cancelled};

const ATTACH_BYTES: usize = 64;
/// The words in the rings that are waited for: replies, events, room for commands.
const FUTEXES: [Did; 3] = [Did::FutexReply, Did::FutexEvent, Did::FutexRoom];

pub struct WorkerSide {
    attach: OwnedFd,
    attach_byte: Box<[u8; ATTACH_BYTES]>,
    heap: Heap,
    /// Where what the client sends goes.
    scatter: Scatter,
    blocked: Option<Blocked>,
    reply: Consumer,
    event: Consumer,
    /// What is next for the client.
    gather: Gather,
    /// Ring bytes in the batch being sent: reply, event.
    sending: Option<(usize, usize)>,
    /// Command bytes that the client knows the worker has taken.
    taken_told: u64,
    turn: u32,
    futex_armed: [bool; 3],
    /// The session goes to another engine: what is under way is cancelled.
    leaving: bool,
    /// Requests to the io_uring of the whole session's main connection.
    pub under_way: u32,
}

/// What there is for the client.
#[derive(PartialEq, Eq)]
pub enum Collected {
    Nothing,
    /// It went another way, or told nothing.
    Passed,
    /// To be sent.
    Batch,
}

/// Whether something that was asked of the io_uring was asked by this side.
#[derive(PartialEq, Eq)]
pub enum Heard {
    Nothing,
    WorkerGone,
    NotOurs,
}

impl WorkerSide {
    pub fn new(memory: &Memory, heap: Heap, attach: OwnedFd) -> io::Result<WorkerSide> {
        let commands = memory.producer(Which::Command)?;
        Ok(WorkerSide {
            attach,
            attach_byte: Box::new([0; ATTACH_BYTES]),
            heap,
            scatter: Scatter::new(vec![(Frame::Command, commands)], heap),
            blocked: None,
            reply: memory.consumer(Which::Reply)?,
            event: memory.consumer(Which::Event)?,
            gather: Gather::default(),
            sending: None,
            taken_told: 0,
            turn: 0,
            futex_armed: [false; 3],
            leaving: false,
            under_way: 0,
        })
    }

    /// Hears when the worker ends, and when the client closes `socket`, on the engine that has the session from now on.
    pub fn begin(&mut self, io: &mut Io, slot: u32, socket: RawFd) {
        self.leaving = false;
        // While a ring is full or a barrier closed nothing is received, and yet a client's end has to be noticed.
        self.under_way += 1;
        io.wait_hangup(slot, socket);
        self.watch(io, slot);
    }

    /// Takes back what [`Self::begin`] and [`Self::park`] have asked for. The bells that ring until the session begins
    /// elsewhere are not heard, nor need they be: it looks at its rings then.
    pub fn leave(&mut self, io: &mut Io, slot: u32) {
        self.leaving = true;
        self.cancel(io, slot, Did::Hangup);
        self.cancel(io, slot, Did::ReceiveAttach);
        for (armed, did) in self.futex_armed.into_iter().zip(FUTEXES) {
            if armed {
                self.cancel(io, slot, did);
            }
        }
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Ends a request of the session's main connection.
    pub fn cancel(&mut self, io: &mut Io, slot: u32, what: Did) {
        self.under_way += 1;
        io.cancel(slot, what, Did::Cancel);
    }

    fn watch(&mut self, io: &mut Io, slot: u32) {
        self.under_way += 1;
        let (fd, to) = (self.attach.as_raw_fd(), self.attach_byte.as_mut_ptr());
        // SAFETY: the box lives as long as requests are under way.
        unsafe { io.receive(slot, Did::ReceiveAttach, fd, to, ATTACH_BYTES, 0) };
    }

    /// Of everything that was asked of the io_uring, this side's or not.
    pub fn done(&mut self, done: &Done) -> Heard {
        self.under_way -= 1;
        match done.did {
            Did::ReceiveAttach if self.leaving && (done.result > 0 || is_cancelled(done.result)) => {}
            Did::Hangup if self.leaving && is_cancelled(done.result) => {}
            // Nothing is ever sent there. Whoever does has taken the worker over, and each of his bytes would have this
            // engine look at them: his session is over.
            Did::ReceiveAttach => return Heard::WorkerGone,
            Did::FutexReply => self.futex_armed[0] = false,
            Did::FutexEvent => self.futex_armed[1] = false,
            Did::FutexRoom => self.futex_armed[2] = false,
            _ => return Heard::NotOurs,
        }
        Heard::Nothing
    }

    /// For whoever ends the session. The worker may be gone, so nobody else ends what waits for its rings.
    pub fn end(&mut self) {
        shutdown(&self.attach);
        self.reply.rouse();
        self.event.rouse();
        self.commands().rouse();
    }

    /// What the worker is given.
    pub fn commands(&mut self) -> &mut Producer {
        self.scatter.ring(0)
    }
}

// To the client.
impl WorkerSide {
    /// What is to be sent.
    pub fn gather(&mut self) -> &mut Gather {
        &mut self.gather
    }

    pub fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// For replies that go another way than in a batch, while none is being sent: what is next, and the replies.
    pub fn replies(&mut self) -> (&mut Gather, &mut Consumer) {
        (&mut self.gather, &mut self.reply)
    }

    /// Makes a batch of what is ready, while none is being sent.
    pub fn collect(&mut self, stripe: &mut impl Stripe) -> Result<Collected, Fault> {
        // No event overtakes what was put into the reply ring before it: a host function is asked for behind the bytes
        // that it may look at, and memory is given back behind the last bytes that come there. So what is ready of the
        // events is looked at first, and goes last.
        let ready = self.event.ready().map_err(|_| Fault("ring positions are impossible"))? as usize;
        let reply = self.gather.collect(Frame::Reply, &mut self.reply, &self.heap, stripe)?;
        let event = match self.gather.has_drained() {
            true => self.gather.collect_seen(ready, Frame::Event, &mut self.event, &self.heap, stripe)?,
            false => 0,
        };
        if !self.gather.is_empty() {
            self.sending = Some((reply, event));
            return Ok(Collected::Batch);
        }
        if reply + event == 0 {
            return Ok(Collected::Nothing);
        }
        self.consume((reply, event));
        Ok(Collected::Passed)
    }

    /// All of the batch is on its way.
    pub fn sent(&mut self) {
        self.gather.clear();
        if let Some(bytes) = self.sending.take() {
            self.consume(bytes);
        }
    }

    fn consume(&mut self, (reply, event): (usize, usize)) {
        self.reply.consume(reply);
        self.event.consume(event);
    }

    /// What the client was told last by [`Self::newly_taken`].
    pub fn told_taken(&self) -> u64 {
        self.taken_told
    }

    /// Up to where the worker has taken the client's commands, if that is worth a message.
    pub fn newly_taken(&mut self) -> Result<Option<u64>, Fault> {
        self.turn = self.turn.wrapping_add(1);
        let looks = self.turn.is_multiple_of(16);
        let ring = self.commands();
        // The worker writes that position with every command: looking at it all the time would slow it down.
        if looks && ring.outstanding_seen() >= TAKEN_BYTES_MIN {
            ring.room().map_err(|_| Fault("ring positions are impossible"))?;
        }
        let taken = ring.taken_seen();
        if taken.saturating_sub(self.taken_told) < TAKEN_BYTES_MIN {
            return Ok(None);
        }
        self.taken_told = taken;
        Ok(Some(taken))
    }
}

// From the client.
impl WorkerSide {
    /// Passes on what the client has sent, as far as there is room. Answers how much that was.
    pub fn feed(&mut self, bytes: &[u8], counts: &LaneCounts) -> Result<usize, Fault> {
        let (used, blocked) = self.scatter.feed(bytes, counts)?;
        self.blocked = blocked;
        Ok(used)
    }

    pub fn blocked(&self) -> Option<Blocked> {
        self.blocked
    }

    /// Whether what comes next has to wait for other connections still.
    pub fn is_behind_barrier(&mut self, counts: &LaneCounts) -> bool {
        matches!(self.scatter.feed(&[], counts), Ok((_, Some(Blocked::Barrier))))
    }

    /// For what goes into the heap without passing here.
    pub fn scatter(&mut self) -> &mut Scatter {
        &mut self.scatter
    }

    /// Where the next bytes may go without a copy in between.
    pub fn in_place(&self) -> Option<(*mut u8, usize)> {
        self.scatter.in_place()
    }

    pub fn received_in_place(&mut self, bytes: usize) {
        self.scatter.received_in_place(bytes);
    }

    pub fn is_between_frames(&self) -> bool {
        self.scatter.is_between_frames()
    }

    /// Whose fault it is that what the client sent could not be passed on: where its bytes have no room it may be that
    /// the worker says what cannot be of the ring.
    pub fn who_broke(&mut self) -> &'static str {
        if self.commands().room().is_err() { "the worker" } else { "the client" }
    }
}

// Sleep.
impl WorkerSide {
    /// Arranges to be woken when the worker has news, if any are `wanted` now, or room that is waited for. False if it
    /// has already.
    pub fn park(&mut self, io: &mut Io, slot: u32, wanted: bool) -> bool {
        if self.sending.is_none() && wanted {
            if !self.reply.may_sleep() || !self.event.may_sleep() {
                return false;
            }
            self.arm(io, slot, 0, self.reply.seat());
            self.arm(io, slot, 1, self.event.seat());
        }
        let waits_for_room = matches!(self.blocked, Some(Blocked::Room(_)));
        let ring = self.commands();
        if waits_for_room || ring.outstanding_seen() >= TAKEN_BYTES_MIN {
            if !ring.may_sleep() {
                // What the worker has taken is looked at only now and then; now it is known. Impossible positions are
                // found again by whoever needs room.
                let _ = ring.room();
                return false;
            }
            let seat = ring.seat();
            self.arm(io, slot, 2, seat);
        }
        true
    }

    /// Waits in the io_uring for the worker's bell, which is the word in the pages.
    fn arm(&mut self, io: &mut Io, slot: u32, index: usize, seat: Seat) {
        if !io.has_futex() || self.futex_armed[index] {
            return;
        }
        self.futex_armed[index] = true;
        self.under_way += 1;
        io.wait_futex(slot, FUTEXES[index], seat.flag);
    }
}
