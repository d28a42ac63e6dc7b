//! Sessions that go from one engine to another while they are used.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orion_transport::client::Tuning;
use orion_transport::stream::Frame;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange};

use crate::harness::{
    Client, DIE, EVENTS, FILL, Oriond, STALL, Transport, hello, is_alive, pattern, wait_until, words,
};

const CARRIED: [Transport; 2] = [Transport::Tcp, Transport::Tls];

/// Lines that say that a session has moved.
fn moves(server: &Oriond, session: u64) -> Vec<String> {
    let named = format!("session={session} ");
    let log = server.log();
    log.lines().filter(|l| l.contains("session moves") && l.contains(&named)).map(str::to_owned).collect()
}

/// Bytes to the worker and back, in each size and by each way.
fn use_it(client: &mut Client, seed: u64) {
    for (i, bytes) in [5000, 300 << 10, (3 << 20) + 13].into_iter().enumerate() {
        let (seed, range) = (seed + i as u64, HeapRange { offset: 4096 * (i as u64 + 1), bytes });
        let bytes = client.bytes_mut(range).iter_mut().enumerate();
        let sum = bytes.map(|(i, byte)| {
            *byte = pattern(seed, i as u64);
            u64::from(*byte)
        });
        let sum: u64 = sum.sum();
        client.announce(range);
        assert_eq!(client.sum(range), sum, "client to worker, {range:?}");
        client.call(FILL, &words(&[range.offset, range.bytes, seed + 1]));
        let wrong = client.bytes(range).iter().enumerate().find(|(i, b)| **b != pattern(seed + 1, *i as u64));
        assert_eq!(wrong, None, "worker to client, {range:?}");
    }
    let bodies = |i: u64| vec![(seed + i) as u8; 8 * (i as usize % 40)];
    let first = client.sequence + 1;
    for i in 0..500 {
        client.start(0x101, &bodies(i));
    }
    for i in 0..500 {
        let (header, body) = client.reply();
        assert_eq!((header.sequence, body), (first + i, bodies(i)));
    }
}

/// Where they begin nobody knows what they will do: they are put together.
#[test]
fn sessions_that_become_busy_get_apart() {
    // Where other tests have the cores engines have little to do for so long.
    const WITHIN: Duration = Duration::from_secs(120);
    /// Whatever becomes of the test, those who are busy end.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    for transport in CARRIED {
        let server = Oriond::start(&[]);
        let attach = |lanes| {
            let tuning = Tuning { lanes, ..Tuning::default() };
            Client::try_attach(&server, transport, &hello(), tuning).expect("attaching")
        };
        let mut idle = attach(0);
        let busy: Vec<Client> = [0, 0, 2].map(attach).into();
        let enough = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for mut client in busy {
                let enough = &enough;
                scope.spawn(move || {
                    for seed in 0.. {
                        use_it(&mut client, seed);
                        if enough.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            let _ends = Ends(&enough);
            let begun = Instant::now();
            let is_move = |line: &str| ["session moves", "from=0", "to=1"].iter().all(|word| line.contains(word));
            while !server.log().lines().any(is_move) {
                assert!(begun.elapsed() < WITHIN, "no session has moved: {}", server.log());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(moves(&server, idle.welcome.session), Vec::<String>::new(), "an idle session moved");
        use_it(&mut idle, 1);
    }
}

/// Where each engine hands one of its sessions to another again and again, idle or not.
#[cfg(debug_assertions)]
mod at_random {
    use super::*;
    use crate::death::{carried_with_key, join, stream_frame};

    fn start(interval_us: &str) -> Oriond {
        Oriond::start_in(&[("ORION_SOFT_MOVES_US", interval_us)], &["--engines", "3", "--warm", "2"])
    }

    fn wait_for_moves(server: &Oriond, session: u64, count: usize) {
        let before = moves(server, session).len();
        wait_until("a session to have moved", || moves(server, session).len() >= before + count);
    }

    #[test]
    fn everything_arrives_whole_and_in_order() {
        for transport in CARRIED {
            let server = start("2000");
            std::thread::scope(|scope| {
                for lanes in [0, 1, 3] {
                    let server = &server;
                    scope.spawn(move || {
                        let tuning = Tuning { lanes, ..Tuning::default() };
                        let mut client = Client::try_attach(server, transport, &hello(), tuning).expect("attaching");
                        for seed in 0..15 {
                            use_it(&mut client, seed);
                            // Long enough to be parked.
                            std::thread::sleep(Duration::from_millis(seed % 3 * 20));
                        }
                        assert!(moves(server, client.welcome.session).len() > 10, "it has not moved");
                    });
                }
            });
        }
    }

    #[test]
    fn events_come_and_full_rings_go_on() {
        for transport in CARRIED {
            let server = start("2000");
            let mut client = Client::attach(&server, transport);
            let session = client.welcome.session;
            // The event ring holds a third of them.
            let sequence = client.start(EVENTS, &words(&[3000, 1000]));
            wait_for_moves(&server, session, 5);
            for i in 0..3000 {
                let (header, body) = client.event();
                assert_eq!((header.sequence, body), (i, vec![0x55; 1000]));
            }
            assert_eq!(client.reply().0.sequence, sequence);
            // Until it has slept the worker takes no commands, and then its replies are not read.
            client.start(STALL, &words(&[400]));
            let first = client.sequence + 1;
            for i in 0..1500 {
                client.start(0x101, &[i as u8; 1000]);
            }
            wait_for_moves(&server, session, 5);
            client.reply();
            for i in 0..1500 {
                let (header, body) = client.reply();
                assert_eq!((header.sequence, body), (first + i, vec![i as u8; 1000]));
            }
        }
    }

    #[test]
    fn a_barrier_stays_closed_until_its_bytes_have_come() {
        let server = start("2000");
        let (mut stream, welcome, key) = carried_with_key(&server);
        let mut lane = join(&server, welcome.session, &key, 0).expect("joining");
        let record = Header { size: HEADER_BYTES as u32, op: 0x101, thread: 0, context: 0, sequence: 1 }.encode();
        for round in 1..=5 {
            let mut counts = [0; 64];
            counts[..8].copy_from_slice(&(round * 64_u64).to_le_bytes());
            stream.write_all(&stream_frame(Frame::Barrier, 0, &counts)).expect("sending");
            stream.write_all(&stream_frame(Frame::Command, 0, &record)).expect("sending");
            wait_for_moves(&server, welcome.session, 5);
            stream.set_nonblocking(true).expect("a socket option");
            let early = stream.read(&mut [0; 1]).map_err(|e| e.kind());
            assert_eq!(early, Err(std::io::ErrorKind::WouldBlock), "the command overtook what came before it");
            stream.set_nonblocking(false).expect("a socket option");
            lane.write_all(&stream_frame(Frame::Chunk, 0, &[7; 64])).expect("sending");
            let mut reply = stream_frame(Frame::Reply, 0, &record);
            let expected = reply.clone();
            reply.fill(0);
            stream.read_exact(&mut reply).expect("a reply");
            assert_eq!(reply, expected);
        }
    }

    #[test]
    fn whoever_dies_meanwhile_ends_the_session_once() {
        for transport in CARRIED {
            // So often that they are on their way for much of the time.
            let server = start("100");
            let mut bystander = Client::attach(&server, transport);
            let idle = server.descriptors_at_rest();
            for round in 0..24 {
                let mut client = Client::attach(&server, transport);
                let worker = client.welcome.worker_pid;
                assert_eq!(client.call(0x101, &[round; 8]), [round; 8]);
                std::thread::sleep(Duration::from_micros(u64::from(round) * 777 % 5000));
                match round % 3 {
                    // A worker, at work; a client, with replies on their way; a client that does nothing.
                    0 => {
                        client.start(DIE, &[]);
                        assert!(client.reply_or_lost().is_none());
                    }
                    1 => {
                        for _ in 0..200 {
                            client.start(0x101, &[round; 1000]);
                        }
                    }
                    _ => {}
                }
                drop(client);
                wait_until("the worker's end", || !is_alive(worker));
                assert_eq!(bystander.call(0x101, &[round; 8]), [round; 8]);
            }
            wait_until("every descriptor to be closed", || server.descriptors() <= idle);
            let ends = || server.log().lines().filter(|l| l.contains("session ends")).count();
            wait_until("a line about each session's end", || ends() >= 24);
            assert_eq!(ends(), 24);
        }
    }
}
