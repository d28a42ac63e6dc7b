//! From ring to wire: collects what is ready into one `sendmsg`, without copying it.

// UNSAFETY: iovecs point into ring and heap memory, for the kernel to read.

use orion_ring::{Consumer, Heap};
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, op};
use orion_wire::{Fault, Reader};

use crate::holes::Holes;
use crate::lanes::LANES_MAX;
use crate::stream::{FRAME_LEN_MAX, Frame, SHOWN_BODY_BYTES, STREAM_HEADER_BYTES, Shown, StreamHeader};

/// Ring bytes taken into one send. The ring gets them back only after the send, so this also bounds how long the
/// other side of the ring may have to wait for room.
const BATCH_BYTES_MAX: u64 = 1 << 20;
const PARTS_MAX: usize = 128;
/// Of a piece of the heap, beside its header: fewer than are left free.
const HEAP_PARTS_MAX: usize = 6;
/// Headers and bodies of barriers and of what is shown, of one batch.
const SCRATCH_BYTES: usize = PARTS_MAX * (STREAM_HEADER_BYTES + LANES_MAX * 8);

/// What becomes of the beginning of a heap range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// So many bytes go inline.
    Inline(u64),
    /// So many were taken, which the barrier tells of. None where there is no room now.
    Striped(u64),
    /// The other side's device reads it.
    Shown(Shown),
}

/// Sends large heap ranges by another way than this connection.
pub trait Stripe {
    /// Takes as much of the range, from its beginning, as there is room for, and answers what that was. Nobody is
    /// waited for, and what a peer does not read makes nothing grow.
    fn stripe(&mut self, range: HeapRange) -> Part;
    /// What the receiver has to wait for to have all that was taken.
    fn barrier(&self) -> [u64; LANES_MAX];
}

/// One send under construction or under way. Must not move while the kernel reads the iovecs' targets, which is why
/// everything they point to is boxed or in ring memory.
pub struct Gather {
    parts: Vec<libc::iovec>,
    scratch: Box<[u8; SCRATCH_BYTES]>,
    scratch_used: usize,
    /// Index of the first part that is not sent completely.
    sent: usize,
    bytes: u64,
    /// What is left of a heap range that goes over this connection and is larger than one batch.
    rest: HeapRange,
    /// What is left of a range that goes another way, which had no room for it, or of which some goes inline before.
    striping: HeapRange,
    /// Something went by the lanes, and its barrier comes behind the rest of that range.
    owes_barrier: bool,
    /// The batch's last record is a posted copy to the host.
    ends_with_copy_out: bool,
    /// The last collection took all that was ready.
    drained: bool,
    /// Commands or replies in all batches so far, in bytes: less than what was collected, for some records stay behind.
    carried: u64,
    /// Something in the batch goes ahead of commands or replies that follow it.
    ahead: bool,
    holes: Option<Holes>,
}

// SAFETY: the pointers lead to memory that lives as long as the session and is not tied to a thread.
unsafe impl Send for Gather {}

impl Default for Gather {
    fn default() -> Self {
        Gather {
            parts: Vec::with_capacity(PARTS_MAX),
            scratch: Box::new([0; SCRATCH_BYTES]),
            scratch_used: 0,
            sent: 0,
            bytes: 0,
            rest: HeapRange::default(),
            striping: HeapRange::default(),
            owes_barrier: false,
            ends_with_copy_out: false,
            drained: true,
            carried: 0,
            ahead: false,
            holes: None,
        }
    }
}

impl Gather {
    /// What is sent makes no pages where the heap has none.
    #[must_use]
    pub fn with_holes(self, holes: Option<Holes>) -> Gather {
        Gather { holes, ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.parts.len()
    }

    /// Forgets a batch that was sent.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.scratch_used = 0;
        self.sent = 0;
        self.bytes = 0;
        self.ends_with_copy_out = false;
        self.ahead = false;
    }

    /// Whether a wait for the last record is likely to follow at once: `tensor.item()` is a copy and a wait.
    pub fn ends_with_copy_out(&self) -> bool {
        self.ends_with_copy_out
    }

    /// Whether the last collection took all that was ready, heap ranges too.
    pub fn has_drained(&self) -> bool {
        self.drained
    }

    /// Commands or replies in all batches so far, in bytes, as the other side counts them.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// So many bytes more have gone another way.
    pub fn carry(&mut self, bytes: usize) {
        self.carried += bytes as u64;
    }

    /// Whether what follows the batch may not come before it. Events are in no order with what follows them, nor is
    /// what a worker has taken.
    pub fn is_ahead(&self) -> bool {
        self.ahead
    }

    /// Whether nothing is left to be sent of what was collected.
    pub fn is_idle(&self) -> bool {
        self.parts.is_empty() && self.rest.bytes == 0 && self.striping.bytes == 0
    }

    /// Bytes of whole records that are ready and that travel as they are, with nothing of the heap ahead of them: at
    /// most so many.
    pub fn plain(&self, frame: Frame, from: &mut Consumer, most: usize) -> Result<usize, Fault> {
        let ready = from.ready().map_err(|_| Fault("ring positions are impossible"))? as usize;
        let ready = ready.min(most);
        let mut at = 0;
        while ready - at >= HEADER_BYTES {
            let mut bytes = [0u8; HEADER_BYTES];
            from.copy(at, &mut bytes);
            let header = Header::decode(&bytes)?;
            let size = header.size as usize;
            if ready - at < size || !travels_as_it_is(frame, header.op) {
                break;
            }
            at += size;
        }
        Ok(at)
    }

    /// Begins a batch by telling a client what its worker has taken.
    pub fn taken(&mut self, up_to: u64) {
        self.header(StreamHeader { frame: Frame::Taken, len: 0, offset: up_to });
    }

    /// What is left to send.
    pub fn parts(&self) -> &[libc::iovec] {
        &self.parts[self.sent..]
    }

    /// Takes note that `n` bytes were sent.
    pub fn advance(&mut self, mut n: usize) {
        while n > 0 {
            let part = &mut self.parts[self.sent];
            if n < part.iov_len {
                // SAFETY: stays inside the part.
                part.iov_base = unsafe { part.iov_base.cast::<u8>().add(n) }.cast();
                part.iov_len -= n;
                return;
            }
            n -= part.iov_len;
            self.sent += 1;
        }
    }

    /// Adds all whole records that are ready, as far as the batch has room, and answers how many ring bytes they
    /// are. The caller gives those back to the ring once the batch has been sent.
    pub fn collect(
        &mut self,
        frame: Frame,
        from: &mut Consumer,
        heap: &Heap,
        stripe: &mut impl Stripe,
    ) -> Result<usize, Fault> {
        self.collect_after(0, frame, from, heap, stripe)
    }

    /// As [`Self::collect`], of the first `ready` bytes, which were seen to be ready.
    pub fn collect_seen(
        &mut self,
        ready: usize,
        frame: Frame,
        from: &mut Consumer,
        heap: &Heap,
        stripe: &mut impl Stripe,
    ) -> Result<usize, Fault> {
        self.collect_between(0, ready, frame, from, heap, stripe)
    }

    /// As [`Self::collect`], behind `taken` ring bytes that the batch has already; they count in the answer.
    pub fn collect_after(
        &mut self,
        taken: usize,
        frame: Frame,
        from: &mut Consumer,
        heap: &Heap,
        stripe: &mut impl Stripe,
    ) -> Result<usize, Fault> {
        let ready = from.ready().map_err(|_| Fault("ring positions are impossible"))? as usize;
        self.collect_between(taken, ready, frame, from, heap, stripe)
    }

    fn collect_between(
        &mut self,
        taken: usize,
        ready: usize,
        frame: Frame,
        from: &mut Consumer,
        heap: &Heap,
        stripe: &mut impl Stripe,
    ) -> Result<usize, Fault> {
        self.continue_range(heap);
        self.continue_striping(heap, stripe);
        let (mut run, mut at) = (taken, taken);
        while ready - at >= HEADER_BYTES && self.has_room(at - run) {
            let mut bytes = [0u8; HEADER_BYTES];
            from.copy(at, &mut bytes);
            let header = Header::decode(&bytes)?;
            let size = header.size as usize;
            if ready - at < size {
                break;
            }
            // The worker takes patches itself, between two commands; to the client its carrier brings them.
            if header.op == op::HEAP_PATCH && frame != Frame::Command {
                self.ring_bytes(frame, from, run, at - run);
                self.ring_bytes(Frame::Patch, from, at + HEADER_BYTES, size - HEADER_BYTES);
                run = at + size;
            }
            if header.op == op::HEAP_SETTLED && frame != Frame::Command {
                if size != HEADER_BYTES {
                    return Err(Fault("HEAP_SETTLED has a body"));
                }
                self.ring_bytes(frame, from, run, at - run);
                self.header(StreamHeader { frame: Frame::Settled, len: 0, offset: header.context });
                run = at + size;
            }
            if header.op == op::HEAP_WRITTEN {
                if size != HEADER_BYTES + 16 {
                    return Err(Fault("HEAP_WRITTEN is not one range"));
                }
                let mut body = [0u8; 16];
                from.copy(at + HEADER_BYTES, &mut body);
                let range = HeapRange::get(&mut Reader::new(&body))?.check(heap.bytes())?;
                self.ring_bytes(frame, from, run, at - run);
                run = at + size;
                self.striping = range;
                self.continue_striping(heap, stripe);
            }
            self.ends_with_copy_out = header.op == op::COPY_OUT && header.sequence == 0;
            at += size;
        }
        self.ring_bytes(frame, from, run, at - run);
        self.drained = self.rest.bytes == 0 && self.striping.bytes == 0 && ready - at < HEADER_BYTES;
        Ok(at)
    }

    /// Nothing may follow a heap range that is not yet in the batch completely.
    fn has_room(&self, run: usize) -> bool {
        self.rest.bytes == 0
            && self.striping.bytes == 0
            && self.bytes + (run as u64) < BATCH_BYTES_MAX
            && self.parts.len() + 8 <= PARTS_MAX
    }

    fn ring_bytes(&mut self, frame: Frame, from: &Consumer, skip: usize, len: usize) {
        // A batch ends with the record that passes its limit, so a run may need two frames.
        for start in (0..len).step_by(FRAME_LEN_MAX as usize) {
            let len = (len - start).min(FRAME_LEN_MAX as usize);
            if matches!(frame, Frame::Command | Frame::Reply) {
                self.carried += len as u64;
            }
            self.header(StreamHeader { frame, len: len as u32, offset: 0 });
            // SAFETY: the ring is mapped twice in a row, so the bytes that are ready are contiguous.
            self.part(unsafe { from.pointer().add(skip + start) }, len);
        }
    }

    /// Adds what the batch takes of the range that is being sent on this connection.
    fn continue_range(&mut self, heap: &Heap) {
        if self.rest.bytes == 0 || !(self.bytes < BATCH_BYTES_MAX && self.parts.len() + 8 <= PARTS_MAX) {
            return;
        }
        let HeapRange { offset, bytes } = self.rest;
        let len = bytes.min(FRAME_LEN_MAX as u64);
        self.header(StreamHeader { frame: Frame::Heap, len: len as u32, offset });
        match self.holes {
            Some(holes) => {
                let part = |from: *mut u8, bytes: usize| self.part(from, bytes);
                holes.sources(heap, HeapRange { offset, bytes: len }, HEAP_PARTS_MAX, part);
            }
            None => self.part(heap.at(offset, len).expect("the range was checked"), len as usize),
        }
        self.rest = HeapRange { offset: offset + len, bytes: bytes - len };
    }

    /// Whether a range waits for room on another way, and everything behind it does too.
    pub fn waits_for_room(&self) -> bool {
        self.striping.bytes > 0 && self.rest.bytes == 0
    }

    /// Goes on with a range as far as there is room for it.
    fn continue_striping(&mut self, heap: &Heap, stripe: &mut impl Stripe) {
        while self.waits_for_room() && self.parts.len() + 8 <= PARTS_MAX {
            let range = self.striping;
            let part = stripe.stripe(range);
            let bytes = match part {
                Part::Inline(bytes) => {
                    // Behind the barrier of what went before it.
                    self.end_of_lanes(stripe);
                    self.rest = HeapRange { bytes, ..range };
                    bytes
                }
                Part::Striped(bytes) => {
                    self.owes_barrier |= bytes > 0;
                    bytes
                }
                Part::Shown(shown) => {
                    self.header(StreamHeader {
                        frame: Frame::Shown,
                        len: SHOWN_BODY_BYTES as u32,
                        offset: shown.range.offset,
                    });
                    self.scratch(&shown.body());
                    shown.range.bytes
                }
            };
            self.striping = HeapRange { offset: range.offset + bytes, bytes: range.bytes - bytes };
            if self.striping.bytes == 0 {
                self.end_of_lanes(stripe);
            }
            self.continue_range(heap);
            if matches!(part, Part::Striped(_)) {
                return;
            }
        }
    }

    fn end_of_lanes(&mut self, stripe: &impl Stripe) {
        if std::mem::take(&mut self.owes_barrier) {
            self.barrier(&stripe.barrier());
        }
    }

    fn barrier(&mut self, counts: &[u64; LANES_MAX]) {
        self.header(StreamHeader { frame: Frame::Barrier, len: (LANES_MAX * 8) as u32, offset: 0 });
        let mut body = [0; LANES_MAX * 8];
        for (to, count) in body.chunks_exact_mut(8).zip(counts) {
            to.copy_from_slice(&count.to_le_bytes());
        }
        self.scratch(&body);
    }

    fn header(&mut self, header: StreamHeader) {
        self.ahead |= !matches!(header.frame, Frame::Event | Frame::Taken);
        self.scratch(&header.encode());
    }

    fn scratch(&mut self, bytes: &[u8]) {
        let at = self.scratch_used;
        self.scratch[at..at + bytes.len()].copy_from_slice(bytes);
        self.scratch_used += bytes.len();
        let pointer = self.scratch[at..].as_ptr();
        self.part(pointer, bytes.len());
    }

    fn part(&mut self, from: *const u8, len: usize) {
        self.parts.push(libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len });
        self.bytes += len as u64;
    }
}

/// Whether a record is all that the other side has to get. The worker takes patches itself.
fn travels_as_it_is(frame: Frame, op: u16) -> bool {
    op != op::HEAP_WRITTEN && (frame == Frame::Command || op != op::HEAP_PATCH && op != op::HEAP_SETTLED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_ring::memory::{Layout, Memory, Which};

    struct NoLanes;
    impl Stripe for NoLanes {
        fn stripe(&mut self, range: HeapRange) -> Part {
            Part::Inline(range.bytes)
        }

        fn barrier(&self) -> [u64; LANES_MAX] {
            unreachable!("nothing was taken")
        }
    }

    fn record(op: u16, body: &[u8]) -> Vec<u8> {
        let size = (HEADER_BYTES + body.len()) as u32;
        let mut out = Header { size, op, thread: 0, context: 0, sequence: 1 }.encode().to_vec();
        out.extend_from_slice(body);
        out
    }

    fn frames(g: &Gather) -> Vec<(u32, Vec<u8>)> {
        let all: Vec<u8> = g
            .parts()
            .iter()
            // SAFETY: the test's ring and heap stay mapped and nobody writes them meanwhile.
            .flat_map(|p| unsafe { std::slice::from_raw_parts(p.iov_base.cast::<u8>(), p.iov_len) }.to_vec())
            .collect();
        let (mut at, mut out) = (0, Vec::new());
        while at < all.len() {
            let h = StreamHeader::decode(all[at..at + 16].try_into().unwrap(), u64::MAX).unwrap();
            out.push((h.frame as u32, all[at + 16..at + 16 + h.len as usize].to_vec()));
            at += 16 + h.len as usize;
        }
        out
    }

    #[test]
    fn heap_bytes_come_between_the_records_around_them() {
        let memory = Memory::create(Layout { heap_bytes: 4 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        let mut body = Vec::new();
        HeapRange { offset: 4096, bytes: 3 << 20 }.put(&mut body);
        for r in [record(0x100, &[1; 8]), record(op::HEAP_WRITTEN, &body), record(0x101, &[2; 8])] {
            assert!(p.push(&[&r]).unwrap());
        }
        let mut g = Gather::default();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let n = g.collect(Frame::Command, &mut c, &heap, &mut NoLanes).unwrap();
            seen.extend(frames(&g).into_iter().map(|(k, b)| (k, b.len())));
            g.clear();
            c.consume(n);
        }
        let heap_frame = (4, 1 << 20);
        assert_eq!(seen, [(1, 32), heap_frame, heap_frame, heap_frame, (1, 32)]);
        assert_eq!(c.next(), Ok(None));
    }

    #[test]
    fn records_travel_as_they_are_up_to_the_first_that_brings_something() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let range = [0u8; 16];
        let plain = [record(0x100, &[1; 8]), record(0x101, &[2; 80]), record(0x102, &[])];
        let cases = [
            (Frame::Command, op::HEAP_WRITTEN, 3),
            (Frame::Command, op::HEAP_PATCH, 5),
            (Frame::Reply, op::HEAP_PATCH, 3),
            (Frame::Reply, op::HEAP_SETTLED, 3),
            (Frame::Reply, op::HEAP_WRITTEN, 3),
        ];
        for (frame, op, records) in cases {
            let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
            let other = record(op, if op == op::HEAP_SETTLED { &[] } else { &range });
            let all = [&plain[..], &[other, plain[0].clone()]].concat();
            all.iter().for_each(|r| assert!(p.push(&[r]).unwrap()));
            let mut g = Gather::default();
            let bytes = |n: usize| all[..n].iter().map(Vec::len).sum::<usize>();
            assert_eq!(g.plain(frame, &mut c, usize::MAX), Ok(bytes(records)), "{op:#x}");
            // Whole ones, as far as there is room.
            assert_eq!(g.plain(frame, &mut c, bytes(3) - 1), Ok(bytes(2)));
            assert_eq!(g.plain(frame, &mut c, 8), Ok(0));
            c.consume(bytes(records));
            assert_eq!((g.is_idle(), g.is_ahead(), g.carried()), (true, false, 0));
            let n = g.collect(frame, &mut c, &heap, &mut NoLanes).unwrap();
            assert_eq!((g.is_idle(), g.is_ahead()), (n == 0, n > 0));
            c.consume(n);
        }
    }

    #[test]
    fn events_are_ahead_of_nothing() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        assert!(p.push(&[&record(0x100, &[1; 8])]).unwrap());
        let mut g = Gather::default();
        g.taken(8);
        let n = g.collect(Frame::Event, &mut c, &heap, &mut NoLanes).unwrap();
        assert_eq!((n, g.is_ahead(), g.carried()), (32, false, 0));
        g.clear();
        c.consume(n);
        assert!(p.push(&[&record(0x100, &[1; 8])]).unwrap());
        g.collect(Frame::Reply, &mut c, &heap, &mut NoLanes).unwrap();
        assert_eq!((g.is_ahead(), g.carried()), (true, 32));
    }

    /// Takes a little at a time.
    struct SlowLanes {
        room: u64,
        taken: Vec<HeapRange>,
    }
    impl Stripe for SlowLanes {
        fn stripe(&mut self, range: HeapRange) -> Part {
            if range.bytes < 100 {
                return Part::Inline(range.bytes);
            }
            let bytes = range.bytes.min(std::mem::take(&mut self.room));
            self.taken.push(HeapRange { bytes, ..range });
            Part::Striped(bytes)
        }

        fn barrier(&self) -> [u64; LANES_MAX] {
            [self.taken.iter().map(|range| range.bytes).sum(); LANES_MAX]
        }
    }

    #[test]
    fn what_lanes_have_no_room_for_waits_with_all_that_is_behind_it() {
        let memory = Memory::create(Layout { heap_bytes: 4 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        let mut body = Vec::new();
        HeapRange { offset: 4096, bytes: 3 << 20 }.put(&mut body);
        for r in [record(op::HEAP_WRITTEN, &body), record(0x101, &[2; 8])] {
            assert!(p.push(&[&r]).unwrap());
        }
        let (mut g, mut lanes) = (Gather::default(), SlowLanes { room: 0, taken: Vec::new() });
        for room in [0, 1 << 20, 0, 1 << 20, (1 << 20) - 50] {
            lanes.room = room;
            let n = g.collect(Frame::Command, &mut c, &heap, &mut lanes).unwrap();
            c.consume(n);
            assert!(g.is_empty() && g.waits_for_room(), "with room for {room}");
        }
        let n = g.collect(Frame::Command, &mut c, &heap, &mut lanes).unwrap();
        let barrier: Vec<u8> = [(3u64 << 20) - 50; LANES_MAX].iter().flat_map(|count| count.to_le_bytes()).collect();
        assert_eq!(frames(&g), [(5, barrier), (4, vec![0; 50]), (1, record(0x101, &[2; 8]))]);
        g.clear();
        c.consume(n);
        assert!(!g.waits_for_room() && c.next() == Ok(None));
        let mut at = 4096;
        for range in lanes.taken {
            assert_eq!(range.offset, at);
            at += range.bytes;
        }
        assert_eq!(at, 4096 + (3 << 20) - 50);
    }

    #[test]
    fn a_wait_joins_the_copy_before_it() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        let mut copy = record(op::COPY_OUT, &[3; 32]);
        let wait = record(0x102, &[4; 8]);
        let mut g = Gather::default();
        assert!(p.push(&[&copy]).unwrap());
        g.collect(Frame::Command, &mut c, &heap, &mut NoLanes).unwrap();
        assert!(!g.ends_with_copy_out(), "it is waited for already");
        g.clear();
        c.consume(copy.len());
        copy[16..24].fill(0);
        assert!(p.push(&[&copy]).unwrap());
        let taken = g.collect(Frame::Command, &mut c, &heap, &mut NoLanes).unwrap();
        assert!(g.ends_with_copy_out());
        assert!(p.push(&[&wait]).unwrap());
        let taken = g.collect_after(taken, Frame::Command, &mut c, &heap, &mut NoLanes).unwrap();
        assert!(!g.ends_with_copy_out());
        assert_eq!(frames(&g), [(1, copy.clone()), (1, wait.clone())]);
        g.clear();
        c.consume(taken);
        assert_eq!(c.next(), Ok(None));
    }

    #[test]
    fn advance_stops_anywhere() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Command).unwrap(), memory.consumer(Which::Command).unwrap());
        assert!(p.push(&[&record(0x100, &[1; 80])]).unwrap());
        let mut g = Gather::default();
        g.collect(Frame::Command, &mut c, &heap, &mut NoLanes).unwrap();
        for left in (0..16 + 104).rev() {
            g.advance(1);
            assert_eq!(g.parts().iter().map(|p| p.iov_len).sum::<usize>(), left);
        }
        assert!(g.is_empty());
    }

    /// Shows a kilobyte at a time, as long as there is room, and of which nothing lies behind 3000.
    struct Device {
        room: usize,
    }
    impl Stripe for Device {
        fn stripe(&mut self, range: HeapRange) -> Part {
            if range.offset >= 3000 {
                return Part::Inline(range.bytes.min(500));
            }
            if self.room == 0 {
                return Part::Striped(0);
            }
            self.room -= 1;
            let range = HeapRange { bytes: range.bytes.min(1000), ..range };
            Part::Shown(Shown { range, address: 0x7000_0000 + range.offset, key: 5 })
        }

        fn barrier(&self) -> [u64; LANES_MAX] {
            unreachable!("nothing went by a lane")
        }
    }

    #[test]
    fn what_a_device_reads_is_shown_piece_by_piece_ahead_of_what_follows() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let heap = memory.map_heap(None).unwrap();
        let (mut p, mut c) = (memory.producer(Which::Event).unwrap(), memory.consumer(Which::Event).unwrap());
        let mut device = Device { room: 2 };
        let body = [0u64, 4200].map(u64::to_le_bytes).concat();
        assert!(p.push(&[&record(op::HEAP_WRITTEN, &body)]).unwrap());
        assert!(p.push(&[&record(0x101, &[2; 8])]).unwrap());
        let mut g = Gather::default();
        let shown = |offset: u64| {
            let range = HeapRange { offset, bytes: 1000 };
            (10, Shown { range, address: 0x7000_0000 + offset, key: 5 }.body().to_vec())
        };
        // The range's record is taken, and what is behind it waits with the rest of the range.
        assert_eq!(g.collect(Frame::Command, &mut c, &heap, &mut device), Ok(40));
        assert_eq!(frames(&g), [shown(0), shown(1000)]);
        assert!(g.waits_for_room() && g.is_ahead() && !g.has_drained());
        g.clear();
        c.consume(40);
        assert_eq!(g.collect(Frame::Command, &mut c, &heap, &mut device), Ok(0));
        assert!(g.is_empty() && g.waits_for_room());
        device.room = 9;
        assert_eq!(g.collect(Frame::Command, &mut c, &heap, &mut device), Ok(32));
        let inline = [500, 500, 200].map(|bytes| (4, vec![0; bytes]));
        let all = [vec![shown(2000)], inline.to_vec(), vec![(1, record(0x101, &[2; 8]))]].concat();
        assert_eq!(frames(&g), all);
        assert!(!g.waits_for_room() && g.has_drained());
    }
}
