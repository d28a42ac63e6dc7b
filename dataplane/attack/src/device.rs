//! A client over RDMA whose device writes what it likes, where it likes: into the worker's ring and the inbox while
//! they are read, where records end, and wherever a key that it was not given leads. It shows ranges that are not
//! there, takes those away that it has shown, and reads what it was not shown.

// UNSAFETY: writes into its own outbox by address, offers and shows memory of its own, which is never unmapped, and
// polls.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use orion_ring::control::{PLACED_BYTES, placed_words};
use orion_ring::memory::{Layout, Which};
use orion_ring::{Heap, Memory};
use orion_transport::carrier::VerbsPort;
use orion_transport::carrier::rdma::ends::End;
use orion_transport::carrier::rdma::limits::{PLACED_BYTES_MAX, RING_BYTES};
use orion_transport::carrier::rdma::window::Notice;
use orion_transport::carrier::rdma::works::{Outcome as Done, Place, Read, ReadTo, Registered, Use, Work};
use orion_transport::carrier::rdma::{Device, Pair};
use orion_transport::carrier::tcp;
use orion_transport::client::{Caller, Server};
use orion_transport::proof::Token;
use orion_transport::stream::{
    Frame, SHOWN_BODY_BYTES, SHOWN_BYTES_MAX, SHOWN_BYTES_MIN, SHOWN_MAX, STREAM_HEADER_BYTES, Shown, StreamHeader,
};
use orion_wire::generated::ops;
use orion_wire::handle::Handle;
use orion_wire::hello::kind;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange};

use crate::carried;
use crate::random::Random;
use crate::session::Outcome;

/// A write that the device has not done within this time is none of the other side's doing: it may take 8 s until one
/// is known to have failed.
const PATIENCE: Duration = Duration::from_secs(12);
const READ_WITHIN: Duration = Duration::from_millis(20);
const HEAP_BYTES: u64 = 8 << 20;
/// Sessions of which what the server has said of its memory is not believed.
const ASTRAY_ONE_IN: u64 = 4;
/// Of one write.
const WRITE_BYTES_MAX: u64 = 8 << 10;

/// Whether it is this that the server is reached by.
pub fn reaches(server: &Server) -> bool {
    server.transport() == "rdma"
}

/// Writes at most `count` times, fewer if the session ends before.
pub fn run(server: &Server, token: &str, seed: u64, count: u64) -> Result<Outcome, String> {
    let mut random = Random::new(seed);
    let pair = Pair::new(Device::open(&VerbsPort::default())?)?;
    let memory = Memory::create(Layout { heap_bytes: HEAP_BYTES }).map_err(|e| format!("making memory failed: {e}"))?;
    let mut replies = memory.producer(Which::Reply).map_err(|e| format!("mapping a ring failed: {e}"))?;
    // SAFETY: memory is not unmapped when it is dropped.
    unsafe { pair.offer(replies.beside_device()) }?;
    let caller = Caller::new("orion-attack", Some(Token::new(token, "orion-attack")?));
    let way = tcp::way(server, &caller)?;
    let mut channel = tcp::reach(server, &way).map_err(|no| no.text)?;
    let greeted = carried::begin(server, &mut channel, &caller)?;
    let failed = |e: std::io::Error| format!("telling {server} of a queue pair failed: {e}");
    channel.send_frame(kind::ENDS, &pair.own().encode(), &[]).map_err(failed)?;
    let (answer, body, _) = channel.recv_frame().map_err(failed)?;
    if answer != kind::ENDS {
        return Err(format!("{server} answered with frame {answer} where its queue pair is"));
    }
    let mut peer = End::decode(&body).map_err(|fault| format!("{server} says of its queue pair: {fault}"))?;
    let is_astray = random.one_in(ASTRAY_ONE_IN);
    if is_astray {
        lead_astray(&mut peer, &mut random);
    }
    pair.connect(&peer)?;
    let mut outcome = Outcome {
        worker: greeted.welcome.worker_pid,
        messages: 0,
        succeeded: 0,
        lost: false,
        broke: None,
        read: 0,
        last: Vec::new(),
        watched: true,
        threads: BTreeSet::new(),
    };
    let heap = memory.map_heap(None).map_err(|e| format!("mapping a heap failed: {e}"))?;
    let mut shows = Shows { heap, theirs: greeted.welcome.heap_bytes, said: 0, known: None, read: 0 };
    shows.register(&pair, &mut random)?;
    // Others have hardly got to it when something else ends them.
    let mostly_shows = random.one_in(2);
    let mut end = 0;
    while outcome.messages < count && !outcome.lost {
        let (what, is_read) = match random.one_in(8) != mostly_shows {
            true => shows.do_one(&pair, &mut random)?,
            false => (write_one(&pair, &mut random, &mut end, &mut shows)?, false),
        };
        outcome.messages += 1;
        match done(&pair, channel.as_fd(), &mut shows.read)? {
            Done::Well if is_read => outcome.broke = Some(format!("its device has read what it was not shown: {what}")),
            Done::Well => outcome.succeeded += 1,
            _ => outcome.lost = true,
        }
        // Until it has been read, or not: who goes on at once soon shows more than he may.
        let (began, before) = (Instant::now(), shows.read);
        while mostly_shows && shows.read == before && began.elapsed() < READ_WITHIN && !is_closed(channel.as_fd()) {
            listen(&pair, &mut shows.read)?;
        }
        outcome.last.push(what);
        let surplus = outcome.last.len().saturating_sub(12);
        outcome.last.drain(..surplus);
    }
    outcome.read = shows.read;
    if is_astray && !outcome.lost && outcome.messages > 0 {
        outcome.broke = Some("its device wrote by a key, or to a place, that it was not given".to_owned());
    }
    // What has come to its own end is as it may be; the session is over with its connection.
    Ok(outcome)
}

/// Another place or another key for all that is written: nothing of these is the session's own.
fn lead_astray(peer: &mut End, random: &mut Random) {
    let far = (1 + random.below(1 << 16)) << 21;
    match random.below(3) {
        0 => {
            let other = 1 + random.below(0xffff) as u32;
            (peer.key, peer.ring.key, peer.ring.placed_key) =
                (peer.key ^ other, peer.ring.key ^ other, peer.ring.placed_key ^ other);
        }
        1 => (peer.inbox, peer.ring.data, peer.ring.placed) = (peer.inbox - far, peer.ring.data - far, far),
        // Each key leads to what the others are for, and to nothing else.
        _ => {
            (peer.key, peer.ring.key, peer.ring.placed_key) = (peer.ring.placed_key, peer.key, peer.ring.key);
        }
    }
}

/// Something is written; what, in words.
fn write_one(pair: &Pair, random: &mut Random, end: &mut u64, shows: &mut Shows) -> Result<String, String> {
    let ring_bytes = pair.peer_ring_bytes();
    let any_notice = |random: &mut Random| match random.below(6) {
        0 => Notice::Written { bytes: random.below(64 << 10) as u32, ahead: random.one_in(2) },
        1 => Notice::Taken { bytes: random.below(16) as u32, batches: random.below(2) as u32 },
        2 => Notice::Room(random.below(1 << 12) as u32),
        3 => Notice::decode(random.word() as u32),
        _ => Notice::Placed(8 * random.below(PLACED_BYTES_MAX as u64 / 8) as u32),
    };
    let (what, bytes, to, notice) = match random.below(10) {
        // A record behind those before, as a client would write it, or nearly.
        0..=3 => {
            let record = record(random);
            let at = *end as usize % ring_bytes;
            let whole = record.len().min(ring_bytes - at);
            *end += record.len() as u64;
            ("a record", record[..whole].to_vec(), Place::Ring(at), None)
        }
        // Where those end, or nearly.
        4..=6 => {
            let word = match random.below(12) {
                0 => random.word(),
                1 => *end + 8 * random.below(64),
                2 => end.saturating_sub(8 * random.below(64)),
                _ => *end,
            };
            let mut bytes: Vec<u8> = placed_words(word).into_iter().flat_map(u64::to_le_bytes).collect();
            if random.one_in(16) {
                bytes[random.below(PLACED_BYTES as u64) as usize] ^= 1 << random.below(8);
            }
            let said = Notice::Placed(8 * random.below(600) as u32);
            let notice = if random.one_in(8) { any_notice(random) } else { said };
            ("an end of records", bytes, Place::Placed, Some(notice))
        }
        // Over what is being read.
        7 => {
            let at = random.below(ring_bytes as u64) as usize;
            let bytes = (1 + random.below(WRITE_BYTES_MAX) as usize).min(ring_bytes - at);
            let near = (*end as usize % ring_bytes).saturating_sub(random.below(4096) as usize).min(ring_bytes - bytes);
            ("over the ring", noise(random, bytes), Place::Ring(if random.one_in(2) { at } else { near }), None)
        }
        8 => {
            let at = random.below(RING_BYTES as u64) as usize;
            let bytes = (1 + random.below(WRITE_BYTES_MAX) as usize).min(RING_BYTES - at);
            let notice = random.one_in(2).then(|| any_notice(random));
            ("into the inbox", noise(random, bytes), Place::Inbox(at), notice)
        }
        _ => ("a notice", Vec::new(), Place::Inbox(0), Some(any_notice(random))),
    };
    // SAFETY: the outbox has more room than any of these takes, and each write is waited for.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pair.outbox(), bytes.len()) };
    if let Some(Notice::Written { bytes, .. }) = notice {
        shows.said += u64::from(bytes);
    }
    let encoded = notice.map(Notice::encode);
    pair.post(&[Work { from: 0, to, bytes: bytes.len(), notice: encoded, token: Some(1) }])?;
    Ok(format!("{what}: {} bytes to {to:?} with {notice:?}", bytes.len()))
}

/// Ranges that it shows the server's device, and reads of what the server has.
struct Shows {
    heap: Heap,
    /// How large the session's heap is.
    theirs: u64,
    /// Bytes that the server was told of in its inbox.
    said: u64,
    /// Of its own heap, that can be read.
    known: Option<(Registered, HeapRange)>,
    /// Ranges that the server says to have read.
    read: u64,
}

impl Shows {
    /// Something is done; what, in words, and whether it is a read, none of which may succeed: the server shows
    /// nothing.
    fn do_one(&mut self, pair: &Pair, random: &mut Random) -> Result<(String, bool), String> {
        match random.below(24) {
            // By no key, and by one to what it may write.
            0 => {
                let peer = *pair.peer();
                let (address, key) = match random.below(4) {
                    0 => (peer.inbox, peer.key),
                    1 => (peer.ring.data, peer.ring.key),
                    2 => (random.word(), peer.key ^ random.below(1 << 12) as u32),
                    _ => (peer.inbox - (random.below(1 << 16) << 12), random.word() as u32),
                };
                let bytes = 1 + random.below(64 << 10) as usize;
                pair.read(&Read { to: ReadTo::Landing, address, key, bytes })?;
                return Ok((format!("a read of {bytes} bytes at {address:#x} by key {key:#x}"), true));
            }
            // While it may be read.
            1..=3 => self.register(pair, random)?,
            4 => {
                let ranges = if random.one_in(2) { random.below(3) as u32 } else { random.below(1 << 29) as u32 };
                let notice = Some(Notice::Read(ranges).encode());
                pair.post(&[Work { token: Some(1), ..Work::bare(notice, 1) }])?;
                return Ok((format!("a notice that {ranges} ranges were read"), false));
            }
            _ => {}
        }
        let count = if random.one_in(20) { random.below(2 * SHOWN_MAX as u64) } else { 1 };
        let shown: Vec<Shown> = (0..=count).map(|_| self.any(random)).collect();
        let mut bytes: Vec<u8> = shown
            .iter()
            .flat_map(|shown| {
                let len = SHOWN_BODY_BYTES as u32;
                let header = StreamHeader { frame: Frame::Shown, len, offset: shown.range.offset }.encode();
                [&header[..], &shown.body()].concat()
            })
            .collect();
        if random.one_in(100) {
            bytes.truncate(STREAM_HEADER_BYTES + random.below(SHOWN_BODY_BYTES as u64) as usize);
        }
        let at = (self.said % RING_BYTES as u64) as usize;
        if at + bytes.len() > RING_BYTES {
            bytes.truncate(RING_BYTES - at);
        }
        self.said += bytes.len() as u64;
        let notice = Notice::Written { bytes: bytes.len() as u32, ahead: random.one_in(2) };
        // SAFETY: the outbox has more room, and each write is waited for.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pair.outbox(), bytes.len()) };
        let to = Place::Inbox(at);
        pair.post(&[Work { from: 0, to, bytes: bytes.len(), notice: Some(notice.encode()), token: Some(1) }])?;
        Ok((format!("{} ranges shown: {:?}, of {:?}", shown.len(), shown[0], self.known), false))
    }

    /// Other pages than before, which are nobody's to read any more.
    fn register(&mut self, pair: &Pair, random: &mut Random) -> Result<(), String> {
        if let Some((known, _)) = self.known.take() {
            pair.let_go(known.slot);
        }
        let bytes = 1 + random.below(2 * SHOWN_BYTES_MAX);
        let range = HeapRange { offset: random.below(HEAP_BYTES - bytes), bytes };
        let at = self.heap.at(range.offset, bytes).expect("inside");
        // SAFETY: a range of a heap that is not unmapped.
        let known = unsafe { pair.register(at, bytes as usize, Use::ShownToRead) }?;
        self.known = Some((known, range));
        Ok(())
    }

    /// Mostly one that is there.
    fn any(&self, random: &mut Random) -> Shown {
        let mut bytes = SHOWN_BYTES_MIN + random.below(SHOWN_BYTES_MAX - SHOWN_BYTES_MIN + 1);
        let (mut address, mut key) = (self.heap.base() as u64 + random.below(HEAP_BYTES), random.word() as u32);
        if let Some((known, range)) = self.known {
            bytes = bytes.min(range.bytes);
            address = self.heap.base() as u64 + range.offset + random.below(range.bytes - bytes + 1);
            key = known.key;
        }
        let mut offset = random.below(self.theirs - bytes);
        match random.below(60) {
            0 => address = random.word(),
            1 => address = address.wrapping_add(random.below(1 << 21)),
            2 => key ^= 1 << random.below(32),
            3 => bytes = random.word(),
            4 => offset = random.word(),
            5 => offset = self.theirs - random.below(bytes),
            _ => {}
        }
        Shown { range: HeapRange { offset, bytes }, address, key }
    }
}

/// Mostly one that waits for nothing and is answered, so that it goes on; or any operation with any body, and now and
/// then with a length that is not its own.
fn record(random: &mut Random) -> Vec<u8> {
    let context = Handle::primary_context(0).0;
    let (op, body) = match random.below(16) {
        0 => (random.word() as u16, 8 * random.below(200) as usize),
        1 => (ops::OPS[random.below(ops::OPS.len() as u64) as usize].id, 8 * random.below(20) as usize),
        _ => (ops::CU_CTX_SYNCHRONIZE, 0),
    };
    let size = if random.one_in(100) { random.word() as u32 } else { (HEADER_BYTES + body) as u32 };
    let mut bytes = Header { size, op, thread: 0, context, sequence: random.word() }.encode().to_vec();
    bytes.extend(noise(random, body));
    bytes
}

fn noise(random: &mut Random, bytes: usize) -> Vec<u8> {
    let words = std::iter::repeat_with(|| if random.one_in(2) { random.below(64) } else { random.word() });
    words.take(bytes.div_ceil(8)).flat_map(u64::to_le_bytes).take(bytes).collect()
}

/// What the device says of the write. Where the session has ended before, it would take seconds until that is known of
/// a write, and the connection by which it began says so at once.
fn done(pair: &Pair, connection: BorrowedFd<'_>, read: &mut u64) -> Result<Done, String> {
    let began = Instant::now();
    loop {
        listen(pair, read)?;
        if let Some(done) = pair.poll_sent()? {
            return Ok(done.outcome);
        }
        if is_closed(connection) {
            return Ok(Done::Flushed);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("the RDMA device has not said within {PATIENCE:?} what became of a write"));
        }
        std::thread::yield_now();
    }
}

/// What else the other side says is not listened to, but room for it there has to be.
fn listen(pair: &Pair, read: &mut u64) -> Result<(), String> {
    while let Some(arrived) = pair.poll_arrived()?.filter(|arrived| arrived.outcome == Done::Well) {
        if let Notice::Read(ranges) = Notice::decode(arrived.notice) {
            *read += u64::from(ranges);
        }
        pair.post_receive()?;
    }
    Ok(())
}

/// Nothing is said there any more, so that something is to be read is its end.
fn is_closed(connection: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: connection.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}
