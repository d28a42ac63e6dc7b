//! The worker on another machine: this side has its own session memory, and threads copy what changes.
//!
//! ```text
//! orion-send      command ring -> main connection, large heap ranges -> lanes
//! orion-receive   main connection -> reply and event ring, heap
//! orion-lane-N    chunks -> lane N            orion-land-N    lane N -> heap
//! ```
//! Each of them encrypts or decrypts what it moves, where the server is not this machine's own: by TLS, unless somebody
//! says that everything may be read on its way.

// UNSAFETY: sends from and receives into ring and heap memory by address.

mod awaited;
mod halves;
mod patience;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use orion_ring::bell::{Bell, Futex};
use orion_ring::futex::{self, Among};
use orion_ring::{Consumer, Spin};
use orion_tls::handshake::Secured;
use orion_tls::is_loopback;
use orion_tls::trust::{self, ENVIRONMENT};
use orion_wire::address::Server;
use orion_wire::hello::{Challenge, Join, kind};
use orion_wire::record::HeapRange;
use orion_wire::{Fault, Pages};

use super::application_side::{ApplicationSide, Begun, NAP, begin, wake};
use super::contract::{Attached, Carrier, Death, Security, Way};
use crate::channel::Channel;
use crate::client::handshake::{Caller, NoSession, Tuning, WELCOME_SECONDS_MAX, lost_during, say_if_late, shutdown};
use crate::gather::{Part, Stripe};
use crate::kept::Kept;
use crate::lanes::{LANES_MAX, LaneCounts, Striper};
use crate::proof::{LaneKey, Said, fresh_nonce, is_same};
use crate::scatter::{Listener, Scatter};
use crate::socket;
use crate::standstill::LOOK_SECONDS;
use crate::stream::{Frame, STREAM_HEADER_BYTES, STRIPE_BYTES_MIN, StreamHeader};
use crate::thread::{LIMIT, spawn, with_signals_blocked};
use awaited::Awaited;
use halves::{Receiver, Sender, halves};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RECEIVE_BYTES: usize = 256 << 10;
/// As that, of a lane, whose records are opened before they go to the heap.
const LANE_BYTES: usize = 128 << 10;
/// Bulk data keeps coming or not at all.
const LANE_SPIN: Duration = Duration::from_micros(200);
/// Chunks that may wait for one lane. Bounds memory; the send pump waits beyond it.
const CHUNKS_QUEUED_MAX: usize = 4096;
/// Pieces of a chunk, some of which may be holes of the heap.
const CHUNK_PARTS_MAX: usize = 16;

/// Makes one more connection to the server.
pub type Connect = Arc<dyn Fn() -> io::Result<OwnedFd> + Send + Sync>;

pub struct Tcp;

impl Way for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    /// The worker shares its own with the engine that serves us there, and rings that.
    fn pages(&self) -> Pages {
        Pages::Mirrored
    }

    fn reach(&self, server: &Server, caller: &Caller) -> Result<(Channel, bool), NoSession> {
        Ok((reach(server, &way(server, caller)?)?, false))
    }

    fn attach(
        &self,
        server: &Server,
        caller: &Caller,
        tuning: Tuning,
        listener: Listener,
    ) -> Result<Attached, NoSession> {
        let way = way(server, caller)?;
        let begun = begin(self, server, caller, reach(server, &way)?)?;
        let is_encrypted = Some(begun.main.is_encrypted());
        let connections = Connections { way, connect: connector(host(server)?), is_encrypted, silence: None };
        carry(begun, connections, tuning, listener)
    }
}

/// A session's connections.
pub struct Connections {
    pub way: trust::Way,
    pub connect: Connect,
    /// What is told of that.
    pub is_encrypted: Option<bool>,
    /// For so long the server says nothing on the main one only if it is gone; where the system finds that out there is
    /// no such limit.
    pub silence: Option<Duration>,
}

/// Has threads carry a session that has begun.
pub fn carry(
    begun: Begun,
    connections: Connections,
    tuning: Tuning,
    listener: Listener,
) -> Result<Attached, NoSession> {
    let Begun { main, welcome, lane_key, memory, heap, is_proved } = begun;
    let Connections { way, connect, is_encrypted, silence } = connections;
    let security = Security { is_proved, is_encrypted };
    let (main, secured) = main.into_parts();
    socket::receive_timeout(main.as_fd(), silence.map_or(0, |silence| silence.as_secs() as i64))
        .map_err(|e| format!("limiting how long a server may be silent failed: {e}"))?;
    socket::send_timeout(main.as_fd(), LOOK_SECONDS)
        .map_err(|e| format!("limiting how long a send may wait failed: {e}"))?;

    let (side, commands, scatter) = ApplicationSide::new(&memory, heap, listener, tuning)?;
    let link = Arc::new(TcpLink {
        main: main.into(),
        silence,
        side,
        lanes: (0..tuning.lanes.min(LANES_MAX)).map(|_| Lane::default()).collect(),
        lanes_ready: AtomicUsize::new(0),
        counts: LaneCounts::default(),
        barrier_waits: AtomicU32::new(0),
        awaited: Awaited::new().map_err(|e| format!("creating a pipe failed: {e}"))?,
        lane_spin: Spin::adaptive(LANE_SPIN.min(Duration::from_micros(tuning.spin_us))),
    });
    let belongs = Belongs { connect, way, session: welcome.session, key: lane_key };
    start_pumps(&link, commands, scatter, secured, belongs)
        .map_err(|e| format!("starting the connection's threads failed: {e}; {LIMIT}"))?;
    Ok(Attached::new(welcome, memory, heap, security, link))
}

/// To `host:port`.
pub fn connector(address: &str) -> Connect {
    let address = address.to_owned();
    Arc::new(move || connect(&address))
}

fn host(server: &Server) -> Result<&str, String> {
    server.host().ok_or_else(|| format!("{server} is no address on a network"))
}

/// How to speak to the server. Who has its token need not know its certificate: each side proves to the other that it
/// sees the same one.
pub fn way(server: &Server, caller: &Caller) -> Result<trust::Way, String> {
    way_to(host(server)?, caller)
}

/// The same for `address`.
pub fn way_to(address: &str, caller: &Caller) -> Result<trust::Way, String> {
    let trust = &caller.trust;
    let goes_out = trust.always || !is_loopback(address);
    if goes_out && caller.token.is_some() && !trust.says_whom() && !trust.insecure {
        return trust.unproved_to(address, ENVIRONMENT);
    }
    trust.way_to(address, ENVIRONMENT).map_err(|why| match trust.says_whom() || trust.insecure {
        true => why,
        false => format!("{why}; or its token (ORION_TOKEN_FILE), by which it is known too"),
    })
}

/// A connection to the server, encrypted if the way is.
pub fn reach(server: &Server, way: &trust::Way) -> Result<Channel, NoSession> {
    let socket = connect(host(server)?).map_err(|e| unreachable(server, e))?;
    agree(server, socket, way)
}

/// Keys for a connection, if the way is encrypted.
pub fn agree(server: &Server, socket: OwnedFd, way: &trust::Way) -> Result<Channel, NoSession> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidData => {
            let may_pass = e.to_string() == orion_tls::ANOTHER_CERTIFICATE;
            NoSession { may_pass, ..format!("{server}: {e}").into() }
        }
        _ => lost_during(server, "agreeing on keys", e),
    };
    socket::receive_timeout(socket.as_fd(), WELCOME_SECONDS_MAX).map_err(failed)?;
    Channel::open(socket, way, &|socket: BorrowedFd<'_>| say_if_late(server, socket)).map_err(failed)
}

/// Connects with the options every connection of a session has.
pub fn connect(address: &str) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(stream) => {
                socket::tune_tcp(stream.as_fd())?;
                return Ok(stream.into());
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn unreachable(server: &Server, e: io::Error) -> NoSession {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => NoSession::is_gone(format!(
            "no oriond listens on {server}; check the port, or start one with `oriond serve --listen …`"
        )),
        io::ErrorKind::TimedOut => {
            format!("{server} did not answer within {} s; is a firewall in between?", CONNECT_TIMEOUT.as_secs()).into()
        }
        _ => format!("connecting to {server} failed: {e}").into(),
    }
}

struct TcpLink {
    main: Kept,
    silence: Option<Duration>,
    side: ApplicationSide,
    lanes: Vec<Lane>,
    /// Lanes that have joined the session; bulk data waits for none of them, it goes inline until all have.
    lanes_ready: AtomicUsize,
    counts: LaneCounts,
    /// 1 while the receive pump sleeps because of a barrier.
    barrier_waits: AtomicU32,
    awaited: Awaited,
    lane_spin: Spin,
}

#[derive(Default)]
struct Lane {
    socket: Mutex<Option<Arc<Kept>>>,
    queue: Mutex<VecDeque<HeapRange>>,
    /// Chunks in `queue`, to spin on without the lock.
    queued: AtomicUsize,
    filled: Condvar,
    emptied: Condvar,
}

impl TcpLink {
    fn lost(&self) -> bool {
        self.side.is_lost()
    }

    fn end(&self, death: Death) {
        if !self.side.lost.set(death) {
            return;
        }
        end(&self.main);
        for lane in &self.lanes {
            if let Some(socket) = lane.socket.lock().expect("nothing panics under this lock").as_ref() {
                end(socket);
            }
            lane.filled.notify_all();
            lane.emptied.notify_all();
        }
        wake(&self.barrier_waits);
    }
}

impl Carrier for TcpLink {
    fn pages(&self) -> Pages {
        Pages::Mirrored
    }

    /// The other side is the pump threads.
    fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(Futex)
    }

    fn death(&self) -> Option<&Death> {
        self.side.lost.death()
    }

    fn close(&self) {
        self.end(Death::Closed);
    }

    fn is_awaited(&self, more: bool) {
        match more {
            true => self.awaited.begin(),
            false => self.awaited.end(),
        }
    }

    fn sockets(&self) -> Vec<RawFd> {
        let lanes = self.lanes.iter().filter_map(|lane| {
            // A forked child calls this: a lock that another thread held at the fork stays locked there.
            Some(lane.socket.try_lock().ok()?.as_ref()?.as_raw_fd())
        });
        std::iter::once(self.main.as_raw_fd()).chain(lanes).collect()
    }
}

fn start_pumps(
    link: &Arc<TcpLink>,
    commands: Consumer,
    scatter: Scatter,
    secured: Option<Box<Secured>>,
    belongs: Belongs,
) -> io::Result<()> {
    let (sender, receiver) = halves(secured, RECEIVE_BYTES);
    with_signals_blocked(|| {
        let l = link.clone();
        spawn("orion-send".into(), move || {
            let end = send_commands(&l, sender, commands);
            finish(&l, end);
        })?;
        let l = link.clone();
        spawn("orion-receive".into(), move || {
            let end = receive(&l, receiver, scatter);
            finish(&l, end);
        })?;
        for index in 0..link.lanes.len() {
            let l = link.clone();
            let belongs = belongs.clone();
            // A lane that has no thread does not join.
            if spawn(format!("orion-lane-{index}"), move || serve_lane(&l, index, &belongs)).is_err() {
                break;
            }
        }
        Ok(())
    })
}

/// A connection, unless it is somebody else's by now.
fn end(socket: &Kept) {
    if socket.is_there() {
        shutdown(socket.as_fd());
    }
}

fn finish(link: &TcpLink, end: Result<(), Death>) {
    link.end(link.side.end_of(end));
}

struct Lanes<'a> {
    link: &'a TcpLink,
    striper: Striper,
}

impl Stripe for Lanes<'_> {
    fn stripe(&mut self, range: HeapRange) -> Part {
        let lanes = self.link.lanes.len();
        if range.bytes < STRIPE_BYTES_MIN || lanes == 0 || self.link.lanes_ready.load(Ordering::Acquire) < lanes {
            return Part::Inline(range.bytes);
        }
        self.striper.deal(range, lanes, |lane, chunk| self.link.lanes[lane].put(chunk, self.link));
        Part::Striped(range.bytes)
    }

    fn barrier(&self) -> [u64; LANES_MAX] {
        *self.striper.sent()
    }
}

impl Lane {
    fn put(&self, chunk: HeapRange, link: &TcpLink) {
        let mut queue = self.queue.lock().expect("nothing panics under this lock");
        while queue.len() >= CHUNKS_QUEUED_MAX && !link.lost() {
            queue = self.emptied.wait_timeout(queue, NAP).expect("nothing panics under this lock").0;
        }
        queue.push_back(chunk);
        self.queued.store(queue.len(), Ordering::Release);
        drop(queue);
        self.filled.notify_one();
    }

    /// The next one to be sent. `nap` is called now and then while there is none.
    fn take(&self, link: &TcpLink, mut nap: impl FnMut()) -> Option<HeapRange> {
        link.lane_spin.until(|| self.queued.load(Ordering::Acquire) > 0 || link.lost());
        let mut queue = self.queue.lock().expect("nothing panics under this lock");
        loop {
            if link.lost() {
                return None;
            }
            if let Some(chunk) = queue.pop_front() {
                self.queued.store(queue.len(), Ordering::Release);
                self.emptied.notify_one();
                return Some(chunk);
            }
            queue = self.filled.wait_timeout(queue, NAP).expect("nothing panics under this lock").0;
            nap();
        }
    }
}

fn send_commands(link: &TcpLink, sender: Sender, commands: Consumer) -> Result<(), Death> {
    let mut lanes = Lanes { link, striper: Striper::default() };
    let sender = RefCell::new(sender);
    link.side.send_commands(
        commands,
        &mut lanes,
        |_, _| Ok(0),
        |batch| {
            // SAFETY: the parts point to memory that stays mapped for the life of the process.
            let sent = unsafe { sender.borrow_mut().send(&link.main, batch.parts())? };
            batch.advance(sent);
            Ok(())
        },
        || sender.borrow_mut().look(&link.main),
    )
}

fn receive(link: &TcpLink, mut receiver: Receiver, mut scatter: Scatter) -> Result<(), Death> {
    let mut buffer = vec![0u8; RECEIVE_BYTES];
    loop {
        if let Some((to, len)) = scatter.in_place() {
            // SAFETY: `in_place` gave `len` writable bytes of the heap.
            let n = unsafe { receiver.receive_some(&link.main, to, len, 0, &link.awaited.looking(link.side.spin))? };
            scatter.received_in_place(n);
            continue;
        }
        // SAFETY: the buffer is ours.
        let n = unsafe {
            let patience = link.awaited.looking(link.side.spin);
            receiver.receive_some(&link.main, buffer.as_mut_ptr(), buffer.len(), 0, &patience)?
        };
        link.side.deliver(&mut scatter, &buffer[..n], &link.counts, |scatter, _| wait_barrier(link, scatter))?;
    }
}

fn wait_barrier(link: &TcpLink, scatter: &mut Scatter) -> Result<(), Death> {
    let mut fault = None;
    let mut open = || match scatter.feed(&[], &link.counts) {
        Ok((_, blocked)) => blocked.is_none(),
        Err(f) => {
            fault = Some(f);
            true
        }
    };
    let began = Instant::now();
    while !link.side.spin.until(&mut open) && !link.lost() {
        // Nothing is received from the main connection meanwhile.
        let is_late = link.silence.is_some_and(|silence| began.elapsed() >= silence);
        if is_late && !patience::poll(&mut [patience::readable(&link.main)], 0) {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        // Set first, then one more look: whoever counts bytes up looks at the word afterwards.
        link.barrier_waits.store(1, Ordering::SeqCst);
        if open() {
            break;
        }
        futex::wait(&link.barrier_waits, 1, Some(Duration::from_millis(100)), Among::Threads);
    }
    fault.map_or(Ok(()), |f| Err(f.into()))
}

/// Both directions of one lane. A lane that cannot join is not used; one that breaks later ends the session.
fn serve_lane(link: &Arc<TcpLink>, index: usize, belongs: &Belongs) {
    let (hand, handed) = mpsc::channel::<(Arc<Kept>, Receiver)>();
    let l = link.clone();
    // Before it joins: what has joined is sent to.
    let receiver = spawn(format!("orion-land-{index}"), move || {
        let Ok((socket, receiver)) = handed.recv() else { return };
        let end = receive_chunks(&l, index, &socket, receiver);
        finish(&l, end);
    });
    if receiver.is_err() {
        return;
    }
    let Ok(channel) = belongs.join(index) else { return };
    let (socket, secured) = channel.into_parts();
    let (mut sender, receiver) = halves(secured, LANE_BYTES);
    let socket = Arc::new(Kept::from(socket));
    *link.lanes[index].socket.lock().expect("nothing panics under this lock") = Some(socket.clone());
    hand.send((socket.clone(), receiver)).expect("the thread waits for it");
    // Release pairs with the Acquire in `stripe`: the lane's socket is in place.
    link.lanes_ready.fetch_add(1, Ordering::Release);
    if link.lost() {
        end(&socket);
    }
    while let Some(chunk) = link.lanes[index].take(link, || sender.look(&socket)) {
        if let Err(end) = send_chunk(link, &socket, &mut sender, chunk) {
            return finish(link, Err(end));
        }
    }
}

/// What further connections of a session need.
#[derive(Clone)]
pub struct Belongs {
    pub connect: Connect,
    pub way: trust::Way,
    pub session: u64,
    pub key: LaneKey,
}

impl Belongs {
    /// A further connection. Each side proves to the other that it knows what began the session.
    pub fn join(&self, lane: usize) -> io::Result<Channel> {
        let socket = (self.connect)()?;
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        socket::receive_timeout(socket.as_fd(), CONNECT_TIMEOUT.as_secs() as i64)?;
        let mut channel = Channel::open(socket, &self.way, &|_| {})?;
        let first = Join { session: self.session, lane: lane as u64, nonce: fresh_nonce()? }.encode();
        channel.send_frame(kind::JOIN, &first, &[])?;
        let (kind::CHALLENGE, body, _) = channel.recv_frame()? else { return Err(refused()) };
        let challenge = Challenge::decode(&body).map_err(|_| refused())?;
        let said = Said { first, nonce: challenge.nonce, certificate: channel.certificate() };
        if !challenge.proof.is_some_and(|proof| is_same(&proof, &self.key.server_proof(&said))) {
            return Err(refused());
        }
        channel.send_frame(kind::PROOF, &self.key.client_proof(&said), &[])?;
        let (kind::STARTED, ..) = channel.recv_frame()? else { return Err(refused()) };
        socket::receive_timeout(channel.as_fd(), 0)?;
        socket::send_timeout(channel.as_fd(), LOOK_SECONDS)?;
        Ok(channel)
    }
}

fn send_chunk(link: &TcpLink, socket: &Kept, sender: &mut Sender, chunk: HeapRange) -> Result<(), Death> {
    let header = StreamHeader { frame: Frame::Chunk, len: chunk.bytes as u32, offset: chunk.offset }.encode();
    let from = link.side.heap.at(chunk.offset, chunk.bytes).ok_or(Fault("range outside the session's host heap"))?;
    let mut parts = Vec::with_capacity(1 + CHUNK_PARTS_MAX);
    parts.push(libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() });
    let mut part = |from: *mut u8, bytes: usize| parts.push(libc::iovec { iov_base: from.cast(), iov_len: bytes });
    match link.side.holes {
        Some(holes) => holes.sources(&link.side.heap, chunk, CHUNK_PARTS_MAX, part),
        None => part(from, chunk.bytes as usize),
    }
    let mut first = 0;
    while first < parts.len() {
        // SAFETY: the header is ours, and the heap stays mapped for the life of the process.
        let mut sent = unsafe { sender.send(socket, &parts[first..])? };
        while first < parts.len() && sent >= parts[first].iov_len {
            sent -= parts[first].iov_len;
            first += 1;
        }
        if first < parts.len() {
            // SAFETY: `sent` is less than the part's length.
            parts[first].iov_base = unsafe { parts[first].iov_base.cast::<u8>().add(sent) }.cast();
            parts[first].iov_len -= sent;
        }
    }
    Ok(())
}

fn receive_chunks(link: &TcpLink, index: usize, socket: &Kept, mut receiver: Receiver) -> Result<(), Death> {
    let flags = socket::wait_for_all(socket.as_fd());
    let mut header = [0u8; STREAM_HEADER_BYTES];
    loop {
        // SAFETY: the header is ours.
        unsafe { receiver.receive_all(socket, header.as_mut_ptr(), header.len(), flags, link.lane_spin)? };
        let chunk = StreamHeader::decode(&header, link.side.heap.bytes())?;
        if chunk.frame != Frame::Chunk {
            return Err(Fault("a lane carries chunks only").into());
        }
        let to =
            link.side.heap.at(chunk.offset, chunk.len as u64).ok_or(Fault("range outside the session's host heap"))?;
        let listener = link.side.listener;
        (listener.arriving)(chunk.offset, chunk.len as u64);
        if (listener.keeps)(chunk.offset, chunk.len as u64) {
            let mut bytes = vec![0u8; chunk.len as usize];
            // SAFETY: so many bytes are ours.
            unsafe { receiver.receive_all(socket, bytes.as_mut_ptr(), bytes.len(), flags, link.lane_spin)? };
            (listener.write)(chunk.offset, &bytes)?;
        } else {
            // SAFETY: `at` gave `len` writable bytes.
            unsafe { receiver.receive_all(socket, to, chunk.len as usize, flags, link.lane_spin)? };
            (listener.arrived)(chunk.offset, chunk.len as u64);
        }
        link.counts.add(index, chunk.len as u64);
        if link.barrier_waits.load(Ordering::SeqCst) != 0 {
            wake(&link.barrier_waits);
        }
    }
}
