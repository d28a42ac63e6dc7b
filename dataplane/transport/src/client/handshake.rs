//! What all ways to a server have in common: who asks, the greeting, and what comes of it.

// UNSAFETY: shuts a socket down while other threads still read from it; the standard library wants to own it for that.

use super::say;
use crate::channel::Channel;
use crate::lease::SignedLease;
use crate::proof::{LaneKey, Said, Token, fresh_nonce, is_same};
use orion_ring::memory::Layout;
use orion_ring::{Heap, Memory};
use orion_tls::trust::Trust;
pub use orion_wire::address::Server;
use orion_wire::environment::Environment;
use orion_wire::hello::{Challenge, Hello, Request, Start, Welcome, kind};
use orion_wire::refusal::{Reason, Refusal};
use orion_wire::text::acts;
use orion_wire::version::Version;
use orion_wire::view::View;
use sha2::{Digest, Sha256};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A worker that has to be started first loads the driver and opens every GPU.
pub const WELCOME_SECONDS_MAX: i64 = 120;

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

/// Who asks for a session, and what it shows.
#[derive(Debug, Clone)]
pub struct Caller {
    pub version: Version,
    pub token: Option<Token>,
    /// What a pool's controller gave it; then there is no token.
    pub lease: Option<SignedLease>,
    /// Whom it believes where it speaks over a network, and what it shows there.
    pub trust: Trust,
    pub pid: u32,
    /// Where that number is this program's (`orion_wire::hello::Request`).
    pub home: [u8; 16],
    pub program: String,
    pub environment: Environment,
}

impl Caller {
    /// This process, as it is.
    pub fn new(program: impl Into<String>, token: Option<Token>) -> Caller {
        Caller {
            version: Version::OWN,
            token,
            lease: None,
            trust: Trust::default(),
            pid: std::process::id(),
            home: home(),
            program: program.into(),
            environment: Environment::of(|name| crate::environment::var(name).ok()),
        }
    }
}

/// Programs for which this is the same see each other under the same numbers. Zeros where the system does not tell, and
/// then nobody's numbers mean anything here.
fn home() -> [u8; 16] {
    let Ok(boot) = std::fs::read("/proc/sys/kernel/random/boot_id") else { return [0; 16] };
    let Ok(namespace) = std::fs::read_link("/proc/self/ns/pid") else { return [0; 16] };
    // Not as they are: the server need not know them.
    let hash = Sha256::new().chain_update(boot).chain_update(namespace.as_os_str().as_encoded_bytes()).finalize();
    std::array::from_fn(|i| hash[i])
}

/// Why there is no session.
#[derive(Debug)]
pub struct NoSession {
    /// The server's reason, where it was reached and refused.
    pub refused: Option<Reason>,
    /// Nobody is there, or somebody else, or who is does not know the lease: who is sent there again, or elsewhere, may
    /// have a session.
    pub may_pass: bool,
    /// What was being done, with which value, and what to try.
    pub text: String,
}

impl NoSession {
    pub fn refused(reason: Reason, text: String) -> NoSession {
        NoSession { refused: Some(reason), may_pass: reason == Reason::Lease, text }
    }

    /// The server is not there, or is there no more.
    pub fn is_gone(text: String) -> NoSession {
        NoSession { may_pass: true, ..text.into() }
    }
}

impl From<String> for NoSession {
    fn from(text: String) -> NoSession {
        NoSession { refused: None, may_pass: false, text }
    }
}

pub fn shutdown(socket: BorrowedFd<'_>) {
    // SAFETY: a plain call on a descriptor we own; failing means that it is down already.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// What the handshake has brought up to the welcome.
pub struct Greeted {
    pub welcome: Welcome,
    pub fds: Vec<OwnedFd>,
    pub lane_key: LaneKey,
}

/// From the first message to the server's welcome. A server that is `trusted`, because the system says who runs it,
/// need not prove itself.
pub fn greet(server: &Server, channel: &mut Channel, caller: &Caller, trusted: bool) -> Result<Greeted, NoSession> {
    let (said, secret) = introduce(server, channel, caller, trusted, kind::REQUEST)?;
    let (body, fds) = answer_to(server, channel, kind::WELCOME, "the request")?;
    let welcome = Welcome::decode(&body).map_err(|f| format!("the welcome of {server} is damaged: {f}"))?;
    if Some(welcome.memory_bytes) != layout(&welcome).map(Layout::memory_bytes) {
        return Err(format!("the welcome of {server} announces impossible session memory").into());
    }
    Ok(Greeted { welcome, fds, lane_key: LaneKey::new(secret.as_ref(), &said) })
}

/// What a session would have there, and what runs, without one.
pub fn ask(server: &Server, channel: &mut Channel, caller: &Caller, trusted: bool) -> Result<View, NoSession> {
    introduce(server, channel, caller, trusted, kind::ASK)?;
    let body = answer_to(server, channel, kind::VIEW, "the question")?.0;
    Ok(View::decode(&body).map_err(|f| format!("the view of {server} is damaged: {f}"))?)
}

/// Says who calls, hears who answers, and sends the request in a frame of this kind. Answers what was said, and the
/// secret under which it was proved.
fn introduce(
    server: &Server,
    channel: &mut Channel,
    caller: &Caller,
    trusted: bool,
    request_kind: u32,
) -> Result<(Said, Option<Token>), NoSession> {
    let failed = |e: io::Error| lost_during(server, "waiting for the server's welcome", e);
    crate::socket::receive_timeout(channel.as_fd(), WELCOME_SECONDS_MAX).map_err(failed)?;
    let nonce = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
    let first = Hello { version: caller.version, nonce }.encode();
    channel.send_frame(kind::HELLO, &first, &[]).map_err(failed)?;
    let body = answer_to(server, channel, kind::CHALLENGE, "the greeting")?.0;
    let challenge = Challenge::decode(&body).map_err(|f| format!("the challenge of {server} is damaged: {f}"))?;
    let said = Said { first, nonce: challenge.nonce, certificate: channel.certificate() };
    if let Some(token) = caller.token.as_ref().filter(|_| !trusted) {
        check_server(server, token, &said, &challenge)?;
    }
    let request = Request {
        pid: caller.pid,
        home: caller.home,
        program: caller.program.clone(),
        environment: caller.environment.clone(),
        lease: caller.lease.as_ref().map(|lease| lease.body.clone()).unwrap_or_default(),
    };
    let secret = caller.lease.as_ref().map(SignedLease::token).or_else(|| caller.token.clone());
    let request = request.encode(|covered| secret.as_ref().map(|t| t.client_proof(&said, covered)));
    channel.send_frame(request_kind, &request, &[]).map_err(failed)?;
    Ok((said, secret))
}

pub fn check_server(server: &Server, token: &Token, said: &Said, challenge: &Challenge) -> Result<(), NoSession> {
    let text = match &challenge.proof {
        Some(proof) if is_same(proof, &token.server_proof(said)) => return Ok(()),
        Some(_) => format!(
            "{server} does not know this program's token: it has another one, or is not the server you mean; check \
             ORION_TOKEN or ORION_TOKEN_FILE and the address"
        ),
        None => format!(
            "{server} has no token and so cannot prove that it is the server you mean; unset ORION_TOKEN and \
             ORION_TOKEN_FILE to use it all the same"
        ),
    };
    Err(NoSession::refused(Reason::NotPermitted, text))
}

pub fn answer_to(
    server: &Server,
    channel: &mut Channel,
    wanted: u32,
    what: &str,
) -> Result<(Vec<u8>, Vec<OwnedFd>), NoSession> {
    let failed = |e: io::Error| lost_during(server, "waiting for the server's welcome", e);
    say_if_late(server, channel.as_fd());
    match channel.recv_frame().map_err(failed)? {
        (answer, body, fds) if answer == wanted => Ok((body, fds)),
        (kind::REFUSED, body, _) => Err(refusal(server, &body)),
        (other, ..) => {
            Err(format!("{server} answered {what} with frame kind {other}: is it an oriond of this version?").into())
        }
    }
}

/// A server that is stopped or overloaded is waited for, but not in silence.
pub fn say_if_late(server: &Server, socket: BorrowedFd<'_>) {
    const PATIENCE_MS: i32 = 3000;
    let mut answer = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    if unsafe { libc::poll(&raw mut answer, 1, PATIENCE_MS) } == 0 {
        say::say(format_args!(
            "{server} took the connection and has said nothing for {} s; waiting up to {WELCOME_SECONDS_MAX} s for a \
             worker of its own (a driver that is being loaded takes a while; a server that is stopped never answers)",
            PATIENCE_MS / 1000
        ));
    }
}

/// Says START, with descriptors of the bell's where it has some, and waits until the worker has.
pub fn start(server: &Server, channel: &mut Channel, start: &Start, fds: &[BorrowedFd<'_>]) -> Result<(), NoSession> {
    let failed = |e: io::Error| lost_during(server, "starting the session", e);
    channel.send_frame(kind::START, &start.encode(), fds).map_err(failed)?;
    answer_to(server, channel, kind::STARTED, "the start")?;
    crate::socket::receive_timeout(channel.as_fd(), 0).map_err(failed)?;
    Ok(())
}

pub fn lost_during(server: &Server, doing: &str, e: io::Error) -> NoSession {
    match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            NoSession::is_gone(format!("{server} closed the connection while {doing}; its log says why"))
        }
        io::ErrorKind::WouldBlock => {
            format!("{server} did not answer within {WELCOME_SECONDS_MAX} s while {doing}").into()
        }
        _ => format!("{doing} with {server} failed: {e}").into(),
    }
}

pub fn refusal(server: &Server, body: &[u8]) -> NoSession {
    let Refusal { reason, mut text, server: theirs } = Refusal::decode(body);
    if reason == Reason::Version && theirs.is_none() {
        // It has said both protocol versions, and not which is the older.
        text = format!(
            "{text} (the server is older than this program's Orion, which is {}; install that version where oriond \
             runs)",
            Version::OWN
        );
    }
    // It goes to the user's terminal; a peer must not be able to steer that.
    let text: String = text.chars().take(500).map(|c| if acts(c) { ' ' } else { c }).collect();
    NoSession::refused(reason, format!("{server} refused the session: {text}"))
}

pub fn layout(welcome: &Welcome) -> Option<Layout> {
    // Half the address space is more than any machine has, and keeps all sums below from overflowing.
    (welcome.heap_bytes < 1 << 46 && welcome.heap_bytes.is_multiple_of(4096))
        .then_some(Layout { heap_bytes: welcome.heap_bytes })
}

pub fn mapping_failed(heap_bytes: u64, e: io::Error) -> String {
    format!(
        "mapping the session's host heap of {} MiB failed: {e}; is there a limit on virtual memory (ulimit -v)? Where \
         address space is small, as in valgrind, ask for less with --heap, of orion-run or of oriond serve",
        heap_bytes >> 20
    )
}

/// Maps the heap where the worker can map it too. Workers keep their own mappings at the bottom of the address space
/// and their stacks at its very top, and ours are normally between. A program with the old layout (`setarch -L`, an
/// unlimited stack) has its mappings at the bottom as well, and one without randomness (`setarch -R`, a debugger) at
/// the very top: then the heap goes to a place that both leave alone, as high as can be, because sanitizers take
/// nothing else.
pub fn map_heap(memory: &Memory) -> io::Result<Heap> {
    /// Programs that are relocatable lie below, with as much randomness as a kernel can be set to.
    const BOTTOM: u64 = 0x6800_0000_0000;
    /// A stack begins up to 16 GiB below the end.
    const TOP: u64 = (1 << 47) - (32 << 30);
    Ok(memory.map_heap_within(BOTTOM..TOP)?.closable())
}

#[cfg(test)]
mod tests {
    use orion_wire::Writer;

    use super::*;

    /// As a server of before protocol 7 says it, which told its own version in the text alone.
    #[test]
    fn a_refusal_by_a_server_that_does_not_tell_its_version_is_one_by_an_older_server() {
        let server = Server::parse("tcp:gpu-node:7411").expect("an address");
        let mut body = Vec::new();
        body.bytes(b"the client speaks protocol version 7, this server 5");
        body.word(2);
        let no = refusal(&server, &body);
        assert_eq!(no.refused, Some(Reason::Version));
        let own = Version::OWN.to_string();
        for words in ["this server 5", "the server is older than this program's Orion", &own, "where oriond runs"] {
            assert!(no.text.contains(words), "{}", no.text);
        }
        let now = Refusal::new(Reason::Version, "the client is older than the server").encode();
        assert!(!refusal(&server, &now).text.contains("the server is older"));
    }
}
