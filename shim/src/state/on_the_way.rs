//! What commands are bringing to pinned memory, where client and worker each have pages of their own.
//!
//! Until the bytes of a command have arrived here the worker has newer ones, or will have: ours are not to be brought
//! over them. A command is on the list from the moment in which it is put into the ring until the worker has said that
//! it brings nothing more, which it says once of each, also of one that failed.
//!
//! The list and the ring change together, under the ring's lock: who wants to bring bytes of ours over has looked at
//! the list as it is when the record goes into the ring, or looks again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orion_wire::record::HeapRange;

use crate::state::lock::{Lock, Rank};

struct Command {
    /// Counted from 1, as the worker counts them.
    number: u64,
    ranges: Vec<HeapRange>,
    /// Its bytes are being written here, or have been, and that they are all is about to be said.
    lands: bool,
}

/// How long bytes that land are waited for: a connection of which nothing has come for so long is taken for dead. Where
/// nothing is lost it takes microseconds.
const LANDING_MAX: Duration = Duration::from_secs(15);
/// After so long who waits for them sleeps in between.
const LANDING_SOON: Duration = Duration::from_millis(1);

pub struct OnTheWay {
    commands: Lock<Vec<Command>>,
    /// How many there are: most programs have none most of the time.
    count: AtomicUsize,
    /// How many were ever put on the list.
    ever: AtomicU64,
}

impl OnTheWay {
    pub const fn new() -> OnTheWay {
        OnTheWay { commands: Lock::new(Rank::Leaf, Vec::new()), count: AtomicUsize::new(0), ever: AtomicU64::new(0) }
    }

    fn change(&self, f: impl FnOnce(&mut Vec<Command>)) {
        let mut commands = self.commands.lock();
        f(&mut commands);
        self.count.store(commands.len(), Ordering::SeqCst);
    }

    fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) != 0
    }

    /// Command `number` will bring bytes to these ranges. Called under the ring's lock, before the command is seen.
    pub fn expect(&self, number: u64, ranges: Vec<HeapRange>) {
        self.change(|commands| commands.push(Command { number, ranges, lands: false }));
        self.ever.fetch_add(1, Ordering::SeqCst);
    }

    /// The carrier is about to write there. The application may see that before it is known which command has brought
    /// it, and change it, and copy it to the device.
    pub fn lands(&self, range: HeapRange) {
        if self.any() {
            let mut commands = self.commands.lock();
            let overlapping = commands.iter_mut().filter(|command| command.ranges.iter().any(|r| r.overlaps(range)));
            overlapping.for_each(|command| command.lands = true);
        }
    }

    /// What was written was not all that its command brings, but what a host function may look at meanwhile.
    pub fn lands_no_more(&self) {
        if self.any() {
            self.commands.lock().iter_mut().for_each(|command| command.lands = false);
        }
    }

    /// Command `number` brings nothing more. What has landed was its.
    pub fn settled(&self, number: u64) {
        if self.any() {
            self.change(|commands| {
                let Some(at) = commands.iter().position(|command| command.number == number) else { return };
                let settled = commands.remove(at);
                for command in commands {
                    let is_other = |range: &HeapRange| settled.ranges.iter().all(|part| !part.overlaps(*range));
                    command.lands &= command.ranges.iter().all(is_other);
                }
            });
        }
    }

    /// The memory is not the application's any more.
    pub fn freed(&self, range: HeapRange) {
        if self.any() {
            self.change(|commands| {
                for command in commands {
                    command.ranges = command.ranges.iter().flat_map(|part| without(*part, range)).collect();
                }
            });
        }
    }

    /// What [`not_expected`] answered is right as long as this is the same.
    pub fn ever(&self) -> u64 {
        self.ever.load(Ordering::SeqCst)
    }

    /// The parts of `range` of which the worker has no newer bytes than we do, and [`ever`] at that time. What lands
    /// just now is waited for.
    pub fn not_expected(&self, range: HeapRange) -> (Vec<HeapRange>, u64) {
        let mut since = None;
        while self.any() && self.lands_in(range) {
            match since.get_or_insert_with(Instant::now).elapsed() {
                waited if waited >= LANDING_MAX => break,
                waited if waited >= LANDING_SOON => std::thread::sleep(LANDING_SOON / 10),
                _ => std::thread::yield_now(),
            }
        }
        self.not_on_its_way(range)
    }

    fn lands_in(&self, range: HeapRange) -> bool {
        let commands = self.commands.lock();
        commands.iter().any(|command| command.lands && command.ranges.iter().any(|r| r.overlaps(range)))
    }

    fn not_on_its_way(&self, range: HeapRange) -> (Vec<HeapRange>, u64) {
        let ever = self.ever();
        let mut parts = vec![range];
        if self.any() {
            let commands = self.commands.lock();
            for expected in commands.iter().flat_map(|command| &command.ranges).filter(|r| r.overlaps(range)) {
                parts = parts.into_iter().flat_map(|part| without(part, *expected)).collect();
            }
        }
        (parts, ever)
    }
}

fn end(range: HeapRange) -> u64 {
    range.offset + range.bytes
}

/// What is left of `a` where `b` is taken out.
fn without(a: HeapRange, b: HeapRange) -> impl Iterator<Item = HeapRange> {
    let part = |from: u64, to: u64| (from < to).then(|| HeapRange { offset: from, bytes: to - from });
    [part(a.offset, end(a).min(b.offset)), part(a.offset.max(end(b)), end(a))].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, bytes: u64) -> HeapRange {
        HeapRange { offset, bytes }
    }

    #[test]
    fn what_lands_is_waited_for() {
        let way = OnTheWay::new();
        let left = |r| way.not_expected(r).0;
        way.expect(1, vec![range(100, 50)]);
        // Nothing of it lands, or nothing that is asked for.
        way.lands(range(0, 100));
        assert_eq!(left(range(100, 50)), []);
        way.lands(range(149, 1));
        assert_eq!(left(range(150, 10)), [range(150, 10)]);
        // A host function was shown it, and more will come.
        way.lands_no_more();
        assert_eq!(left(range(100, 50)), []);
        // Another command is to bring something to the same place.
        way.expect(2, vec![range(140, 5)]);
        way.lands(range(100, 50));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(3 * LANDING_SOON);
                way.settled(1);
            });
            assert_eq!(left(range(100, 50)), [range(100, 40), range(145, 5)]);
        });
    }

    #[test]
    fn only_what_is_on_its_way_is_left_out() {
        let way = OnTheWay::new();
        let left = |r| way.not_expected(r).0;
        way.expect(1, vec![range(100, 50)]);
        assert_eq!(left(range(80, 100)), [range(80, 20), range(150, 30)]);
        assert_eq!(left(range(110, 20)), []);
        assert_eq!(left(range(150, 10)), [range(150, 10)]);
        // Two commands that bring something to one place, of which the later one is done first.
        let before = way.ever();
        way.expect(2, vec![range(120, 50), range(300, 8)]);
        assert_ne!(way.ever(), before);
        way.settled(2);
        assert_eq!(left(range(100, 100)), [range(150, 50)]);
        way.settled(1);
        assert_eq!(left(range(100, 100)), [range(100, 100)]);
        way.expect(3, vec![range(100, 50)]);
        way.freed(range(0, 110));
        assert_eq!(left(range(100, 50)), [range(100, 10)]);
        way.settled(3);
        assert_eq!(way.count.load(Ordering::SeqCst), 0);
    }
}
