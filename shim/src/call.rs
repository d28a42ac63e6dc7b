//! Posting and calling: one record to the worker, and perhaps one back.
//!
//! All threads of the process share one command ring, so their commands have one order. The lock around it is
//! this process's own: a peer cannot hold it. Replies come back in one ring too; whichever waiting thread gets
//! the reader's lock hands the others theirs.

// UNSAFETY: writes records straight into the ring, and waits on futexes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use orion_cuda::sys::*;
use orion_ring::{Consumer, Corrupt, Spin};
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, RECORD_BYTES_MAX, THREADS_MAX, op};
use orion_wire::{Fault, Reader};

use crate::poison;
use crate::session::{Session, session};

/// What every call answers once the worker is gone.
pub const SESSION_LOST: CUresult = CUDA_ERROR_DEVICE_UNAVAILABLE;

/// Sends a command whose answer nobody needs. A failure surfaces on a later call of the current context.
pub fn post(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    post_sealed(op, encode, |_| ())
}

/// As [`post`], for a command that gives something away: `Err` if it was not sent, and `Ok` with the result if it was.
pub fn try_post(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> Result<CUresult, CUresult> {
    try_post_sealed(op, encode, |_| ())
}

/// As [`post`]. `seal` learns which of this process's commands it is, as a carried session's worker counts them, just
/// before the worker can see it and while nobody else can send.
pub fn post_sealed(op: u16, encode: impl FnOnce(&mut Vec<u8>), seal: impl FnOnce(u64)) -> CUresult {
    try_post_sealed(op, encode, seal).unwrap_or_else(|code| code)
}

fn try_post_sealed(op: u16, encode: impl FnOnce(&mut Vec<u8>), seal: impl FnOnce(u64)) -> Result<CUresult, CUresult> {
    let s = session()?;
    let context = crate::local::context::current();
    if let Some(code) = poison::of(context) {
        return Err(code);
    }
    send(s, op, context, 0, encode, seal)?;
    // What carriers and callbacks say to the worker is not the application's work.
    Ok(if op >= op::HAND_FIRST { crate::hand::capture::settle() } else { CUDA_SUCCESS })
}

/// As [`post`], also before `cuInit` has succeeded.
pub fn post_to(s: &'static Session, op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    send(s, op, 0, 0, encode, |_| ()).err().unwrap_or(CUDA_SUCCESS)
}

/// Has a carrier bring a range of the heap over, if `still` holds while nobody else can send. Answers that.
pub fn post_range(s: &'static Session, range: HeapRange, still: impl FnOnce() -> bool) -> Result<bool, CUresult> {
    let mut held = false;
    send_with(s, op::HEAP_WRITTEN, 0, 0, 16, |at| {
        held = still();
        let HeapRange { offset, bytes } = if held { range } else { HeapRange::default() };
        // SAFETY: `send_with` gives sixteen writable bytes.
        unsafe {
            at.cast::<u64>().write_unaligned(offset);
            at.cast::<u64>().add(1).write_unaligned(bytes);
        }
    })?;
    Ok(held)
}

/// Sends a command and waits for its reply. `decode` sees the reply's body if the result is `CUDA_SUCCESS`.
pub fn call<T>(
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<T, CUresult> {
    let s = session()?;
    let ticket = start(s, op, encode)?;
    let reply = wait(s, ticket)?;
    if reply.result != CUDA_SUCCESS {
        return Err(reply.result);
    }
    decode(&mut Reader::new(&reply.body)).map_err(|fault| broken(fault.0))
}

/// As [`call`], for functions whose reply has a body with other results too.
pub fn call_any<T>(
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
    decode: impl FnOnce(CUresult, &mut Reader<'_>) -> Result<T, Fault>,
) -> Result<T, CUresult> {
    let s = session()?;
    let ticket = start(s, op, encode)?;
    let reply = wait(s, ticket)?;
    decode(reply.result, &mut Reader::new(&reply.body)).map_err(|fault| broken(fault.0))
}

/// A call under way.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    pub sequence: u64,
    /// Index of the command among all that this process sent.
    pub sent: u64,
    pub op: u16,
}

pub struct Reply {
    pub result: CUresult,
    /// Of an error: the events that have to be handled before it is known, counted modulo 2^32.
    events: u32,
    pub body: Vec<u8>,
}

/// Sends a command without waiting; [`wait`] has to be called by the same thread.
pub fn start(s: &'static Session, op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> Result<Ticket, CUresult> {
    start_sealed(s, op, encode, |_| ())
}

/// As [`start`], with what [`post_sealed`] does.
pub fn start_sealed(
    s: &'static Session,
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
    seal: impl FnOnce(u64),
) -> Result<Ticket, CUresult> {
    if let Some(code) = poison::of(crate::local::context::current())
        && poison::stops(op)
    {
        return Err(code);
    }
    let sequence = next_sequence();
    let sent = send(s, op, crate::local::context::current(), sequence, encode, seal)?;
    Ok(Ticket { sequence, sent, op })
}

/// As [`start`], with a body of `len` bytes (a multiple of 8) that `fill` writes in place.
pub fn start_with(s: &'static Session, op: u16, len: usize, fill: impl FnOnce(*mut u8)) -> Result<Ticket, CUresult> {
    let sequence = next_sequence();
    let sent = send_with(s, op, crate::local::context::current(), sequence, len, fill)?;
    Ok(Ticket { sequence, sent, op })
}

fn next_sequence() -> u64 {
    THREAD.with(|t| {
        t.sequence.set(t.sequence.get() + 1);
        t.sequence.get()
    })
}

/// Encodes into the thread's buffer and sends. Answers the index of the command.
fn send(
    s: &'static Session,
    op: u16,
    context: u64,
    sequence: u64,
    encode: impl FnOnce(&mut Vec<u8>),
    seal: impl FnOnce(u64),
) -> Result<u64, CUresult> {
    THREAD.with(|t| {
        // Taken, not borrowed: what goes wrong below is told to callbacks of the application's, which may call CUDA.
        let mut buffer = t.buffer.take();
        buffer.clear();
        encode(&mut buffer);
        let body: &[u8] = &buffer;
        let sent = send_with(s, op, context, sequence, body.len(), |at| {
            // SAFETY: `send_with` gives `body.len()` writable bytes.
            unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), at, body.len()) };
            // Counted below, under the same lock.
            seal(s.commands.load(Ordering::Relaxed) + 1);
        });
        drop(ManuallyDrop::into_inner(t.buffer.replace(buffer)));
        sent
    })
}

/// What the application's commands leave free in the ring.
const SPARE_BYTES: usize = 16 << 10;
/// As above where a host function may have changed memory that kernels use in place, and each side has a copy of it:
/// then what it changed goes into the ring ahead of word of its end.
const SPARE_FOR_CHANGES_BYTES: usize = 1 << 20;

fn spare(s: &Session) -> usize {
    let may_change = s.mirrored && crate::hand::callback::may_run() && crate::hand::in_step::any();
    if may_change { SPARE_FOR_CHANGES_BYTES } else { SPARE_BYTES }
}

/// Tells the worker which of the application's calls the next command belongs to, if it does not know.
#[cold]
#[inline(never)]
fn name_call(s: &'static Session, op: u16) -> Result<(), CUresult> {
    if op >= op::HAND_FIRST
        && let Some(id) = crate::activity::take_untold()
    {
        // SAFETY: `send_with` gives eight writable bytes.
        send_with(s, op::ACTIVITY_CORRELATION, 0, 0, 8, |at| unsafe { at.cast::<u64>().write_unaligned(id.into()) })?;
    }
    Ok(())
}

/// Sends a record whose body of `len` bytes (a multiple of 8) `fill` writes in place.
pub fn send_with(
    s: &'static Session,
    op: u16,
    context: u64,
    sequence: u64,
    len: usize,
    fill: impl FnOnce(*mut u8),
) -> Result<u64, CUresult> {
    if crate::activity::on() {
        name_call(s, op)?;
    }
    let size = HEADER_BYTES + len;
    if size > RECORD_BYTES_MAX {
        let name = orion_wire::generated::ops::find(op).map_or("", |o| o.name);
        let text = format!("a command of {size} bytes exceeds the limit of {RECORD_BYTES_MAX}");
        crate::say!("{text} (operation {op:#x})");
        crate::local::logs::error(name, &text);
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    debug_assert!(len.is_multiple_of(8));
    let thread = thread_slot();
    if thread == NO_SLOT {
        return Err(too_many_threads());
    }
    let header = Header { size: size as u32, op, thread, context, sequence }.encode();
    // Word of a host function's end must get by when the GPU's queue and the ring are full of what waits for it.
    let room = if op >= op::HAND_FIRST { size + spare(s) } else { size };
    let mut producer = s.sender.lock().expect("no panic happens under this lock");
    let at = loop {
        match producer.reserve(room) {
            Ok(Some(at)) => break at,
            Ok(None) => {
                if crate::carrier::lost() {
                    return Err(SESSION_LOST);
                }
                let spin = Spin::adaptive(Duration::from_micros(200));
                let there = producer.wait_room(room, spin, Duration::from_millis(5));
                if !there.map_err(|Corrupt| broken("ring"))? {
                    drop(producer);
                    // The lock is not fair: somebody who sleeps for it needs a moment to wake up.
                    std::thread::sleep(Duration::from_micros(50));
                    producer = s.sender.lock().expect("no panic happens under this lock");
                }
            }
            Err(Corrupt) => return Err(broken("command ring positions are impossible")),
        }
    };
    // SAFETY: `reserve` gave `size` writable bytes that the consumer does not read before `commit`.
    unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), at, HEADER_BYTES) };
    // SAFETY: inside the same reservation.
    fill(unsafe { at.add(HEADER_BYTES) });
    producer.commit(size);
    if s.mirrored && op != op::HEAP_WRITTEN {
        // Under the lock, so both only grow.
        let commands = s.commands.load(Ordering::Relaxed) + 1;
        s.commands.store(commands, Ordering::Relaxed);
        if op >= op::HAND_FIRST {
            s.last_work.store(commands, Ordering::Relaxed);
            crate::hand::in_step::work_sent();
        }
    }
    // Counted under the ring's lock, so no other thread writes it meanwhile: a locked addition would cost 20 cycles.
    let sent = s.sent.load(Ordering::Relaxed) + 1;
    s.sent.store(sent, Ordering::Relaxed);
    drop(producer);
    Ok(sent)
}

/// The worker or the carrier sent something impossible. The session cannot go on.
pub fn broken(what: &str) -> CUresult {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let text = format!("the worker broke the protocol ({what}); the session is over");
        crate::say!("{text}");
        crate::local::logs::error("", &text);
    });
    SESSION_LOST
}

/// Where replies for one thread wait until it looks.
struct Inbox {
    replies: Mutex<VecDeque<(u64, Reply)>>,
    /// What the worker's driver logged, until this thread has its reply.
    logs: Mutex<Vec<(u64, Vec<u8>)>>,
    /// Bumped with every delivery and whenever the thread should try to become the reader. A futex word.
    signal: AtomicU32,
}

/// Inboxes made together; most programs have a few threads.
const INBOXES: usize = 256;

pub struct Replies {
    reader: Mutex<Consumer>,
    /// By thread slot, in chunks.
    inboxes: Vec<OnceLock<Box<[OnceLock<Inbox>]>>>,
    /// Threads that sleep on their signal while somebody else reads.
    sleepers: Mutex<Vec<u16>>,
    /// Log messages in all inboxes.
    logs: AtomicU32,
}

impl Replies {
    pub fn new(consumer: Consumer) -> Replies {
        Replies {
            reader: Mutex::new(consumer),
            inboxes: (0..(THREADS_MAX as usize).div_ceil(INBOXES)).map(|_| OnceLock::new()).collect(),
            sleepers: Mutex::new(Vec::new()),
            logs: AtomicU32::new(0),
        }
    }

    fn inbox(&self, slot: u16) -> &Inbox {
        let slot = slot as usize;
        let chunk = self.inboxes[slot / INBOXES].get_or_init(|| (0..INBOXES).map(|_| OnceLock::new()).collect());
        chunk[slot % INBOXES].get_or_init(|| Inbox {
            replies: Mutex::new(VecDeque::new()),
            logs: Mutex::new(Vec::new()),
            signal: AtomicU32::new(0),
        })
    }

    fn keep_log(&self, slot: u16, level: u64, body: &[u8]) -> Result<(), Fault> {
        let text = Reader::new(body).bytes()?;
        self.inbox(slot).logs.lock().expect("no panic happens under this lock").push((level, text.to_vec()));
        self.logs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Logs what came ahead of this thread's reply: the application's callbacks run in the thread whose call failed,
    /// as in the driver.
    #[cold]
    fn log(&self, slot: u16) {
        let logs = std::mem::take(&mut *self.inbox(slot).logs.lock().expect("no panic happens under this lock"));
        self.logs.fetch_sub(logs.len() as u32, Ordering::Relaxed);
        for (level, text) in logs {
            if level & op::LOG_OF_ORION != 0 {
                crate::say!("{}", String::from_utf8_lossy(&text));
            }
            crate::local::logs::from_driver(level as CUlogLevel, &text);
        }
    }
}

/// How long a waiting thread spins before it sleeps. As long as the driver itself spins for short waits;
/// a wake-up costs 15 to 40 us in a VM.
fn reply_spin() -> Spin {
    static SPIN: OnceLock<Spin> = OnceLock::new();
    *SPIN.get_or_init(|| Spin::adaptive(Duration::from_millis(20)))
}

/// Calls of this process whose reply was waited for. Posted commands do not come by here.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// How many calls with an answer this process has made: over a network each costs a round trip. For measurements, which
/// ask for the symbol by name and find none in NVIDIA's library.
#[unsafe(no_mangle)]
pub extern "C" fn orion_round_trips() -> u64 {
    ANSWERED.load(Ordering::Relaxed)
}

/// Waits for the reply to a call that this thread started.
pub fn wait(s: &'static Session, ticket: Ticket) -> Result<Reply, CUresult> {
    ANSWERED.fetch_add(1, Ordering::Relaxed);
    let reply = wait_for_reply(s, ticket)?;
    if s.replies.logs.load(Ordering::Relaxed) != 0 {
        s.replies.log(thread_slot());
    }
    poison::note(crate::local::context::current(), reply.result);
    if !matches!(reply.result, CUDA_SUCCESS | CUDA_ERROR_NOT_READY) {
        // What the worker's driver has to say about it is on standard error when the call returns.
        crate::hand::events::wait_for_word(s, reply.events);
    }
    Ok(reply)
}

fn wait_for_reply(s: &'static Session, ticket: Ticket) -> Result<Reply, CUresult> {
    let slot = thread_slot();
    let mine = s.replies.inbox(slot);
    let mut slow = Slow::new(ticket.op);
    loop {
        let seen = mine.signal.load(Ordering::SeqCst);
        if let Some(reply) = take(mine, ticket.sequence) {
            return Ok(reply);
        }
        match s.replies.reader.try_lock() {
            Ok(mut reader) => {
                let got = read_until(s, &mut reader, slot, ticket.sequence, &mut slow);
                drop(reader);
                hand_over(s);
                return got;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => return Err(SESSION_LOST),
        }
        if reply_spin().until(|| mine.signal.load(Ordering::SeqCst) != seen) {
            continue;
        }
        s.replies.sleepers.lock().expect("no panic happens under this lock").push(slot);
        // Registered first, then one more look: the reader looks at the sleepers after it let go of the lock.
        let retry = s.replies.reader.try_lock().is_ok();
        if !retry && mine.signal.load(Ordering::SeqCst) == seen {
            futex_wait(&mine.signal, seen, Duration::from_millis(100));
        }
        s.replies.sleepers.lock().expect("no panic happens under this lock").retain(|w| *w != slot);
        if crate::carrier::lost() {
            return Err(lost_now());
        }
        slow.look();
    }
}

/// With `ORION_DEBUG` set, says which call a thread has been waiting for, every five seconds.
struct Slow {
    op: u16,
    since: Option<std::time::Instant>,
    said: u64,
}

impl Slow {
    fn new(op: u16) -> Slow {
        Slow { op, since: None, said: 0 }
    }

    #[cold]
    fn look(&mut self) {
        let waited = self.since.get_or_insert_with(std::time::Instant::now).elapsed().as_secs() / 5;
        if waited > self.said && std::env::var_os("ORION_DEBUG").is_some() {
            self.said = waited;
            let name = orion_wire::generated::ops::find(self.op).map_or("", |o| o.name);
            crate::say!("thread {} waits for {name} ({:#x}) for {} s", thread_slot(), self.op, waited * 5);
        }
    }
}

/// What a call answers that waits for something which will not come.
pub fn lost_now() -> CUresult {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let text = "the session is lost: the worker or the connection to it is gone";
        crate::say!("{text}");
        crate::local::logs::error("", text);
    });
    SESSION_LOST
}

fn take(inbox: &Inbox, sequence: u64) -> Option<Reply> {
    let mut replies = inbox.replies.lock().expect("no panic happens under this lock");
    let at = replies.iter().position(|(s, _)| *s == sequence)?;
    replies.remove(at).map(|(_, reply)| reply)
}

/// Reads the reply ring until our own reply comes; the others' are delivered on the way.
fn read_until(
    s: &'static Session,
    reader: &mut Consumer,
    slot: u16,
    sequence: u64,
    slow: &mut Slow,
) -> Result<Reply, CUresult> {
    // A previous reader may have delivered ours between our look and the lock.
    if let Some(reply) = take(s.replies.inbox(slot), sequence) {
        return Ok(reply);
    }
    loop {
        match reader.next() {
            Ok(Some(header)) => {
                let mut body = Vec::new();
                reader.body(&header, &mut body);
                reader.consume(header.size as usize);
                match header.op {
                    op::HEAP_WRITTEN => continue,
                    op::LOG if header.sequence == 0 => {
                        s.replies.keep_log(header.thread, header.context, &body).map_err(|fault| broken(fault.0))?;
                        continue;
                    }
                    _ => {}
                }
                let reply = Reply { result: header.context as CUresult, events: (header.context >> 32) as u32, body };
                if header.thread == slot && header.sequence == sequence {
                    return Ok(reply);
                }
                let inbox = s.replies.inbox(header.thread);
                inbox.replies.lock().expect("no panic happens under this lock").push_back((header.sequence, reply));
                inbox.signal.fetch_add(1, Ordering::SeqCst);
                futex_wake(&inbox.signal);
            }
            Ok(None) => {
                let news = reply_spin().until(|| reader.has_news() != Ok(false));
                if !news {
                    if crate::carrier::lost() {
                        return Err(lost_now());
                    }
                    slow.look();
                    reader.sleep(Duration::from_millis(100));
                }
            }
            Err(fault) => return Err(broken(fault.0)),
        }
    }
}

/// The reader leaves: one of those who sleep has to take its place.
fn hand_over(s: &Session) {
    let next = s.replies.sleepers.lock().expect("no panic happens under this lock").pop();
    if let Some(slot) = next {
        let inbox = s.replies.inbox(slot);
        inbox.signal.fetch_add(1, Ordering::SeqCst);
        futex_wake(&inbox.signal);
    }
}

pub fn futex_wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let ts = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos() as i64 };
    // SAFETY: a valid word and timespec; every error means "look again".
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, &ts) };
}

pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the address as a key only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

/// Has no destructor, so that it can be used to the very end: cudart unloads its libraries from an exit handler,
/// after the thread's destructors have run.
struct Thread {
    slot: Cell<u16>,
    sequence: Cell<u64>,
    /// Freed by [`thread_ended`].
    buffer: Cell<ManuallyDrop<Vec<u8>>>,
    /// A stream this thread has seen idle, the context that was current, and how many records had been sent then.
    synchronized: Cell<(u64, u64, u64)>,
}

const NO_SLOT: u16 = u16::MAX;

thread_local! {
    static THREAD: Thread = const {
        Thread {
            slot: Cell::new(NO_SLOT),
            sequence: Cell::new(0),
            buffer: Cell::new(ManuallyDrop::new(Vec::new())),
            synchronized: Cell::new((0, 0, 0)),
        }
    };
}

static FREE_SLOTS: Mutex<(u16, Vec<u16>)> = Mutex::new((0, Vec::new()));
/// Calls number themselves per slot, so a slot's next owner goes on where the last one stopped.
static SLOT_SEQUENCES: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Has `thread_ended` called when the calling thread ends: after the destructors of its variables, which may still call
/// CUDA, and once more after any other destructor that does.
fn expect_end(slot: u16) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a valid place; the function stays, because this library is never unloaded.
        (unsafe { libc::pthread_key_create(&mut key, Some(thread_ended)) } == 0).then_some(key)
    });
    // Where there is no key left the slot is simply not given back.
    if let Some(key) = key {
        // SAFETY: a key of our own; 0 would mean that there is nothing to end.
        unsafe { libc::pthread_setspecific(*key, std::ptr::without_provenance(slot as usize + 1)) };
    }
}

/// Gives a thread's slot back.
unsafe extern "C" fn thread_ended(slot: *mut libc::c_void) {
    let slot = (slot.addr() - 1) as u16;
    let last = THREAD.with(|t| {
        drop(ManuallyDrop::into_inner(t.buffer.take()));
        t.slot.set(NO_SLOT);
        t.sequence.get()
    });
    if let Ok(mut sequences) = SLOT_SEQUENCES.lock() {
        let index = slot as usize;
        if sequences.len() <= index {
            sequences.resize(index + 1, 0);
        }
        sequences[index] = last;
    }
    if let Ok(mut free) = FREE_SLOTS.lock() {
        free.1.push(slot);
    }
}

/// This thread's number in the session; [`NO_SLOT`] if more threads use CUDA at once than a session numbers.
pub fn thread_slot() -> u16 {
    THREAD.with(|t| {
        if t.slot.get() == NO_SLOT {
            let slot = {
                let mut free = FREE_SLOTS.lock().expect("no panic happens under this lock");
                match free.1.pop() {
                    Some(slot) => slot,
                    None if free.0 == THREADS_MAX => return NO_SLOT,
                    None => {
                        free.0 += 1;
                        free.0 - 1
                    }
                }
            };
            let sequences = SLOT_SEQUENCES.lock().expect("no panic happens under this lock");
            t.sequence.set(sequences.get(slot as usize).copied().unwrap_or(0));
            drop(sequences);
            t.slot.set(slot);
            expect_end(slot);
        }
        t.slot.get()
    })
}

#[cold]
fn too_many_threads() -> CUresult {
    static ONCE: OnceLock<()> = OnceLock::new();
    let text =
        format!("more than {THREADS_MAX} threads of this process use CUDA at once: end some, or let them take turns");
    ONCE.get_or_init(|| eprintln!("orion: {text}"));
    crate::local::logs::error("", &text);
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Remembers that `stream` was seen idle by the command with index `sent`.
pub fn note_synchronized(stream: u64, sent: u64) {
    THREAD.with(|t| t.synchronized.set((stream, crate::local::context::current(), sent)));
}

/// Whether `stream` is known to be idle: it was seen so, and nothing has been sent since. The default streams are
/// another context's own.
pub fn known_synchronized(s: &Session, stream: u64) -> bool {
    let now = (stream, crate::local::context::current(), s.sent.load(Ordering::Relaxed));
    THREAD.with(|t| t.synchronized.get()) == now
}
