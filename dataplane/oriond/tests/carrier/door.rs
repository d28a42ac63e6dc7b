//! Who gets in, and what the others are told.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use orion_transport::client::Tuning;
use orion_wire::hello::{Hello, frame, kind};
use orion_wire::refusal::Reason;

use crate::harness::{Client, Oriond, Transport, hello, read_rest, wait_until};
use crate::on_each_carrier;

fn refusal(server: &Oriond, transport: Transport, hello: &Hello) -> (Reason, String) {
    match Client::try_attach(server, transport, hello, Tuning::default()) {
        Ok(client) => panic!("session {} was granted", client.welcome.session),
        Err(no) => (no.refused.expect("the server's reason"), no.text),
    }
}

on_each_carrier! {
    fn another_version_is_refused_in_words(server: &Oriond, transport: Transport) {
        let old = Hello { protocol_version: 999, ..hello() };
        let (reason, text) = refusal(server, transport, &old);
        assert!(text.contains("version 999") && text.contains("install the same version"), "{text}");
        assert_eq!(reason, Reason::Version);
        let other = Hello { api_hash: 0x1234, ..hello() };
        let (reason, text) = refusal(server, transport, &other);
        assert!(text.contains("0000000000001234"), "{text}");
        assert_eq!(reason, Reason::Version);
    }
}

fn with_token(arguments: &[&str]) -> (Oriond, String) {
    let token = "a-token-of-some-length".to_owned();
    let path = std::env::temp_dir().join(format!("orion-token-{}", std::process::id()));
    std::fs::write(&path, format!("{token}\n")).expect("writing the token");
    let mut all = vec!["--token-file", path.to_str().unwrap()];
    all.extend(arguments);
    (Oriond::start(&all), token)
}

#[test]
fn tcp_needs_the_token_and_the_own_user_does_not() {
    let (server, token) = with_token(&[]);
    let (reason, text) = refusal(&server, Transport::Tcp, &hello());
    assert!(text.contains("ORION_TOKEN"), "{text}");
    assert_eq!(reason, Reason::NotPermitted);
    refusal(&server, Transport::Tcp, &Hello { token: "a-token-of-some-lengtH".into(), ..hello() });
    let right = Hello { token, ..hello() };
    Client::try_attach(&server, Transport::Tcp, &right, Tuning::default()).expect("the right token");
    Client::attach(&server, Transport::Shm);
}

#[test]
fn listening_elsewhere_without_a_token_is_refused() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_oriond"))
        .args(["serve", "--driver", "echo", "--socket", "none", "--listen", "0.0.0.0:0"])
        .output()
        .expect("starting oriond");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("--token-file"), "{text}");
}

#[test]
fn a_second_oriond_on_the_same_socket_is_refused_and_a_stale_socket_is_not() {
    let first = Oriond::start(&[]);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_oriond"))
        .args(["serve", "--driver", "echo", "--listen", "none", "--socket"])
        .arg(&first.socket)
        .output()
        .expect("starting oriond");
    assert!(String::from_utf8_lossy(&output.stderr).contains("another oriond listens"));
    let stale = first.socket.with_file_name("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("binding"));
    let second = Oriond::start(&["--socket", stale.to_str().unwrap()]);
    drop(second);
}

on_each_carrier! {
    fn more_sessions_than_allowed_are_refused_until_one_ends(server: &Oriond, transport: Transport) {
        let _ = server;
        let server = Oriond::start(&["--sessions-max", "2"]);
        let first = Client::attach(&server, transport);
        let _second = Client::attach(&server, transport);
        let (reason, text) = refusal(&server, transport, &hello());
        assert!(text.contains("all 2 sessions"), "{text}");
        assert_eq!(reason, Reason::Full);
        drop(first);
        wait_until("a free slot", || {
            Client::try_attach(&server, transport, &hello(), Tuning::default()).is_ok()
        });
    }
}

#[test]
fn a_worker_that_cannot_start_is_said_so() {
    let server = Oriond::start(&["--driver", "/nonexistent/libcuda.so.1"]);
    let (reason, text) = refusal(&server, Transport::Shm, &hello());
    assert!(text.contains("no worker can be started"), "{text}");
    assert_eq!(reason, Reason::NoWorker);
}

#[test]
fn silent_connections_are_closed_and_do_not_keep_others_out() {
    let server = Oriond::start(&[]);
    let begin = Instant::now();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(&server.tcp).expect("connecting")).collect();
    // Those beyond the limit were closed at once.
    assert!(read_rest(&mut silent[299]).is_empty());
    assert!(begin.elapsed() < Duration::from_secs(3));
    assert!(read_rest(&mut silent[0]).is_empty());
    assert!(begin.elapsed() >= Duration::from_secs(4), "closed after {:?}", begin.elapsed());
    drop(silent);
    Client::attach(&server, Transport::Tcp);
}

/// A small fuzzer: whatever comes before a session, oriond goes on.
#[test]
fn nonsense_at_the_door_hurts_nobody() {
    let server = Oriond::start(&[]);
    let mut bystander = Client::attach(&server, Transport::Tcp);
    let good = frame(kind::HELLO, &hello().encode());
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..400 {
        let mut bytes = match round % 4 {
            0 => (0..next() % 200).map(|_| next() as u8).collect(),
            1 => frame(next() as u32 % 8, &(0..next() % 100).map(|_| next() as u8).collect::<Vec<u8>>()),
            2 => b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n".to_vec(),
            _ => good.clone(),
        };
        if round % 4 == 3 {
            // Keep the frame, spoil its body, but never into a valid greeting.
            let at = 16 + next() as usize % 16;
            bytes[at] ^= 1 << (next() % 8);
        }
        if round % 2 == 0 {
            let mut s = TcpStream::connect(&server.tcp).expect("connecting");
            let _ = s.write_all(&bytes);
            let _ = s.shutdown(std::net::Shutdown::Write);
        } else {
            let mut s = UnixStream::connect(&server.socket).expect("connecting");
            let _ = s.write_all(&bytes);
            let _ = s.shutdown(std::net::Shutdown::Write);
        }
    }
    assert_eq!(bystander.call(0x101, &[4; 8]), [4; 8]);
    // More strangers at once than oriond reads are turned away, so this may need a moment.
    wait_until("an attach", || Client::try_attach(&server, Transport::Shm, &hello(), Tuning::default()).is_ok());
}
