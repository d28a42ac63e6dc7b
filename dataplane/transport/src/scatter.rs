//! From wire to ring: puts what a main connection brings where it belongs.

// UNSAFETY: copies into ring and heap memory through pointers that were checked against their bounds.

use std::collections::VecDeque;

use orion_ring::{Heap, Producer, once};
use orion_wire::Fault;
use orion_wire::record::HeapRange;

use crate::lanes::{LANES_MAX, LaneCounts};
use crate::stream::{Frame, SHOWN_BODY_BYTES, SHOWN_MAX, STREAM_HEADER_BYTES, Shown, StreamHeader};

/// Who hears what a carrier does to the heap, on the threads that do it.
#[derive(Clone, Copy)]
pub struct Listener {
    /// A range (offset, bytes) is about to be written.
    pub arriving: fn(u64, u64),
    /// A range, or the first part of one that was about to be, has been written. Before anything that follows it.
    pub arrived: fn(u64, u64),
    /// Whether some of a range is such that `write` has to write it: others look at what has changed there.
    pub keeps: fn(u64, u64) -> bool,
    /// Writes bytes to an offset where that is so, in place of `arrived`.
    pub write: fn(u64, &[u8]) -> Result<(), Fault>,
    /// What has been written since a command was settled is not all that its own brings.
    pub unsettled: fn(),
    /// A command, counted from 1, brings no more bytes to the heap: what it was to bring is there, or it failed.
    pub settled: fn(u64),
    /// The body of a `HEAP_PATCH`, to be applied before anything that follows it.
    pub patch: fn(&[u8]) -> Result<(), Fault>,
}

impl Listener {
    /// Of a client that keeps no list of what is under way and shares no memory.
    pub const NOBODY: Listener = Listener {
        arriving: |_, _| {},
        arrived: |_, _| {},
        keeps: |_, _| false,
        write: |_, _| Err(Fault("a write for a client that keeps no memory in step")),
        unsettled: || {},
        settled: |_| {},
        patch: |_| Err(Fault("a patch for a client that shares no memory")),
    };
}

/// Why no more bytes can be taken now. Nothing is lost: the same bytes are offered again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// Index of the ring that is full.
    Room(usize),
    /// Bulk bytes on the lanes have to come first.
    Barrier,
    /// So have those that this side's device reads.
    Device,
}

const IN_PLACE_BYTES_MIN: usize = 16 << 10;
/// What a program may take for one number: it arrives whole, however the stream is cut, as a GPU writes it.
const NUMBER_BYTES: usize = 8;

enum State {
    Header {
        have: usize,
        bytes: [u8; STREAM_HEADER_BYTES],
    },
    Ring {
        index: usize,
        left: usize,
    },
    /// Of `left` bytes the first `have`, of a number that is not all here yet, wait in `bytes`.
    Heap {
        offset: u64,
        left: usize,
        have: usize,
        bytes: [u8; NUMBER_BYTES],
    },
    Barrier {
        have: usize,
        len: usize,
        bytes: [u8; LANES_MAX * 8],
    },
    Patch {
        len: usize,
        bytes: Vec<u8>,
    },
    Taken {
        up_to: u64,
    },
    Settled {
        command: u64,
    },
    Shown {
        offset: u64,
        have: usize,
        bytes: [u8; SHOWN_BODY_BYTES],
    },
}

/// What a device of this side's reads of the other's.
#[derive(Default)]
struct Reads {
    /// Of which nobody has asked yet.
    fresh: Vec<Shown>,
    /// With those: all of which is not here yet.
    awaited: VecDeque<HeapRange>,
}

const START: State = State::Header { have: 0, bytes: [0; STREAM_HEADER_BYTES] };

/// One direction of a carried session, at its receiving end.
pub struct Scatter {
    /// The rings this side receives, with the frame that fills each.
    rings: Vec<(Frame, Producer)>,
    heap: Heap,
    state: State,
    listener: Option<Listener>,
    /// What a client's worker has taken of its commands, until somebody asks.
    taken: Option<u64>,
    /// Where a device reads what the other side shows.
    reads: Option<Reads>,
    /// Of the heap something has come, and it was not said that it was all that a command brings.
    is_unsettled: bool,
}

impl Scatter {
    pub fn new(rings: Vec<(Frame, Producer)>, heap: Heap) -> Scatter {
        Scatter { rings, heap, state: START, listener: None, taken: None, reads: None, is_unsettled: false }
    }

    /// This side has a device that reads what the other shows. Nothing that follows passes until it has.
    pub fn let_device_read(&mut self) {
        self.reads = Some(Reads::default());
    }

    /// Ranges that were shown since this was asked before, each with its place in the heap.
    pub fn shown(&mut self) -> Vec<(Shown, *mut u8)> {
        let fresh = self.reads.as_mut().map(|reads| std::mem::take(&mut reads.fresh)).unwrap_or_default();
        let place = |shown: Shown| {
            let HeapRange { offset, bytes } = shown.range;
            (shown, self.heap.at(offset, bytes).expect("the range was checked"))
        };
        fresh.into_iter().map(place).collect()
    }

    /// All of the first `count` of them is here.
    pub fn have_read(&mut self, count: usize) {
        let reads = self.reads.as_mut().expect("only a device reads");
        for HeapRange { offset, bytes } in reads.awaited.drain(..count) {
            if let Some(listener) = self.listener {
                (listener.arrived)(offset, bytes);
            }
        }
    }

    pub fn with_listener(self, listener: Option<Listener>) -> Scatter {
        Scatter { listener, ..self }
    }

    /// Command bytes that the worker has taken, if there is news.
    pub fn taken(&mut self) -> Option<u64> {
        self.taken.take()
    }

    pub fn ring(&mut self, index: usize) -> &mut Producer {
        &mut self.rings[index].1
    }

    /// Hands the rings' ends back when the session is over.
    pub fn into_rings(self) -> Vec<(Frame, Producer)> {
        self.rings
    }

    /// Takes bytes from the stream. Answers how many were taken and, where not all, why.
    pub fn feed(&mut self, mut from: &[u8], counts: &LaneCounts) -> Result<(usize, Option<Blocked>), Fault> {
        let offered = from.len();
        loop {
            match &mut self.state {
                State::Header { have, bytes } => {
                    let n = from.len().min(STREAM_HEADER_BYTES - *have);
                    bytes[*have..*have + n].copy_from_slice(&from[..n]);
                    *have += n;
                    from = &from[n..];
                    if *have < STREAM_HEADER_BYTES {
                        return Ok((offered, None));
                    }
                    let header = StreamHeader::decode(bytes, self.heap.bytes())?;
                    // Ranges wait for no ranges, and all else for all of them.
                    let waits = self.reads.as_ref().is_some_and(|reads| !reads.awaited.is_empty());
                    if waits && header.frame != Frame::Shown {
                        return Ok((offered - from.len(), Some(Blocked::Device)));
                    }
                    self.note(header.frame);
                    self.state = self.begin(header)?;
                }
                State::Ring { left: 0, .. } | State::Heap { left: 0, .. } => self.state = START,
                State::Ring { index, left } => {
                    if from.is_empty() {
                        return Ok((offered, None));
                    }
                    let ring = &mut self.rings[*index].1;
                    let room = ring.room().map_err(|_| Fault("ring positions are impossible"))? as usize;
                    let n = from.len().min(*left).min(room);
                    if n == 0 {
                        return Ok((offered - from.len(), Some(Blocked::Room(*index))));
                    }
                    ring.push(&[&from[..n]]).map_err(|_| Fault("ring positions are impossible"))?;
                    *left -= n;
                    from = &from[n..];
                }
                State::Heap { offset, left, have, bytes } => {
                    let (at, rest) = (*offset as usize % NUMBER_BYTES, *left);
                    // The number that has begun, or as many whole ones as there are.
                    let begun = (NUMBER_BYTES - at).min(rest);
                    let whole = match from.len().min(rest) {
                        all if all == rest => all,
                        some => ((at + some) / NUMBER_BYTES * NUMBER_BYTES).saturating_sub(at),
                    };
                    if *have > 0 || whole == 0 {
                        let n = from.len().min(begun - *have);
                        bytes[*have..*have + n].copy_from_slice(&from[..n]);
                        *have += n;
                        from = &from[n..];
                        if *have < begun {
                            return Ok((offered, None));
                        }
                        land(&self.heap, self.listener, *offset, &bytes[..begun])?;
                        (*offset, *left, *have) = (*offset + begun as u64, rest - begun, 0);
                    } else {
                        land(&self.heap, self.listener, *offset, &from[..whole])?;
                        (*offset, *left) = (*offset + whole as u64, rest - whole);
                        from = &from[whole..];
                    }
                }
                State::Barrier { have, len, bytes } => {
                    let n = from.len().min(*len - *have);
                    bytes[*have..*have + n].copy_from_slice(&from[..n]);
                    *have += n;
                    from = &from[n..];
                    if have < len {
                        return Ok((offered, None));
                    }
                    if !counts.reached(&targets(bytes)) {
                        return Ok((offered - from.len(), Some(Blocked::Barrier)));
                    }
                    self.state = START;
                }
                State::Taken { up_to } => {
                    self.taken = Some(*up_to);
                    self.state = START;
                }
                State::Settled { command } => {
                    let listener = self.listener.expect("no such frame begins without one");
                    (listener.settled)(*command);
                    self.state = START;
                }
                State::Shown { offset, have, bytes } => {
                    let n = from.len().min(SHOWN_BODY_BYTES - *have);
                    bytes[*have..*have + n].copy_from_slice(&from[..n]);
                    *have += n;
                    from = &from[n..];
                    if *have < SHOWN_BODY_BYTES {
                        return Ok((offered, None));
                    }
                    let shown = Shown::decode(*offset, bytes, self.heap.bytes())?;
                    self.state = START;
                    self.show(shown)?;
                }
                State::Patch { len, bytes } => {
                    let n = from.len().min(*len - bytes.len());
                    bytes.extend_from_slice(&from[..n]);
                    from = &from[n..];
                    if bytes.len() < *len {
                        return Ok((offered, None));
                    }
                    let listener = self.listener.expect("no patch begins without one");
                    (listener.patch)(bytes)?;
                    self.state = START;
                }
            }
            if from.is_empty() && matches!(self.state, State::Header { .. }) {
                return Ok((offered, None));
            }
        }
    }

    /// The end of a command follows right behind what it brings.
    fn note(&mut self, frame: Frame) {
        match frame {
            Frame::Heap | Frame::Shown | Frame::Barrier => self.is_unsettled = true,
            Frame::Settled => self.is_unsettled = false,
            Frame::Taken => {}
            _ if std::mem::take(&mut self.is_unsettled) => {
                if let Some(listener) = self.listener {
                    (listener.unsettled)();
                }
            }
            _ => {}
        }
    }

    fn begin(&self, header: StreamHeader) -> Result<State, Fault> {
        let len = header.len as usize;
        Ok(match header.frame {
            Frame::Heap => {
                if let Some(listener) = self.listener {
                    (listener.arriving)(header.offset, len as u64);
                }
                State::Heap { offset: header.offset, left: len, have: 0, bytes: [0; NUMBER_BYTES] }
            }
            Frame::Patch if self.listener.is_some() => State::Patch { len, bytes: Vec::with_capacity(len) },
            Frame::Patch => return Err(Fault("patch for somebody who keeps no memory in step")),
            Frame::Barrier => State::Barrier { have: 0, len, bytes: [0; LANES_MAX * 8] },
            Frame::Taken if self.rings.iter().all(|(f, _)| *f != Frame::Command) => {
                State::Taken { up_to: header.offset }
            }
            Frame::Taken => return Err(Fault("ring bytes in the wrong direction")),
            Frame::Settled if self.listener.is_some() => State::Settled { command: header.offset },
            Frame::Settled => return Err(Fault("a command settled for somebody who sent none")),
            Frame::Chunk => return Err(Fault("bulk chunk on a session's main connection")),
            Frame::Shown if self.reads.is_some() => {
                State::Shown { offset: header.offset, have: 0, bytes: [0; SHOWN_BODY_BYTES] }
            }
            Frame::Shown => return Err(Fault("a range was shown to somebody who has no device for it")),
            frame => {
                let index = self.rings.iter().position(|(f, _)| *f == frame);
                State::Ring { index: index.ok_or(Fault("ring bytes in the wrong direction"))?, left: len }
            }
        })
    }

    fn show(&mut self, shown: Shown) -> Result<(), Fault> {
        let reads = self.reads.as_mut().expect("no such frame begins without a device");
        if reads.awaited.len() == SHOWN_MAX {
            return Err(Fault("more ranges were shown than there may be"));
        }
        self.heap.at(shown.range.offset, shown.range.bytes).ok_or(Fault("range outside the session's host heap"))?;
        if let Some(listener) = self.listener {
            (listener.arriving)(shown.range.offset, shown.range.bytes);
        }
        reads.awaited.push_back(shown.range);
        reads.fresh.push(shown);
        Ok(())
    }

    /// Where the next bytes of the stream belong if that is the heap and there are many: the kernel may put them there
    /// itself. Fewer are better received together with what follows them. Numbers inside of so many arrive as the
    /// network cuts them.
    /// [`Self::received_in_place`] has to be told how many it did.
    pub fn in_place(&self) -> Option<(*mut u8, usize)> {
        match self.state {
            State::Heap { offset, left, have: 0, .. }
                if left >= IN_PLACE_BYTES_MIN
                    && self.listener.is_none_or(|listener| !(listener.keeps)(offset, left as u64)) =>
            {
                Some((self.heap.at(offset, left as u64)?, left))
            }
            _ => None,
        }
    }

    pub fn received_in_place(&mut self, n: usize) {
        if let State::Heap { offset, left, .. } = &mut self.state {
            assert!(n <= *left, "more bytes received in place than were asked for");
            if let Some(listener) = self.listener {
                (listener.arrived)(*offset, n as u64);
            }
            *offset += n as u64;
            *left -= n;
        }
    }

    /// Whether everything received so far has been delivered up to a frame's end. A stream that ends elsewhere was
    /// cut off.
    pub fn is_between_frames(&self) -> bool {
        matches!(self.state, State::Header { have: 0, .. })
    }
}

/// Puts bytes where they belong in the heap.
fn land(heap: &Heap, listener: Option<Listener>, offset: u64, from: &[u8]) -> Result<(), Fault> {
    let bytes = from.len() as u64;
    if let Some(listener) = listener.filter(|listener| (listener.keeps)(offset, bytes)) {
        return (listener.write)(offset, from);
    }
    let to = heap.at(offset, bytes).ok_or(Fault("range outside the session's host heap"))?;
    // SAFETY: `at` gave as many writable bytes; `from` is this process's own buffer.
    unsafe { once::copy(from.as_ptr(), to, from.len()) };
    if let Some(listener) = listener {
        (listener.arrived)(offset, bytes);
    }
    Ok(())
}

fn targets(bytes: &[u8; LANES_MAX * 8]) -> [u64; LANES_MAX] {
    std::array::from_fn(|i| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_ring::memory::{Layout, Memory, Which};

    fn scatter(memory: &Memory) -> Scatter {
        let heap = memory.map_heap(None).unwrap();
        Scatter::new(vec![(Frame::Event, memory.producer(Which::Event).unwrap())], heap)
    }

    fn frame(frame: Frame, offset: u64, body: &[u8]) -> Vec<u8> {
        let mut out = StreamHeader { frame, len: body.len() as u32, offset }.encode().to_vec();
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn bytes_arrive_however_the_stream_is_cut() {
        let mut stream = frame(Frame::Event, 0, &[1; 100]);
        stream.extend(frame(Frame::Heap, 4096, &[2; 5000]));
        stream.extend(frame(Frame::Barrier, 0, &[0; 64]));
        stream.extend(frame(Frame::Event, 0, &[3; 28]));
        for cut in [1, 7, 16, 17, 100, 10_000] {
            let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
            let mut s = scatter(&memory);
            let mut c = memory.consumer(Which::Event).unwrap();
            for piece in stream.chunks(cut) {
                assert_eq!(s.feed(piece, &LaneCounts::default()), Ok((piece.len(), None)));
            }
            assert!(s.is_between_frames());
            assert_eq!(c.ready(), Ok(128));
            let mut got = [0; 128];
            c.copy(0, &mut got);
            assert_eq!((&got[..100], &got[100..]), (&[1; 100][..], &[3; 28][..]));
            // SAFETY: nobody else has the heap.
            let heap = unsafe { std::slice::from_raw_parts(s.heap.at(4096, 5000).unwrap(), 5000) };
            assert!(heap.iter().all(|b| *b == 2));
        }
    }

    #[test]
    fn numbers_arrive_whole_however_the_stream_is_cut() {
        for (offset, bytes, cut) in (0..9)
            .flat_map(|at| [1, 2, 4, 8, 9, 16, 21, 64].map(|n| (4096 + at, n)))
            .flat_map(|(at, n)| [1, 3, 5, 8, 13, 40].map(|cut| (at, n, cut)))
        {
            let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
            let mut s = scatter(&memory);
            let body: Vec<u8> = (1..=bytes as u8).collect();
            let stream = [frame(Frame::Heap, offset, &body), frame(Frame::Event, 0, &[3; 24])].concat();
            let heap = s.heap;
            // SAFETY: nobody else has the heap.
            let now = || unsafe { std::slice::from_raw_parts(heap.at(4096, 80).unwrap(), 80) }.to_vec();
            for piece in stream.chunks(cut) {
                assert_eq!(s.feed(piece, &LaneCounts::default()), Ok((piece.len(), None)));
                for word in (0..80).step_by(NUMBER_BYTES) {
                    let is_of_it = |at: usize| (offset..offset + bytes).contains(&(4096 + at as u64));
                    let there =
                        (word..word + NUMBER_BYTES).filter(|at| is_of_it(*at)).filter(|at| now()[*at] != 0).count();
                    let all = (word..word + NUMBER_BYTES).filter(|at| is_of_it(*at)).count();
                    assert!(
                        there == 0 || there == all,
                        "{there} of {all} bytes at {word}: {bytes} to {offset} by {cut}"
                    );
                }
            }
            assert_eq!(now()[offset as usize - 4096..][..bytes as usize], body);
            assert!(s.is_between_frames());
        }
    }

    #[test]
    fn a_barrier_holds_back_what_follows_until_its_bytes_are_there() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let mut s = scatter(&memory);
        let counts = LaneCounts::default();
        let mut want = [0; 64];
        want[8] = 10;
        let mut stream = frame(Frame::Barrier, 0, &want);
        stream.extend(frame(Frame::Event, 0, &[3; 24]));
        let (taken, why) = s.feed(&stream, &counts).unwrap();
        assert_eq!((taken, why), (80, Some(Blocked::Barrier)));
        assert_eq!(s.feed(&stream[taken..], &counts), Ok((0, Some(Blocked::Barrier))));
        counts.add(1, 10);
        assert_eq!(s.feed(&stream[taken..], &counts), Ok((40, None)));
    }

    fn shown(offset: u64, bytes: u64) -> Vec<u8> {
        let range = HeapRange { offset, bytes };
        frame(Frame::Shown, offset, &Shown { range, address: 0x7000, key: 9 }.body())
    }

    /// What the shim has not opened of its heap cannot be written to: a server that names it breaks the protocol, and
    /// does not end the program.
    #[test]
    fn bytes_for_what_is_not_open_are_a_fault() {
        const LARGE: u64 = 8 << 20;
        let memory = Memory::create(Layout { heap_bytes: LARGE }).unwrap();
        let heap = memory.map_heap(None).unwrap().closable();
        let new = || Scatter::new(vec![(Frame::Event, memory.producer(Which::Event).unwrap())], heap);
        let counts = LaneCounts::default();
        // One that was made before.
        let mut before = new();
        heap.close().unwrap();
        heap.open(Heap::PIECE, 4096).unwrap();
        let end = 2 * Heap::PIECE;
        let expected = |is_open| if is_open { Ok(()) } else { Err(Fault("range outside the session's host heap")) };
        assert_eq!(before.feed(&frame(Frame::Heap, Heap::PIECE - 8, &[1; 16]), &counts).map(drop), expected(false));
        for (offset, is_open) in
            [(0, false), (end - 16, true), (end - 8, false), (end, false), (Heap::PIECE, true), (LARGE - 16, false)]
        {
            let (mut by_bytes, mut by_device) = (new(), new());
            by_device.let_device_read();
            let body = [7; 16];
            let copied = by_bytes.feed(&frame(Frame::Heap, offset, &body), &counts).map(drop);
            assert_eq!(copied, expected(is_open), "{offset}");
            let by_device = by_device.feed(&shown(offset.min(LARGE - 8192), 8192), &counts).map(drop);
            let is_open = offset == Heap::PIECE;
            assert_eq!(by_device, expected(is_open), "{offset}");
            let mut large = new();
            large.feed(&StreamHeader { frame: Frame::Heap, len: 1 << 20, offset }.encode(), &counts).ok();
            assert_eq!(large.in_place().is_some(), is_open, "{offset}");
        }
    }

    #[test]
    fn what_follows_shown_ranges_is_held_back_until_all_were_read() {
        for cut in [1, 15, 16, 17, 40, 1000] {
            let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
            let mut s = scatter(&memory);
            s.let_device_read();
            let counts = LaneCounts::default();
            let mut stream = [shown(4096, 8192), shown(16384, 4096)].concat();
            // And the header of what waits.
            let waits_at = stream.len() + STREAM_HEADER_BYTES;
            stream.extend(frame(Frame::Event, 0, &[3; 24]));
            let mut at = 0;
            let blocked = loop {
                let end = stream.len().min(at + cut);
                let (used, blocked) = s.feed(&stream[at..end], &counts).unwrap();
                at += used;
                if blocked.is_some() {
                    break blocked;
                }
                assert!(at < stream.len(), "it let pass what follows");
            };
            assert_eq!((blocked, at), (Some(Blocked::Device), waits_at));
            let ranges: Vec<HeapRange> = s.shown().iter().map(|(shown, _)| shown.range).collect();
            assert_eq!(ranges, [(4096, 8192), (16384, 4096)].map(|(offset, bytes)| HeapRange { offset, bytes }));
            assert!(s.shown().is_empty() && !s.is_between_frames());
            s.have_read(1);
            assert_eq!(s.feed(&stream[at..], &counts), Ok((0, Some(Blocked::Device))));
            s.have_read(1);
            assert_eq!(s.feed(&stream[at..], &counts), Ok((24, None)));
        }
    }

    #[test]
    fn more_shown_ranges_than_there_may_be_are_a_fault() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let mut s = scatter(&memory);
        s.let_device_read();
        let counts = LaneCounts::default();
        let all: Vec<u8> = (0..SHOWN_MAX as u64).flat_map(|i| shown(4096 * i, 4096)).collect();
        assert_eq!(s.feed(&all, &counts), Ok((all.len(), None)));
        s.have_read(1);
        assert_eq!(s.feed(&shown(0, 4096), &counts), Ok((40, None)));
        assert!(s.feed(&shown(0, 4096), &counts).is_err());
    }

    #[test]
    fn what_comes_and_is_not_settled_at_once_is_told_of() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static UNSETTLED: AtomicU32 = AtomicU32::new(0);
        let unsettled = || _ = UNSETTLED.fetch_add(1, Ordering::SeqCst);
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let mut s = scatter(&memory).with_listener(Some(Listener { unsettled, ..Listener::NOBODY }));
        let (heap, settled) = (frame(Frame::Heap, 4096, &[7; 16]), frame(Frame::Settled, 1, &[]));
        let event = frame(Frame::Event, 0, &[3; 24]);
        let mut told_after = |frames: &[&[u8]]| {
            let stream = frames.concat();
            assert_eq!(s.feed(&stream, &LaneCounts::default()), Ok((stream.len(), None)));
            UNSETTLED.load(Ordering::SeqCst)
        };
        assert_eq!(told_after(&[&heap, &heap, &settled, &event]), 0);
        // A host function is asked for, which may look at what has come.
        assert_eq!(told_after(&[&heap, &event, &event]), 1);
        assert_eq!(told_after(&[&heap, &settled, &event]), 1);
    }

    #[test]
    fn a_full_ring_blocks_and_goes_on() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let mut s = scatter(&memory);
        let mut c = memory.consumer(Which::Event).unwrap();
        let big = vec![7; 1 << 20];
        let counts = LaneCounts::default();
        let mut stream = frame(Frame::Event, 0, &big);
        stream.extend(frame(Frame::Event, 0, &[8; 8]));
        let (taken, why) = s.feed(&stream, &counts).unwrap();
        assert_eq!(why, Some(Blocked::Room(0)));
        c.ready().unwrap();
        c.consume(4096);
        assert_eq!(s.feed(&stream[taken..], &counts), Ok((stream.len() - taken, None)));
    }

    #[test]
    fn nonsense_is_a_fault() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let counts = LaneCounts::default();
        for bad in [
            frame(Frame::Command, 0, &[1; 8]),
            frame(Frame::Chunk, 0, &[1; 8]),
            frame(Frame::Patch, 0, &[1; 32]),
            frame(Frame::Settled, 1, &[]),
            shown(4096, 8192),
            frame(Frame::Heap, 1 << 20, &[1; 8]),
            vec![0xff; 64],
        ] {
            assert!(scatter(&memory).feed(&bad, &counts).is_err());
        }
    }
}
