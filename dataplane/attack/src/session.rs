//! One hostile session: what it has of its own, and the messages it sends.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use orion_cuda::sys::*;
use orion_transport::client::Server;
use orion_wire::generated::ops;
use orion_wire::handle::Handle;
use orion_wire::record::{Header, op};
use orion_wire::{Kind, Writer};

use crate::client::{Answer, Client, first_word, is_reply, words};
use crate::field::{Arsenal, Field, PTX};
use crate::messages::{BY_HAND, COPIES, DECLARED, FATAL};
use crate::worker::{self, Worker};

const MEMORY_BYTES: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_millis(300);
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
    /// The last messages, oldest first.
    pub last: Vec<String>,
    pub watched: bool,
    /// The worker's threads, by the numbers that the kernel knows them by.
    pub threads: BTreeSet<u32>,
}

/// Sends `count` messages, fewer if the session ends before.
pub fn run(server: &Server, token: &str, canary: &[u8], seed: u64, count: u64) -> Result<Outcome, String> {
    let mut client = Client::attach(server, token)?;
    let worker = Worker::look(client.welcome.worker_pid);
    let mut a = Arsenal::new(seed, client.heap.base() as u64, client.heap.bytes());
    a.foreign.clone_from(&worker.places);
    a.prizes.clone_from(&worker.prizes);
    a.memory_bytes = MEMORY_BYTES;
    a.malice = 3 + a.random.below(12);
    let mut outcome = Outcome {
        worker: client.welcome.worker_pid,
        messages: 0,
        succeeded: 0,
        lost: false,
        broke: None,
        last: Vec::new(),
        watched: worker.is_watched(),
        threads: BTreeSet::new(),
    };
    begin(&mut client, &mut a)?;
    let mut last: VecDeque<String> = VecDeque::new();
    let mut under_way: HashMap<u64, u16> = HashMap::new();
    let (leaked, broken, succeeded) = (Cell::new(false), Cell::new(false), Cell::new(0));
    let mut late = 0;
    let seen = |header: &Header, body: &[u8], a: &mut Arsenal, under_way: &mut HashMap<u64, u16>| {
        leaked.set(leaked.get() || holds(body, canary) || holds(body, ELF));
        let Some(op) = under_way.remove(&header.sequence).filter(|_| is_reply(header)) else { return };
        match header.context as u32 {
            CUDA_SUCCESS => {
                succeeded.set(succeeded.get() + 1);
                made(a, op, body);
            }
            // The context is broken for good, and so would be everything that follows.
            700..=720 | 46 | 999 => broken.set(true),
            _ => {}
        }
    };
    let began = Instant::now();
    while outcome.messages < count && late < 4 && !broken.get() && began.elapsed() < Duration::from_secs(20) {
        let (op, fields) = pick(&mut a);
        let body = a.message(fields);
        let posted = a.random.one_in(3);
        let thread = a.random.below(3) as u16;
        client.context = match a.random.below(12) {
            0 => a.handle(Kind::Context),
            _ => Handle::primary_context(0).0,
        };
        if last.len() == 24 {
            last.pop_front();
        }
        last.push_back(shown(op, posted, &body));
        outcome.messages += 1;
        let sent = if posted { client.post(op, thread, &body) } else { client.send(op, thread, &body) };
        if !posted {
            under_way.insert(client.sequence(), op);
        }
        outcome.lost = (!sent || !client.replies(&mut |h, b| seen(h, b, &mut a, &mut under_way))) && client.is_lost();
        if outcome.messages.is_multiple_of(16) {
            outcome.threads.extend(worker::threads(outcome.worker));
            match client.ask(op::PING, 5, &[], PATIENCE, &mut |h, b| seen(h, b, &mut a, &mut under_way)) {
                Answer::Reply(..) => late = 0,
                Answer::Late => late += 1,
                Answer::Lost => outcome.lost = true,
            }
            // Now, as the session may end before its end.
            client.context = Handle::primary_context(0).0;
            client.ask(op::COPY_OUT_INLINE, 6, &words(&[a.memory[0], 4096, 0]), PATIENCE, &mut |h, b| {
                seen(h, b, &mut a, &mut under_way);
            });
            if worker.was_written() {
                outcome.broke = Some("memory of the worker was written".to_owned());
                break;
            }
            if leaked.get() {
                break;
            }
        }
        if outcome.lost || client.is_lost() {
            outcome.lost = true;
            break;
        }
    }
    if !outcome.lost {
        // What lies in device memory may have been read from where it should not.
        client.context = Handle::primary_context(0).0;
        for at in [0, 4096] {
            let body = words(&[a.memory[0] + at, 4096, 0]);
            client.ask(op::COPY_OUT_INLINE, 6, &body, PATIENCE, &mut |h, b| seen(h, b, &mut a, &mut under_way));
        }
        let heap = client.read_heap(80 << 20, 256 << 10);
        leaked.set(leaked.get() || holds(&heap, canary) || holds(&heap, ELF));
        if worker.was_written() {
            outcome.broke = Some("memory of the worker was written".to_owned());
        }
    }
    outcome.succeeded = succeeded.get();
    if leaked.get() {
        outcome.broke = Some("memory of the worker was read".to_owned());
    }
    if client.is_lost() {
        client.replies(&mut |_, _| {});
        last.push_back(format!("the worker said: {}", String::from_utf8_lossy(&client.said)));
    }
    outcome.last = last.into();
    Ok(outcome)
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
        let memory = first_word(&call(client, ops::CU_MEM_ALLOC_V2, &words(&[MEMORY_BYTES]))?);
        a.memory.push(memory);
    }
    let mut own = |kind: Kind, index: u32| {
        let name = Handle::new(kind, 0, index).0;
        a.handles.push((kind, name));
        name
    };
    let module = own(Kind::Module, 0);
    let mut body = words(&[module, 0]);
    body.bytes(PTX);
    body.word(0);
    call(client, ops::CU_MODULE_LOAD_DATA_EX, &body)?;
    for (i, name) in ["noop", "fill", "increment", "follow"].iter().enumerate() {
        let mut body = words(&[module, own(Kind::Function, i as u32)]);
        body.bytes(name.as_bytes());
        call(client, ops::CU_MODULE_GET_FUNCTION, &body)?;
    }
    for i in 0..2 {
        let flags = u64::from(CU_STREAM_NON_BLOCKING);
        // Below 3 are the default streams, as words.
        call(client, ops::CU_STREAM_CREATE_WITH_PRIORITY, &words(&[own(Kind::Stream, i), flags, 0]))?;
        call(client, ops::CU_EVENT_CREATE, &words(&[own(Kind::Event, i), 0]))?;
        call(client, ops::CU_GRAPH_CREATE, &words(&[own(Kind::Graph, i), 0]))?;
        let mut body = words(&[own(Kind::Array, i)]);
        body.bytes(&words(&[64, u64::from(i) * 4, 1 << 32 | u64::from(CU_AD_FORMAT_UNSIGNED_INT8)]));
        call(client, ops::CU_ARRAY_CREATE_V2, &body)?;
    }
    let (graph, pool) = (Handle::new(Kind::Graph, 0, 0).0, own(Kind::MemPool, 0));
    call(client, ops::CU_DEVICE_GET_DEFAULT_MEM_POOL, &words(&[pool, 0]))?;
    let empty = u64::from(CU_GRAPH_NODE_TYPE_EMPTY);
    call(client, ops::CU_GRAPH_ADD_NODE_V2, &words(&[graph, own(Kind::GraphNode, 0), 0, 0, empty]))?;
    call(client, ops::CU_GRAPH_INSTANTIATE_WITH_FLAGS, &words(&[own(Kind::GraphExec, 0), graph, 0, 0]))?;
    a.handles.push((Kind::Context, Handle::primary_context(0).0));
    Ok(())
}
