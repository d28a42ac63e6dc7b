//! What only RDMA can do wrong. It takes a device: `dataplane/conformance/vm/rdma.sh` has one.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_ring::control::{PLACED_BYTES, placed_words};
use orion_ring::memory::{COMMAND_BYTES, Layout, Which};
use orion_ring::{Memory, Producer};
use orion_transport::carrier::VerbsPort;
use orion_transport::carrier::rdma::ends::End;
use orion_transport::carrier::rdma::limits::{PLACED_BYTES_MAX, RING_BYTES};
use orion_transport::carrier::rdma::window::Notice;
use orion_transport::carrier::rdma::works::{Outcome, Place, Work};
use orion_transport::carrier::rdma::{Device, Pair};
use orion_transport::channel::Channel;
use orion_wire::hello::{Welcome, kind};
use orion_wire::record::{HEADER_BYTES, Header};
use orion_wire::refusal::Refusal;

use crate::death::begin;
use crate::harness::{Client, Oriond, Transport, wait_until};

const LOST_WITHIN: Duration = Duration::from_secs(11);

/// By hand up to where the server has a queue pair, or has refused to have one.
pub fn by_hand(server: &Oriond, change: impl FnOnce(&mut End)) -> (Channel, Welcome, Pair, Result<(), String>) {
    let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
    let (channel, welcome, pair, connected, _) = with_ring(server, &memory, change);
    (channel, welcome, pair, connected)
}

pub type ByHand = (Channel, Welcome, Pair, Result<(), String>, Producer);

/// With replies in this memory.
pub fn with_ring(server: &Oriond, memory: &Memory, change: impl FnOnce(&mut End)) -> ByHand {
    let pair = Pair::new(device()).expect("a queue pair");
    let mut replies = memory.producer(Which::Reply).expect("a ring");
    // SAFETY: memory is not unmapped when it is dropped.
    unsafe { pair.offer(replies.beside_device()) }.expect("offering a ring");
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
    (channel, welcome, pair, connected, replies)
}

/// What is written, from the beginning of the outbox; what the device says of it.
pub fn write(pair: &Pair, bytes: &[u8], to: Place, notice: Option<Notice>) -> Outcome {
    // SAFETY: the outbox is larger, and what was written from it before is done with: each write is waited for here.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pair.outbox(), bytes.len()) };
    let notice = notice.map(Notice::encode);
    pair.post(&[Work { from: 0, to, bytes: bytes.len(), notice, token: Some(1) }]).expect("posting");
    let mut done = None;
    wait_until("the device", || {
        done = pair.poll_sent().expect("looking");
        done.is_some()
    });
    done.expect("just seen").outcome
}

pub fn words_of(end: u64) -> Vec<u8> {
    placed_words(end).into_iter().flat_map(u64::to_le_bytes).collect()
}

pub fn record(op: u16, sequence: u64, body: &[u8]) -> Vec<u8> {
    let size = (HEADER_BYTES + body.len()) as u32;
    [&Header { size, op, thread: 1, context: 0, sequence }.encode(), body].concat()
}

pub fn device() -> Arc<Device> {
    Device::open(&VerbsPort::default()).expect("a device")
}

pub fn serving() -> Oriond {
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
    let written = |bytes| Notice::Written { bytes, ahead: true };
    let impossible = "an impossible number of records was written into a ring";
    let bad = [
        (written(RING_BYTES as u32 + 1), "more was written than there is room for"),
        (written(0), "more was written than there is room for"),
        (Notice::Placed(0), impossible),
        (Notice::Placed(PLACED_BYTES_MAX as u32 + 1), impossible),
        (Notice::Taken { bytes: 1, batches: 0 }, "credits for more than was sent"),
        (Notice::Taken { bytes: 0, batches: 1 }, "credits for more than was sent"),
        // What is there is no frame.
        (written(64), "unknown frame"),
    ];
    for (i, (notice, rule)) in bad.into_iter().enumerate() {
        let (channel, welcome, pair, connected) = by_hand(&server, |_| {});
        connected.expect("it keeps to the rules so far");
        pair.post(&[Work::bare(Some(notice.encode()), 1)]).expect("posting");
        server.wait_for_log(&["WARN", "protocol broken", &format!("session={}", welcome.session), rule]);
        drop(channel);
        assert_eq!(bystander.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_write_beside_what_is_shown_ends_its_own_session_only() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    // The last byte, and seven behind it; of the words behind records, one more.
    for (to, bytes) in [
        (Place::Inbox(RING_BYTES - 1), 8),
        (Place::Ring(COMMAND_BYTES as usize - 1), 8),
        (Place::Placed, PLACED_BYTES + 8),
    ] {
        let (channel, welcome, pair, connected) = by_hand(&server, |_| {});
        connected.expect("it keeps to the rules so far");
        pair.post_unchecked(to, bytes).expect("posting");
        server.wait_for_log(&["session ends", &format!("session={}", welcome.session), "the queue pair is in error"]);
        drop(channel);
        assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
    }
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_command_written_into_the_worker_s_ring_is_answered_in_ours_over_rdma() {
    let server = serving();
    let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
    let (channel, _, pair, connected, _replies) = with_ring(&server, &memory, |_| {});
    connected.expect("it keeps to the rules");
    let mut answers = memory.consumer(Which::Reply).expect("a ring");
    let mut at = 0;
    for i in 1..=3u64 {
        let command = record(0x101, i, &[i as u8; 40]);
        write(&pair, &command, Place::Ring(at), None);
        at += command.len();
        write(&pair, &words_of(at as u64), Place::Placed, Some(Notice::Placed(command.len() as u32)));
        let mut next = None;
        wait_until("an answer", || {
            next = answers.next().expect("positions");
            next.is_some()
        });
        let (header, mut body) = (next.expect("it came"), Vec::new());
        answers.body(&header, &mut body);
        assert_eq!((header.sequence, &body[..]), (i, &[i as u8; 40][..]));
        answers.consume(header.size as usize);
    }
    drop(channel);
}

/// Who forges where his commands end spoils his own ring.
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn positions_that_cannot_be_end_their_own_session_over_rdma() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    let command = record(0x101, 1, &[1; 40]);
    let end = command.len() as u64;
    for (i, bad) in [COMMAND_BYTES + end + 8, 1 << 40, u64::MAX, end - 8].into_iter().enumerate() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
        let (channel, welcome, pair, connected, _) = with_ring(&server, &memory, |_| {});
        connected.expect("it keeps to the rules so far");
        let mut answers = memory.consumer(Which::Reply).expect("a ring");
        write(&pair, &command, Place::Ring(0), None);
        write(&pair, &words_of(end), Place::Placed, Some(Notice::Placed(end as u32)));
        // It was answered, so it was seen.
        wait_until("the answer", || answers.next().expect("positions").is_some());
        write(&pair, &words_of(bad), Place::Placed, Some(Notice::Placed(8)));
        let session = format!("session={}", welcome.session);
        server.wait_for_log(&["worker says", &session, "ring positions are impossible"]);
        server.wait_for_log(&["session ends", &session]);
        drop(channel);
        assert_eq!(bystander.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn notices_of_more_commands_than_there_is_room_for_end_their_own_session_over_rdma() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    let (channel, welcome, pair, connected) = by_hand(&server, |_| {});
    connected.expect("it keeps to the rules so far");
    // Nothing is there, so the worker takes nothing.
    for _ in 0..COMMAND_BYTES as usize / PLACED_BYTES_MAX + 1 {
        let notice = Notice::Placed(PLACED_BYTES_MAX as u32);
        let _ = pair.post(&[Work::bare(Some(notice.encode()), 1)]);
        wait_until("the device", || pair.poll_sent().expect("looking").is_some());
    }
    let rule = "more commands were written than there is room for";
    server.wait_for_log(&["WARN", "protocol broken", &format!("session={}", welcome.session), rule]);
    drop(channel);
    assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
}

/// The worker copies a record out, then looks at it: what it was looked at as is what it is used as.
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn writing_what_is_being_read_ends_one_s_own_session_over_rdma() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    for round in 0..3u8 {
        let (channel, welcome, pair, connected) = by_hand(&server, |_| {});
        connected.expect("it keeps to the rules so far");
        let good = [record(0x101, 0, &[1; 1000]), record(0x101, 0, &[2; 3000])].concat();
        let other = [record(0x100, 0, &[3; 3000]), record(0x101, 0, &[4; 1000])].concat();
        let mut end = 0;
        // It goes on for as long as nobody notices: records of other lengths are put over those that are being read.
        for i in 0..200 {
            let (first, second) = if i % 2 == 0 { (&good, &other) } else { (&other, &good) };
            let at = end as usize % COMMAND_BYTES as usize;
            if at + first.len() > COMMAND_BYTES as usize {
                break;
            }
            let outcome = write(&pair, first, Place::Ring(at), None);
            // Those of later turns may find the session over.
            assert!(i > 0 || outcome == Outcome::Well, "{outcome:?}");
            end += first.len() as u64;
            write(&pair, &words_of(end), Place::Placed, None);
            for cut in [8, 1024, 2000] {
                write(&pair, &second[cut..], Place::Ring(at + cut), None);
            }
        }
        // Whatever it was taken for, this is none.
        write(&pair, &words_of(u64::MAX - u64::from(round)), Place::Placed, Some(Notice::Placed(8)));
        server.wait_for_log(&["session ends", &format!("session={}", welcome.session)]);
        drop(channel);
        assert_eq!(bystander.call(0x101, &[round; 8]), [round; 8]);
    }
    assert!(!server.log().contains("status=signal"), "{}", server.log());
}

/// Room for what was not sent, and a ring that is not where its end says.
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn lies_about_ones_own_ring_end_ones_own_session_over_rdma() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    type Change = fn(&mut End);
    let lies: [(Change, Option<Notice>, &str); 4] = [
        (|_| {}, Some(Notice::Room(1 << 20)), "room in a ring for more than was sent"),
        (|end| end.ring.key ^= 0x100, None, "the queue pair failed"),
        (|end| end.ring.placed_key ^= 0x100, None, "the queue pair failed"),
        (|end| end.ring.data += end.ring.bytes, None, "the queue pair failed"),
    ];
    for (i, (change, notice, rule)) in lies.into_iter().enumerate() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
        let (channel, welcome, pair, connected, _replies) = with_ring(&server, &memory, change);
        connected.expect("nobody can see it yet");
        if let Some(notice) = notice {
            pair.post(&[Work::bare(Some(notice.encode()), 1)]).expect("posting");
            wait_until("the device", || pair.poll_sent().expect("looking").is_some());
        }
        // What answers it goes there.
        let command = record(0x101, 1, &[1; 40]);
        write(&pair, &command, Place::Ring(0), None);
        let end = command.len() as u64;
        write(&pair, &words_of(end), Place::Placed, Some(Notice::Placed(end as u32)));
        server.wait_for_log(&["session", &format!("session={}", welcome.session), "the client", rule]);
        drop(channel);
        assert_eq!(bystander.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
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
fn what_a_device_is_is_said_with_whether_it_finds_pages_of_rdma() {
    let without = VerbsPort { paging: false, ..VerbsPort::default() };
    let (words, without) = (device().words(), Device::open(&without).expect("a device").words());
    assert!(words.starts_with("rxe0 port 1 (RoCE), GID "), "{words}");
    // Soft-RoCE has learnt it in 6.15, and on 7.3 it was wrong.
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a version of Linux");
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok()).expect("a number");
    let mut parts = kernel.split('.');
    let is_offered = (number(parts.next()), number(parts.next())) >= (6, 15);
    let (used, off) = match (is_offered, device().finds_pages()) {
        (true, true) => ("on-demand paging used", "on-demand paging offered, off"),
        (true, false) => ("on-demand paging offered, and wrong, so not used (of ", "on-demand paging offered, off"),
        (false, _) => ("on-demand paging none", "on-demand paging none"),
    };
    assert!(words.contains(used) && without.contains(off), "{kernel}: {words}; {without}");
    assert!(words.ends_with(", GPUDirect not used"), "{words}");
    serving().wait_for_log(&["RDMA is offered", &words]);
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

/// Not a test but a yardstick; what it finds on Soft-RoCE says little of devices.
#[test]
#[ignore = "measures"]
fn round_trip_of_rdma() {
    let server = serving();
    let mut client = Client::attach(&server, Transport::Rdma);
    for (what, bytes) in [("40", 40), ("2000", 2000)] {
        let body = vec![7; bytes];
        let mut samples: Vec<u64> = (0..3000)
            .map(|_| {
                let begin = Instant::now();
                assert_eq!(client.call(0x101, &body).len(), bytes);
                begin.elapsed().as_nanos() as u64
            })
            .collect();
        samples.sort_unstable();
        let at = |percent: usize| samples[samples.len() * percent / 100] as f64 / 1000.0;
        println!("a call of {what} bytes: p50 {:.1} us, p99 {:.1} us", at(50), at(99));
    }
}
