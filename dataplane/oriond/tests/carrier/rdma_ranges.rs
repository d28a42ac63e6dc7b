//! Ranges of the heap that devices read over RDMA: what goes so, and who shows or reads what he should not. It takes a
//! device: `dataplane/conformance/vm/rdma.sh` has one.

use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use orion_ring::memory::Layout;
use orion_ring::{Memory, Producer};
use orion_transport::carrier::rdma::Pair;
use orion_transport::carrier::rdma::areas::AREA_BYTES;
use orion_transport::carrier::rdma::ends::End;
use orion_transport::carrier::rdma::limits::shown_from_bytes;
use orion_transport::carrier::rdma::window::Notice;
use orion_transport::carrier::rdma::works::{Outcome, Place, READ, Read, ReadTo};
use orion_transport::channel::Channel;
use orion_transport::stream::{
    Frame, SHOWN_BODY_BYTES, SHOWN_BYTES_MAX, SHOWN_BYTES_MIN, SHOWN_MAX, STREAM_HEADER_BYTES, Shown, StreamHeader,
};
use orion_wire::record::HeapRange;

use crate::harness::{Client, FILL, Oriond, PATIENCE, Transport, pattern, wait_until, words};
use crate::rdma::{by_hand, device, record, serving, with_ring, words_of, write};

/// What the log says where a range could not be registered.
const COPIED: &str = "bytes were copied that a device could have read";

/// A number of bytes that oriond's log has of a session that has ended.
pub fn moved(server: &Oriond, session: u64, what: &str) -> u64 {
    let session = format!("session={session} ");
    server.wait_for_log(&["session ends", &session]);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("session ends") && line.contains(&session)).expect("just seen");
    let number = line.split_once(&format!("{what}=")).and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{line:?} has no {what}"))
}

/// The whole of it to the worker and back, each time with other bytes.
pub fn both_ways(client: &mut Client, range: HeapRange, seed: u64) {
    let mut sum = 0;
    for (i, byte) in client.bytes_mut(range).iter_mut().enumerate() {
        *byte = pattern(seed, i as u64);
        sum += u64::from(*byte);
    }
    client.announce(range);
    assert_eq!(client.sum(range), sum, "{range:?} to the worker");
    client.call(FILL, &words(&[range.offset, range.bytes, seed + 1]));
    let wrong = client.bytes(range).iter().enumerate().find(|(i, byte)| **byte != pattern(seed + 1, *i as u64));
    assert_eq!(wrong, None, "{range:?} to the client");
}

/// What a device has of protection domains, regions and so on, of all processes, as the kernel counts them.
pub fn known_to_devices() -> String {
    let output = Command::new("/bin/rdma").args(["resource", "show"]).output().expect("rdma of iproute2");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// While there is one session, when those of earlier tests are gone.
fn known_at_rest() -> String {
    let mut known = known_to_devices();
    // The kernel has one of its own.
    wait_until("one session's queue pairs to be all that there are", || {
        known = known_to_devices();
        known.contains(" qp 3 ")
    });
    known
}

/// No region, no queue pair and no domain is left of what has come since.
pub fn nothing_is_left(before: &str) {
    let began = Instant::now();
    while known_to_devices() != before {
        assert!(began.elapsed() < PATIENCE, "{} is left, of {before} before", known_to_devices());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn large_ranges_are_read_to_where_they_belong_and_small_ones_copied() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
    let mut client = Client::attach(&server, Transport::Rdma);
    let session = client.welcome.session;
    let large = HeapRange { offset: 4096 + 8, bytes: (24 << 20) + 4097 };
    both_ways(&mut client, large, 1);
    assert_eq!(client.call(0x101, &[3; 8]), [3; 8]);
    drop(client);
    let of = |what| moved(&server, session, what);
    // Only what is left at a range's end is copied at the receiving end, and what is said of it.
    let least = large.bytes - shown_from_bytes();
    let (read, shown) = (of("read_bytes"), of("shown_bytes"));
    assert!((least..=large.bytes).contains(&read) && (least..=large.bytes).contains(&shown), "{}", server.log());
    assert!(of("inbox_bytes") < shown_from_bytes() + (64 << 10), "{}", server.log());
    assert_eq!(of("landed_bytes"), 0);

    let mut client = Client::attach(&server, Transport::Rdma);
    let session = client.welcome.session;
    let small = HeapRange { offset: 0, bytes: shown_from_bytes() - 1 };
    both_ways(&mut client, small, 5);
    drop(client);
    let of = |what| moved(&server, session, what);
    assert_eq!((of("read_bytes"), of("shown_bytes")), (0, 0));
    assert!(of("inbox_bytes") > small.bytes, "{}", server.log());
    assert!(!server.log().contains(COPIED), "{}", server.log());
}

/// In many small ranges, each of which is shown, and that come behind each other and behind records.
#[cfg(debug_assertions)]
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn small_ranges_that_are_shown_arrive_before_what_follows() {
    let from = [("ORION_SOFT_SHOWN_FROM", "4096")];
    let options = Transport::Rdma.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Oriond::start_in(&from, &options);
    let mut client = Client::attach(&server, Transport::Rdma);
    let session = client.welcome.session;
    let mut bytes = 0;
    for i in 0..60u64 {
        let range = HeapRange { offset: 8192 * i + 16, bytes: 4096 + 500 * (i % 30) };
        client.call(FILL, &words(&[range.offset, range.bytes, i + 1]));
        let wrong = client.bytes(range).iter().enumerate().find(|(k, byte)| **byte != pattern(i + 1, *k as u64));
        assert_eq!(wrong, None, "{range:?}");
        assert_eq!(client.call(0x101, &[i as u8; 8]), [i as u8; 8]);
        bytes += range.bytes;
    }
    drop(client);
    assert_eq!(moved(&server, session, "shown_bytes"), bytes);
}

/// As where there is a limit on locked memory: what cannot be shown goes through the inbox, and what has no place that
/// can be registered is read a part at a time.
#[cfg(debug_assertions)]
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn where_ranges_cannot_be_registered_bytes_are_copied_over_rdma() {
    let options = Transport::Rdma.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let range = HeapRange { offset: 24, bytes: (5 << 20) + 77 };
    for (which, ways) in [("shown", [true, false]), ("read", [false, true])] {
        let server = Oriond::start_in(&[("ORION_SOFT_UNREGISTERED", which)], &options);
        let mut client = Client::attach(&server, Transport::Rdma);
        let session = client.welcome.session;
        both_ways(&mut client, range, 9);
        drop(client);
        let of = |what| moved(&server, session, what);
        let [reads, shows] = ways;
        let least = range.bytes - shown_from_bytes();
        assert_eq!((of("read_bytes") > least, of("landed_bytes") > least), (reads, !reads), "{}", server.log());
        assert_eq!(of("shown_bytes") > least, shows, "{}", server.log());
        server.wait_for_log(&["WARN", COPIED, &format!("session={session} "), which]);
        assert_eq!(server.log().matches(COPIED).count(), 1);
    }
}

/// Each engine gives a session away every other millisecond, whatever is being read for it.
#[cfg(debug_assertions)]
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn ranges_come_whole_while_their_session_moves_over_rdma() {
    let options = Transport::Rdma.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let environment = [("ORION_SOFT_MOVES_US", "2000"), ("ORION_SOFT_SHOWN_FROM", "65536")];
    let server = Oriond::start_in(&environment, &options);
    let mut client = Client::attach(&server, Transport::Rdma);
    let session = client.welcome.session;
    for i in 0..6 {
        both_ways(&mut client, HeapRange { offset: 4096 * i + 8, bytes: (3 << 20) + 100_000 }, 10 * i);
        assert_eq!(client.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
    drop(client);
    assert!(moved(&server, session, "read_bytes") > 6 * (3 << 20), "{}", server.log());
    let moves = server.log().matches("session moves").count();
    assert!(moves > 4, "it has moved {moves} times");
}

/// What a client by hand says in its stream: into the worker's inbox, from its beginning.
fn say(pair: &Pair, bytes: &[u8]) -> Outcome {
    write(pair, bytes, Place::Inbox(0), Some(Notice::Written { bytes: bytes.len() as u32, ahead: true }))
}

fn frame_of(shown: Shown) -> Vec<u8> {
    let header = StreamHeader { frame: Frame::Shown, len: SHOWN_BODY_BYTES as u32, offset: shown.range.offset };
    [&header.encode()[..], &shown.body()].concat()
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn what_is_shown_against_the_rules_ends_its_own_session_only() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
    let before = known_at_rest();
    let heap_bytes = bystander.welcome.heap_bytes;
    // Nothing is there, and nothing has such a key.
    let good = Shown { range: HeapRange { offset: 0, bytes: 1 << 20 }, address: 0x7000_0000_0000, key: 0x1234 };
    let of = |offset, bytes| Shown { range: HeapRange { offset, bytes }, ..good };
    let size = "a range of an impossible size was shown";
    let astray = "what it has shown cannot be read";
    let header = StreamHeader { frame: Frame::Shown, len: 16, offset: 0 };
    let bad = [
        (frame_of(good), astray),
        (vec![frame_of(good); 3].concat(), astray),
        (frame_of(of(0, 0)), size),
        (frame_of(of(0, SHOWN_BYTES_MIN - 1)), size),
        (frame_of(of(0, SHOWN_BYTES_MAX + 1)), size),
        (frame_of(of(0, u64::MAX)), size),
        (frame_of(of(heap_bytes - SHOWN_BYTES_MIN + 8, SHOWN_BYTES_MIN)), "outside the session's host heap"),
        (frame_of(of(u64::MAX - 8, SHOWN_BYTES_MIN)), "outside the session's host heap"),
        (frame_of(Shown { address: u64::MAX - 4096, ..good }), "a range was shown where nothing can be"),
        ([frame_of(good)[..STREAM_HEADER_BYTES + 20].to_vec(), vec![0xff; 4]].concat(), "nothing can be"),
        (vec![frame_of(good); SHOWN_MAX + 1].concat(), "more ranges were shown than there may be"),
        ([&header.encode()[..], &[0; 16]].concat(), "a range was shown in an impossible length"),
    ];
    for (i, (bytes, rule)) in bad.into_iter().enumerate() {
        let (channel, welcome, pair, connected) = by_hand(&server, |_| {});
        connected.expect("it keeps to the rules so far");
        say(&pair, &bytes);
        let session = format!("session={}", welcome.session);
        let line = if rule == astray { "session ends" } else { "protocol broken" };
        server.wait_for_log(&[line, &session, rule]);
        server.wait_for_log(&["session ends", &session]);
        drop((channel, pair));
        assert_eq!(bystander.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
    // Who says to have read what he was not shown, and who shows something though he says that no device reads of his.
    type Change = fn(&mut End);
    let others: [(Change, Notice, Vec<u8>, &str); 2] = [
        (|_| {}, Notice::Read(1), Vec::new(), "more ranges were read than were shown"),
        (
            |end| end.reads = 0,
            Notice::Written { bytes: 40, ahead: true },
            frame_of(good),
            "a range was shown to somebody who has no device for it",
        ),
    ];
    for (change, notice, bytes, rule) in others {
        let (channel, welcome, pair, connected) = by_hand(&server, change);
        connected.expect("it keeps to the rules so far");
        write(&pair, &bytes, Place::Inbox(0), Some(notice));
        server.wait_for_log(&["protocol broken", &format!("session={}", welcome.session), rule]);
        drop((channel, pair));
    }
    nothing_is_left(&before);
    both_ways(&mut bystander, HeapRange { offset: 8, bytes: 3 << 20 }, 7);
}

/// What this end's device reads; what the device says of it.
fn read(pair: &Pair, address: u64, key: u32, bytes: usize) -> Outcome {
    pair.read(&Read { to: ReadTo::Landing, address, key, bytes }).expect("posting");
    let mut done = None;
    wait_until("the device", || {
        done = pair.poll_sent().expect("looking");
        done.is_some()
    });
    let done = done.expect("just seen");
    assert_eq!(done.token, READ);
    done.outcome
}

/// A client whose worker brings it a range, and that is shown it: by which key, and where.
fn shown_by(server: &Oriond, memory: &Memory) -> ((Channel, Producer), u64, Pair, Shown) {
    let (channel, welcome, pair, connected, replies) = with_ring(server, memory, |_| {});
    connected.expect("it keeps to the rules so far");
    let command = record(FILL, 1, &words(&[4096, 1 << 20, 77]));
    write(&pair, &command, Place::Ring(0), None);
    write(&pair, &words_of(command.len() as u64), Place::Placed, Some(Notice::Placed(command.len() as u32)));
    // The first frame in its inbox.
    let mut came = None;
    wait_until("a range", || {
        came = pair.poll_arrived().expect("looking");
        came.is_some()
    });
    assert!(matches!(Notice::decode(came.expect("just seen").notice), Notice::Written { .. }));
    // SAFETY: the inbox has so many bytes.
    let frame = unsafe { std::slice::from_raw_parts(pair.inbox(), STREAM_HEADER_BYTES + SHOWN_BODY_BYTES) };
    let header = StreamHeader::decode(frame.first_chunk().expect("so many"), welcome.heap_bytes).expect("a header");
    assert_eq!((header.frame, header.offset), (Frame::Shown, 4096));
    let body = frame[STREAM_HEADER_BYTES..].try_into().expect("so many");
    let shown = Shown::decode(header.offset, body, welcome.heap_bytes).expect("a range");
    ((channel, replies), welcome.session, pair, shown)
}

/// What can be read by the key of what is shown: that, or the area of the heap that it is in.
fn readable(shown: &Shown) -> Range<u64> {
    if !device().finds_pages() {
        return shown.address..shown.address + shown.range.bytes;
    }
    let begin = shown.address - shown.range.offset;
    begin..begin + AREA_BYTES + SHOWN_BYTES_MAX
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn what_is_read_beside_what_is_shown_ends_its_own_session_only() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
    let before = known_at_rest();
    // By addresses that it may read, and by which key.
    type Wrong = fn(Range<u64>, u32) -> (u64, u32, usize);
    let wrong: [Wrong; 5] = [
        |readable, key| (readable.end - 8, key, 16),
        |readable, key| (readable.start - 8, key, 16),
        |readable, key| (readable.end, key, 4096),
        |readable, key| (readable.start, key ^ 0x100, 4096),
        |_, _| (0, 0, 8),
    ];
    for (i, wrong) in wrong.into_iter().enumerate() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
        let (kept, session, pair, shown) = shown_by(&server, &memory);
        // What is shown can be read, and again.
        for _ in 0..2 {
            assert_eq!(read(&pair, shown.address, shown.key, 4096), Outcome::Well);
            // SAFETY: the landing has so many bytes, and nothing is being read there.
            let came = unsafe { std::slice::from_raw_parts(pair.landing(), 4096) };
            assert!(came.iter().enumerate().all(|(i, byte)| *byte == pattern(77, i as u64)), "other bytes");
        }
        let (address, key, bytes) = wrong(readable(&shown), shown.key);
        let outcome = read(&pair, address, key, bytes);
        assert!(matches!(outcome, Outcome::Failed(_)), "{i}: {outcome:?}");
        server.wait_for_log(&["session ends", &format!("session={session} "), "the queue pair is in error"]);
        drop((kept, pair));
        assert_eq!(bystander.call(0x101, &[i as u8; 8]), [i as u8; 8]);
    }
    // The other keys that it has lead to what it may write, and not read.
    let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
    let (channel, welcome, pair, connected, _replies) = with_ring(&server, &memory, |_| {});
    connected.expect("it keeps to the rules so far");
    let peer = *pair.peer();
    assert!(matches!(read(&pair, peer.inbox, peer.key, 8), Outcome::Failed(_)));
    server.wait_for_log(&["session ends", &format!("session={} ", welcome.session), "the queue pair is in error"]);
    drop((channel, pair));
    // Who says to have read it all has no key to it any more. A device that finds pages keeps the area, which is the
    // session's own.
    if !device().finds_pages() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
        let (kept, session, pair, shown) = shown_by(&server, &memory);
        write(&pair, &[], Place::Inbox(0), Some(Notice::Read(1)));
        let mut last = Outcome::Well;
        wait_until("the range to be let go of", || {
            last = read(&pair, shown.address, shown.key, 8);
            last != Outcome::Well
        });
        server.wait_for_log(&["session ends", &format!("session={session} "), "the queue pair is in error"]);
        drop((kept, pair));
    }
    // Who never says that he has read it has his session end with what is shown to him.
    let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory");
    let (kept, session, pair, _) = shown_by(&server, &memory);
    drop((kept, pair));
    server.wait_for_log(&["session ends", &format!("session={session} ")]);
    nothing_is_left(&before);
    both_ways(&mut bystander, HeapRange { offset: 0, bytes: 3 << 20 }, 7);
    let log = server.log();
    assert!(!log.contains("status=signal") && !log.contains("ERROR"), "{log}");
}
