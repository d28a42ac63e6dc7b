//! Whatever becomes of oriond's log, sessions go on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Client, Oriond, SHOUT, Transport, pipe, wait_until, words};

/// Strangers who talk nonsense: each is worth a line.
fn annoy(server: &Oriond, times: usize) {
    for _ in 0..times {
        let mut stranger = TcpStream::connect(&server.tcp).expect("connecting");
        let _ = stranger.write_all(b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n");
        // Until oriond has closed it, so that none of them is one too many at a time.
        let _ = stranger.set_read_timeout(Some(Duration::from_secs(10)));
        let _ = stranger.read(&mut [0; 16]);
    }
}

fn check(server: &Oriond, sessions: &mut [Client]) {
    for session in sessions {
        let asked = Instant::now();
        assert_eq!(session.call(0x101, &[4; 8]), [4; 8]);
        assert!(asked.elapsed() < Duration::from_secs(2), "an answer took {:?}", asked.elapsed());
    }
    assert_eq!(Client::attach(server, Transport::Tcp).call(0x101, &[5; 8]), [5; 8]);
}

fn sessions(server: &Oriond) -> Vec<Client> {
    Transport::ALL.iter().map(|transport| Client::attach(server, *transport)).collect()
}

#[test]
fn a_log_on_a_full_disk_ends_no_session() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let server = Oriond::start_with(&[], &[], Some(full.into()));
    let mut sessions = sessions(&server);
    annoy(&server, 400);
    check(&server, &mut sessions);
}

#[test]
fn a_log_that_nobody_reads_any_more_ends_no_session() {
    let (reader, writer) = pipe();
    let server = Oriond::start_with(&[], &[], Some(writer.into()));
    let mut sessions = sessions(&server);
    drop(reader);
    annoy(&server, 400);
    check(&server, &mut sessions);
}

#[test]
fn a_log_that_nobody_reads_for_a_while_holds_up_nobody_and_says_what_was_lost() {
    let (reader, writer) = pipe();
    // A page: full after some forty lines.
    // SAFETY: a plain call on a descriptor of ours.
    unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&writer), libc::F_SETPIPE_SZ, 4096) };
    let server = Oriond::start_with(&[], &["--log-level", "trace"], Some(writer.into()));
    let mut sessions = sessions(&server);
    for _ in 0..700 {
        // Two lines each that are not limited: they tell of sessions.
        drop(Client::attach(&server, Transport::Tcp));
    }
    check(&server, &mut sessions);
    let (text, wanted) = (std::sync::Mutex::new(String::new()), "log lines were lost");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut from = std::fs::File::from(reader);
            let mut bytes = [0; 4096];
            while !text.lock().unwrap().contains(wanted) {
                let n = from.read(&mut bytes).expect("reading the log");
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        wait_until("the count of lost lines", || {
            drop(Client::attach(&server, Transport::Tcp));
            text.lock().unwrap().contains(wanted)
        });
    });
}

#[test]
fn strangers_get_few_lines_and_a_count() {
    let server = Oriond::start(&[]);
    annoy(&server, 500);
    server.wait_for_log(&["more like it", "protocol broken during the handshake"]);
    let lines = server.log().lines().filter(|line| line.contains("protocol broken during the handshake")).count();
    assert!(lines < 50, "{lines} lines");
    check(&server, &mut []);
}

#[test]
fn a_worker_that_writes_without_end_fills_no_log_and_holds_up_nobody() {
    let server = Oriond::start(&[]);
    let mut sessions = sessions(&server);
    let mut loud = Client::attach(&server, Transport::Shm);
    let worker = format!("worker={}", loud.welcome.worker_pid);
    loud.call(SHOUT, &words(&[1]));
    server.wait_for_log(&[&worker, "line 0 of many"]);
    let before = server.log().len();
    loud.start(SHOUT, &words(&[2_000_000]));
    check(&server, &mut sessions);
    while loud.reply_or_lost().is_some() {}
    server.wait_for_log(&[&worker, "no more are shown"]);
    let grown = server.log().len() - before;
    assert!(grown < 100 << 10, "{grown} bytes of log");
    check(&server, &mut sessions);
}

/// Nothing to test it with but a log of one's own.
#[test]
fn a_log_that_is_closed_from_the_start_is_no_reason_not_to_serve() {
    let server = Oriond::start_with(&[], &[], Some(Stdio::null()));
    check(&server, &mut sessions(&server));
}
