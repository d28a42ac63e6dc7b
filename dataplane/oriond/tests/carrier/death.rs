//! Peers that die at every step, and what is left of them: nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use orion_tls::trust::Way;
use orion_transport::carrier::Death;
use orion_transport::carrier::tcp::{self, Belongs};
use orion_transport::channel::Channel;
use orion_transport::proof::{LaneKey, Said};
use orion_transport::stream::{Frame, StreamHeader};
use orion_wire::hello::{Challenge, Join, Welcome, kind};
use orion_wire::record::{HEADER_BYTES, Header, HeapRange};

use crate::harness::{
    Client, DIE, EVENTS, FILL, NONSENSE, Oriond, STALL, Transport, first_words, hello, holds, is_alive, measured,
    read_rest, request, runs, wait_until, words,
};
use crate::on_each_carrier;

fn say_hello(channel: &mut Channel) -> Welcome {
    begin(channel).0
}

pub fn begin(channel: &mut Channel) -> (Welcome, LaneKey) {
    let (request, said) = request(channel, &hello());
    channel.send(&request, &[]).expect("sending the request");
    let (answer, body, _) = channel.recv_frame().expect("receiving the welcome");
    assert_eq!(answer, kind::WELCOME);
    (Welcome::decode(&body).expect("a welcome"), LaneKey::new(hello().token.as_ref(), &said))
}

/// Several at once, each of which says why before it ends: no reason gets lost, and none is told for another's.
#[test]
fn why_each_worker_ended_before_it_was_ready_is_heard() {
    let no_library = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let server = Oriond::start(&["--driver", no_library, "--warm", "12"]);
    let failures = || server.log().lines().filter(|l| l.contains("worker failed to start")).count();
    wait_until("twelve workers to have failed", || failures() >= 12);
    for line in server.log().lines().filter(|l| l.contains("worker failed to start")) {
        assert!(line.contains("loading the driver"), "{line}");
    }
}

/// Many: lines of one kind are limited, and these are not.
#[test]
fn every_worker_that_a_signal_ended_is_in_the_log() {
    let server = Oriond::start(&["--warm", "2"]);
    for _ in 0..30 {
        let mut warm = Vec::new();
        wait_until("a warm worker", || {
            let log = server.log();
            let is_warm = |pid: &u32| log.lines().any(|l| l.contains("warm") && l.contains(&format!("worker={pid} ")));
            warm = server.workers().into_iter().filter(is_warm).collect();
            !warm.is_empty()
        });
        // SAFETY: a signal to a process of this test.
        unsafe { libc::kill(warm[0] as i32, libc::SIGILL) };
        server.wait_for_log(&["WARN", "a warm worker died", &format!("worker={}", warm[0]), "signal 4"]);
    }
    // What oriond ends itself is no news.
    let (_, log) = server.terminate();
    let died = log.lines().filter(|l| l.contains("died")).count();
    assert_eq!(died, 30, "{log}");
}

/// After a peer died: its worker is gone, and the next client is served.
fn check_recovered(server: &Oriond, transport: Transport, worker: Option<u32>) {
    if let Some(pid) = worker {
        wait_until("the worker's end", || !is_alive(pid));
    }
    let mut client = Client::attach(server, transport);
    assert_eq!(client.call(0x101, &[1; 8]), [1; 8]);
}

on_each_carrier! {
    fn client_gone_before_hello(server: &Oriond, transport: Transport) {
        drop(server.dial(transport));
        check_recovered(server, transport, None);
    }
}

on_each_carrier! {
    fn client_gone_in_mid_hello(server: &Oriond, transport: Transport) {
        let bytes = orion_wire::hello::frame(kind::HELLO, &first_words().encode());
        for cut in [1, 15, 16, 17, bytes.len() - 1] {
            let mut channel = server.dial(transport);
            channel.send(&bytes[..cut], &[]).expect("sending");
        }
        check_recovered(server, transport, None);
    }
}

on_each_carrier! {
    fn client_gone_in_mid_request(server: &Oriond, transport: Transport) {
        for cut in [0, 1, 16, 17, 60] {
            let mut channel = server.dial(transport);
            let bytes = request(&mut channel, &hello()).0;
            channel.send(&bytes[..cut], &[]).expect("sending");
        }
        check_recovered(server, transport, None);
    }
}

on_each_carrier! {
    fn client_gone_after_its_request(server: &Oriond, transport: Transport) {
        for _ in 0..5 {
            let mut channel = server.dial(transport);
            let request = request(&mut channel, &hello()).0;
            channel.send(&request, &[]).expect("sending");
        }
        check_recovered(server, transport, None);
        wait_until("the pool to have its size", || server.workers().len() == 1);
    }
}

on_each_carrier! {
    fn client_gone_before_start(server: &Oriond, transport: Transport) {
        let mut channel = server.dial(transport);
        let welcome = say_hello(&mut channel);
        drop(channel);
        check_recovered(server, transport, Some(welcome.worker_pid));
    }
}

on_each_carrier! {
    fn client_gone_in_mid_start(server: &Oriond, transport: Transport) {
        let mut channel = server.dial(transport);
        let welcome = say_hello(&mut channel);
        let start = server.start_over(transport, 0x7000_0000_0000);
        let start = orion_wire::hello::frame(kind::START, &start.encode());
        channel.send(&start[..20], &[]).expect("sending");
        drop(channel);
        check_recovered(server, transport, Some(welcome.worker_pid));
    }
}

on_each_carrier! {
    fn client_gone_right_after_start(server: &Oriond, transport: Transport) {
        let mut channel = server.dial(transport);
        let welcome = say_hello(&mut channel);
        let start = server.start_over(transport, 0x7000_0000_0000);
        channel.send_frame(kind::START, &start.encode(), &[]).expect("sending");
        drop(channel);
        check_recovered(server, transport, Some(welcome.worker_pid));
    }
}

on_each_carrier! {
    fn client_closes_with_commands_under_way(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        for _ in 0..1000 {
            client.start(0x101, &[5; 800]);
        }
        let pid = client.welcome.worker_pid;
        drop(client);
        check_recovered(server, transport, Some(pid));
    }
}

on_each_carrier! {
    fn client_closes_with_full_rings(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        // The worker fills the event ring, which nobody reads, and then the socket; commands pile up behind it.
        client.start(EVENTS, &words(&[1 << 20, 1000]));
        for _ in 0..orion_ring::memory::COMMAND_BYTES / 1024 - 100 {
            client.post(0x100, &[6; 1000]);
        }
        let pid = client.welcome.worker_pid;
        drop(client);
        check_recovered(server, transport, Some(pid));
    }
}

on_each_carrier! {
    /// Longer than a connection is allowed to take nothing, with more commands than its buffers hold.
    fn worker_held_up_for_long_loses_nothing(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        let begin = Instant::now();
        client.start(STALL, &words(&[13_000]));
        for _ in 0..20_000 {
            client.post(0x100, &[6; 1000]);
        }
        assert!(begin.elapsed() > Duration::from_secs(12), "nothing was held up");
        assert_eq!(client.reply_or_lost().map(|r| r.0.op), Some(STALL));
        assert_eq!(client.call(0x101, &[1; 8]), [1; 8]);
    }
}

on_each_carrier! {
    fn why_a_session_ended_is_in_the_log(server: &Oriond, transport: Transport) {
        let client = Client::attach(server, transport);
        let session = format!("session={} ", client.welcome.session);
        client.carrier.close();
        assert_eq!(client.carrier.death(), Some(&Death::Closed));
        server.wait_for_log(&["session ends", &session, "the client has ended or closed the connection"]);
    }
}

on_each_carrier! {
    fn killed_worker_loses_the_session_and_no_other(server: &Oriond, transport: Transport) {
        let mut bystander = Client::attach(server, transport);
        measured(|| {
            let mut client = Client::attach(server, transport);
            let pid = client.welcome.worker_pid;
            client.start(STALL, &words(&[600_000]));
            let begin = Instant::now();
            // SAFETY: a signal to a process of this test.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            assert_eq!(client.reply_or_lost().map(|r| r.0), None);
            let noticed = begin.elapsed();
            assert_eq!(client.carrier.death(), Some(&Death::Gone));
            assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
            check_recovered(server, transport, Some(pid));
            holds(noticed < Duration::from_secs(2), || format!("noticed only after {noticed:?}"))
        });
        server.wait_for_log(&["WARN", "worker died", "not by oriond", "status=signal 9"]);
    }
}

on_each_carrier! {
    fn worker_that_aborts_in_mid_call_loses_the_session(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        client.start(0x101, &[1; 8]);
        client.start(DIE, &[]);
        while client.reply_or_lost().is_some() {}
        check_recovered(server, transport, Some(client.welcome.worker_pid));
    }
}

on_each_carrier! {
    fn worker_that_dies_in_mid_transfer_loses_the_session(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        for i in 0..16 {
            let range = HeapRange { offset: i << 23, bytes: 8 << 20 };
            client.bytes_mut(range).fill(1);
            client.announce(range);
            client.start(FILL, &words(&[range.offset, range.bytes, 0]));
        }
        client.start(DIE, &[]);
        while client.reply_or_lost().is_some() {}
        check_recovered(server, transport, Some(client.welcome.worker_pid));
    }
}

#[test]
fn killed_oriond_takes_its_workers_along_and_clients_notice() {
    for &transport in Transport::ALL {
        let server = Oriond::start(&[]);
        let mut client = Client::attach(&server, transport);
        let workers = server.workers();
        assert!(workers.contains(&client.welcome.worker_pid));
        // SAFETY: a signal to a process of this test.
        unsafe { libc::kill(server.pid() as i32, libc::SIGKILL) };
        client.start(STALL, &words(&[600_000]));
        assert_eq!(client.reply_or_lost().map(|r| r.0), None);
        for pid in workers {
            wait_until("the worker's end", || !runs(pid));
        }
    }
}

#[test]
fn sigterm_ends_sessions_and_leaves_nothing() {
    let server = Oriond::start(&[]);
    let socket = server.socket.clone();
    let mut clients: Vec<Client> = Transport::ALL.iter().map(|transport| Client::attach(&server, *transport)).collect();
    let workers = server.workers();
    let (status, log) = server.terminate();
    assert!(status.success(), "{status}\n{log}");
    let left: Vec<u32> = workers.into_iter().filter(|pid| is_alive(*pid)).collect();
    let stat = |pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(left.is_empty(), "not reaped: {:?}\n{log}", left.into_iter().map(stat).collect::<Vec<_>>());
    assert!(!socket.exists());
    for client in &mut clients {
        assert_eq!(client.reply_or_lost().map(|r| r.0), None);
    }
}

/// One that did would end oriond at once, with its socket and its workers left, before it waits for the signal.
#[test]
fn no_thread_of_oriond_takes_the_signal_that_ends_it() {
    let server = Oriond::start(&[]);
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("reading /proc");
    for thread in threads.flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (Some(name), Some(blocked)) = (field("Name:"), field("SigBlk:")) else { continue };
        let blocked = u64::from_str_radix(blocked, 16).expect("a mask");
        // Whoever waits for them has taken them off, for as long as it waits.
        let waits = name == "oriond";
        assert!(waits || blocked >> (libc::SIGTERM - 1) & 1 == 1, "thread {name} does not block SIGTERM: {blocked:x}");
    }
}

#[test]
fn client_killed_with_sigkill_frees_its_worker() {
    for &transport in Transport::ALL {
        let server = Oriond::start(&[]);
        let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
        // SAFETY: the child only uses its own copy of this test's thread; it never returns from the closure.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let client = Client::attach(&server, transport);
            let _ = (&theirs).write_all(&client.welcome.worker_pid.to_le_bytes());
            loop {
                std::thread::park();
            }
        }
        let mut worker = [0; 4];
        ours.read_exact(&mut worker).expect("the child's worker");
        // SAFETY: a signal to our child, and its status.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        check_recovered(&server, transport, Some(u32::from_le_bytes(worker)));
    }
}

/// By hand up to the carried stream of a TCP session.
pub fn carried(server: &Oriond) -> (TcpStream, Welcome) {
    let (stream, welcome, _) = carried_with_key(server);
    (stream, welcome)
}

pub fn carried_with_key(server: &Oriond) -> (TcpStream, Welcome, LaneKey) {
    let mut channel = server.dial(Transport::Tcp);
    let (welcome, key) = begin(&mut channel);
    let start = server.start_over(Transport::Tcp, 0x7000_0000_0000);
    channel.send_frame(kind::START, &start.encode(), &[]).expect("sending");
    let (answer, _, _) = channel.recv_frame().expect("receiving");
    assert_eq!(answer, kind::STARTED);
    (TcpStream::from(channel.into_parts().0), welcome, key)
}

pub fn stream_frame(frame: Frame, offset: u64, body: &[u8]) -> Vec<u8> {
    let mut out = StreamHeader { frame, len: body.len() as u32, offset }.encode().to_vec();
    out.extend_from_slice(body);
    out
}

#[test]
fn tcp_client_cut_off_in_mid_frame() {
    let server = Oriond::start(&[]);
    for bytes in [stream_frame(Frame::Command, 0, &[0; 640]), stream_frame(Frame::Heap, 4096, &[7; 100_000])] {
        for cut in [1, 16, 17, bytes.len() - 1] {
            let (mut stream, welcome) = carried(&server);
            stream.write_all(&bytes[..cut]).expect("sending");
            drop(stream);
            wait_until("the worker's end", || !is_alive(welcome.worker_pid));
        }
    }
    check_recovered(&server, Transport::Tcp, None);
}

#[test]
fn a_client_that_breaks_the_framing_ends_its_own_session_with_one_line() {
    let server = Oriond::start(&[]);
    let mut bystander = Client::attach(&server, Transport::Tcp);
    let heap = bystander.heap.bytes();
    let bad = [
        vec![0xff; 64],
        stream_frame(Frame::Reply, 0, &[0; 64]),
        stream_frame(Frame::Chunk, 0, &[0; 64]),
        stream_frame(Frame::Barrier, 0, &[0; 9]),
        stream_frame(Frame::Heap, heap - 8, &[0; 16]),
        stream_frame(Frame::Heap, u64::MAX, &[0; 16]),
        StreamHeader { frame: Frame::Command, len: u32::MAX, offset: 0 }.encode().to_vec(),
    ];
    for (i, bytes) in bad.iter().enumerate() {
        let (mut stream, welcome) = carried(&server);
        stream.write_all(bytes).expect("sending");
        read_rest(&mut stream);
        wait_until("the worker's end", || !is_alive(welcome.worker_pid));
        server.wait_for_log(&["WARN", "protocol broken", &format!("session={}", welcome.session)]);
        assert_eq!(bystander.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
    let lines = server.log().lines().filter(|l| l.contains("protocol broken")).count();
    assert_eq!(lines, bad.len());
}

/// Records are the worker's business: a bad one ends that worker, and with it the session.
#[test]
fn a_client_that_sends_impossible_records_ends_its_own_session() {
    let server = Oriond::start(&[]);
    let (mut stream, welcome) = carried(&server);
    stream.write_all(&stream_frame(Frame::Command, 0, &[0xff; 64])).expect("sending");
    read_rest(&mut stream);
    check_recovered(&server, Transport::Tcp, Some(welcome.worker_pid));
}

#[test]
fn a_worker_that_breaks_the_protocol_ends_its_own_session() {
    let server = Oriond::start(&[]);
    let mut client = Client::attach(&server, Transport::Tcp);
    client.start(NONSENSE, &[]);
    assert_eq!(client.reply_or_lost().map(|r| r.0), None);
    server.wait_for_log(&["session ends", "the worker broke the protocol"]);
    check_recovered(&server, Transport::Tcp, Some(client.welcome.worker_pid));
}

#[test]
fn a_barrier_that_is_never_reached_holds_up_nobody_else() {
    let server = Oriond::start(&["--engines", "1"]);
    let (mut stream, welcome) = carried(&server);
    stream.write_all(&stream_frame(Frame::Barrier, 0, &[0x7f; 64])).expect("sending");
    let size = HEADER_BYTES as u32;
    let record = Header { size, op: 0x101, thread: 0, context: 0, sequence: 1 }.encode();
    stream.write_all(&stream_frame(Frame::Command, 0, &record)).expect("sending");
    let mut other = Client::attach(&server, Transport::Tcp);
    assert_eq!(other.call(0x101, &[1; 8]), [1; 8]);
    drop(stream);
    wait_until("the worker's end", || !is_alive(welcome.worker_pid));
}

#[test]
fn a_broken_lane_ends_the_session() {
    let server = Oriond::start(&[]);
    let (mut stream, welcome, key) = carried_with_key(&server);
    let mut lane = join(&server, welcome.session, &key, 0).expect("joining");
    lane.write_all(&stream_frame(Frame::Chunk, 0, &[0; 64])[..40]).expect("sending");
    drop(lane);
    read_rest(&mut stream);
    check_recovered(&server, Transport::Tcp, Some(welcome.worker_pid));
}

#[test]
fn only_who_began_the_session_joins() {
    let server = Oriond::start(&[]);
    let (_stream, welcome, key) = carried_with_key(&server);
    let (_other_stream, other, others_key) = carried_with_key(&server);
    let session = welcome.session;
    assert!(join(&server, session, &others_key, 0).is_none());
    assert!(join(&server, other.session, &key, 0).is_none());
    assert!(join(&server, other.session + 1, &key, 0).is_none());
    assert!(join(&server, session, &key, 8).is_none());
    let lane = join(&server, session, &key, 3);
    assert!(lane.is_some());
    // The engine takes the lane in its own time.
    wait_until("the lane to be taken", || join(&server, session, &key, 3).is_none());
}

/// The client would have noticed that the server does not know its key; a stranger does not care.
#[test]
fn a_lane_that_does_not_prove_itself_is_refused() {
    let server = Oriond::start(&[]);
    let (_stream, welcome, key) = carried_with_key(&server);
    let mut recorded = None;
    for _ in 0..3 {
        let mut channel = server.dial(Transport::Tcp);
        let first = Join { session: welcome.session, lane: 0, nonce: [1; 32] }.encode();
        channel.send_frame(kind::JOIN, &first, &[]).expect("sending");
        let (kind::CHALLENGE, body, _) = channel.recv_frame().expect("an answer") else {
            panic!("no challenge");
        };
        let challenge = Challenge::decode(&body).expect("a challenge");
        // The server's own proof sent back, then an earlier one of the right client's.
        let server_proof = challenge.proof.expect("the server proves itself");
        let said = Said { first, nonce: challenge.nonce, certificate: None };
        let proof = recorded.replace(key.client_proof(&said)).unwrap_or(server_proof);
        channel.send_frame(kind::PROOF, &proof, &[]).expect("sending");
        let (answer, ..) = channel.recv_frame().expect("an answer");
        assert_eq!(answer, kind::REFUSED);
    }
}

pub fn join(server: &Oriond, session: u64, key: &LaneKey, lane: usize) -> Option<TcpStream> {
    let belongs = Belongs { connect: tcp::connector(&server.tcp), way: Way::Plain, session, key: key.clone() };
    belongs.join(lane).ok().map(|channel| TcpStream::from(channel.into_parts().0))
}

#[test]
fn half_open_connections_are_noticed() {
    // What keepalive does is the kernel's business; that it is asked to is ours.
    let server = Oriond::start(&[]);
    let client = Client::attach(&server, Transport::Tcp);
    let socket = client.carrier.sockets()[0];
    for (option, want) in [(libc::TCP_KEEPIDLE, 5), (libc::TCP_KEEPINTVL, 2), (libc::TCP_KEEPCNT, 3)] {
        let (mut value, mut len) = (0i32, 4);
        // SAFETY: four bytes into a local.
        unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, option, (&raw mut value).cast(), &mut len) };
        assert_eq!(value, want);
    }
    let _ = server.dial(Transport::Tcp).as_fd().as_raw_fd();
}

/// A small fuzzer of the carried stream: valid frames with a few bytes spoiled, cut anywhere. Each ends its own
/// session or none; the bystander never notices.
#[test]
fn spoiled_streams_hurt_nobody_else() {
    let server = Oriond::start(&["--warm", "4"]);
    let mut bystander = Client::attach(&server, Transport::Tcp);
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let record = Header { size: 40, op: 0x101, thread: 0, context: 0, sequence: 1 }.encode();
    for round in 0..150u64 {
        let mut bytes = Vec::new();
        for _ in 0..1 + next() % 6 {
            bytes.extend(match next() % 4 {
                0 => stream_frame(Frame::Heap, next() % (1 << 30), &vec![1; (next() % 5000) as usize]),
                1 => stream_frame(Frame::Barrier, 0, &[0; 64]),
                _ => stream_frame(Frame::Command, 0, &[&record[..], &[0; 16]].concat()),
            });
        }
        for _ in 0..next() % 4 {
            let at = next() as usize % bytes.len();
            bytes[at] ^= 1 << (next() % 8);
        }
        bytes.truncate(bytes.len() - next() as usize % 20.min(bytes.len()));
        let (mut stream, _) = carried(&server);
        let _ = stream.write_all(&bytes);
        if round % 2 == 0 {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            read_rest(&mut stream);
        }
        drop(stream);
        assert_eq!(bystander.call(0x101, &round.to_le_bytes()), round.to_le_bytes());
    }
    drop(bystander);
    wait_until("the sessions' end", || server.workers().len() == 4);
}
