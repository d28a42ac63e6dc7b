//! What commands are bringing to pinned memory, where client and worker each have a copy of it (TCP).
//!
//! Until the bytes of a command have arrived here the worker has newer ones, or will have: ours are not to be brought
//! over them. A command is on the list from the moment in which it is put into the ring until the worker has said that
//! it brings nothing more, which it says once of each, also of one that failed.
//!
//! The list and the ring change together, under the ring's lock: who wants to bring bytes of ours over has looked at
//! the list as it is when the record goes into the ring, or looks again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use orion_wire::record::HeapRange;

struct Command {
    /// Counted from 1, as the worker counts them.
    number: u64,
    ranges: Vec<HeapRange>,
}

static COMMANDS: Mutex<Vec<Command>> = Mutex::new(Vec::new());
/// How many there are: most programs have none most of the time.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// How many were ever put on the list.
static EVER: AtomicU64 = AtomicU64::new(0);

fn change(f: impl FnOnce(&mut Vec<Command>)) {
    let mut commands = COMMANDS.lock().expect("no panic happens under this lock");
    f(&mut commands);
    COUNT.store(commands.len(), Ordering::SeqCst);
}

fn any() -> bool {
    COUNT.load(Ordering::SeqCst) != 0
}

/// Command `number` will bring bytes to these ranges. Called under the ring's lock, before the command is seen.
pub fn expect(number: u64, ranges: Vec<HeapRange>) {
    change(|commands| commands.push(Command { number, ranges }));
    EVER.fetch_add(1, Ordering::SeqCst);
}

/// Command `number` brings nothing more.
pub fn settled(number: u64) {
    if any() {
        change(|commands| commands.retain(|command| command.number != number));
    }
}

/// The memory is not the application's any more.
pub fn freed(range: HeapRange) {
    if any() {
        change(|commands| {
            for command in commands {
                command.ranges = command.ranges.iter().flat_map(|part| without(*part, range)).collect();
            }
        });
    }
}

/// What [`not_expected`] answered is right as long as this is the same.
pub fn ever() -> u64 {
    EVER.load(Ordering::SeqCst)
}

/// The parts of `range` of which the worker has no newer bytes than we do, and [`ever`] at that time.
pub fn not_expected(range: HeapRange) -> (Vec<HeapRange>, u64) {
    let ever = ever();
    let mut parts = vec![range];
    if any() {
        let commands = COMMANDS.lock().expect("no panic happens under this lock");
        for expected in commands.iter().flat_map(|command| &command.ranges).filter(|r| r.overlaps(range)) {
            parts = parts.into_iter().flat_map(|part| without(part, *expected)).collect();
        }
    }
    (parts, ever)
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

    /// One test, for the list is the process's.
    #[test]
    fn only_what_is_on_its_way_is_left_out() {
        let left = |r| not_expected(r).0;
        expect(1, vec![range(100, 50)]);
        assert_eq!(left(range(80, 100)), [range(80, 20), range(150, 30)]);
        assert_eq!(left(range(110, 20)), []);
        assert_eq!(left(range(150, 10)), [range(150, 10)]);
        // Two commands that bring something to one place, of which the later one is done first.
        let before = ever();
        expect(2, vec![range(120, 50), range(300, 8)]);
        assert_ne!(ever(), before);
        settled(2);
        assert_eq!(left(range(100, 100)), [range(150, 50)]);
        settled(1);
        assert_eq!(left(range(100, 100)), [range(100, 100)]);
        expect(3, vec![range(100, 50)]);
        freed(range(0, 110));
        assert_eq!(left(range(100, 50)), [range(100, 10)]);
        settled(3);
        assert_eq!(COUNT.load(Ordering::SeqCst), 0);
    }
}
