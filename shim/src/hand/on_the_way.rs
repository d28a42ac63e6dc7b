//! What copies are bringing to pinned memory, where client and worker each have a copy of it (TCP).
//!
//! Until the bytes of a posted copy have arrived here the worker has newer ones, or will have. Another copy that reads
//! them must not bring ours over first. Ranges leave the list when they have arrived; because a copy that failed never
//! does, also when its stream has been waited for, when their memory is freed, and all of them when anything failed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use orion_wire::record::HeapRange;

struct Copy {
    number: u64,
    stream: u64,
    /// What has not arrived.
    left: Vec<HeapRange>,
}

static COPIES: Mutex<Vec<Copy>> = Mutex::new(Vec::new());
/// How many there are: most programs have none most of the time.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The number of the last one.
static LAST: AtomicU64 = AtomicU64::new(0);

fn change(f: impl FnOnce(&mut Vec<Copy>)) {
    let mut copies = COPIES.lock().expect("no panic happens under this lock");
    f(&mut copies);
    copies.retain(|copy| !copy.left.is_empty());
    COUNT.store(copies.len(), Ordering::SeqCst);
}

fn any() -> bool {
    COUNT.load(Ordering::SeqCst) != 0
}

/// A copy to `range` is about to be posted. What a capture records is not copied now.
pub fn expect(range: HeapRange, stream: u64) {
    if !super::capture::any_open() {
        change(|copies| {
            let number = LAST.load(Ordering::Relaxed) + 1;
            copies.push(Copy { number, stream, left: vec![range] });
            LAST.store(number, Ordering::SeqCst);
        });
    }
}

/// The last copy that a wait which begins now covers.
pub fn last() -> u64 {
    LAST.load(Ordering::SeqCst)
}

/// Bytes have arrived, of the oldest copy that was to bring them.
pub fn arrived(range: HeapRange) {
    if any() {
        change(|copies| {
            if let Some(copy) = copies.iter_mut().find(|copy| copy.left.iter().any(|left| overlap(*left, range))) {
                copy.left = copy.left.iter().flat_map(|left| without(*left, range)).collect();
            }
        });
    }
}

/// The stream has been waited for since copy `last`. What other threads have posted meanwhile may still be to come.
pub fn stream_idle(stream: u64, last: u64) {
    if any() {
        change(|copies| copies.retain(|copy| copy.stream != stream || copy.number > last));
    }
}

/// The memory is not the application's any more.
pub fn freed(range: HeapRange) {
    if any() {
        change(|copies| {
            for copy in copies {
                copy.left = copy.left.iter().flat_map(|left| without(*left, range)).collect();
            }
        });
    }
}

/// Something failed, and nobody knows what never comes.
pub fn forget_all() {
    if any() {
        change(Vec::clear);
    }
}

/// The parts of `range` of which the worker has no newer bytes than we do.
pub fn not_expected(range: HeapRange) -> Vec<HeapRange> {
    let mut parts = vec![range];
    if any() {
        let copies = COPIES.lock().expect("no panic happens under this lock");
        for left in copies.iter().flat_map(|copy| &copy.left) {
            parts = parts.into_iter().flat_map(|part| without(part, *left)).collect();
        }
    }
    parts
}

fn end(range: HeapRange) -> u64 {
    range.offset + range.bytes
}

fn overlap(a: HeapRange, b: HeapRange) -> bool {
    a.offset < end(b) && b.offset < end(a)
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
        expect(range(100, 50), 7);
        assert_eq!(not_expected(range(80, 100)), [range(80, 20), range(150, 30)]);
        assert_eq!(not_expected(range(110, 20)), []);
        assert_eq!(not_expected(range(150, 10)), [range(150, 10)]);
        // Two copies to one place: the first one's arrival is not the second's.
        expect(range(100, 50), 8);
        arrived(range(100, 25));
        assert_eq!(not_expected(range(100, 50)), []);
        arrived(range(125, 25));
        assert_eq!(not_expected(range(100, 50)), []);
        arrived(range(120, 10));
        assert_eq!(not_expected(range(100, 50)), [range(120, 10)]);
        stream_idle(7, last());
        assert_eq!(not_expected(range(100, 50)), [range(120, 10)]);
        freed(range(0, 110));
        assert_eq!(not_expected(range(100, 50)), [range(100, 10), range(120, 10)]);
        let began = last();
        expect(range(110, 1), 8);
        stream_idle(8, began);
        assert_eq!(not_expected(range(100, 50)), [range(100, 10), range(111, 39)]);
        stream_idle(8, last());
        assert_eq!(not_expected(range(100, 50)), [range(100, 50)]);
        expect(range(0, 1), 9);
        forget_all();
        assert_eq!(COUNT.load(Ordering::SeqCst), 0);
    }
}
