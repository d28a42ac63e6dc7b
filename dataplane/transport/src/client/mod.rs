//! The client's end: connect, shake hands, and from then on keep the session memory in step with the worker.

// UNSAFETY: shuts a socket down while other threads still read from it; the standard library wants to own it for that.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_ring::memory::Layout;
use orion_ring::{Heap, Memory};
pub use orion_wire::address::Server;
use orion_wire::hello::{Hello, Start, Welcome, kind};
use orion_wire::refusal::{Reason, Refusal};

use crate::fds;
pub use crate::scatter::Listener;

mod local;
mod tcp;

pub use tcp::connect as connect_tcp;

/// A worker that has to be started first loads the driver and opens every GPU.
const WELCOME_SECONDS_MAX: i64 = 120;

/// How hard the pumps try; the defaults fit, the environment overrides.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Connections for bulk data besides the main one.
    pub lanes: usize,
    /// How long the pumps of the main connection look for more before they sleep, in microseconds. As long as a wait
    /// for the device usually takes: a reply passes two sleeping threads otherwise, 15 to 40 us each in a VM, and so
    /// does the next command.
    pub spin_us: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Tuning { lanes: if cores >= 4 { 4 } else { 2 }, spin_us: 20_000 }
    }
}

pub struct Attached {
    pub welcome: Welcome,
    pub memory: Memory,
    pub heap: Heap,
    /// The memory is a copy that pump threads keep in step, not the worker's own pages.
    pub mirrored: bool,
    pub link: Arc<dyn Link>,
}

/// What remains of the connection once the session runs.
pub trait Link: Send + Sync {
    /// Whether the worker or the way to it is gone. For good: a lost session does not come back.
    fn lost(&self) -> bool;

    /// Ends the session.
    fn close(&self);

    /// Every socket of the session, which a forked child has to close: it would keep the worker alive.
    fn sockets(&self) -> Vec<RawFd>;
}

/// Why there is no session.
#[derive(Debug)]
pub struct NoSession {
    /// The server's reason, where it was reached and refused.
    pub refused: Option<Reason>,
    /// What was being done, with which value, and what to try.
    pub text: String,
}

impl From<String> for NoSession {
    fn from(text: String) -> NoSession {
        NoSession { refused: None, text }
    }
}

/// Attaches to a worker of `server`. The error says what was being done, with which value, and what to try.
pub fn attach(server: &Server, hello: &Hello, tuning: Tuning) -> Result<Attached, NoSession> {
    match server {
        Server::Unix(path) => local::attach(server, path, hello),
        Server::Tcp(address) => tcp::attach(server, address, hello, tuning),
    }
}

/// A lost-for-good flag and the sockets to wake whoever blocks on them.
#[derive(Default)]
struct Lost(AtomicBool);

impl Lost {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// True for the first caller only.
    fn set(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

fn shutdown(socket: &OwnedFd) {
    // SAFETY: a plain call on a descriptor we own; failing means that it is down already.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

fn say_hello(server: &Server, socket: BorrowedFd<'_>, hello: &Hello) -> Result<(Welcome, Vec<OwnedFd>), NoSession> {
    let failed = |e: io::Error| lost_during(server, "waiting for the server's welcome", e);
    crate::socket::receive_timeout(socket, WELCOME_SECONDS_MAX).map_err(failed)?;
    fds::send_frame(socket, kind::HELLO, &hello.encode(), &[]).map_err(failed)?;
    let (answer, body, fds) = fds::recv_frame(socket).map_err(failed)?;
    match answer {
        kind::WELCOME => {
            let welcome = Welcome::decode(&body).map_err(|f| format!("the welcome of {server} is damaged: {f}"))?;
            if Some(welcome.memory_bytes) != layout(&welcome).map(Layout::memory_bytes) {
                return Err(format!("the welcome of {server} announces impossible session memory").into());
            }
            Ok((welcome, fds))
        }
        kind::REFUSED => Err(refusal(server, &body)),
        other => {
            Err(format!("{server} answered the greeting with frame kind {other}: is it an oriond of this version?")
                .into())
        }
    }
}

fn start(server: &Server, socket: BorrowedFd<'_>, heap: &Heap, mirrored: bool) -> Result<(), NoSession> {
    let failed = |e: io::Error| lost_during(server, "starting the session", e);
    let start = Start { heap_base: heap.base() as u64, mirrored };
    fds::send_frame(socket, kind::START, &start.encode(), &[]).map_err(failed)?;
    let (answer, body, _) = fds::recv_frame(socket).map_err(failed)?;
    crate::socket::receive_timeout(socket, 0).map_err(failed)?;
    match answer {
        kind::STARTED => Ok(()),
        kind::REFUSED => Err(refusal(server, &body)),
        other => {
            Err(format!("{server} answered the start with frame kind {other}: is it an oriond of this version?").into())
        }
    }
}

fn lost_during(server: &Server, doing: &str, e: io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            format!("{server} closed the connection while {doing}; its log says why")
        }
        io::ErrorKind::WouldBlock => format!("{server} did not answer within {WELCOME_SECONDS_MAX} s while {doing}"),
        _ => format!("{doing} with {server} failed: {e}"),
    }
}

fn refusal(server: &Server, body: &[u8]) -> NoSession {
    let Refusal { reason, text } = Refusal::decode(body);
    // It goes to the user's terminal; a peer must not be able to steer that.
    let text: String = text.chars().take(500).map(|c| if c.is_control() { ' ' } else { c }).collect();
    NoSession { refused: Some(reason), text: format!("{server} refused the session: {text}") }
}

fn layout(welcome: &Welcome) -> Option<Layout> {
    // Half the address space is more than any machine has, and keeps all sums below from overflowing.
    (welcome.heap_bytes < 1 << 46 && welcome.heap_bytes.is_multiple_of(4096))
        .then_some(Layout { heap_bytes: welcome.heap_bytes })
}

/// Maps the heap where the worker can map it too. Workers keep their own mappings at the bottom of the address space
/// and ours are normally at the top; a program with the old layout (`setarch -L`, an unlimited stack) has them at the
/// bottom as well, and then the heap goes to a place that both leave alone.
fn map_heap(memory: &Memory) -> io::Result<Heap> {
    const BOTTOM: u64 = 0x6000_0000_0000;
    let heap = memory.map_heap(None)?;
    if heap.base() as u64 >= BOTTOM {
        return Ok(heap);
    }
    for step in 0..64 {
        if let Ok(high) = memory.map_heap(Some(BOTTOM + (step << 38))) {
            return Ok(high);
        }
    }
    Ok(heap)
}

impl Attached {
    /// The session's main socket, for tests that break it on purpose.
    pub fn main_socket(&self) -> RawFd {
        self.link.sockets()[0]
    }
}

fn fd_of(socket: &impl AsFd) -> RawFd {
    socket.as_fd().as_raw_fd()
}

static HEAP_LISTENER: std::sync::OnceLock<Listener> = std::sync::OnceLock::new();

/// Has `listener` hear of what a carrier does to the heap. Said before attaching; later is without effect.
pub fn set_heap_listener(listener: Listener) {
    HEAP_LISTENER.get_or_init(|| listener);
}

fn heap_listener() -> Option<Listener> {
    HEAP_LISTENER.get().copied()
}
