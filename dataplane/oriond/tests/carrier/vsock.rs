//! What is vsock's alone, where the kernel has none: the socket of a hypervisor that has vsock of its own. What crosses
//! a machine's boundary is in `dataplane/conformance/vm/vsock.sh`.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use orion_transport::channel::Channel;
use orion_transport::client::{Caller, Server};
use orion_transport::stream::{Frame, STREAM_HEADER_BYTES, StreamHeader};
use orion_wire::hello::kind;
use orion_wire::refusal::Refusal;

use crate::harness::{Client, Oriond, Transport, first_words, hello, is_alive, new_folder, request, token, wait_until};

/// In a folder of its own, as the hypervisor was told.
fn new_socket() -> PathBuf {
    new_folder().join("vm0.vsock_7411")
}

/// As the hypervisor does for a program in its machine.
fn dial(socket: &Path) -> Channel {
    Channel::from(OwnedFd::from(UnixStream::connect(socket).expect("connecting")))
}

#[test]
fn a_hypervisors_own_vsock_leads_to_sessions_like_those_over_tcp() {
    let socket = new_socket();
    let server = Oriond::start(&["--vsock", socket.to_str().expect("a plain path")]);
    let mut channel = dial(&socket);
    let (welcome, _) = crate::death::begin(&mut channel);
    let start = server.start_over(Transport::Tcp, 0x7000_0000_0000);
    channel.send_frame(kind::START, &start.encode(), &[]).expect("sending");
    assert_eq!(channel.recv_frame().expect("receiving").0, kind::STARTED);
    server.wait_for_log(&["session begins", "vsock:machine=0"]);
    // Nobody has anything to say, and the program hears that oriond is there.
    let mut main = UnixStream::from(channel.into_parts().0);
    main.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    for _ in 0..2 {
        let mut header = [0; STREAM_HEADER_BYTES];
        main.read_exact(&mut header).expect("a beat");
        let said = StreamHeader::decode(&header, 1 << 30).expect("a frame");
        assert_eq!((said.frame, said.offset), (Frame::Taken, 0));
    }
    drop(main);
    wait_until("the worker's end", || !is_alive(welcome.worker_pid));
    let (status, log) = server.terminate();
    assert!(status.success() && log.contains("vsock:2:7411"), "{log}");
    assert!(!socket.exists());
    std::fs::remove_dir(socket.parent().expect("its folder")).expect("removing");
}

#[test]
fn who_comes_by_vsock_has_to_know_the_token() {
    let socket = new_socket();
    let server = Oriond::start(&["--vsock", socket.to_str().expect("a plain path")]);
    for wrong in [None, token("some other token than that")] {
        let mut channel = dial(&socket);
        let (request, _) = request(&mut channel, &Caller { token: wrong, ..hello() });
        channel.send(&request, &[]).expect("sending");
        let (answer, body, _) = channel.recv_frame().expect("receiving");
        assert_eq!(answer, kind::REFUSED);
        let said = Refusal::decode(&body).text;
        assert!(said.contains("the token is wrong or missing"), "{said}");
    }
    drop(server);
    std::fs::remove_dir_all(socket.parent().expect("its folder")).expect("removing");
}

/// Silent ones, and such as have said half a word: of one machine there is room for so many.
#[test]
fn a_machine_that_floods_the_door_keeps_nobody_out() {
    let (flooding, other) = (new_socket(), new_socket());
    let paths = [&flooding, &other].map(|socket| socket.to_str().expect("a plain path"));
    let server = Oriond::start(&["--warm", "4", "--vsock", paths[0], "--vsock", paths[1]]);
    let half = &orion_wire::hello::frame(kind::HELLO, &first_words().encode())[..20];
    let mut strangers: Vec<UnixStream> = Vec::new();
    for i in 0..300 {
        let mut stranger = UnixStream::connect(&flooding).expect("connecting");
        if i % 2 == 0 {
            stranger.write_all(half).expect("there is room");
        }
        strangers.push(stranger);
    }
    server.wait_for_log(&["to make room for others", "peer=vsock:machine=0"]);
    for path in paths {
        let server = Server::parse(&format!("vsock:{path}")).expect("an address");
        assert_eq!(Client::attach_to(&server).call(0x101, &[3; 8]), [3; 8]);
    }
    assert_eq!(Client::attach(&server, Transport::Shm).call(0x101, &[4; 8]), [4; 8]);
    // Those that had come last stay until their time is over.
    strangers[299].set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    assert_eq!(strangers[299].read(&mut [0; 64]).expect("it is closed"), 0);
    drop(server);
    for socket in [flooding, other] {
        std::fs::remove_dir_all(socket.parent().expect("its folder")).expect("removing");
    }
}

#[test]
fn vsock_without_a_token_is_refused_in_words() {
    let mut oriond = Command::new(env!("CARGO_BIN_EXE_oriond"));
    oriond.args(["serve", "--driver", "echo", "--socket", "none", "--vsock", "7411"]);
    let output = oriond.output().expect("starting oriond");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("refusing to listen on port 7411 of vsock"), "{said}");
    assert!(said.contains("--token-file"), "{said}");
}
