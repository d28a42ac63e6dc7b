//! The application's side of a session whose pages are mirrored, whatever carries it: memory of its own, a thread that
//! sends what the application posts, and one that puts what comes where it belongs.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use orion_ring::futex::{self, Among};
use orion_ring::memory::Which;
use orion_ring::{Consumer, Heap, Memory, Releaser, Spin};
use orion_wire::Fault;
use orion_wire::address::Server;
use orion_wire::hello::Welcome;

use super::contract::{Death, Lost, Way};
use crate::channel::Channel;
use crate::client::handshake::{Caller, Greeted, NoSession, Tuning, greet, layout, map_heap, mapping_failed, start};
use crate::client::say;
use crate::gather::{Gather, Stripe};
use crate::holes::Holes;
use crate::lanes::LaneCounts;
use crate::proof::LaneKey;
use crate::scatter::{Blocked, Listener, Scatter};
use crate::stream::Frame;

/// How long a posted copy to the host is kept back for the wait that usually follows: two messages cost the server's
/// engine twice the receiving, and an acknowledgement in between.
const WAIT_FOLLOWS: Duration = Duration::from_micros(3);
/// A sleeping pump looks this often whether the session is over.
pub const NAP: Duration = Duration::from_millis(500);

/// A session that has begun, and that nothing carries yet.
pub struct Begun {
    pub main: Channel,
    pub welcome: Welcome,
    pub lane_key: LaneKey,
    pub memory: Memory,
    pub heap: Heap,
    /// Each side has proved to the other who it is.
    pub is_proved: bool,
}

/// From the first message to the worker's start, over a connection to the server.
pub fn begin(way: &dyn Way, server: &Server, caller: &Caller, mut main: Channel) -> Result<Begun, NoSession> {
    let Greeted { welcome, lane_key, .. } = greet(server, &mut main, caller, false)?;
    let layout = layout(&welcome).expect("greet has checked it");
    let memory = Memory::create(layout).map_err(|e| format!("creating the session memory failed: {e}"))?;
    let heap = map_heap(&memory).map_err(|e| mapping_failed(layout.heap_bytes, e))?;
    start(server, &mut main, &way.start(heap.base() as u64), &[])?;
    let is_proved = caller.token.is_some() || caller.lease.is_some() || caller.trust.says_whom();
    Ok(Begun { main, welcome, lane_key, memory, heap, is_proved })
}

pub struct ApplicationSide {
    pub heap: Heap,
    pub holes: Option<Holes>,
    pub listener: Listener,
    pub spin: Spin,
    pub lost: Lost,
    under_way: UnderWay,
}

impl ApplicationSide {
    /// Of the application's commands, and where what comes is put.
    pub fn new(
        memory: &Memory,
        heap: Heap,
        listener: Listener,
        tuning: Tuning,
    ) -> Result<(ApplicationSide, Consumer, Scatter), String> {
        let failed = |what: &str, e: io::Error| format!("mapping the {what} ring failed: {e}");
        let commands = memory.consumer(Which::Command).map_err(|e| failed("command", e))?;
        let replies = memory.producer(Which::Reply).map_err(|e| failed("reply", e))?;
        let events = memory.producer(Which::Event).map_err(|e| failed("event", e))?;
        let scatter = Scatter::new(vec![(Frame::Reply, replies), (Frame::Event, events)], heap);
        let side = ApplicationSide {
            heap,
            holes: Holes::of(memory),
            listener,
            spin: Spin::adaptive(Duration::from_micros(tuning.spin_us)),
            lost: Lost::default(),
            under_way: UnderWay::new(commands.releaser()),
        };
        Ok((side, commands, scatter.with_listener(Some(listener))))
    }

    pub fn is_lost(&self) -> bool {
        self.lost.is_set()
    }

    /// How a pump has ended. Nothing is printed for a connection that merely ended: the callers who notice say it once.
    pub fn end_of(&self, pump: Result<(), Death>) -> Death {
        if let Err(Death::Broke(fault)) = &pump
            && !self.is_lost()
        {
            say::say(format_args!("the connection to the server broke the protocol ({fault}); the session is over"));
        }
        pump.err().unwrap_or(Death::Closed)
    }

    /// Sends what is posted until the session is over. `place` has some of it where it belongs without a batch, and
    /// answers how many bytes. `send` sends from the beginning of a batch, and waits if it cannot; with an empty one,
    /// for room on the other way that a range goes. `nap` is called now and then while nothing is posted.
    pub fn send_commands(
        &self,
        mut commands: Consumer,
        stripe: &mut impl Stripe,
        mut place: impl FnMut(&mut Gather, &mut Consumer) -> Result<usize, Death>,
        mut send: impl FnMut(&mut Gather) -> Result<(), Death>,
        mut nap: impl FnMut(),
    ) -> Result<(), Death> {
        let mut batch = Gather::default().with_holes(self.holes);
        while !self.is_lost() {
            let placed = place(&mut batch, &mut commands)?;
            if placed > 0 {
                commands.pass(placed);
                self.under_way.sent(batch.carried(), commands.passed());
                continue;
            }
            let mut taken = batch.collect(Frame::Command, &mut commands, &self.heap, stripe)?;
            let follows = Spin { budget: WAIT_FOLLOWS, ..self.spin };
            if batch.ends_with_copy_out() && follows.until(|| commands.has_news() != Ok(false)) {
                taken = batch.collect_after(taken, Frame::Command, &mut commands, &self.heap, stripe)?;
            }
            if taken == 0 && batch.is_empty() {
                if batch.waits_for_room() {
                    send(&mut batch)?;
                    continue;
                }
                if !self.spin.until(|| commands.has_news() != Ok(false)) {
                    // A nap that ends because it is over is no reason to look for another 20 ms.
                    while commands.has_news() == Ok(false) && !self.is_lost() {
                        commands.sleep(NAP);
                        nap();
                    }
                }
                continue;
            }
            while !batch.is_empty() {
                if self.is_lost() {
                    return Ok(());
                }
                send(&mut batch)?;
            }
            batch.clear();
            commands.pass(taken);
            self.under_way.sent(batch.carried(), commands.passed());
        }
        Ok(())
    }

    /// The worker has taken so many bytes of commands.
    pub fn taken(&self, up_to: u64) {
        self.under_way.taken(up_to);
    }

    /// Puts bytes where they belong, however long that takes the application. `wait` waits for what a barrier stands
    /// for, or for a device.
    pub fn deliver(
        &self,
        scatter: &mut Scatter,
        bytes: &[u8],
        counts: &LaneCounts,
        mut wait: impl FnMut(&mut Scatter, Blocked) -> Result<(), Death>,
    ) -> Result<(), Death> {
        let mut at = 0;
        loop {
            let (used, blocked) = scatter.feed(&bytes[at..], counts)?;
            at += used;
            if let Some(up_to) = scatter.taken() {
                self.taken(up_to);
            }
            match blocked {
                Some(Blocked::Room(ring)) => {
                    scatter
                        .ring(ring)
                        .wait_room(1, self.spin, Duration::from_millis(100))
                        .map_err(|_| Fault("ring positions are impossible"))?;
                }
                Some(blocked) => wait(scatter, blocked)?,
                None => return Ok(()),
            }
            if self.is_lost() {
                return Err(Death::Gone);
            }
        }
    }
}

/// Wakes who sleeps at a word of the carrier's own.
pub fn wake(word: &AtomicU32) {
    if word.swap(0, Ordering::SeqCst) != 0 {
        futex::wake_all(word, Among::Threads);
    }
}

/// Commands that were sent and that the worker may not have taken yet. The application has so much less room in its
/// ring, so the worker's never fills up. What does not travel as commands is the worker's no more than the ring's: its
/// room comes back once it was sent.
struct UnderWay {
    at: Mutex<At>,
    ring: Releaser,
}

/// Positions, in bytes.
#[derive(Debug, Default)]
struct At {
    /// Of the worker's ring: up to where it was filled, and up to where the worker says that it has come.
    carried: u64,
    taken: u64,
    /// Of ours: up to where it was sent, and up to where it was given back.
    passed: u64,
    released: u64,
}

impl At {
    /// Finer than this nobody needs to know.
    const STEP_BYTES: u64 = 16 << 10;

    /// Up to where to give our ring back, if that is worth it. What the worker claims to have taken too much only hurts
    /// whoever claims it.
    fn release(&mut self) -> Option<u64> {
        let position = self.passed.saturating_sub(self.carried.saturating_sub(self.taken));
        if position < self.released + Self::STEP_BYTES {
            return None;
        }
        self.released = position;
        Some(position)
    }
}

impl UnderWay {
    fn new(ring: Releaser) -> UnderWay {
        UnderWay { at: Mutex::default(), ring }
    }

    fn sent(&self, worker_to: u64, to: u64) {
        self.change(|at| (at.carried, at.passed) = (worker_to, to));
    }

    fn taken(&self, worker_to: u64) {
        self.change(|at| at.taken = at.taken.max(worker_to));
    }

    fn change(&self, change: impl FnOnce(&mut At)) {
        let mut at = self.at.lock().expect("nothing panics under this lock");
        change(&mut at);
        if let Some(position) = at.release() {
            self.ring.release_to(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_ring::memory::Layout;

    const KIB: u64 = 1 << 10;

    #[test]
    fn room_comes_back_as_the_worker_takes_what_it_was_sent() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        let under_way = UnderWay::new(c.releaser());
        // The worker's ring gets half of what is in ours.
        for batch in 1..=16 {
            assert!(p.push(&[&[0; 8 << 10]]).unwrap());
            c.ready().unwrap();
            c.pass(8 << 10);
            under_way.sent(batch * 4 * KIB, c.passed());
            p.room().unwrap();
            let (held, sent) = (p.outstanding_seen(), batch * 4 * KIB);
            assert!((sent..sent + At::STEP_BYTES).contains(&held), "{held} of {sent}");
        }
        let mut held_after = |worker_to| {
            under_way.taken(worker_to);
            p.room().unwrap();
            p.outstanding_seen() / KIB
        };
        assert_eq!(held_after(0), 64);
        assert_eq!(held_after(16 * KIB - 1), 64);
        assert_eq!(held_after(16 * KIB), 48);
        assert_eq!(held_after(16 * KIB), 48);
        assert_eq!(held_after(63 * KIB), 1);
        // Too little to be worth it.
        assert_eq!(held_after(u64::MAX), 1);
    }

    /// The worker says nothing of it, however much that is.
    #[test]
    fn room_of_what_does_not_travel_as_commands_comes_back_once_it_was_sent() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        let under_way = UnderWay::new(c.releaser());
        for batch in 1..=40 {
            assert!(p.push(&[&[0; 128 << 10]]).unwrap(), "no room for the {batch}th");
            c.ready().unwrap();
            c.pass(128 << 10);
            under_way.sent(batch * 64, c.passed());
        }
    }

    /// The answer may be quicker than word that it was sent.
    #[test]
    fn what_was_taken_before_it_was_said_to_be_sent_is_given_back() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        let under_way = UnderWay::new(c.releaser());
        assert!(p.push(&[&[0; 64 << 10]]).unwrap());
        c.ready().unwrap();
        c.pass(64 << 10);
        under_way.taken(64 * KIB);
        under_way.sent(64 * KIB, c.passed());
        p.room().unwrap();
        assert_eq!(p.outstanding_seen(), 0);
    }
}
