//! What only RDMA can do wrong. It takes a device: `dataplane/conformance/vm/rdma.sh` has one.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_transport::carrier::VerbsPort;
use orion_transport::carrier::rdma::ends::End;
use orion_transport::carrier::rdma::limits::RING_BYTES;
use orion_transport::carrier::rdma::window::Notice;
use orion_transport::carrier::rdma::works::Work;
use orion_transport::carrier::rdma::{Device, Pair};
use orion_transport::channel::Channel;
use orion_wire::hello::{Welcome, kind};
use orion_wire::refusal::Refusal;

use crate::death::begin;
use crate::harness::{Client, Oriond, Transport, wait_until};

const LOST_WITHIN: Duration = Duration::from_secs(11);

/// By hand up to where the server has a queue pair, or has refused to have one.
fn by_hand(server: &Oriond, change: impl FnOnce(&mut End)) -> (Channel, Welcome, Pair, Result<(), String>) {
    let pair = Pair::new(device()).expect("a queue pair");
    let mut channel = server.dial(Transport::Rdma);
    let (welcome, _) = begin(&mut channel);
    let start = server.start_over(Transport::Rdma, 0x7000_0000_0000);
    channel.send_frame(kind::START, &start.encode(), &[]).expect("sending");
    assert_eq!(channel.recv_frame().expect("receiving").0, kind::STARTED);
    let mut own = pair.own();
    change(&mut own);
    channel.send_frame(kind::ENDS, &own.encode(), &[]).expect("sending");
    let connected = match channel.recv_frame().expect("receiving") {
        (kind::ENDS, body, _) => pair.connect(&End::decode(&body).expect("a queue pair")),
        (_, body, _) => Err(Refusal::decode(&body).text),
    };
    (channel, welcome, pair, connected)
}

fn device() -> Arc<Device> {
    Device::open(&VerbsPort::default()).expect("a device")
}

fn serving() -> Oriond {
    Oriond::start_for(Transport::Rdma, &[])
}

/// Sets the network interface of the device up or down, as the machine's script has named it.
fn link(state: &str) {
    let name = std::env::var("ORION_TEST_LINK").expect("the script says which interface is the device's");
    let status = Command::new("/bin/ip").args(["link", "set", &name, state]).status().expect("ip starts");
    assert!(status.success(), "ip link set {name} {state}");
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn notices_against_the_rules_end_their_own_session_with_one_line() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    let bad = [
        (Notice::Written(RING_BYTES as u32 + 1), "more was written than there is room for"),
        (Notice::Written(0), "more was written than there is room for"),
        (Notice::Taken { bytes: 1, batches: 0 }, "credits for more than was sent"),
        (Notice::Taken { bytes: 0, batches: 1 }, "credits for more than was sent"),
        // What is there is no frame.
        (Notice::Written(64), "unknown frame"),
    ];
    for (i, (notice, rule)) in bad.into_iter().enumerate() {
        let (channel, welcome, pair, connected) = by_hand(&server, |_| {});
        connected.expect("it keeps to the rules so far");
        let work = Work { at: 0, bytes: 0, notice: Some(notice.encode()), token: Some(1) };
        pair.post(&[work]).expect("posting");
        server.wait_for_log(&["WARN", "protocol broken", &format!("session={}", welcome.session), rule]);
        drop(channel);
        assert_eq!(bystander.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_write_beside_the_inbox_ends_its_own_session_only() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    let (channel, welcome, pair, connected) = by_hand(&server, |_| {});
    connected.expect("it keeps to the rules so far");
    // The last byte, and seven behind it.
    pair.post_unchecked(RING_BYTES - 1, 8).expect("posting");
    server.wait_for_log(&["session ends", &format!("session={}", welcome.session), "the queue pair is in error"]);
    drop(channel);
    assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_cannot_be_is_refused_in_words() {
    let server = serving();
    for change in [|end: &mut End| end.mtu = 0, |end: &mut End| end.qp_number = 0, |end: &mut End| end.gid = [0; 16]] {
        let (channel, welcome, _pair, connected) = by_hand(&server, change);
        let why = connected.expect_err("it cannot be");
        assert!(why.contains("queue pair") || why.contains("InfiniBand"), "{why}");
        server.wait_for_log(&["session ends", &format!("session={}", welcome.session)]);
        drop(channel);
    }
    assert_eq!(Client::attach(&server, Transport::Rdma).call(0x101, &[1; 8]), [1; 8]);
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn who_comes_by_tcp_to_the_port_for_rdma_is_told_in_the_log() {
    let server = serving();
    let mut channel = server.dial(Transport::Rdma);
    let (welcome, _) = begin(&mut channel);
    let start = server.start_over(Transport::Rdma, 0x7000_0000_0000);
    channel.send_frame(kind::START, &start.encode(), &[]).expect("sending");
    assert_eq!(channel.recv_frame().expect("receiving").0, kind::STARTED);
    channel.send(&[1; 64], &[]).expect("sending");
    server.wait_for_log(&["WARN", "protocol broken", &format!("session={}", welcome.session)]);
    let _ = channel.as_fd();
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_server_that_is_killed_is_noticed_by_its_client() {
    let server = serving();
    let client = Client::attach(&server, Transport::Rdma);
    let begin = Instant::now();
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(server.pid() as i32, libc::SIGKILL) };
    wait_until("the end of the session", || client.is_lost());
    assert!(begin.elapsed() < LOST_WITHIN, "after {:?}", begin.elapsed());
}

/// The TCP connection is another way, and stays.
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_port_that_goes_down_ends_the_session_at_both_ends() {
    let server = serving();
    let client = Client::attach(&server, Transport::Rdma);
    let begin = Instant::now();
    link("down");
    wait_until("the end of the session", || client.is_lost());
    let (death, after) = (client.carrier.death().expect("it is lost").of("the worker"), begin.elapsed());
    let refused = Device::open(&VerbsPort::default()).map(drop);
    link("up");
    assert!(after < LOST_WITHIN, "after {after:?}");
    assert!(death.contains("port 1 of rxe0 is down"), "{death}");
    server.wait_for_log(&["session ends", "the client has ended"]);
    let why = refused.expect_err("its port is down");
    assert!(why.contains("port 1 of RDMA device rxe0 is down; set its network interface up"), "{why}");
    // And it works again.
    wait_until("a port that is up", || Device::open(&VerbsPort::default()).is_ok());
    assert_eq!(Client::attach(&server, Transport::Rdma).call(0x101, &[1; 8]), [1; 8]);
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn what_is_not_to_be_had_is_said_by_name_over_rdma() {
    for (wanted, words) in [
        ("mlx9_9", "there is no RDMA device mlx9_9 here; there are rxe0"),
        ("rxe0:7", "RDMA device rxe0 has no port 7"),
        ("rxe0,gid=200", "has no address (GID) at index 200"),
        ("rxe0,mtu=4096", "has packets of 1024 bytes, not of 4096"),
        ("rxe0,pkey=4000", "has 1 partition keys, and none at 4000"),
    ] {
        let why = Device::open(&VerbsPort::parse(wanted).expect("well-formed")).map(drop).expect_err(wanted);
        assert!(why.contains(words), "{wanted}: {why}");
        let output = Command::new(env!("CARGO_BIN_EXE_oriond"))
            .args(["serve", "--driver", "echo", "--socket", "none", "--insecure", "--rdma", "127.0.0.1:0"])
            .args(["--rdma-device", wanted])
            .output()
            .expect("oriond starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("--rdma 127.0.0.1:0 is not to be had"), "{said}");
        assert!(said.contains(words), "{wanted}: {said}");
    }
}
