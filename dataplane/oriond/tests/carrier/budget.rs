//! What one session may cost oriond, and what the others notice of it: nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orion_transport::stream::Frame;
use orion_wire::record::{HEADER_BYTES, Header};

use crate::death::{carried_with_key, join, stream_frame};
use crate::harness::{Client, FILL, Oriond, Transport, wait_until, words};

/// A command that has the worker announce a range, unchanged.
fn announcement(sequence: u64, offset: u64, bytes: u64) -> Vec<u8> {
    let body = words(&[offset, bytes, 0]);
    let size = (HEADER_BYTES + body.len()) as u32;
    let mut record = Header { size, op: FILL, thread: 0, context: 0, sequence }.encode().to_vec();
    record.extend(body);
    stream_frame(Frame::Command, 0, &record)
}

/// A session that asks for more and more and reads none of it, as long as oriond takes its commands; meanwhile another
/// one asks for answers. The longest of those.
fn greedy(server: &Oriond, stream: &mut TcpStream, ranges: impl Iterator<Item = (u64, u64)> + Send) -> Duration {
    let mut witness = Client::attach(server, Transport::Tcp);
    let (sent, over, mut longest) = (AtomicBool::new(false), AtomicBool::new(false), Duration::ZERO);
    stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a socket option");
    std::thread::scope(|scope| {
        let mut reader = stream.try_clone().expect("another descriptor");
        let (sent, over) = (&sent, &over);
        scope.spawn(move || {
            // Replies and barriers are read, so that they are not what holds the session up.
            reader.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket option");
            let mut bytes = vec![0; 1 << 20];
            loop {
                match reader.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                    // It has come to a halt, or to its end.
                    Err(_) if sent.load(Ordering::Relaxed) => break,
                    Err(_) => {}
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            for (i, (offset, bytes)) in ranges.enumerate() {
                if stream.write_all(&announcement(i as u64 + 1, offset, bytes)).is_err() {
                    break;
                }
            }
            sent.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            assert_eq!(witness.call(0x101, &[6; 8]), [6; 8]);
            longest = longest.max(asked.elapsed());
        }
    });
    longest
}

#[test]
fn a_lane_that_nobody_reads_makes_its_own_session_wait() {
    let server = Oriond::start(&["--engines", "1"]);
    let (mut stream, welcome, key) = carried_with_key(&server);
    let lane = join(&server, welcome.session, &key, 0).expect("joining");
    let before = server.memory().1;
    let longest = greedy(&server, &mut stream, std::iter::repeat_n((0, 1 << 30), 40_000));
    let grown = server.memory().1.saturating_sub(before) >> 10;
    assert!(grown < 100, "oriond grew by {grown} MiB");
    assert!(longest < Duration::from_millis(100), "an answer to somebody else took {longest:?}");
    drop((lane, stream));
    wait_until("the worker's end", || !crate::harness::is_alive(welcome.worker_pid));
}

#[test]
fn a_lane_is_joined_once_and_ends_with_its_session() {
    let server = Oriond::start(&["--engines", "3"]);
    let _bystander = Client::attach(&server, Transport::Tcp);
    wait_until("the lanes of the bystander, and another warm worker", || {
        server.log().matches("worker warm").count() >= 2
    });
    let idle = server.descriptors();
    for _ in 0..20 {
        let (stream, welcome, key) = carried_with_key(&server);
        let (inside, server, key) = (Mutex::new(Vec::new()), &server, &key);
        std::thread::scope(|scope| {
            for lane in (0..8).flat_map(|_| [0, 1, 7, 8]) {
                let inside = &inside;
                scope.spawn(move || {
                    let joined = join(server, welcome.session, key, lane);
                    inside.lock().unwrap().extend(joined);
                });
            }
        });
        let inside = inside.into_inner().unwrap();
        assert!(inside.len() <= 3, "{} lanes", inside.len());
        drop(stream);
        for mut lane in inside {
            let mut rest = [0; 16];
            lane.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket option");
            assert_eq!(lane.read(&mut rest).unwrap_or(0), 0, "a lane outlived its session");
        }
        wait_until("the worker's end", || !crate::harness::is_alive(welcome.worker_pid));
    }
    wait_until("every descriptor to be closed", || server.descriptors() <= idle + 2);
}
