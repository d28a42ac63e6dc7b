//! The two ends of a byte ring of records.

// UNSAFETY: copies bytes in and out of memory that a peer can write at any time. Nobody holds a reference to
// that memory; what was copied out is validated before use.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use orion_wire::Fault;
use orion_wire::record::{HEADER_BYTES, Header};

use crate::bell::{Bell, Seat};
use crate::control::{Control, Corrupt, PLACED_OFFSET};
use crate::spin::Spin;

/// A ring as one side sees it. The data is mapped twice in a row, so `capacity` bytes from any position are
/// contiguous.
#[derive(Clone, Copy)]
pub(crate) struct RingView {
    control: &'static Control,
    data: *mut u8,
    capacity: u64,
    /// Which of the session's rings this is.
    number: usize,
}

// SAFETY: the mapping lives as long as the process; access is by the copy routines below.
unsafe impl Send for RingView {}
// SAFETY: as above.
unsafe impl Sync for RingView {}

impl RingView {
    pub(crate) fn new(control: &'static Control, data: *mut u8, capacity: u64, number: usize) -> RingView {
        assert!(capacity.is_power_of_two());
        RingView { control, data, capacity, number }
    }

    fn consumer_seat(&self) -> Seat {
        Seat { number: 2 * self.number, flag: &self.control.consumer_sleeps.0 }
    }

    fn producer_seat(&self) -> Seat {
        Seat { number: 2 * self.number + 1, flag: &self.control.producer_sleeps.0 }
    }

    /// Pointer to position `at`; valid for `capacity` bytes.
    fn pointer(&self, at: u64) -> *mut u8 {
        // SAFETY: masked to less than `capacity`, and the mapping is twice that long.
        unsafe { self.data.add((at & (self.capacity - 1)) as usize) }
    }
}

pub struct Producer {
    ring: RingView,
    bell: Arc<dyn Bell>,
    /// Our position; what lies in shared memory is for the peer only and is never read back.
    head: u64,
    /// What the peer knows of: records appended since are not published yet.
    published: u64,
    room_seen: u64,
    /// A device writes into the ring as well.
    beside_device: bool,
}

/// What a device has to reach to write into a ring.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    pub data: *mut u8,
    pub bytes: usize,
    /// [`crate::control::PlacedWords`], behind the bytes that they tell of.
    pub placed: *mut u8,
}

impl Producer {
    pub(crate) fn new(ring: RingView, bell: Arc<dyn Bell>) -> Producer {
        let head = ring.control.written(ring.control.placed().unwrap_or(0));
        Producer { ring, bell, head, published: head, room_seen: 0, beside_device: false }
    }

    /// Lets a device write as well, in turns with this end. How they take turns is the carrier's: neither looks at the
    /// other's position, and the consumer goes by the one that is further.
    pub fn beside_device(&mut self) -> Reach {
        self.beside_device = true;
        let head = (&raw const self.ring.control.head).cast_mut().cast::<u8>();
        // SAFETY: inside of the control page.
        let placed = unsafe { head.add(PLACED_OFFSET) };
        Reach { data: self.ring.data, bytes: self.ring.capacity as usize, placed }
    }

    /// The device has written `len` bytes behind all that was written before: wakes the consumer if it sleeps. False
    /// where there was no room for them, and they lie over others.
    pub fn placed(&mut self, len: usize) -> Result<bool, Corrupt> {
        if self.reserve(len)?.is_none() {
            return Ok(false);
        }
        self.advance(len);
        self.published = self.head;
        // The position was seen to be there, by whom this is called: the flag is looked at after it.
        if self.ring.control.is_consumer_to_wake() {
            self.ring_for_consumer();
        }
        Ok(true)
    }

    pub fn capacity(&self) -> u64 {
        self.ring.capacity
    }

    /// Where the next `len` bytes go, if there is room. The caller writes them and calls [`Self::commit`].
    pub fn reserve(&mut self, len: usize) -> Result<Option<*mut u8>, Corrupt> {
        // The peer's line is read only when the room last seen is too small.
        if self.room_seen < len as u64 && self.room()? < len as u64 {
            return Ok(None);
        }
        Ok(Some(self.ring.pointer(self.head)))
    }

    /// Up to where the consumer had given bytes back when it was last looked at.
    pub fn taken_seen(&self) -> u64 {
        self.head.saturating_sub(self.ring.capacity - self.room_seen)
    }

    /// Bytes that it had not given back then.
    pub fn outstanding_seen(&self) -> u64 {
        self.head - self.taken_seen()
    }

    /// Bytes that could be written now.
    pub fn room(&mut self) -> Result<u64, Corrupt> {
        let (control, capacity) = (self.ring.control, self.ring.capacity);
        self.room_seen = match self.beside_device {
            false => control.room(self.head, capacity)?,
            true => control.room_beside_device(self.head, capacity)?,
        };
        Ok(self.room_seen)
    }

    /// Publishes `len` reserved bytes and whatever was appended before, and wakes the consumer if it sleeps.
    pub fn commit(&mut self, len: usize) {
        self.advance(len);
        self.publish();
        self.fetch_next();
    }

    /// Has the lines of the next record brought to this core, from the consumer's that read them a lap ago: publishing
    /// waits for them otherwise.
    fn fetch_next(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in 1..4 {
            let at = self.ring.pointer(self.head).wrapping_add(64 * line);
            // SAFETY: a hint; it changes nothing and never faults.
            unsafe { std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) };
        }
    }

    fn advance(&mut self, len: usize) {
        debug_assert!(self.room_seen >= len as u64);
        self.head += len as u64;
        self.room_seen -= len as u64;
    }

    /// Publishes what was appended; nothing to do is quickly done.
    #[inline]
    pub fn publish(&mut self) {
        if self.published == self.head {
            return;
        }
        self.published = self.head;
        if self.ring.control.publish_to(self.head) {
            self.ring_for_consumer();
        }
    }

    #[cold]
    fn ring_for_consumer(&self) {
        self.bell.ring(self.ring.consumer_seat());
    }

    /// Copies a whole record in; false if there is no room now.
    // Inline, so that the copies of parts whose lengths the caller knows are a few moves.
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<bool, Corrupt> {
        let done = self.append(parts)?;
        if done {
            self.publish();
        }
        Ok(done)
    }

    /// As [`Self::push`], but the peer sees the record only with the next one that is pushed, or once [`Self::publish`]
    /// is called: what belongs together is then found, and sent on, together.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<bool, Corrupt> {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let Some(mut at) = self.reserve(len)? else { return Ok(false) };
        for part in parts {
            // SAFETY: `reserve` gave `len` writable bytes and the parts together have that many.
            unsafe {
                ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
        }
        self.advance(len);
        Ok(true)
    }

    /// Waits until `len` bytes are free or `timeout` has passed; true if they are.
    pub fn wait_room(&mut self, len: usize, spin: Spin, timeout: Duration) -> Result<bool, Corrupt> {
        // The peer can only make room by taking what it knows of.
        self.publish();
        let mut broken = false;
        let ready = spin.until(|| match self.room() {
            Ok(room) => room >= len as u64,
            Err(Corrupt) => {
                broken = true;
                true
            }
        });
        if broken {
            return Err(Corrupt);
        }
        if ready {
            return Ok(true);
        }
        let tail_seen = self.head - (self.ring.capacity - self.room()?);
        if self.ring.control.producer_may_sleep(tail_seen) {
            self.bell.sleep(self.ring.producer_seat(), timeout);
        }
        self.ring.control.producer_sleeps.0.store(0, Ordering::SeqCst);
        Ok(self.room()? >= len as u64)
    }
}

impl Producer {
    /// Where this end sleeps, for who waits for its bell in a way of his own, together with other things.
    pub fn seat(&self) -> Seat {
        self.ring.producer_seat()
    }

    /// Takes the seat until there is more room than last seen; false if there is already.
    pub fn may_sleep(&self) -> bool {
        self.ring.control.producer_may_sleep(self.head - (self.ring.capacity - self.room_seen))
    }

    /// Gets up whoever sleeps at this end, as the consumer would.
    pub fn rouse(&self) {
        rouse(&*self.bell, self.ring.producer_seat());
    }
}

pub struct Consumer {
    ring: RingView,
    bell: Arc<dyn Bell>,
    tail: u64,
    ready_seen: u64,
    /// Up to where a device has written, when it was last looked at.
    placed_seen: u64,
    /// `tail`, for those who look ahead.
    position: Arc<AtomicU64>,
}

impl Consumer {
    pub(crate) fn new(ring: RingView, bell: Arc<dyn Bell>) -> Consumer {
        let tail = ring.control.tail.0.load(Ordering::Acquire);
        Consumer { ring, bell, tail, ready_seen: 0, placed_seen: 0, position: Arc::new(AtomicU64::new(tail)) }
    }

    /// Bytes that can be read now.
    pub fn ready(&mut self) -> Result<u64, Corrupt> {
        let control = self.ring.control;
        if control.has_placed(self.placed_seen, self.tail)
            && let Some(placed) = control.placed()
        {
            if placed < self.placed_seen {
                return Err(Corrupt);
            }
            self.placed_seen = placed;
        }
        self.ready_seen = control.ready_of(self.placed_seen, self.tail, self.ring.capacity)?;
        Ok(self.ready_seen)
    }

    pub fn capacity(&self) -> u64 {
        self.ring.capacity
    }

    /// Up to where the producer says that it has written, to be shown: nothing is read by it.
    pub fn published(&self) -> u64 {
        self.ring.control.written(self.placed_seen)
    }

    /// For another thread, to see what is coming while this end is held up.
    pub fn lookahead(&self) -> Lookahead {
        Lookahead { ring: self.ring, position: self.position.clone() }
    }

    /// The next `len <= ready` bytes, contiguous. The peer may still change them: copy, then validate.
    pub fn pointer(&self) -> *const u8 {
        self.ring.pointer(self.tail)
    }

    /// Copies bytes out, `skip` bytes after our position.
    pub fn copy(&self, skip: usize, to: &mut [u8]) {
        assert!(skip + to.len() <= self.ring.capacity as usize);
        // SAFETY: `capacity` bytes from any position are mapped; the destination is ours alone.
        unsafe { ptr::copy_nonoverlapping(self.pointer().add(skip), to.as_mut_ptr(), to.len()) };
    }

    /// The header of the next record, once the whole record is there.
    #[allow(clippy::should_implement_trait, reason = "a record's body is read in place, which no iterator can lend")]
    pub fn next(&mut self) -> Result<Option<Header>, Fault> {
        if self.ready_seen < HEADER_BYTES as u64 && self.refresh()? < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = [0u8; HEADER_BYTES];
        self.copy(0, &mut bytes);
        let header = Header::decode(&bytes)?;
        if self.ready_seen < header.size as u64 && self.refresh()? < header.size as u64 {
            return Ok(None);
        }
        Ok(Some(header))
    }

    /// Copies the body of the record whose header `next` returned.
    pub fn body(&self, header: &Header, to: &mut Vec<u8>) {
        let len = header.size as usize - HEADER_BYTES;
        to.clear();
        to.resize(len, 0);
        self.copy(HEADER_BYTES, to);
    }

    /// Goes past `len` bytes without giving them back; a [`Releaser`] does that.
    pub fn pass(&mut self, len: usize) {
        self.tail += len as u64;
        self.ready_seen = self.ready_seen.saturating_sub(len as u64);
        // Whoever read bytes of a later lap finds another position afterwards. Relaxed: the bytes are given back after
        // it, and that is a Release.
        self.position.store(self.tail, Ordering::Relaxed);
    }

    /// How far this end has come.
    pub fn passed(&self) -> u64 {
        self.tail
    }

    /// For giving back what this end has passed, from any thread.
    pub fn releaser(&self) -> Releaser {
        Releaser { ring: self.ring, bell: self.bell.clone() }
    }

    /// Gives `len` bytes back to the producer.
    pub fn consume(&mut self, len: usize) {
        self.pass(len);
        if self.ring.control.release_to(self.tail) {
            self.ring_for_producer();
        }
    }

    #[cold]
    fn ring_for_producer(&self) {
        self.bell.ring(self.ring.producer_seat());
    }

    fn refresh(&mut self) -> Result<u64, Fault> {
        self.ready().map_err(|Corrupt| Fault("ring positions are impossible"))
    }

    /// Whether more bytes are there than when `ready_seen` was last refreshed; cheap enough to spin on.
    pub fn has_news(&mut self) -> Result<bool, Corrupt> {
        let before = self.ready_seen;
        Ok(self.ready()? > before)
    }

    /// Sleeps until there is more than what was last seen or `timeout` passes.
    pub fn sleep(&mut self, timeout: Duration) {
        // Bytes of an incomplete record may already lie in the ring, so "empty" means "nothing beyond them".
        if self.ring.control.consumer_may_sleep(self.tail + self.ready_seen) {
            self.bell.sleep(self.ring.consumer_seat(), timeout);
        }
        self.ring.control.consumer_sleeps.0.store(0, Ordering::SeqCst);
    }

    /// As [`Producer::seat`].
    pub fn seat(&self) -> Seat {
        self.ring.consumer_seat()
    }

    /// Takes the seat; false if there is news already.
    pub fn may_sleep(&self) -> bool {
        self.ring.control.consumer_may_sleep(self.tail + self.ready_seen)
    }

    /// Gets up whoever sleeps at this end, as the producer would.
    pub fn rouse(&self) {
        rouse(&*self.bell, self.ring.consumer_seat());
    }
}

/// Gives bytes back that a consumer has passed.
pub struct Releaser {
    ring: RingView,
    bell: Arc<dyn Bell>,
}

impl Releaser {
    /// Everything up to `position`, which only grows and is never beyond what was passed.
    pub fn release_to(&self, position: u64) {
        if self.ring.control.release_to(position) {
            self.bell.ring(self.ring.producer_seat());
        }
    }
}

/// How often a thread that looks ahead finds a device in the midst of writing where it stands.
const LOOKS_AHEAD_MAX: usize = 1000;

/// Reads records that a consumer has not come to yet, from another thread of its process.
pub struct Lookahead {
    ring: RingView,
    position: Arc<AtomicU64>,
}

impl Lookahead {
    /// Shows `wanted` each record ahead until it answers. `None` if it never does, or if the consumer went on
    /// meanwhile: then the bytes may have been others.
    pub fn find<T>(&self, mut wanted: impl FnMut(&Ahead<'_>) -> Option<T>) -> Option<T> {
        let from = self.position.load(Ordering::SeqCst);
        let ready = self.ready(from)?;
        let mut at = 0;
        while ready - at >= HEADER_BYTES as u64 {
            let header = Header::decode(&self.copy(from + at)).ok()?;
            if ready - at < header.size as u64 {
                break;
            }
            if let Some(found) = wanted(&Ahead { ahead: self, at: from + at, header }) {
                fence(Ordering::SeqCst);
                return (self.position.load(Ordering::SeqCst) == from).then_some(found);
            }
            at += header.size as u64;
        }
        None
    }

    /// A device that is just writing where it stands has done so in a moment; till then there is less than was passed.
    fn ready(&self, from: u64) -> Option<u64> {
        for _ in 0..LOOKS_AHEAD_MAX {
            if let Ok(ready) = self.ring.control.ready(from, self.ring.capacity) {
                return Some(ready);
            }
            std::hint::spin_loop();
        }
        None
    }

    fn copy<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: `capacity` bytes from any position are mapped; the destination is ours alone.
        unsafe { ptr::copy_nonoverlapping(self.ring.pointer(at), bytes.as_mut_ptr(), N) };
        bytes
    }
}

/// A record that the consumer has not come to yet. Its bytes mean something only if [`Lookahead::find`] answers.
pub struct Ahead<'a> {
    ahead: &'a Lookahead,
    at: u64,
    pub header: Header,
}

impl Ahead<'_> {
    /// Word `index` of the body; zero beyond its end.
    pub fn word(&self, index: usize) -> u64 {
        let offset = HEADER_BYTES + 8 * index;
        match offset + 8 <= self.header.size as usize {
            true => u64::from_le_bytes(self.ahead.copy(self.at + offset as u64)),
            false => 0,
        }
    }

    pub fn body(&self) -> Vec<u8> {
        let mut body = vec![0; self.header.size as usize - HEADER_BYTES];
        // SAFETY: the record ends before what is ready does, and `capacity` bytes from any position are mapped.
        unsafe {
            let from = self.ahead.ring.pointer(self.at + HEADER_BYTES as u64);
            ptr::copy_nonoverlapping(from, body.as_mut_ptr(), body.len());
        }
        body
    }
}

fn rouse(bell: &dyn Bell, seat: Seat) {
    seat.flag.store(0, Ordering::SeqCst);
    bell.ring(seat);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::control::placed_words;
    use crate::memory::{Layout, Memory, Which};

    fn record(op: u16, body: &[u8]) -> Vec<u8> {
        let size = (HEADER_BYTES + body.len()) as u32;
        let mut out = Header { size, op, thread: 1, context: 2, sequence: 3 }.encode().to_vec();
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn records_come_out_in_order_across_the_end_of_the_ring() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let body = vec![5u8; 100_000];
        let mut out = Vec::new();
        for i in 0..100u16 {
            let r = record(i, &body);
            assert!(p.push(&[&r]).unwrap());
            let h = c.next().unwrap().unwrap();
            assert_eq!((h.op, h.size as usize), (i, r.len()));
            c.body(&h, &mut out);
            assert_eq!(out, body);
            c.consume(h.size as usize);
        }
        assert_eq!(c.next(), Ok(None));
    }

    #[test]
    fn a_full_ring_takes_nothing_more() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let mut p = memory.producer(Which::Event).unwrap();
        let r = record(1, &[0u8; 1000]);
        let mut count = 0;
        while p.push(&[&r]).unwrap() {
            count += 1;
        }
        assert_eq!(count, (1 << 20) / r.len());
    }

    #[test]
    fn appended_records_are_seen_together_with_the_next() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        assert!(p.append(&[&record(1, &[1; 8])]).unwrap());
        assert_eq!(c.next(), Ok(None));
        assert!(p.push(&[&record(2, &[2; 8])]).unwrap());
        for op in [1, 2] {
            let h = c.next().unwrap().unwrap();
            assert_eq!(h.op, op);
            c.consume(h.size as usize);
        }
        assert!(p.append(&[&record(3, &[3; 8])]).unwrap());
        p.publish();
        assert_eq!(c.next().unwrap().unwrap().op, 3);
    }

    #[test]
    fn waiting_for_room_shows_what_was_appended() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let r = record(1, &[0u8; 1000]);
        while p.append(&[&r]).unwrap() {}
        assert_eq!(c.next(), Ok(None));
        let spin = Spin { budget: Duration::ZERO, yields: false };
        assert!(!p.wait_room(r.len(), spin, Duration::from_millis(1)).unwrap());
        assert_eq!(c.next().unwrap().unwrap().op, 1);
    }

    #[test]
    fn looking_ahead_takes_nothing_and_sees_only_what_is_to_come() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let ahead = c.lookahead();
        let find = |op| ahead.find(|r| (r.header.op == op).then(|| r.word(0)));
        for op in 1..=3u16 {
            assert!(p.push(&[&record(op, &(op as u64 * 11).to_le_bytes())]).unwrap());
        }
        assert!(p.push(&[&record(4, &[])]).unwrap());
        assert_eq!((find(1), find(3), find(4), find(5)), (Some(11), Some(33), Some(0), None));
        let first = c.next().unwrap().unwrap();
        c.consume(first.size as usize);
        assert_eq!((find(1), find(3)), (None, Some(33)));
        // The consumer goes on while somebody looks.
        let found = ahead.find(|r| {
            let next = c.next().unwrap().unwrap();
            c.consume(next.size as usize);
            (r.header.op == 3).then(|| r.word(0))
        });
        assert_eq!(found, None);
    }

    #[test]
    fn what_was_passed_is_given_back_by_its_releaser() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let releaser = c.releaser();
        let r = record(1, &[0; 1000]);
        while p.push(&[&r]).unwrap() {}
        while let Some(h) = c.next().unwrap() {
            c.pass(h.size as usize);
        }
        assert_eq!(p.outstanding_seen(), c.passed());
        assert!(!p.push(&[&r]).unwrap());
        releaser.release_to(r.len() as u64);
        assert!(p.push(&[&r]).unwrap());
        assert!(!p.push(&[&r]).unwrap());
        assert_eq!((p.taken_seen(), c.next().unwrap().unwrap().op), (r.len() as u64, 1));
    }

    #[test]
    fn impossible_positions_are_corrupt() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let mut p = memory.producer(Which::Event).unwrap();
        let mut c = memory.consumer(Which::Event).unwrap();
        p.ring.control.tail.0.store(99, Ordering::SeqCst);
        assert_eq!(p.room(), Err(Corrupt));
        c.ring.control.publish_to(1 << 40);
        assert_eq!(c.ready(), Err(Corrupt));
        assert!(c.next().is_err());
    }

    /// As a device does it: bytes, then where they end, in whatever pieces.
    fn place(reach: Reach, at: u64, bytes: &[u8], words: [u64; 2]) {
        // SAFETY: inside of the ring, which nobody else writes meanwhile; the words are read as atomics.
        unsafe {
            for (i, byte) in bytes.iter().enumerate() {
                reach.data.add((at as usize + i) % reach.bytes).write_volatile(*byte);
            }
            words.iter().enumerate().for_each(|(i, word)| reach.placed.cast::<u64>().add(i).write_volatile(*word));
        }
    }

    #[test]
    fn a_producer_and_a_device_take_turns() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let reach = p.beside_device();
        let (mut at, mut body) = (0, Vec::new());
        // Far enough to go around the ring.
        for i in 0..3000u64 {
            let r = record(i as u16, &[i as u8; 1000]);
            at += r.len() as u64;
            if i % 3 == 0 {
                assert!(p.push(&[&r]).unwrap());
            } else {
                place(reach, at - r.len() as u64, &r, placed_words(at));
            }
            let h = c.next().unwrap().expect("it is there");
            c.body(&h, &mut body);
            assert_eq!((h.op, &body[..]), (i as u16, &[i as u8; 1000][..]));
            c.consume(h.size as usize);
            if i % 3 != 0 {
                // The consumer was quicker than the word of it.
                assert_eq!(p.room(), Ok(1 << 20));
                assert_eq!(p.placed(r.len()), Ok(true));
                assert_eq!(p.room(), Ok(1 << 20));
            }
        }
        assert_eq!(c.next(), Ok(None));
    }

    #[test]
    fn half_of_a_device_s_position_is_none() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let reach = p.beside_device();
        let bytes = |position| -> [u8; 16] {
            let words: [u64; 2] = placed_words(position);
            std::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8])
        };
        for (from, to) in [(0, 0x1008), (0x1f8, 0x200), (0xfff8, 0x1_0000), (0x1_0000, 0x2_0100)] {
            for cut in 1..16 {
                // Each of the ways to write one behind the other.
                for mixed in [
                    [&bytes(to)[..cut], &bytes(from)[cut..]].concat(),
                    [&bytes(from)[..cut], &bytes(to)[cut..]].concat(),
                ] {
                    let words = [0, 8].map(|i| u64::from_le_bytes(mixed[i..i + 8].try_into().unwrap()));
                    place(reach, 0, &[], words);
                    let seen = c.ring.control.placed();
                    assert!(
                        seen.is_none() || seen == Some(from) || seen == Some(to),
                        "{from:#x} {to:#x} {cut}: {seen:x?}"
                    );
                }
            }
        }
        place(reach, 0, &[], placed_words(64));
        assert_eq!(c.ready(), Ok(64));
        c.consume(64);
        // The position before it is what counts until it is whole.
        place(reach, 0, &[], [72, placed_words(64)[1]]);
        assert_eq!((c.ready(), c.next()), (Ok(0), Ok(None)));
        place(reach, 0, &[], placed_words(72));
        assert_eq!(c.ready(), Ok(8));
    }

    #[test]
    fn a_device_s_position_that_cannot_be_is_corrupt() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let reach = p.beside_device();
        for beyond in [(1 << 20) + 8, 1 << 40, u64::MAX] {
            place(reach, 0, &[], placed_words(beyond));
            assert_eq!(c.ready(), Err(Corrupt));
            // Nor does anybody sleep over it.
            assert!(!c.may_sleep());
            let mut c = memory.consumer(Which::Event).unwrap();
            assert_eq!(c.ready(), Err(Corrupt));
        }
        let mut c = memory.consumer(Which::Event).unwrap();
        place(reach, 0, &[], placed_words(128));
        assert_eq!(c.ready(), Ok(128));
        place(reach, 0, &[], placed_words(64));
        assert_eq!(c.ready(), Err(Corrupt), "it went back");
        // More than there is room for.
        assert_eq!((p.placed(1 << 20), p.placed(8)), (Ok(true), Ok(false)));
    }

    #[test]
    fn half_a_record_is_no_record() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let r = record(1, &[7u8; 64]);
        assert!(p.push(&[&r[..40]]).unwrap());
        assert_eq!(c.next(), Ok(None));
        assert!(p.push(&[&r[40..]]).unwrap());
        assert_eq!(c.next().unwrap().unwrap().op, 1);
    }

    #[test]
    fn two_threads_pass_a_million_records() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        let spin = Spin::adaptive(Duration::from_micros(20));
        let sender = std::thread::spawn(move || {
            for i in 0..1_000_000u64 {
                let r = record(9, &i.to_le_bytes());
                while !p.push(&[&r]).unwrap() {
                    p.wait_room(r.len(), spin, Duration::from_millis(100)).unwrap();
                }
            }
        });
        let mut body = Vec::new();
        for i in 0..1_000_000u64 {
            let h = loop {
                match c.next().unwrap() {
                    Some(h) => break h,
                    None => {
                        if !spin.until(|| c.has_news().unwrap()) {
                            c.sleep(Duration::from_millis(100));
                        }
                    }
                }
            };
            c.body(&h, &mut body);
            assert_eq!(body, i.to_le_bytes());
            c.consume(h.size as usize);
        }
        sender.join().unwrap();
    }
}
