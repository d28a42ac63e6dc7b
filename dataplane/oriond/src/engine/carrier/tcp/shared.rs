//! What the main connection and the lanes of a session have in common. They may live on different engines.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};

use orion_ring::{Heap, Memory};
use orion_telemetry::report::Connection;
use orion_transport::gather::{Part, Stripe};
use orion_transport::lanes::CHUNK_BYTES_MIN;
use orion_transport::stream::STRIPE_BYTES_MIN;
use orion_transport::{LANES_MAX, LaneCounts, Striper};
use orion_wire::record::HeapRange;

use super::wire;
use crate::engine::mail::Kick;
use crate::engine::workers::nursery::Order;

/// Chunks of one session that wait for its lanes: 64 MiB or more of heap, and 16 bytes of ours each. A client that does
/// not read its lanes is not served beyond that.
pub const LANE_CHUNKS_MAX: usize = 512;

pub struct Shared {
    pub session: u64,
    /// The client hears something now and then, whether or not there is anything to say.
    pub beats: bool,
    pub heap: Heap,
    pub counts: LaneCounts,
    /// The main connection is parked at a barrier: whoever counts bytes up kicks it.
    pub barrier_waits: AtomicBool,
    /// Something waits for room on the lanes: whoever takes chunks from there kicks the main connection.
    pub room_waits: AtomicBool,
    /// Chunks in `outgoing`.
    pub queued: AtomicUsize,
    over: AtomicBool,
    /// The main connection once more, to be asked about.
    pub connection: OnceLock<OwnedFd>,
    /// Of the main connection and of the lanes, in this order. Engines have no use for it.
    pub ends: Mutex<Vec<Connection>>,
    /// Where the main connection is: another engine's once it has moved.
    main: Mutex<Option<Address>>,
    pub lanes: Mutex<[Option<Address>; LANES_MAX]>,
    /// Lanes that somebody was let in for, a bit each.
    claimed: AtomicUsize,
    /// Lanes 0 up to this have joined.
    pub joined: AtomicUsize,
    outgoing: [Mutex<VecDeque<HeapRange>>; LANES_MAX],
    mapped: Mapped,
}

/// An engine's mailbox and the slot of an object there.
pub struct Address {
    pub post: Arc<dyn Kick>,
    pub slot: u32,
}

impl Address {
    pub fn kick(&self) {
        self.post.kick(self.slot);
    }
}

/// Unmaps when the last user is gone. Unmapping a large heap takes milliseconds, so somebody else does it.
pub struct Mapped {
    memory: Option<Memory>,
    nursery: Sender<Order>,
}

impl Mapped {
    pub fn new(memory: Memory, nursery: Sender<Order>) -> Mapped {
        Mapped { memory: Some(memory), nursery }
    }

    pub fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("taken only when dropped")
    }
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
    pub fn new(session: u64, memory: Memory, nursery: Sender<Order>, beats: bool) -> std::io::Result<Shared> {
        // Owned from here on, so that a failure below unmaps what was mapped so far.
        let mapped = Mapped::new(memory, nursery);
        let heap = mapped.memory().map_heap(None)?;
        Ok(Shared {
            session,
            beats,
            heap,
            counts: LaneCounts::default(),
            barrier_waits: AtomicBool::new(false),
            room_waits: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            connection: OnceLock::new(),
            ends: Mutex::default(),
            main: Mutex::default(),
            lanes: Mutex::default(),
            claimed: AtomicUsize::new(0),
            joined: AtomicUsize::new(0),
            outgoing: Default::default(),
            mapped,
        })
    }

    pub fn memory(&self) -> &Memory {
        self.mapped.memory()
    }

    /// Lets one connection in for a lane, once in the life of the session: the end of a lane is the end of the session.
    pub fn claim_lane(&self, index: usize) -> bool {
        index < LANES_MAX && !self.is_over() && self.claimed.fetch_or(1 << index, Ordering::SeqCst) >> index & 1 == 0
    }

    /// It has one connection more: a lane, or the main one.
    pub fn has(&self, socket: BorrowedFd<'_>, lane: Option<u32>) {
        let mut ends = self.ends.lock().expect("nothing panics under this lock");
        ends.extend(wire::ends(socket, lane));
        // A lane may join before the door has heard that the main connection was told to begin.
        ends.sort_by_key(|connection| connection.lane);
    }

    /// Takes a chunk to send from a lane's queue.
    pub fn next_chunk(&self, lane: usize) -> Option<HeapRange> {
        let chunk = self.outgoing[lane].lock().expect("nothing panics under this lock").pop_front()?;
        let left = self.queued.fetch_sub(1, Ordering::SeqCst) - 1;
        // SeqCst pairs with `park`: either we see that somebody waits or he sees that there is room.
        if left <= LANE_CHUNKS_MAX / 2
            && self.room_waits.load(Ordering::SeqCst)
            && self.room_waits.swap(false, Ordering::SeqCst)
        {
            self.kick_main();
        }
        Some(chunk)
    }

    /// The main connection is at `address` from now on, and is looked at after this.
    ///
    /// No kick is lost in a move. Who kicks has changed something before, takes the lock, and posts while he has it. If
    /// he finds the new address, the kick is for the engine that has the session. If he finds the old one he has had
    /// the lock before this call, so that the look that follows sees what he has changed; his kick finds an empty slot
    /// at the old engine, or somebody else there who is looked at once more than he needs.
    pub fn main_is_at(&self, address: Address) {
        *self.main.lock().expect("nothing panics under this lock") = Some(address);
    }

    /// Has the main connection looked at.
    pub fn kick_main(&self) {
        self.main.lock().expect("nothing panics under this lock").iter().for_each(Address::kick);
    }

    /// Ends the session for everybody who carries it.
    pub fn end(&self) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.kick_main();
        self.lanes.lock().expect("nothing panics under this lock").iter().flatten().for_each(Address::kick);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Deals ranges out to the lanes of a session.
pub struct Lanes<'a> {
    pub shared: &'a Shared,
    pub striper: &'a mut Striper,
}

impl Stripe for Lanes<'_> {
    fn stripe(&mut self, range: HeapRange) -> Part {
        // Acquire pairs with the Release in `Lane::new`: the lanes' addresses are in the table.
        let joined = self.shared.joined.load(Ordering::Acquire);
        if range.bytes < STRIPE_BYTES_MIN || joined == 0 {
            return Part::Inline(range.bytes);
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
        Part::Striped(range.bytes)
    }

    fn barrier(&self) -> [u64; LANES_MAX] {
        *self.striper.sent()
    }
}
