//! Who gets in, and what the others are told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orion_transport::carrier::{self, Listener};
use orion_transport::channel::Channel;
use orion_transport::client::{Caller, Server, Tuning};
use orion_transport::socket::receive_timeout;
use orion_wire::hello::{Challenge, FRAME_HEADER_BYTES, Hello, Start, frame, kind};
use orion_wire::refusal::{Reason, Refusal};
use orion_wire::version::{Release, Version};

use crate::harness::{
    Client, Oriond, TOKEN, Transport, first_words, hello, is_alive, new_folder, over_tcp, read_rest, request, token,
    wait_until, write_token,
};
use crate::on_each_carrier;

fn refusal(server: &Oriond, transport: Transport, hello: &Caller) -> (Reason, String) {
    match Client::try_attach(server, transport, hello, Tuning::default()) {
        Ok(client) => panic!("session {} was granted", client.welcome.session),
        Err(no) => (no.refused.expect("the server's reason"), no.text),
    }
}

on_each_carrier! {
    fn who_upgraded_one_side_only_is_told_which_is_the_older_and_what_to_do(server: &Oriond, transport: Transport) {
        let own = Version::OWN;
        let told = |version: Version, words: [&str; 4]| {
            let (reason, text) = refusal(server, transport, &Caller { version, ..hello() });
            assert_eq!(reason, Reason::Version);
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        let here = format!("protocol {}", own.protocol);
        let [older, newer] = ["the client is older than the server", "the server is older than the client"];
        let [upgrade_client, upgrade_server] = ["server's version where the program", "client's version where oriond"];
        told(Version { protocol: 5, ..own }, [older, "protocol 5", &here, upgrade_client]);
        told(Version { protocol: 999, ..own }, [newer, "protocol 999", &here, upgrade_server]);
        // The same protocol, and other messages.
        let with = |release| Version { api_hash: 0x1234, release: Some(release), ..own };
        told(with(Release(0, 0, 9)), [older, "Orion 0.0.9", "0000000000001234", upgrade_client]);
        told(with(Release(99, 0, 0)), [newer, "Orion 99.0.0", "0000000000001234", upgrade_server]);
        let hash = format!("{:016x}", own.api_hash);
        told(with(Release::OWN), ["different sources", "0000000000001234", &hash, "one build of Orion on both sides"]);
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
    let attached =
        carrier::attach(&over_tcp(&address), &hello(), Tuning { lanes: 2, ..Tuning::default() }, Listener::NOBODY);
    let attached = attached.map_err(|no| no.text).expect("attaching");
    wait_until("the lanes to join", || {
        heard.lock().unwrap().iter().filter(|c| kinds(&c.answered).contains(&kind::STARTED)).count() == 3
    });
    attached.carrier.close();
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
            let mut channel = Channel::from(OwnedFd::from(listener.accept().expect("a connection").0));
            let (first, body, _) = channel.recv_frame().expect("a greeting");
            let hello = Hello::decode(&body).expect("a greeting");
            // Protocol, messages, release, and the nonce behind its length.
            assert_eq!(body.len(), 8 + 8 + 8 + 8 + hello.nonce.len());
            let challenge = Challenge { nonce: [1; 32], proof };
            channel.send_frame(kind::CHALLENGE, &challenge.encode(), &[]).expect("sending");
            (first, read_rest(&mut TcpStream::from(channel.into_parts().0)))
        });
        let Err(no) = carrier::attach(&over_tcp(&address), &hello(), Tuning::default(), Listener::NOBODY) else {
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
        if !transport.is_local() {
            let mut channel = server.dial(transport);
            let mut bytes = request(&mut channel, &hello()).0;
            let at = bytes.windows(4).position(|w| w == b"test").expect("the program's name");
            bytes[at] = b'b';
            channel.send(&bytes, &[]).expect("sending");
            assert_eq!(channel.recv_frame().expect("an answer").0, kind::REFUSED);
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
    let socket = UnixStream::connect(std::env::var_os("ORION_TEST_SOCKET").unwrap()).expect("connecting");
    let mut channel = Channel::from(OwnedFd::from(socket));
    let request = request(&mut channel, &Caller { token, ..hello() }).0;
    channel.send(&request, &[]).expect("sending");
    match channel.recv_frame().expect("an answer") {
        (kind::WELCOME, ..) => println!("attached"),
        (_, body, _) => println!("{}", Refusal::decode(&body).text),
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
    let attached = carrier::attach(&over_tcp(&address), &stranger, Tuning::default(), Listener::NOBODY);
    assert!(attached.map_err(|no| no.text).expect("attaching").security.words().contains("insecure: no token"));
    // Who expects a server that knows the token is not content with one that lets everybody in.
    let Err(no) = carrier::attach(&over_tcp(&address), &hello(), Tuning::default(), Listener::NOBODY) else {
        panic!("it was believed")
    };
    assert!(no.text.contains("has no token"), "{}", no.text);
}

/// A folder with a server.conf in it.
fn configured(name: &str, text: &str) -> (PathBuf, String) {
    let folder = std::env::temp_dir().join(format!("orion-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("making a folder");
    let file = folder.join("server.conf");
    std::fs::write(&file, text).expect("writing");
    (folder, file.to_str().expect("a plain path").to_owned())
}

#[test]
fn a_file_of_settings_is_served_by_and_the_command_line_decides() {
    let text = "[server]\n  bind_addr = 127.0.0.1 ; here\n  listen_port = 1\n  insecure = \"true\"\n  vgpu_count = 4\n\
                [server-log]\n  log_level = WARNING\n";
    let (folder, file) = configured("settings", text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
    command.args(["serve", "--driver", "echo", "--warm", "0", "--socket", "none", "--listen", "127.0.0.1:0"]);
    let log = folder.join("server.log");
    let server = Oriond::start_as(command.args(["--config", &file, "--log-file", log.to_str().unwrap()]));
    server.wait_for_log(&["server.conf:5: vgpu_count has no meaning here"]);
    server.wait_for_log(&["INSECURE"]);
    let stranger = Caller { token: None, ..hello() };
    let attached = carrier::attach(&over_tcp(&server.tcp), &stranger, Tuning::default(), Listener::NOBODY);
    assert!(attached.map_err(|no| no.text).expect("attaching").security.words().contains("insecure: no token"));
    // The levels of the two logs are their own.
    let kept = || std::fs::read_to_string(&log).expect("a log file");
    wait_until("INFO in the log file", || kept().contains("INFO serving"));
    assert!(!server.log().contains("INFO serving"));
    let shown = Command::new(env!("CARGO_BIN_EXE_oriond")).args(["serve", "--show-config", "--config", &file]).output();
    let shown = String::from_utf8(shown.expect("starting oriond").stdout).expect("text");
    for line in ["listen = 127.0.0.1:1", "insecure = true", "log_level = warn", ";heap = 64 GiB"] {
        assert!(shown.lines().any(|one| one == line), "{line} is not in\n{shown}");
    }
    std::fs::remove_dir_all(folder).expect("removing");
}

#[test]
fn a_setting_that_cannot_be_kept_is_refused_with_its_line() {
    let (folder, file) = configured("refused", "[server]\nenable_rdma = true\n");
    let text = refuses_to_start(&["--config", &file]);
    assert!(text.contains("server.conf:2: enable_rdma = true needs token_file"), "{text}");
    let text = refuses_to_start(&["--log-file", "/proc/none/server.log", "--listen", "127.0.0.1:0", "--insecure"]);
    assert!(text.contains("opening the log file /proc/none/server.log failed"), "{text}");
    std::fs::remove_dir_all(folder).expect("removing");
}

#[test]
fn a_service_manager_is_told_when_it_serves_and_when_it_stops() {
    let folder = std::env::temp_dir().join(format!("orion-notify-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("making a folder");
    let place = folder.join("notify");
    let manager = UnixDatagram::bind(&place).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
    command.args(["serve", "--driver", "echo", "--warm", "0", "--socket", "none", "--listen", "127.0.0.1:0"]);
    let server = Oriond::start_as(command.arg("--insecure").env("NOTIFY_SOCKET", &place));
    let heard = || {
        let mut text = [0; 256];
        let bytes = manager.recv(&mut text).expect("a line");
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    };
    let ready = heard();
    assert!(ready.contains("READY=1") && ready.contains(&format!("STATUS=serving tcp:{}", server.tcp)), "{ready}");
    server.terminate();
    assert!(heard().contains("STOPPING=1"));
    std::fs::remove_dir_all(folder).expect("removing");
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
        let server = Oriond::start_for(transport, &["--sessions-max", "2"]);
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

/// Those that have some are heard meanwhile.
#[test]
fn who_comes_when_no_descriptor_is_left_is_refused_and_not_tried_again_and_again() {
    let server = Oriond::start(&["--engines", "1"]);
    let first = Client::attach(&server, Transport::Shm);
    server.descriptors_at_rest();
    let few_more = |count: usize| {
        let (oriond, mut limit) = (server.pid() as i32, libc::rlimit { rlim_cur: 0, rlim_max: 0 });
        // SAFETY: a process of this test's, and a local.
        assert_eq!(unsafe { libc::prlimit(oriond, libc::RLIMIT_NOFILE, std::ptr::null(), &mut limit) }, 0);
        // The limit is of numbers, of which some may be free below others.
        let free = (0_u64..).filter(|number| !server.has_descriptor(*number));
        limit.rlim_cur = free.take(count + 1).last().expect("there is no end of them");
        // SAFETY: the same.
        assert_eq!(unsafe { libc::prlimit(oriond, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) }, 0);
    };
    // One for the connection.
    few_more(1);
    let (reason, text) = refusal(&server, Transport::Shm, &hello());
    assert_eq!(reason, Reason::NoWorker);
    assert!(text.contains("no session can be begun: making a session's") && text.contains("ulimit -n"), "{text}");
    server.wait_for_log(&["making a session's"]);
    assert_eq!(server.log().matches("making a session's").count(), 1, "{}", server.log());
    drop(first);
    server.wait_for_log(&["session ends"]);
    few_more(64);
    Client::attach(&server, Transport::Shm);
}

on_each_carrier! {
    fn the_place_of_a_session_that_is_about_to_end_is_waited_for(server: &Oriond, transport: Transport) {
        let _ = server;
        let server = Oriond::start_for(transport, &["--sessions-max", "1"]);
        let first = Client::attach(&server, transport);
        let worker = first.welcome.worker_pid;
        // So that it takes a while to end with its client.
        // SAFETY: a signal to a process of this test's server.
        assert_eq!(unsafe { libc::kill(worker as i32, libc::SIGSTOP) }, 0);
        drop(first);
        server.wait_for_log(&["session ends"]);
        let second = Client::attach(&server, transport);
        assert!(!is_alive(worker), "two sessions at the same time");
        assert_eq!(refusal(&server, transport, &hello()).0, Reason::Full);
        drop(second);
    }
}

/// The worker speaks to oriond, which can say so; a local client's has its socket.
#[test]
fn a_worker_that_is_not_ready_in_time_or_ends_before_is_told_to_its_client() {
    let send = |worker: u32, number| {
        // SAFETY: a signal to a process of a server of this test.
        assert_eq!(unsafe { libc::kill(worker as i32, number) }, 0);
    };
    let server = Oriond::start_for(Transport::Tcp, &["--warm", "1"]);
    drop(Client::attach(&server, Transport::Tcp));
    for (then, words) in [(None, "did not get ready in time"), (Some(libc::SIGKILL), "ended before it was ready")] {
        wait_until("a warm worker, and no other", || server.workers().len() == 1);
        let worker = server.workers()[0];
        let is_ready = |line: &str| line.contains("worker warm") && line.contains(&format!("worker={worker}"));
        wait_until("it to be ready", || server.log().lines().any(is_ready));
        send(worker, libc::SIGSTOP);
        let (reason, text) = std::thread::scope(|s| {
            let refused = s.spawn(|| refusal(&server, Transport::Tcp, &hello()));
            if let Some(number) = then {
                wait_until("the session", || server.log().matches("session begins").count() == 3);
                send(worker, number);
            }
            refused.join().expect("the client")
        });
        assert!(reason == Reason::NoWorker && text.contains(words), "{text}");
        wait_until("the worker's end", || !is_alive(worker));
    }
    Client::attach(&server, Transport::Tcp);
}

#[test]
fn a_worker_that_cannot_start_is_said_so() {
    // A file, but no library.
    let server = Oriond::start(&["--driver", "/etc/passwd"]);
    let (reason, text) = refusal(&server, Transport::Shm, &hello());
    assert!(text.contains("no worker can be started"), "{text}");
    assert_eq!(reason, Reason::NoWorker);
}

#[test]
fn a_driver_that_is_not_there_and_settings_that_make_no_sense_are_refused_at_once() {
    let refused = |driver: &str, devices: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_oriond"))
            .args(["serve", "--socket", "none", "--listen", "127.0.0.1:0", "--driver", driver])
            .env("ORION_SOFT_DEVICES", devices)
            .output()
            .expect("starting oriond");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused("/nonexistent/libcuda.so.1", "").contains("opening the driver --driver /nonexistent/libcuda.so.1"));
    assert!(refused("/tmp/", "").contains("is not a file"));
    for devices in ["abc", "0"] {
        assert!(
            refused("soft", devices).contains(&format!("ORION_SOFT_DEVICES={devices} is not a number from 1 to 8"))
        );
    }
}

/// Whoever names no driver has the GPU of the machine; that there is none is said.
#[test]
fn which_gpu_is_served_where_nobody_named_a_driver_is_told() {
    let said = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
        command.args(["serve", "--socket", "none", "--listen", "127.0.0.1:0", "--insecure"]).args(arguments);
        let server = Oriond::start_as(&mut command);
        wait_until("it serves", || server.log().contains("serving"));
        server.log()
    };
    let told = "what is served is the software GPU";
    for arguments in [&[][..], &["--driver", "auto"]] {
        let said = said(arguments);
        match orion_cuda::find::driver() {
            Some(path) => assert!(said.contains(&path.display().to_string()), "{said}"),
            None => assert!(said.contains(told), "{said}"),
        }
    }
    let said = said(&["--driver", "soft"]);
    assert!(!said.contains(told), "{said}");
}

#[test]
fn silent_connections_are_closed_and_do_not_keep_others_out() {
    let server = Oriond::start(&[]);
    let begin = Instant::now();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(&server.tcp).expect("connecting")).collect();
    // The oldest went when there were too many.
    assert!(read_rest(&mut silent[0]).is_empty());
    made_room_for_others(&server, &silent[0]);
    Client::attach(&server, Transport::Tcp);
    assert!(read_rest(&mut silent[299]).is_empty());
    assert!(begin.elapsed() >= Duration::from_secs(4), "closed after {:?}", begin.elapsed());
}

/// It was the first one to go, and not because its time was over.
pub fn made_room_for_others(server: &Oriond, silent: &TcpStream) {
    let peer = format!("peer=tcp:{} so_far=1", silent.local_addr().expect("an address"));
    server.wait_for_log(&["closed a connection that has no session, to make room for others", &peer]);
}

/// Nobody knows yet what to tell them: a driver takes seconds to begin, and this one never does.
#[test]
fn who_asks_before_a_worker_is_ready_takes_no_more_room_than_a_stranger() {
    let folder = new_folder();
    let (source, driver, socket) = (folder.join("driver.c"), folder.join("driver.so"), folder.join("socket"));
    // Workers, who are other users, read it.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let text = "#include <unistd.h>\n__attribute__((constructor)) static void stay(void) { for (;;) pause(); }\n";
    std::fs::write(&source, text).expect("writing");
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&driver, &source]).output();
    let made = made.expect("there is a C compiler");
    assert!(made.status.success(), "{made:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
    let mut server = Oriond::start_as(command.args(["serve", "--driver"]).arg(&driver).arg("--socket").arg(&socket));
    server.socket = socket;
    let ask = |_| {
        let mut channel = server.dial(Transport::Shm);
        let (said, _) = request(&mut channel, &hello());
        channel.send_frame(kind::ASK, &said[FRAME_HEADER_BYTES..], &[]).expect("it listens");
        receive_timeout(channel.as_fd(), 20).expect("a socket");
        channel
    };
    let mut all: Vec<Channel> = (0..200).map(ask).collect();
    // Whoever stood longest went, until there were as many as one user may have.
    for channel in &mut all[..200 - 64] {
        let why = channel.recv_frame().map(drop).expect_err("nobody knows what to tell");
        assert_eq!(why.kind(), std::io::ErrorKind::UnexpectedEof, "{why}");
    }
    server.wait_for_log(&["closed a connection that has no session, to make room for others"]);
    drop(server);
    std::fs::remove_dir_all(&folder).expect("removing");
}

#[test]
fn sixty_silent_connections_a_second_keep_nobody_out() {
    let server = Oriond::start(&["--warm", "4"]);
    // What five seconds of that have left behind, the time that a silent one may stay.
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(&server.tcp).expect("connecting")).collect();
    let (enough, stop) = std::sync::mpsc::channel::<()>();
    let address = server.tcp.clone();
    let flood = std::thread::spawn(move || {
        while stop.recv_timeout(Duration::from_millis(16)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            silent.push(TcpStream::connect(&address).expect("connecting"));
        }
        silent.len()
    });
    let tuning = Tuning { lanes: 0, ..Tuning::default() };
    let attach = |n: usize| Client::try_attach(&server, Transport::Tcp, &hello(), tuning).map_err(|no| (n, no.text));
    let refused: Vec<_> = (0..20).filter_map(|n| attach(n).err()).collect();
    drop(enough);
    assert!(flood.join().expect("the flood") > 300);
    assert!(refused.is_empty(), "{refused:?}");
}

/// Each wants a worker of its own, and half of them do not wait for it.
#[test]
fn settings_of_their_own_start_no_more_workers_than_sessions() {
    let server = Oriond::start(&["--sessions-max", "8"]);
    server.wait_for_log(&["worker warm"]);
    let mut most = 0;
    let mut staying = Vec::new();
    for n in 0..60 {
        let value = format!("{}", n + 1);
        let environment = orion_wire::environment::Environment::of(|name| {
            (name == "CUDA_DEVICE_MAX_CONNECTIONS").then(|| value.clone())
        });
        let mut channel = server.dial(Transport::Shm);
        let bytes = request(&mut channel, &Caller { environment, ..hello() }).0;
        channel.send(&bytes, &[]).expect("sending");
        if n % 2 == 0 {
            staying.push(channel);
        }
        most = most.max(server.workers().len());
    }
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            for channel in &mut staying {
                let (answer, ..) = channel.recv_frame().expect("an answer");
                assert!(matches!(answer, kind::WELCOME | kind::REFUSED));
            }
        });
        wait_until("those who stay to be answered", || {
            most = most.max(server.workers().len());
            answers.is_finished()
        });
    });
    assert!(most <= 8 + 1, "{most} workers at the same time");
    drop(staying);
    wait_until("all but the pool to end", || server.workers().len() == 1);
    Client::attach(&server, Transport::Shm);
}

on_each_carrier! {
    fn a_client_that_does_not_start_its_session_loses_it(server: &Oriond, transport: Transport) {
        let _ = server;
        let server = Oriond::start_for(transport, &["--sessions-max", "1"]);
        let mut channel = server.dial(transport);
        let request = request(&mut channel, &hello()).0;
            channel.send(&request, &[]).expect("sending");
        let (answer, body, _) = channel.recv_frame().expect("an answer");
        assert_eq!(answer, kind::WELCOME);
        let worker = orion_wire::hello::Welcome::decode(&body).expect("a welcome").worker_pid;
        assert_eq!(refusal(&server, transport, &hello()).0, Reason::Full);
        wait_until("its worker to end", || !is_alive(worker));
        Client::attach(&server, transport);
        assert!(channel.recv_frame().is_err());
    }
}

on_each_carrier! {
    fn a_worker_that_was_stopped_ends_with_its_client(server: &Oriond, transport: Transport) {
        let client = Client::attach(server, transport);
        let worker = client.welcome.worker_pid;
        // SAFETY: a signal to a process of this test's server.
        assert_eq!(unsafe { libc::kill(worker as i32, libc::SIGSTOP) }, 0);
        drop(client);
        wait_until("the worker's end", || !is_alive(worker));
    }
}

on_each_carrier! {
    fn a_heap_where_none_can_be_is_refused(server: &Oriond, transport: Transport) {
        for heap_base in [0, 4096, 0x7000_0000_0001, 0x7fff_ffff_0000, u64::MAX - 4095] {
            let mut channel = server.dial(transport);
            let request = request(&mut channel, &hello()).0;
            channel.send(&request, &[]).expect("sending");
            assert_eq!(channel.recv_frame().expect("an answer").0, kind::WELCOME);
            let start = server.start_over(transport, heap_base);
            channel.send_frame(kind::START, &start.encode(), &[]).expect("sending");
            let (answer, body, _) = channel.recv_frame().expect("an answer");
            let said = Refusal::decode(&body).text;
            assert!(answer == kind::REFUSED && said.contains(&format!("{heap_base:#x}")), "{said}");
        }
    }
}

on_each_carrier! {
    fn a_start_that_no_worker_can_follow_is_refused(server: &Oriond, transport: Transport) {
        let good = server.start_over(transport, 0x7000_0000_0000);
        let unknown = Start { bell: 77, ..good }.encode();
        let said = answer_to_start(server, transport, &unknown).expect("a refusal");
        assert!(said.contains("no bell with number 77"), "{said}");
        // Neither shared nor mirrored, and cut off.
        let mut neither = good.encode();
        neither[8] = 2;
        assert_eq!(answer_to_start(server, transport, &neither), None);
        assert_eq!(answer_to_start(server, transport, &good.encode()[..16]), None);
        Client::attach(server, transport);
    }
}

/// The words of the refusal; nothing if the connection was closed without any.
fn answer_to_start(server: &Oriond, transport: Transport, start: &[u8]) -> Option<String> {
    let mut channel = server.dial(transport);
    let request = request(&mut channel, &hello()).0;
    channel.send(&request, &[]).expect("sending");
    assert_eq!(channel.recv_frame().expect("an answer").0, kind::WELCOME);
    channel.send_frame(kind::START, start, &[]).expect("sending");
    let (answer, body, _) = channel.recv_frame().ok()?;
    assert_eq!(answer, kind::REFUSED);
    Some(Refusal::decode(&body).text)
}

/// Whoever was first in /tmp is no server of ours: he would choose what a program computes.
#[test]
fn a_server_of_another_user_has_to_prove_itself() {
    // SAFETY: geteuid cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let folder = std::env::temp_dir().join(format!("orion-squatter-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("chmod");
    let socket = folder.join("oriond.sock");
    for token in [None, token(TOKEN)] {
        let mut squatter = Command::new(env!("CARGO_BIN_EXE_oriond"));
        // Only root can play somebody else; others find that the same false server of their own is believed.
        let mut squatter = if is_root {
            let mut python = Command::new("python3");
            python.uid(54321).args(["-c", SQUATTER]).arg(&socket).stdout(std::process::Stdio::piped());
            python.spawn().expect("python3 starts")
        } else {
            squatter.args(["serve", "--driver", "echo", "--listen", "none", "--socket"]).arg(&socket);
            squatter.spawn().expect("oriond starts")
        };
        wait_until("it to listen", || UnixStream::connect(&socket).is_ok());
        let caller = Caller { token: token.clone(), ..hello() };
        let attached = carrier::attach(&Server::local(&socket), &caller, Tuning::default(), Listener::NOBODY);
        match (is_root, attached) {
            (true, Err(no)) => {
                let words = if token.is_none() { "user 54321" } else { "does not know this program's token" };
                assert!(no.text.contains(words), "{}", no.text);
                assert_eq!(no.refused, Some(Reason::NotPermitted));
            }
            (false, Ok(_)) => {}
            (_, outcome) => panic!("{:?}", outcome.map(|a| a.welcome).map_err(|no| no.text)),
        }
        let _ = squatter.kill();
        let _ = squatter.wait();
        let _ = std::fs::remove_file(&socket);
    }
    std::fs::remove_dir_all(&folder).expect("removing");
}

/// Answers each greeting with a challenge that anybody can make.
const SQUATTER: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); __import__("os").chmod(sys.argv[1], 0o777); s.listen()
while True:
    c, _ = s.accept()
    if c.recv(4096):
        c.sendall(b"ORIO" + struct.pack("<III", 7, 80, 0) + struct.pack("<Q32sQ32s", 32, b"n" * 32, 32, b"p" * 32))
        c.recv(4096)
    c.close()
"#;

#[test]
fn limits_that_are_not_kept_are_refused() {
    for (arguments, said) in [
        (
            &["--share", "50", "--computation-throttle", "off"][..],
            "--share 50 and --computation-throttle off contradict",
        ),
        (&["--throttle-level", "50", "--computation-throttle", "off"], "--throttle-level 50 means nothing with"),
        (&["--throttle-level", "50"], "--throttle-level 50 means nothing where no session has a share"),
        (&["--share", "0"], "invalid value '0' for '--share <PERCENT>'"),
        (&["--share", "50", "--throttle-level", "101"], "invalid value '101' for '--throttle-level <PERCENT>'"),
    ] {
        let text = refuses_to_start(arguments);
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
    let text = refuses_to_start(&["--memory-limit", "0"]);
    assert!(text.contains("--memory-limit 0") && text.contains("without any device memory"), "{text}");
}

#[test]
fn a_file_where_the_socket_should_be_is_left_alone() {
    let path = std::env::temp_dir().join(format!("orion-in-the-way-{}", std::process::id()));
    std::fs::write(&path, "somebody's work").expect("writing");
    let text = refuses_to_start(&["--socket", path.to_str().unwrap()]);
    assert!(text.contains("no socket"), "{text}");
    assert_eq!(std::fs::read(&path).expect("it is still there"), b"somebody's work");
    std::fs::remove_file(&path).expect("removing");
}

#[test]
fn a_stopping_oriond_leaves_its_successors_socket_alone() {
    let first = Oriond::start(&[]);
    let moved = first.socket.with_file_name("moved.sock");
    // As if another one had been put in its place.
    std::fs::rename(&first.socket, &moved).expect("renaming");
    let successor = std::os::unix::net::UnixListener::bind(&first.socket).expect("binding");
    let socket = first.socket.clone();
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(first.pid() as i32, libc::SIGTERM) };
    wait_until("its end", || UnixStream::connect(&moved).is_err());
    first.wait_for_log(&["stopping"]);
    assert!(socket.exists());
    drop(successor);
}

#[test]
fn workers_do_not_inherit_the_descriptor_that_says_ready() {
    let server = Oriond::start(&[]);
    server.wait_for_log(&["worker warm"]);
    // The harness reads one line; the pipe ends when nobody holds its other end.
    assert!(server.ready_pipe_has_ended(), "a worker holds --ready-fd");
}

/// A number that nobody passed would be that of something of oriond's own: its log had the addresses in it, and was
/// closed.
#[test]
fn a_descriptor_that_nobody_passed_is_not_taken_for_the_one_that_says_ready() {
    let log = std::env::temp_dir().join(format!("orion-ready-{}.log", std::process::id()));
    let begun = |redirection: &str, fd: i32| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {redirection}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_oriond")]);
        command.args(["serve", "--driver", "echo", "--socket", "none", "--listen", "127.0.0.1:0", "--insecure"]);
        command.args(["--ready-fd", &fd.to_string(), "--log-file"]).arg(&log);
        let output = command.output().expect("starting oriond");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for fd in 3..10 {
        let text = begun(&format!("{fd}>&-"), fd);
        assert!(text.contains(&format!("--ready-fd {fd} is no open descriptor")), "{text}");
    }
    for readable in ["9</dev/null", "9</"] {
        let text = begun(readable, 9);
        assert!(text.contains("--ready-fd 9 is open for reading alone"), "{text}");
    }
    assert!(!log.exists(), "what is wrong with --ready-fd is known before the log is begun");
}

/// A small fuzzer: whatever comes before a session, oriond goes on.
#[test]
fn nonsense_at_the_door_hurts_nobody() {
    let server = Oriond::start(&[]);
    let mut bystander = Client::attach(&server, Transport::Tcp);
    let good = frame(kind::HELLO, &first_words().encode());
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

/// The one test of what the client says meanwhile; it is said on this process's own standard error.
#[test]
fn a_server_that_is_stopped_is_said_to_be_silent() {
    let server = Oriond::start(&[]);
    let stop = |number| {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(server.pid() as i32, number) };
    };
    stop(libc::SIGSTOP);
    let program = std::env::current_exe().expect("this test");
    let mut waiting = std::process::Command::new(program)
        .args(["--exact", "door::attaches_to_the_server_named_by_the_environment", "--ignored", "--nocapture"])
        .env("ORION_TEST_SERVER", &server.socket)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("starting this test again");
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(waiting.stderr.take().expect("piped"));
    while !said.contains("has said nothing for 3 s") {
        assert!(std::io::BufRead::read_line(&mut lines, &mut said).expect("reading") > 0, "it ended: {said}");
    }
    stop(libc::SIGCONT);
    assert!(waiting.wait().expect("waiting").success());
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn attaches_to_the_server_named_by_the_environment() {
    let path = std::env::var_os("ORION_TEST_SERVER").expect("the test that runs this one sets it");
    let attached =
        carrier::attach(&Server::local(path), &hello(), Tuning::default(), Listener::NOBODY).expect("attaching");
    attached.carrier.close();
}
