//! Who gets in, and what the others are told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orion_transport::client::{self, Caller, Server, Tuning};
use orion_transport::fds;
use orion_wire::hello::{Challenge, Hello, frame, kind};
use orion_wire::refusal::Reason;

use crate::harness::{Client, Oriond, TOKEN, Transport, hello, read_rest, request, token, wait_until, write_token};
use crate::on_each_carrier;

fn refusal(server: &Oriond, transport: Transport, hello: &Caller) -> (Reason, String) {
    match Client::try_attach(server, transport, hello, Tuning::default()) {
        Ok(client) => panic!("session {} was granted", client.welcome.session),
        Err(no) => (no.refused.expect("the server's reason"), no.text),
    }
}

on_each_carrier! {
    fn another_version_is_refused_in_words(server: &Oriond, transport: Transport) {
        let old = Caller { protocol_version: 999, ..hello() };
        let (reason, text) = refusal(server, transport, &old);
        assert!(text.contains("version 999") && text.contains("install the same version"), "{text}");
        assert_eq!(reason, Reason::Version);
        let other = Caller { api_hash: 0x1234, ..hello() };
        let (reason, text) = refusal(server, transport, &other);
        assert!(text.contains("0000000000001234"), "{text}");
        assert_eq!(reason, Reason::Version);
    }
}

#[test]
fn tcp_needs_the_token_and_the_own_user_does_not() {
    let server = Oriond::start(&[]);
    let (reason, text) = refusal(&server, Transport::Tcp, &Caller { token: None, ..hello() });
    assert!(text.contains("ORION_TOKEN"), "{text}");
    assert_eq!(reason, Reason::NotPermitted);
    let (reason, text) =
        refusal(&server, Transport::Tcp, &Caller { token: token("another token, long enough"), ..hello() });
    assert!(text.contains("does not know this program's token"), "{text}");
    assert_eq!(reason, Reason::NotPermitted);
    Client::attach(&server, Transport::Tcp);
    for token in [None, token("another token, long enough")] {
        Client::try_attach(&server, Transport::Shm, &Caller { token, ..hello() }, Tuning::default())
            .expect("our own user");
    }
}

/// Whoever listens on the way has neither the token nor anything that lets him in.
#[test]
fn what_was_overheard_holds_no_token_and_lets_nobody_in() {
    let server = Oriond::start(&[]);
    let (address, heard) = eavesdropper(&server.tcp);
    let attached = client::attach(&Server::Tcp(address), &hello(), Tuning { lanes: 2, ..Tuning::default() });
    let attached = attached.map_err(|no| no.text).expect("attaching");
    wait_until("the lanes to join", || {
        heard.lock().unwrap().iter().filter(|c| kinds(&c.answered).contains(&kind::STARTED)).count() == 3
    });
    attached.link.close();
    let heard = heard.lock().unwrap();
    for connection in heard.iter() {
        for bytes in [&connection.said, &connection.answered] {
            assert!(!bytes.windows(8).any(|w| TOKEN.as_bytes().windows(8).any(|t| t == w)), "part of the token");
        }
        let mut again = TcpStream::connect(&server.tcp).expect("connecting");
        again.write_all(&connection.said).expect("sending");
        let _ = again.shutdown(std::net::Shutdown::Write);
        let answer = kinds(&read_rest(&mut again));
        assert!(!answer.contains(&kind::WELCOME) && !answer.contains(&kind::STARTED), "{answer:?}");
    }
}

/// The frames in what a server said during a handshake.
fn kinds(mut bytes: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk() {
        let Ok((kind, len)) = orion_wire::hello::frame_header(header) else { break };
        kinds.push(kind);
        bytes = rest.get(len..).unwrap_or_default();
    }
    kinds
}

#[derive(Default)]
struct Heard {
    said: Vec<u8>,
    answered: Vec<u8>,
}

/// Passes connections on and keeps the first 64 KiB of what goes each way.
fn eavesdropper(to: &str) -> (String, Arc<Mutex<Vec<Heard>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
    let address = listener.local_addr().expect("an address").to_string();
    let (heard, to) = (Arc::new(Mutex::new(Vec::new())), to.to_owned());
    let all = heard.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            let server = TcpStream::connect(&to).expect("connecting");
            let index = {
                let mut all = all.lock().unwrap();
                all.push(Heard::default());
                all.len() - 1
            };
            let pass_on = |mut from: TcpStream, mut to: TcpStream, keep: fn(&mut Heard) -> &mut Vec<u8>| {
                let all = all.clone();
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(n) = from.read(&mut buffer) {
                        let kept = &mut all.lock().unwrap()[index];
                        if keep(kept).len() < 64 << 10 {
                            keep(kept).extend(&buffer[..n]);
                        }
                        if n == 0 || to.write_all(&buffer[..n]).is_err() {
                            let _ = to.shutdown(std::net::Shutdown::Both);
                            return;
                        }
                    }
                });
            };
            pass_on(client.try_clone().unwrap(), server.try_clone().unwrap(), |h| &mut h.said);
            pass_on(server, client, |h| &mut h.answered);
        }
    });
    (address, heard)
}

/// Somebody who listens where a server should be learns nothing and is believed nothing.
#[test]
fn a_server_that_does_not_know_the_token_gets_nothing() {
    for proof in [None, Some([0; 32]), Some([0xff; 32])] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listening");
        let address = listener.local_addr().expect("an address").to_string();
        let server = std::thread::spawn(move || {
            let socket = OwnedFd::from(listener.accept().expect("a connection").0);
            let (first, body, _) = fds::recv_frame(socket.as_fd()).expect("a greeting");
            let hello = Hello::decode(&body).expect("a greeting");
            assert_eq!(body.len(), 8 + 8 + 8 + hello.nonce.len());
            let challenge = Challenge { nonce: [1; 32], proof };
            fds::send_frame(socket.as_fd(), kind::CHALLENGE, &challenge.encode(), &[]).expect("sending");
            (first, read_rest(&mut TcpStream::from(socket)))
        });
        let Err(no) = client::attach(&Server::Tcp(address), &hello(), Tuning::default()) else {
            panic!("it was believed");
        };
        assert_eq!(no.refused, Some(Reason::NotPermitted));
        assert!(no.text.contains("ORION_TOKEN"), "{}", no.text);
        assert_eq!(server.join().expect("the false server"), (kind::HELLO, Vec::new()));
    }
}

on_each_carrier! {
    fn a_changed_request_is_refused(server: &Oriond, transport: Transport) {
        // Where the own user needs no token, nobody looks at the proof.
        if transport == Transport::Tcp {
            let socket = OwnedFd::from(TcpStream::connect(&server.tcp).expect("connecting"));
            let mut bytes = request(&socket, &hello()).0;
            let at = bytes.windows(4).position(|w| w == b"test").expect("the program's name");
            bytes[at] = b'b';
            fds::send(socket.as_fd(), &bytes, &[]).expect("sending");
            assert_eq!(fds::recv_frame(socket.as_fd()).expect("an answer").0, kind::REFUSED);
        }
    }
}

/// A user id means somebody within one user namespace only, and a container may come without one.
#[test]
fn the_same_user_in_a_container_needs_the_token() {
    let server = Oriond::start(&[]);
    let own = std::env::current_exe().expect("this test");
    let arguments = ["--exact", "door::attaches_where_it_is_told", "--ignored", "--nocapture"];
    let outcome = |command: &mut Command, token: &str| {
        let output = command
            .args(arguments)
            .env("ORION_TEST_SOCKET", &server.socket)
            .env("ORION_TEST_TOKEN", token)
            .output()
            .expect("starting this test again");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let user_namespace = || {
        let mut command = Command::new(&own);
        // SAFETY: unshare is async-signal-safe.
        unsafe {
            command.pre_exec(|| match libc::unshare(libc::CLONE_NEWUSER) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        command
    };
    let pid_namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork"]).arg(&own);
        command
    };
    assert!(outcome(&mut Command::new(&own), "").contains("attached"));
    for make in [&user_namespace as &dyn Fn() -> Command, &pid_namespace] {
        let said = outcome(&mut make(), "");
        assert!(said.contains("as in a container") && said.contains("ORION_TOKEN_FILE"), "{said}");
        let said = outcome(&mut make(), TOKEN);
        assert!(said.contains("attached"), "{said}");
    }
}

#[test]
#[ignore = "run by the_same_user_in_a_container_needs_the_token"]
fn attaches_where_it_is_told() {
    let known = std::env::var("ORION_TEST_TOKEN").expect("the other test sets it");
    let token = if known.is_empty() { None } else { token(&known) };
    let socket =
        OwnedFd::from(UnixStream::connect(std::env::var_os("ORION_TEST_SOCKET").unwrap()).expect("connecting"));
    fds::send(socket.as_fd(), &request(&socket, &Caller { token, ..hello() }).0, &[]).expect("sending");
    match fds::recv_frame(socket.as_fd()).expect("an answer") {
        (kind::WELCOME, ..) => println!("attached"),
        (_, body, _) => println!("{}", orion_wire::refusal::Refusal::decode(&body).text),
    }
}

fn refuses_to_start(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
    let output = command.args(["serve", "--driver", "echo", "--socket", "none"]).args(arguments).output();
    let output = output.expect("starting oriond");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn tcp_without_a_token_has_to_be_asked_for() {
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
        let text = refuses_to_start(&["--listen", address]);
        assert!(text.contains("--token-file") && text.contains("--insecure"), "{text}");
    }
    let text = refuses_to_start(&["--insecure"]);
    assert!(text.contains("--listen"), "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
    command.args(["serve", "--driver", "echo", "--warm", "0", "--socket", "none", "--listen", "127.0.0.1:0"]);
    let server = Oriond::start_as(command.arg("--insecure"));
    let address = server.tcp.clone();
    server.wait_for_log(&["INSECURE"]);
    let stranger = Caller { token: None, ..hello() };
    let attached = client::attach(&Server::Tcp(address.clone()), &stranger, Tuning::default());
    assert!(attached.map_err(|no| no.text).expect("attaching").insecure);
    // Who expects a server that knows the token is not content with one that lets everybody in.
    let Err(no) = client::attach(&Server::Tcp(address), &hello(), Tuning::default()) else { panic!("it was believed") };
    assert!(no.text.contains("has no token"), "{}", no.text);
}

#[test]
fn a_token_file_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("orion-door-token-{}", std::process::id()));
    write_token(&path, TOKEN);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let text = refuses_to_start(&["--listen", "127.0.0.1:0", "--token-file", path.to_str().unwrap()]);
    assert!(text.contains("mode 0644") && text.contains("chmod 600"), "{text}");
    std::fs::write(&path, "short").expect("writing");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    let text = refuses_to_start(&["--listen", "127.0.0.1:0", "--token-file", path.to_str().unwrap()]);
    assert!(text.contains("has 5 characters"), "{text}");
    std::fs::remove_file(&path).expect("removing");
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
    let hello_frame =
        Hello { protocol_version: orion_wire::PROTOCOL_VERSION, api_hash: orion_wire::API_HASH, nonce: [7; 32] };
    let good = frame(kind::HELLO, &hello_frame.encode());
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
