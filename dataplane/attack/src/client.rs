//! A client that says whatever it likes, over any carrier.

// UNSAFETY: reads and writes the session's heap by address, and words of its rings by their places.

use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_ring::control::{Control, PLACED_OFFSET, placed_words};
use orion_ring::memory::Which;
use orion_ring::{Consumer, Heap, Memory, Producer, Spin};

use orion_transport::carrier::{self, Carrier, Listener};
use orion_transport::client::{Caller, Server, Tuning};
use orion_transport::proof::Token;
use orion_wire::hello::Welcome;
use orion_wire::message::callback::CallbackDone;
use orion_wire::message::carrier::HeapWritten;
use orion_wire::message::field::{Field, List};
use orion_wire::message::graph::{Dependencies, NodePlace};
use orion_wire::message::graph_node::{GraphAddNode, NodeParams};
use orion_wire::message::image::Nothing;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, RECORD_BYTES_MAX, op};
use orion_wire::{Handle, Reader, Writer};

const SAID_BYTES: usize = 600;

pub struct Client {
    pub welcome: Welcome,
    pub heap: Heap,
    pub context: u64,
    carrier: Arc<dyn Carrier>,
    memory: Option<Memory>,
    commands: Producer,
    replies: Consumer,
    events: Consumer,
    sequence: u64,
    /// The end of what the worker printed: why it ended, if it was by itself.
    pub said: Vec<u8>,
    /// Whether host functions return.
    pub answers_functions: bool,
    /// How long a message waits for room in the ring.
    pub push_patience: Duration,
}

/// What a ring's words say.
#[derive(Debug, Clone, Copy)]
pub enum RingWord {
    Head,
    /// Where a device says that it has written up to, whole.
    Placed,
    /// And not.
    HalfPlaced,
    Tail,
    ConsumerSleeps,
    ProducerSleeps,
}

impl RingWord {
    pub const ALL: [RingWord; 6] = [
        RingWord::Head,
        RingWord::Placed,
        RingWord::HalfPlaced,
        RingWord::Tail,
        RingWord::ConsumerSleeps,
        RingWord::ProducerSleeps,
    ];

    fn bytes(self, word: u64) -> (usize, Vec<u8>) {
        let (at, words) = match self {
            RingWord::Head => (offset_of!(Control, head), vec![word]),
            RingWord::Placed => (offset_of!(Control, head) + PLACED_OFFSET, placed_words(word).to_vec()),
            RingWord::HalfPlaced => (offset_of!(Control, head) + PLACED_OFFSET, vec![word]),
            RingWord::Tail => (offset_of!(Control, tail), vec![word]),
            RingWord::ConsumerSleeps => (offset_of!(Control, consumer_sleeps), vec![word]),
            RingWord::ProducerSleeps => (offset_of!(Control, producer_sleeps), vec![word]),
        };
        (at, words.into_iter().flat_map(u64::to_le_bytes).collect())
    }
}

/// What came of a call.
pub enum Answer {
    Reply(u32, Vec<u8>),
    /// Nothing yet.
    Late,
    Lost,
}

impl Client {
    /// Writes a word of a ring that nobody but the two sides' rings write.
    pub fn spoil(&self, which: Which, what: RingWord, word: u64) {
        let Some(memory) = &self.memory else { return };
        let (at, bytes) = what.bytes(word);
        let at = (which.place().0 + at as u64) as i64;
        // SAFETY: the bytes are a slice's; whatever comes of them is what this is for.
        unsafe { libc::pwrite(memory.fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), at) };
    }

    pub fn attach(server: &Server, token: &str) -> Result<Client, String> {
        let token = Token::new(token, "orion-attack")?;
        let caller = Caller::new("orion-attack", Some(token));
        let tuning = Tuning { lanes: 2, spin_us: 50 };
        // It keeps nothing in step: what the worker's kernels have changed is dropped, and the session goes on.
        let listener = Listener { patch: |_| Ok(()), ..Listener::NOBODY };
        let a = carrier::attach(server, &caller, tuning, listener)
            .map_err(|e| format!("attaching to {server}: {}", e.text))?;
        let ring = |e: std::io::Error| format!("mapping a ring failed: {e}");
        Ok(Client {
            commands: a.memory.producer(Which::Command).map_err(ring)?,
            replies: a.memory.consumer(Which::Reply).map_err(ring)?,
            events: a.memory.consumer(Which::Event).map_err(ring)?,
            welcome: a.welcome,
            heap: a.heap,
            carrier: a.carrier,
            memory: Some(a.memory),
            context: Handle::primary_context(0).0,
            sequence: 0,
            said: Vec::new(),
            answers_functions: true,
            push_patience: Duration::from_secs(5),
        })
    }

    /// Whether the worker has it now.
    pub fn hand_over(&self, descriptor: BorrowedFd<'_>) -> bool {
        self.carrier.hand_over(descriptor).is_ok()
    }

    pub fn is_lost(&self) -> bool {
        self.carrier.death().is_some()
    }

    fn push(&mut self, op: u16, thread: u16, sequence: u64, body: &[u8]) -> bool {
        let size = HEADER_BYTES + body.len().next_multiple_of(8);
        if size > RECORD_BYTES_MAX {
            return true;
        }
        let header = Header { size: size as u32, op, thread, context: self.context, sequence }.encode();
        let padding = &[0u8; 8][..body.len().wrapping_neg() % 8];
        let began = Instant::now();
        loop {
            match self.commands.push(&[&header, body, padding]) {
                Ok(true) => return true,
                Ok(false) if self.is_lost() || began.elapsed() > self.push_patience => return false,
                Ok(false) => {
                    let spin = Spin::adaptive(Duration::from_micros(50));
                    if self.commands.wait_room(size, spin, Duration::from_millis(20)).is_err() {
                        return false;
                    }
                    self.events();
                }
                Err(_) => return false,
            }
        }
    }

    /// Whether it went out.
    pub fn post(&mut self, op: u16, thread: u16, body: &[u8]) -> bool {
        self.push(op, thread, 0, body)
    }

    pub fn send(&mut self, op: u16, thread: u16, body: &[u8]) -> bool {
        self.sequence += 1;
        self.push(op, thread, self.sequence, body)
    }

    /// Sequence of the last call.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Hands over the replies that are there, those that a carrier keeps too. False once the ring is spoiled.
    pub fn replies(&mut self, seen: &mut dyn FnMut(&Header, &[u8])) -> bool {
        self.events();
        loop {
            match self.replies.next() {
                Ok(Some(header)) => {
                    let mut body = Vec::new();
                    self.replies.body(&header, &mut body);
                    self.replies.consume(header.size as usize);
                    seen(&header, &body);
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// A call, waited for so long; what comes before its reply is handed over too.
    pub fn ask(
        &mut self,
        op: u16,
        thread: u16,
        body: &[u8],
        patience: Duration,
        seen: &mut dyn FnMut(&Header, &[u8]),
    ) -> Answer {
        if !self.send(op, thread, body) {
            return if self.is_lost() { Answer::Lost } else { Answer::Late };
        }
        let (sequence, began) = (self.sequence, Instant::now());
        let mut own = None;
        loop {
            let sound = self.replies(&mut |header, body| {
                seen(header, body);
                if is_reply(header) && header.sequence == sequence {
                    own = Some((header.context as u32, body.to_vec()));
                }
            });
            if let Some((code, body)) = own {
                return Answer::Reply(code, body);
            }
            if !sound || self.is_lost() {
                return Answer::Lost;
            }
            if began.elapsed() > patience {
                return Answer::Late;
            }
            let spin = Spin::adaptive(Duration::from_micros(50));
            if !spin.until(|| self.replies.has_news() != Ok(false)) {
                self.replies.sleep(Duration::from_millis(2));
            }
        }
    }

    /// Takes what was not asked for, and says that host functions have run.
    fn events(&mut self) {
        let mut done = Vec::new();
        while let Ok(Some(header)) = self.events.next() {
            if header.op == op::OUTPUT {
                let mut body = Vec::new();
                self.events.body(&header, &mut body);
                self.said.extend(body);
                let surplus = self.said.len().saturating_sub(SAID_BYTES);
                self.said.drain(..surplus);
            }
            self.events.consume(header.size as usize);
            if header.op == op::RUN_CALLBACK && self.answers_functions {
                done.push(header.context);
            }
        }
        for id in done {
            let body = body(&CallbackDone { round: id });
            let size = (HEADER_BYTES + body.len()) as u32;
            let header = Header { size, op: op::CALLBACK_DONE, thread: 0, context: 0, sequence: 0 }.encode();
            // No room is no harm: the worker's own patience ends.
            let _ = self.commands.push(&[&header, &body]);
        }
    }

    /// Announces that a range of the heap was written.
    pub fn announce(&mut self, range: HeapRange) {
        if self.carrier.pages().must_bring() {
            self.post(HeapWritten::OP, 0, &body(&HeapWritten { range: range.into() }));
        }
    }

    pub fn write_heap(&self, offset: u64, bytes: &[u8]) {
        let at = self.heap.at(offset, bytes.len() as u64).expect("inside the heap");
        // SAFETY: the range lies inside the heap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    }

    pub fn read_heap(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let at = self.heap.at(offset, bytes as u64).expect("inside the heap");
        let mut out = vec![0; bytes];
        // SAFETY: the range lies inside the heap.
        unsafe { std::ptr::copy_nonoverlapping(at, out.as_mut_ptr(), bytes) };
        out
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.carrier.close();
        // Threads of the carrier look at pages until they end, and each of them holds the carrier. Pages that stayed
        // mapped would add up: an hour of sessions has more than a process may have.
        let began = Instant::now();
        while Arc::strong_count(&self.carrier) > 1 && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_last = Arc::strong_count(&self.carrier) == 1;
        if let Some(memory) = self.memory.take().filter(|_| is_last) {
            // SAFETY: this client has no threads, its carrier has none left, and neither is used any more.
            unsafe { memory.unmap_all() };
        }
    }
}

/// Whether it answers a call.
pub fn is_reply(header: &Header) -> bool {
    !matches!(header.op, op::HEAP_WRITTEN | op::HEAP_PATCH | op::LOG)
}

/// A message's body.
pub fn body<'a>(message: &impl Field<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    message.put(&mut out);
    out
}

/// The request for a node that does nothing.
pub fn empty_node(graph: Handle, node: Handle) -> GraphAddNode<'static> {
    let on = Dependencies { with_edges: false, nodes: List::default() };
    let place = NodePlace { graph: graph.into(), node: node.into(), on };
    GraphAddNode { place, params: NodeParams::Empty(Nothing {}) }
}

pub fn words(words: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    words.iter().for_each(|w| out.word(*w));
    out
}

pub fn first_word(body: &[u8]) -> u64 {
    Reader::new(body).word().unwrap_or(0)
}
