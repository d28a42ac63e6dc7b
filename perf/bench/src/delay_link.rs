//! An emulated network: TCP connections to one address are carried to another, later and no faster than asked for.
//!
//! Kernels without `netem` have nothing that delays. A wire of two tun devices needs root, and one that was tried
//! carried 2.5 Gbit/s: every packet costs two system calls and a checksum. A relay moves 256 KiB with as many.
//! What it does not emulate is loss, and the congestion control that follows from it.
//!
//!     sender --> | socket | --> queue of QUEUE_BYTES_MAX --> | socket | --> receiver
//!                               a byte leaves when its turn on the wire and the delay are over
//!
//! Each direction has one wire that all connections share, in the order in which their bytes came.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// As much as is taken from a socket at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Handed on in pieces no smaller than this, unless less is left: 5 us at 25 Gbit/s.
const PIECE_BYTES: usize = 16 << 10;
/// What may wait for the wire, beyond what is on it; then the sender's socket fills up, and it waits.
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// Without traffic for so long a direction looks only every [`NAP`], so that an idle link costs nothing.
const IDLE: Duration = Duration::from_millis(200);
const NAP: Duration = Duration::from_millis(1);

#[derive(clap::Args)]
pub struct Options {
    /// Where programs connect to; port 0 takes one that is free
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Where oriond listens. Without it the link is only measured
    #[arg(long, value_name = "ADDRESS:PORT")]
    connect: Option<SocketAddr>,
    /// What the link adds to a round trip. What the relay itself costs is measured first and taken off
    #[arg(long, default_value_t = 50.0, value_name = "MICROSECONDS")]
    round_trip_us: f64,
    /// Of each direction; 0 is as fast as the relay can
    #[arg(long, default_value_t = 25.0)]
    gbit_per_s: f64,
}

/// What the wire does to bytes, the same in both directions.
#[derive(Clone, Copy)]
struct Wire {
    delay: Duration,
    bytes_per_s: f64,
}

/// Prints one line of JSON about the link, measured through itself, and then carries until it is killed.
pub fn run(options: &Options) -> Result<(), String> {
    let bytes_per_s = if options.gbit_per_s > 0.0 { options.gbit_per_s * 1e9 / 8.0 } else { f64::INFINITY };
    let wanted = Duration::from_secs_f64(options.round_trip_us.max(0.0) / 1e6);
    let echo = measure::echo().map_err(|e| format!("listening for the link's own measurement failed: {e}"))?;
    let direct = measure::round_trip(echo)?;
    let bare = measure::round_trip(carry("127.0.0.1:0", echo, Wire { delay: Duration::ZERO, bytes_per_s })?)?;
    // The quick ones: on a busy machine the slow ones are somebody else's doing, and the delay cannot make up for it.
    let own = bare.quick.saturating_sub(direct.quick);
    let wire = Wire { delay: wanted.saturating_sub(own) / 2, bytes_per_s };
    let probe = carry("127.0.0.1:0", echo, wire)?;
    let added = measure::round_trip(probe)?.median.saturating_sub(direct.median);
    let rate = |connections| measure::gbit_per_s(probe, connections);
    let (one, four, unlinked) = (rate(1)?, rate(4)?, measure::gbit_per_s(echo, 4)?);
    let listen = match options.connect {
        Some(server) => Some(carry(&options.listen.to_string(), server, wire)?),
        None => None,
    };
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    println!(
        "{}",
        serde_json::json!({
            "listen": listen.map(|address| address.to_string()),
            "round_trip_without_us": us(direct.median),
            "round_trip_added_us": us(added),
            "relay_itself_us": us(own),
            "gbit_per_s": one,
            "gbit_per_s_4_connections": four,
            "gbit_per_s_without_4_connections": unlinked,
        })
    );
    if listen.is_some() {
        loop {
            std::thread::park();
        }
    }
    Ok(())
}

/// Starts a link and answers where it listens.
fn carry(listen: &str, server: SocketAddr, wire: Wire) -> Result<SocketAddr, String> {
    let failed = |e| format!("listening on {listen} failed: {e}");
    let listener = TcpListener::bind(listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // One core a direction, or one for both where there are few.
    let few = few_cores();
    let mut threads: Vec<Sender<Hop>> = Vec::new();
    for _ in 0..if few { 1 } else { 2 } {
        let (new, hops) = channel();
        threads.push(new);
        std::thread::spawn(move || relay(&hops, wire));
    }
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A server that is not there is, over a network, a connection that is closed.
            let Ok(server) = TcpStream::connect(server) else { continue };
            let hops = [hop(&client, &server, 0), hop(&server, &client, 1)];
            for (index, hop) in hops.into_iter().enumerate() {
                match hop {
                    Ok(hop) => drop(threads[index % threads.len()].send(hop)),
                    Err(e) => eprintln!("orion-bench: a connection cannot be carried: {e}"),
                }
            }
        }
    });
    Ok(address)
}

fn hop(from: &TcpStream, to: &TcpStream, direction: usize) -> std::io::Result<Hop> {
    let (from, to) = (from.try_clone()?, to.try_clone()?);
    from.set_nonblocking(true)?;
    to.set_nonblocking(true)?;
    to.set_nodelay(true)?;
    Ok(Hop { from, to, direction, queue: VecDeque::new(), queued: 0, ended: false })
}

/// One direction of one connection.
struct Hop {
    from: TcpStream,
    to: TcpStream,
    direction: usize,
    queue: VecDeque<Chunk>,
    queued: usize,
    ended: bool,
}

struct Chunk {
    bytes: Box<[u8]>,
    len: usize,
    sent: usize,
    /// When its first byte is on the wire, and has all of the delay before it.
    begins: Instant,
}

/// Carries hops until there is nobody left who could send more.
fn relay(new: &Receiver<Hop>, wire: Wire) {
    let mut hops: Vec<Hop> = Vec::new();
    let mut spare: Vec<Box<[u8]>> = Vec::new();
    let now = Instant::now();
    let (mut free_at, mut busy_at, few) = ([now; 2], now, few_cores());
    loop {
        if hops.is_empty() {
            match new.recv() {
                Ok(hop) => hops.push(hop),
                Err(_) => return,
            }
        }
        hops.extend(new.try_iter());
        let mut moved = false;
        hops.retain_mut(|hop| {
            let took = hop.take(&mut free_at[hop.direction], wire, &mut spare);
            match hop.give(wire, &mut spare) {
                Ok(gave) => {
                    moved |= took || gave || !hop.queue.is_empty();
                    !(hop.ended && hop.queue.is_empty())
                }
                Err(_) => false,
            }
        });
        if moved {
            busy_at = Instant::now();
        } else if busy_at.elapsed() > IDLE {
            std::thread::sleep(NAP);
        } else if few {
            // Whoever waits for these bytes may need this core; a scheduler's turn is longer than the delay.
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

fn few_cores() -> bool {
    std::thread::available_parallelism().map_or(1, |n| n.get()) < 4
}

impl Hop {
    /// Takes what the sender has, as long as the queue is not full.
    fn take(&mut self, free_at: &mut Instant, wire: Wire, spare: &mut Vec<Box<[u8]>>) -> bool {
        let on_the_wire = (wire.delay.as_secs_f64() * wire.bytes_per_s).min(1e9) as usize;
        if self.ended || self.queued >= QUEUE_BYTES_MAX + on_the_wire {
            return false;
        }
        let mut bytes = spare.pop().unwrap_or_else(|| vec![0; CHUNK_BYTES].into());
        let len = match self.from.read(&mut bytes) {
            Ok(0) => 0,
            Ok(len) => len,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                spare.push(bytes);
                return false;
            }
            // Reset by its owner: the other side is told as it would be.
            Err(_) => 0,
        };
        if len == 0 {
            self.ended = true;
            spare.push(bytes);
            self.close_when_empty();
            return true;
        }
        let begins = Instant::now().max(*free_at);
        *free_at = begins + Duration::from_secs_f64(len as f64 / wire.bytes_per_s);
        self.queued += len;
        self.queue.push_back(Chunk { bytes, len, sent: 0, begins });
        true
    }

    /// Hands on what has arrived by now. An error means that the receiver is gone.
    fn give(&mut self, wire: Wire, spare: &mut Vec<Box<[u8]>>) -> std::io::Result<bool> {
        let mut gave = false;
        while let Some(chunk) = self.queue.front_mut() {
            let Some(on_the_wire) = Instant::now().checked_duration_since(chunk.begins + wire.delay) else { break };
            let arrived = (on_the_wire.as_secs_f64() * wire.bytes_per_s) as usize;
            let arrived = arrived.min(chunk.len);
            if arrived < chunk.len && arrived < chunk.sent + PIECE_BYTES {
                break;
            }
            match self.to.write(&chunk.bytes[chunk.sent..arrived]) {
                Ok(len) => {
                    chunk.sent += len;
                    self.queued -= len;
                    gave = true;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(e) => {
                    let _ = self.from.shutdown(Shutdown::Both);
                    return Err(e);
                }
            }
            if chunk.sent == chunk.len {
                spare.extend(self.queue.pop_front().map(|chunk| chunk.bytes));
                self.close_when_empty();
            }
        }
        Ok(gave)
    }

    fn close_when_empty(&self) {
        if self.ended && self.queue.is_empty() {
            let _ = self.to.shutdown(Shutdown::Write);
        }
    }
}

/// The link measured with plain sockets, through itself and without it.
mod measure {
    use super::*;

    const ROUND_TRIPS_MAX: usize = 2000;
    const ROUND_TRIPS_TIME: Duration = Duration::from_secs(1);
    const BULK_BYTES: usize = 512 << 20;

    const PING: u8 = 0;
    const BULK: u8 = 1;

    /// Sends back what begins with [`PING`]; of what begins with [`BULK`], only the number of bytes at the end.
    pub fn echo() -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || answer(stream));
            }
        });
        Ok(address)
    }

    fn answer(mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (mut total, mut bytes) = (0u64, vec![0; CHUNK_BYTES]);
        loop {
            match spin(|| stream.read(&mut bytes))? {
                0 => break,
                len if bytes[0] == PING => stream.write_all(&bytes[..len])?,
                len => total += len as u64,
            }
        }
        stream.write_all(&total.to_le_bytes())
    }

    /// A sleeping receiver would add its waking up to every round trip, and Orion's own do not sleep either.
    fn spin<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
        loop {
            match attempt() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                done => return done,
            }
        }
    }

    pub struct RoundTrip {
        pub median: Duration,
        /// One in ten is as quick.
        pub quick: Duration,
    }

    /// Of 64 bytes each way.
    pub fn round_trip(address: SocketAddr) -> Result<RoundTrip, String> {
        let attempt = || -> std::io::Result<RoundTrip> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let (mut samples, mut bytes) = (Vec::new(), [PING; 64]);
            let first = Instant::now();
            while samples.len() < ROUND_TRIPS_MAX && first.elapsed() < ROUND_TRIPS_TIME {
                let began = Instant::now();
                stream.write_all(&bytes)?;
                let mut got = 0;
                while got < bytes.len() {
                    match spin(|| stream.read(&mut bytes[got..]))? {
                        0 => return Err(ErrorKind::UnexpectedEof.into()),
                        len => got += len,
                    }
                }
                samples.push(began.elapsed());
            }
            samples.sort_unstable();
            Ok(RoundTrip { median: samples[samples.len() / 2], quick: samples[samples.len() / 10] })
        };
        attempt().map_err(|e| format!("measuring a round trip to {address} failed: {e}"))
    }

    /// One way, over so many connections at once.
    pub fn gbit_per_s(address: SocketAddr, connections: usize) -> Result<f64, String> {
        let began = Instant::now();
        let each = BULK_BYTES / connections;
        let senders: Vec<_> =
            (0..connections).map(|_| std::thread::spawn(move || bulk(address, each as u64))).collect();
        for sender in senders {
            let sent = sender.join().expect("a sender does not panic");
            sent.map_err(|e| format!("measuring the bandwidth to {address} failed: {e}"))?;
        }
        Ok(BULK_BYTES as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9)
    }

    fn bulk(address: SocketAddr, bytes: u64) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        let chunk = vec![BULK; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            let len = left.min(chunk.len() as u64);
            stream.write_all(&chunk[..len as usize])?;
            left -= len;
        }
        stream.shutdown(Shutdown::Write)?;
        let mut total = [0; 8];
        stream.read_exact(&mut total)?;
        match u64::from_le_bytes(total) == bytes {
            true => Ok(()),
            false => Err(std::io::Error::other("the link lost bytes")),
        }
    }
}
