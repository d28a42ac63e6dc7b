//! One hostile session: what it has of its own, and the messages it sends.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use orion_cuda::sys::*;
use orion_ring::memory::Which;
use orion_transport::client::Server;
use orion_wire::generated::ops;
use orion_wire::handle::Handle;
use orion_wire::message::address::{ClaimedDevice, ClaimedPlace};
use orion_wire::message::calls;
use orion_wire::message::copy::CopyOutInline;
use orion_wire::message::field::{Bytes, Existing, List, Ordinal, Size};
use orion_wire::message::graph_exec::GraphInstantiateWithFlags;
use orion_wire::message::graph_node::GraphAddNode;
use orion_wire::message::host_memory::{MemHostRegister, PagesOf};
use orion_wire::message::image::Payload;
use orion_wire::message::library::ManagedVariable;
use orion_wire::message::memory::MemAlloc;
use orion_wire::message::module::{ModuleGetFunction, ModuleGetGlobal, ModuleLoadData};
use orion_wire::message::pool::DeviceGetDefaultMemPool;
use orion_wire::record::{Header, HeapRange, op};
use orion_wire::{Kind, Writer};

use crate::client::{Answer, Client, RingWord, body, empty_node, first_word, is_reply, words};
use crate::field::{Arsenal, Field, PTX};
use crate::files::{self, Files};
use crate::messages::{BY_HAND, COPIES, DECLARED, FATAL};
use crate::worker::{self, Worker};

const MEMORY_BYTES: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_millis(300);
/// Most sessions do not survive it.
const RING_SPOILED_ONE_IN: u64 = 600;
/// The next message that asks for a descriptor is given it.
const HANDED_ONE_IN: u64 = 40;
/// What was mapped is used now and then, and then the session ends.
const CUT_ONE_IN: u64 = 1000;
/// The beginning of the program's own file.
const ELF: &[u8] = b"\x7fELF\x02\x01\x01";

/// What a session did, and how it ended.
pub struct Outcome {
    pub worker: u32,
    pub messages: u64,
    pub succeeded: u64,
    pub lost: bool,
    /// What it got hold of or changed, which is against the rules.
    pub broke: Option<String>,
    /// Ranges of a device's own that the server has read.
    pub read: u64,
    /// The last messages, oldest first.
    pub last: Vec<String>,
    pub watched: bool,
    /// The worker's threads, by the numbers that the kernel knows them by.
    pub threads: BTreeSet<u32>,
}

/// Sends `count` messages, fewer if the session ends before.
pub fn run(server: &Server, token: &str, canary: &[u8], seed: u64, count: u64) -> Result<Outcome, String> {
    let mut session = Session::begin(server, token, canary, seed)?;
    let began = Instant::now();
    while session.goes_on() && session.outcome.messages < count && began.elapsed() < Duration::from_secs(20) {
        session.send_one();
        if session.outcome.messages.is_multiple_of(16) {
            session.look();
        }
    }
    Ok(session.end())
}

/// What came back, and what it tells.
struct Seen<'a> {
    arsenal: Arsenal,
    /// What nobody but another session may see.
    canary: &'a [u8],
    /// Operations by their sequence numbers.
    under_way: HashMap<u64, u16>,
    leaked: bool,
    /// The context is broken for good, and so would be everything that follows.
    broken: bool,
    succeeded: u64,
}

impl Seen<'_> {
    fn look_into(&mut self, bytes: &[u8]) {
        self.leaked = self.leaked || holds(bytes, self.canary) || holds(bytes, ELF);
    }

    fn take(&mut self, header: &Header, body: &[u8]) {
        self.look_into(body);
        let Some(op) = self.under_way.remove(&header.sequence).filter(|_| is_reply(header)) else { return };
        match header.context as u32 {
            CUDA_SUCCESS => {
                self.succeeded += 1;
                made(&mut self.arsenal, op, body);
            }
            700..=720 | 46 | 999 => self.broken = true,
            _ => {}
        }
    }
}

struct Session<'a> {
    client: Client,
    is_shared: bool,
    files: Files,
    worker: Worker,
    seen: Seen<'a>,
    outcome: Outcome,
    last: VecDeque<String>,
    /// Answers that did not come in time, one after the other.
    late: u32,
}

impl<'a> Session<'a> {
    fn begin(server: &Server, token: &str, canary: &'a [u8], seed: u64) -> Result<Session<'a>, String> {
        let mut client = Client::attach(server, token)?;
        let worker = Worker::look(client.welcome.worker_pid);
        let mut arsenal = Arsenal::new(seed, client.heap.base() as u64, client.heap.bytes());
        arsenal.foreign.clone_from(&worker.places);
        arsenal.prizes.clone_from(&worker.prizes);
        arsenal.memory_bytes = MEMORY_BYTES;
        arsenal.malice = 3 + arsenal.random.below(12);
        let outcome = Outcome {
            worker: client.welcome.worker_pid,
            messages: 0,
            succeeded: 0,
            lost: false,
            broke: None,
            read: 0,
            last: Vec::new(),
            watched: worker.is_watched(),
            threads: BTreeSet::new(),
        };
        begin(&mut client, &mut arsenal)?;
        let files = Files::new().map_err(|e| format!("making a file in memory failed: {e}"))?;
        if client.hand_over(files.own.as_fd()) {
            let range = HeapRange { offset: 0, bytes: files::MAPPED_BYTES }.into();
            let address = ClaimedPlace::new(files::PLACE);
            let q = body(&MemHostRegister { pages: PagesOf::File, range, address });
            let answer = client.ask(MemHostRegister::OP, 0, &q, Duration::from_secs(20), &mut |_, _| {});
            match answer {
                Answer::Reply(CUDA_SUCCESS, _) => arsenal.file = (files::PLACE, files::MAPPED_BYTES),
                _ => return Err("a file in memory was not registered at the beginning".to_owned()),
            }
        }
        let under_way = HashMap::new();
        let seen = Seen { arsenal, canary, under_way, leaked: false, broken: false, succeeded: 0 };
        let is_shared = server.transport() == "shm";
        Ok(Session { client, is_shared, files, worker, seen, outcome, last: VecDeque::new(), late: 0 })
    }

    fn goes_on(&mut self) -> bool {
        let caught = self.seen.leaked || self.outcome.broke.is_some();
        self.outcome.lost |= !caught && self.client.is_lost();
        !caught && !self.outcome.lost && !self.seen.broken && self.late < 4
    }

    fn send_one(&mut self) {
        let a = &mut self.seen.arsenal;
        // Where the pages are the worker's own as well.
        if self.is_shared && a.random.one_in(RING_SPOILED_ONE_IN) {
            let rings = [Which::Command, Which::Reply, Which::Event];
            let which = rings[a.random.below(3) as usize];
            let what = RingWord::ALL[a.random.below(RingWord::ALL.len() as u64) as usize];
            let word = match a.random.below(4) {
                0 => a.random.word(),
                1 => [0, 1, u64::MAX, 1 << 40][a.random.below(4) as usize],
                // Where it may be, or beside that.
                _ => a.random.word() % (4 << 20),
            };
            self.client.spoil(which, what, word);
            self.last.push_back(format!("{what:?} of {which:?} is {word:#x}"));
        }
        if a.file.1 > 0 && a.random.one_in(HANDED_ONE_IN) {
            // Its socket may be full.
            let _ = self.files.any(&mut a.random).map(|fd| self.client.hand_over(fd.as_fd()));
        }
        if a.file.1 > 0 && a.random.one_in(CUT_ONE_IN) {
            let done = self.files.cut(&mut a.random);
            self.last.push_back(format!("the file that is mapped is cut short: {done:?}"));
        }
        let (op, fields) = pick(a);
        let body = a.message(fields);
        let posted = a.random.one_in(3);
        let thread = a.random.below(3) as u16;
        self.client.context = match a.random.below(12) {
            0 => a.handle(Kind::Context),
            _ => Handle::primary_context(0).0,
        };
        if self.last.len() == 24 {
            self.last.pop_front();
        }
        self.last.push_back(shown(op, posted, &body));
        self.outcome.messages += 1;
        let sent = if posted { self.client.post(op, thread, &body) } else { self.client.send(op, thread, &body) };
        if !posted {
            self.seen.under_way.insert(self.client.sequence(), op);
        }
        let seen = &mut self.seen;
        self.outcome.lost = (!sent || !self.client.replies(&mut |h, b| seen.take(h, b))) && self.client.is_lost();
    }

    /// What has become of the worker, and of what lies where messages may have written.
    fn look(&mut self) {
        self.outcome.threads.extend(worker::threads(self.outcome.worker));
        let seen = &mut self.seen;
        match self.client.ask(op::PING, 5, &[], PATIENCE, &mut |h, b| seen.take(h, b)) {
            Answer::Reply(..) => self.late = 0,
            Answer::Late => self.late += 1,
            Answer::Lost => self.outcome.lost = true,
        }
        // Now, as the session may end before its end.
        self.read(0);
        if self.worker.was_written() {
            self.outcome.broke = Some("memory of the worker was written".to_owned());
        }
    }

    /// A page of the first memory: it may have been read from where it should not.
    fn read(&mut self, offset: u64) {
        self.client.context = Handle::primary_context(0).0;
        let from = ClaimedDevice::new(self.seen.arsenal.memory[0] + offset);
        let q = body(&CopyOutInline { from, bytes: Size(4096), stream: Existing(0) });
        let seen = &mut self.seen;
        self.client.ask(CopyOutInline::OP, 6, &q, PATIENCE, &mut |h, b| seen.take(h, b));
    }

    fn end(mut self) -> Outcome {
        if !self.outcome.lost {
            [0, 4096].into_iter().for_each(|offset| self.read(offset));
            self.seen.look_into(&self.client.read_heap(80 << 20, 256 << 10));
            if self.worker.was_written() {
                self.outcome.broke = Some("memory of the worker was written".to_owned());
            }
        }
        self.outcome.succeeded = self.seen.succeeded;
        if self.seen.leaked {
            self.outcome.broke = Some("memory of the worker was read".to_owned());
        }
        if self.client.is_lost() {
            self.client.replies(&mut |_, _| {});
            self.last.push_back(format!("the worker said: {}", String::from_utf8_lossy(&self.client.said)));
        }
        self.outcome.last = self.last.into();
        self.outcome
    }
}

/// A worker that is told to unmap its stack, which it does not survive; its pid. Only of an oriond that was
/// started for that.
pub fn crash(server: &Server, token: &str) -> Result<u32, String> {
    /// Of `oriond/src/cell/takeover.rs`.
    const TAKEOVER: u16 = 0x7fe0;
    let mut client = Client::attach(server, token)?;
    let mut make = |number: i64, arguments: [(u64, u64); 4]| {
        let mut body = words(&[0, number as u64]);
        arguments.iter().chain(&[(0, 0); 2]).for_each(|(kind, value)| body.extend(words(&[*kind, *value])));
        body.bytes(&[0; 32]);
        client.ask(TAKEOVER, 0, &body, Duration::from_secs(20), &mut |_, _| {})
    };
    // The kernel says nothing about a signal that has a handler.
    let no_handler = [(0, libc::SIGSEGV as u64), (1, 0), (0, 0), (0, 8)];
    let Answer::Reply(CUDA_SUCCESS, _) = make(libc::SYS_rt_sigaction, no_handler) else {
        return Err("a worker cannot be told to crash: is oriond built with debug assertions?".to_owned());
    };
    // The kernel puts stacks there; the rest of a worker lies further down.
    let (from, to) = (0x7ff0_0000_0000, (1 << 47) - 8192);
    match make(libc::SYS_munmap, [(0, from), (0, to - from), (0, 0), (0, 0)]) {
        Answer::Lost => Ok(client.welcome.worker_pid),
        _ => Err("a worker that was told to crash goes on".to_owned()),
    }
}

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    let first = |from: usize| bytes[from..].iter().position(|b| *b == wanted[0]).map(|at| from + at);
    let mut at = first(0);
    while let Some(here) = at {
        if bytes[here..].starts_with(wanted) {
            return true;
        }
        at = first(here + 1);
    }
    false
}

fn shown(op: u16, posted: bool, body: &[u8]) -> String {
    let name = ops::name(op).map_or_else(|| format!("{op:#06x}"), str::to_owned);
    let words: Vec<String> = body
        .chunks(8)
        .take(30)
        .map(|w| format!("{:x}", w.iter().rev().fold(0u64, |all, b| all << 8 | u64::from(*b))))
        .collect();
    format!("{name}{} [{}]", if posted { ", posted" } else { "" }, words.join(" "))
}

fn pick(a: &mut Arsenal) -> (u16, &'static [Field]) {
    let declared = |a: &mut Arsenal, all: &'static [(u16, Vec<Field>)]| {
        let (op, fields) = &all[a.random.below(all.len() as u64) as usize];
        (*op, fields.as_slice())
    };
    match a.random.below(8) {
        0..=2 => declared(a, &DECLARED),
        3 => declared(a, &COPIES),
        4 if a.random.one_in(400) => (a.random.word() as u16, &[Field::Word(64), Field::Word(64)]),
        4 if a.random.one_in(100) => declared(a, &FATAL),
        // In proportion to how many there are.
        5..=6 if a.random.below((DECLARED.len() + BY_HAND.len()) as u64) < DECLARED.len() as u64 => {
            declared(a, &DECLARED)
        }
        _ => BY_HAND[a.random.below(BY_HAND.len() as u64) as usize],
    }
}

/// Remembers memory that was given out.
fn made(a: &mut Arsenal, op: u16, reply: &[u8]) {
    let is_memory = matches!(
        op,
        ops::CU_MEM_ALLOC_V2 | ops::CU_MEM_ALLOC_ASYNC | ops::CU_MEM_ADDRESS_RESERVE | ops::CU_MODULE_GET_GLOBAL_V2
    );
    let address = first_word(reply);
    if is_memory && address != 0 && a.memory.len() < 40 {
        a.memory.push(address);
    }
}

/// A `__managed__` variable, whose bytes are carried over to the heap; where it is.
fn managed_variable(mut call: impl FnMut(u16, &[u8]) -> Result<Vec<u8>, String>) -> Result<u64, String> {
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .global .attribute(.managed) .align 8 .b8 both[{MEMORY_BYTES}];\n\0"
    );
    let module = Handle::new(Kind::Module, 0, 1);
    let image = Payload::Inline(Bytes::from(text.as_bytes()));
    let load = ModuleLoadData { module: module.into(), image, options: List::default(), owner: c"".into() };
    call(ModuleLoadData::OP, &body(&load))?;
    let find = ModuleGetGlobal { module: module.into(), name: c"both".into() };
    let address = first_word(&call(ModuleGetGlobal::OP, &body(&find))?);
    let range = HeapRange { offset: address % 4096, bytes: MEMORY_BYTES }.into();
    let shown = ManagedVariable { address: ClaimedDevice::new(address), range };
    call(ManagedVariable::OP, &body(&shown))?;
    Ok(address)
}

/// What a session needs to have for messages to mean something.
fn begin(client: &mut Client, a: &mut Arsenal) -> Result<(), String> {
    let patience = Duration::from_secs(20);
    let call = |client: &mut Client, op: u16, body: &[u8]| match client.ask(op, 0, body, patience, &mut |_, _| {}) {
        Answer::Reply(CUDA_SUCCESS, reply) => Ok(reply),
        Answer::Reply(code, _) => Err(format!("operation {op:#x} answered {code} at the beginning")),
        Answer::Late => Err(format!("no answer to operation {op:#x} at the beginning")),
        Answer::Lost => Err(format!("session lost in operation {op:#x} at the beginning")),
    };
    for _ in 0..2 {
        let memory = call(client, MemAlloc::OP, &body(&MemAlloc { bytes: Size(MEMORY_BYTES) }))?;
        a.memory.push(first_word(&memory));
    }
    a.memory.push(managed_variable(|op, request| call(client, op, request))?);
    let mut own = |kind: Kind, index: u32| {
        let name = Handle::new(kind, 0, index);
        a.handles.push((kind, name.0));
        name
    };
    let module = own(Kind::Module, 0);
    let image = Payload::Inline(Bytes::from(PTX));
    let load = ModuleLoadData { module: module.into(), image, options: List::default(), owner: c"".into() };
    call(client, ModuleLoadData::OP, &body(&load))?;
    for (i, name) in [c"noop", c"fill", c"increment", c"follow"].into_iter().enumerate() {
        let function = own(Kind::Function, i as u32).into();
        let find = ModuleGetFunction { module: module.into(), function, name: name.into() };
        call(client, ModuleGetFunction::OP, &body(&find))?;
    }
    for i in 0..2 {
        // Below 3 are the default streams, as words.
        let (name, flags) = (own(Kind::Stream, i).0, CU_STREAM_NON_BLOCKING);
        let stream = calls::cuStreamCreateWithPriority { phStream: name, flags, priority: 0 };
        call(client, calls::cuStreamCreateWithPriority::OP, &body(&stream))?;
        let event = calls::cuEventCreate { phEvent: own(Kind::Event, i).0, Flags: 0 };
        call(client, calls::cuEventCreate::OP, &body(&event))?;
        let graph = calls::cuGraphCreate { phGraph: own(Kind::Graph, i).0, flags: 0 };
        call(client, calls::cuGraphCreate::OP, &body(&graph))?;
        // A `CUDA_ARRAY_DESCRIPTOR`: width, height, and one channel of bytes.
        let descriptor = words(&[64, u64::from(i) * 4, 1 << 32 | u64::from(CU_AD_FORMAT_UNSIGNED_INT8)]);
        let array = calls::cuArrayCreate_v2 { pHandle: own(Kind::Array, i).0, pAllocateArray: &descriptor };
        call(client, calls::cuArrayCreate_v2::OP, &body(&array))?;
    }
    let pool = DeviceGetDefaultMemPool { pool: own(Kind::MemPool, 0).into(), device: Ordinal(0) };
    call(client, DeviceGetDefaultMemPool::OP, &body(&pool))?;
    let graph = Handle::new(Kind::Graph, 0, 0);
    call(client, GraphAddNode::OP, &body(&empty_node(graph, own(Kind::GraphNode, 0))))?;
    let exec = own(Kind::GraphExec, 0).into();
    let made = GraphInstantiateWithFlags { exec, graph: graph.into(), flags: 0, some_set_aside: false };
    call(client, GraphInstantiateWithFlags::OP, &body(&made))?;
    a.handles.push((Kind::Context, Handle::primary_context(0).0));
    Ok(())
}
