//! Waiting for replies.
//!
//! Replies to all threads come back in one ring; whichever waiting thread gets the reader's lock hands the others
//! theirs.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orion_cuda::sys::*;
use orion_ring::futex::{self, Among};
use orion_ring::{Consumer, Spin};
use orion_transport::environment;
use orion_transport::thread::Uncancelled;
use orion_wire::record::{Header, op};

use crate::session::lost::{broken, lost_now};
use crate::session::poison;
use crate::session::thread::{THREAD, thread_slot};
use crate::state::process::state;
use crate::state::replies::{Inbox, Replies, Reply};
use crate::state::session::Session;

/// A call under way.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    pub sequence: u64,
    /// Index of the command among all that this process sent.
    pub sent: u64,
    pub op: u16,
}

/// A thread that ends leaves answers for which nobody waits. They are dropped when there are more than this.
const ANSWERS_MANY: usize = 16;

/// How long a waiting thread spins before it sleeps. As long as the driver itself spins for short waits;
/// a wake-up costs 15 to 40 us in a VM.
fn reply_spin() -> Spin {
    static SPIN: OnceLock<Spin> = OnceLock::new();
    *SPIN.get_or_init(|| Spin::adaptive(Duration::from_millis(20)))
}

/// How many calls with an answer this process has made: over a network each costs a round trip. For measurements, which
/// ask for the symbol by name and find none in NVIDIA's library.
#[unsafe(no_mangle)]
pub extern "C" fn orion_round_trips() -> u64 {
    state().attachment.answered.load(Ordering::Relaxed)
}

/// Waits for the reply to a call that this thread started.
pub fn wait(s: &'static Session, ticket: Ticket) -> Result<Reply, CUresult> {
    state().attachment.answered.fetch_add(1, Ordering::Relaxed);
    let _whole = Uncancelled::hold();
    let reply = wait_for_reply(s, ticket.op, ticket.sequence)?;
    if s.replies.logs.load(Ordering::Relaxed) != 0 {
        log(&s.replies, thread_slot());
    }
    poison::note(crate::state::context::current(), reply.result);
    if !matches!(reply.result, CUDA_SUCCESS | CUDA_ERROR_NOT_READY) {
        // What the worker's driver has to say about it is on standard error when the call returns.
        crate::session::progress::wait_for_word(s, reply.events);
    }
    Ok(reply)
}

/// Logs what came ahead of this thread's reply: the application's callbacks run in the thread whose call failed,
/// as in the driver.
#[cold]
fn log(replies: &Replies, slot: u16) {
    let logs = std::mem::take(&mut *replies.inbox(slot).logs.lock());
    replies.logs.fetch_sub(logs.len() as u32, Ordering::Relaxed);
    for (level, text) in logs {
        if level & op::LOG_OF_ORION != 0 {
            crate::say!("{}", String::from_utf8_lossy(&text));
        }
        crate::report::log::from_driver(level as CUlogLevel, &text);
    }
}

/// As [`wait`], of what is no call of the application's. Nobody is told of an error.
///
/// # Errors
/// That of a session that is lost.
pub fn wait_for_reply(s: &'static Session, op: u16, sequence: u64) -> Result<Reply, CUresult> {
    let slot = thread_slot();
    let mine = s.replies.inbox(slot);
    let _awaited = Awaited::begin(s);
    let mut slow = Slow::new(op);
    loop {
        let seen = mine.signal.load(Ordering::SeqCst);
        if let Some(reply) = take(mine, sequence) {
            return Ok(reply);
        }
        if let Some(mut reader) = s.replies.reader.try_lock() {
            let got = read_until(s, &mut reader, slot, sequence, &mut slow);
            drop(reader);
            hand_over(s);
            return got.map_err(|end| end.code(s));
        }
        if reply_spin().until(|| mine.signal.load(Ordering::SeqCst) != seen) {
            continue;
        }
        s.replies.sleepers.lock().push(slot);
        // Registered first, then one more look: the reader looks at the sleepers after it let go of the lock.
        let retry = s.replies.reader.try_lock().is_some();
        if !retry && mine.signal.load(Ordering::SeqCst) == seen {
            futex::wait(&mine.signal, seen, Some(Duration::from_millis(100)), Among::Threads);
        }
        s.replies.sleepers.lock().retain(|w| *w != slot);
        if crate::session::carrier::lost(s) {
            return Err(lost_now(s));
        }
        slow.look();
    }
}

/// While it lasts the carrier knows that a thread waits.
struct Awaited(&'static Session);

impl Awaited {
    fn begin(s: &'static Session) -> Awaited {
        crate::session::carrier::is_awaited(s, true);
        Awaited(s)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        crate::session::carrier::is_awaited(self.0, false);
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
        if waited > self.said && environment::var_os("ORION_DEBUG").is_some() {
            self.said = waited;
            let name = op::name(self.op);
            crate::say!("thread {} waits for {name} ({:#x}) for {} s", thread_slot(), self.op, waited * 5);
        }
    }
}

/// Whether the answer has been read that nobody waits for, and forgets it.
pub fn answered(s: &'static Session, sequence: u64) -> bool {
    take(s.replies.inbox(thread_slot()), sequence).is_some()
}

fn take(inbox: &Inbox, sequence: u64) -> Option<Reply> {
    let mut replies = inbox.replies.lock();
    if replies.len() > ANSWERS_MANY {
        let first = THREAD.with(|t| t.first.get());
        replies.retain(|(of, _)| *of > first);
    }
    let at = replies.iter().position(|(s, _)| *s == sequence)?;
    replies.remove(at).map(|(_, reply)| reply)
}

/// Why no reply will come. What is logged about it calls the application's callbacks, so that waits until nothing is
/// held.
enum End {
    Lost,
    Broken(&'static str),
}

impl End {
    fn code(self, s: &Session) -> CUresult {
        match self {
            End::Lost => lost_now(s),
            End::Broken(what) => broken(what),
        }
    }
}

/// The record whose header was seen; nothing if it is no reply.
fn read(s: &'static Session, reader: &mut Consumer, header: &Header) -> Result<Option<Reply>, End> {
    let mut body = Vec::new();
    reader.body(header, &mut body);
    reader.consume(header.size as usize);
    match header.op {
        op::HEAP_WRITTEN => return Ok(None),
        op::LOG if header.sequence == 0 => {
            s.replies.keep_log(header.thread, header.context, &body).map_err(|fault| End::Broken(fault.0))?;
            return Ok(None);
        }
        _ => {}
    }
    Ok(Some(Reply { result: header.context as CUresult, events: (header.context >> 32) as u32, body }))
}

fn deliver(s: &'static Session, header: &Header, reply: Reply) {
    let inbox = s.replies.inbox(header.thread);
    inbox.replies.lock().push_back((header.sequence, reply));
    inbox.signal.fetch_add(1, Ordering::SeqCst);
    futex::wake(&inbox.signal, Among::Threads);
}

/// Reads what has come, if nobody does. Who waits for room to send does: the worker may be waiting for room to answer
/// what nobody waits for.
///
/// # Errors
/// That of a session whose worker breaks the rules.
pub fn read_what_has_come(s: &'static Session) -> Result<(), CUresult> {
    let Some(mut reader) = s.replies.reader.try_lock() else { return Ok(()) };
    let end = loop {
        match reader.next() {
            Ok(Some(header)) => match read(s, &mut reader, &header) {
                Ok(Some(reply)) => deliver(s, &header, reply),
                Ok(None) => {}
                Err(end) => break Some(end),
            },
            Ok(None) => break None,
            Err(fault) => break Some(End::Broken(fault.0)),
        }
    };
    drop(reader);
    hand_over(s);
    end.map_or(Ok(()), |end| Err(end.code(s)))
}

/// Reads the reply ring until our own reply comes; the others' are delivered on the way.
fn read_until(
    s: &'static Session,
    reader: &mut Consumer,
    slot: u16,
    sequence: u64,
    slow: &mut Slow,
) -> Result<Reply, End> {
    // A previous reader may have delivered ours between our look and the lock.
    if let Some(reply) = take(s.replies.inbox(slot), sequence) {
        return Ok(reply);
    }
    loop {
        match reader.next() {
            Ok(Some(header)) => {
                let Some(reply) = read(s, reader, &header)? else { continue };
                if header.thread == slot && header.sequence == sequence {
                    return Ok(reply);
                }
                deliver(s, &header, reply);
            }
            Ok(None) => {
                let news = reply_spin().until(|| reader.has_news() != Ok(false));
                if !news {
                    if crate::session::carrier::lost(s) {
                        return Err(End::Lost);
                    }
                    slow.look();
                    reader.sleep(Duration::from_millis(100));
                }
            }
            Err(fault) => return Err(End::Broken(fault.0)),
        }
    }
}

/// The reader leaves: one of those who sleep has to take its place.
fn hand_over(s: &Session) {
    let next = s.replies.sleepers.lock().pop();
    if let Some(slot) = next {
        let inbox = s.replies.inbox(slot);
        inbox.signal.fetch_add(1, Ordering::SeqCst);
        futex::wake(&inbox.signal, Among::Threads);
    }
}
