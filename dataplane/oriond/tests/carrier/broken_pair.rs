//! A queue pair that ends in error, as it does when its device fails: at each step of a session, at either end. It
//! takes a device: `dataplane/conformance/vm/rdma.sh` has one.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use orion_transport::carrier::rdma::breaking;
use orion_transport::carrier::{self, Listener};
use orion_transport::client::{Server, Tuning};
use orion_wire::address::Place;
use orion_wire::hello::{FRAME_HEADER_BYTES, frame_header, kind};
use orion_wire::record::HeapRange;

use crate::harness::{Client, DIE, FILL, Oriond, STALL, SUM, Transport, hello, new_folder, wait_until, words};

const WITHIN: Duration = Duration::from_secs(11);
/// Longer than any test waits: of this no answer comes.
const STALLED_MS: u64 = 60_000;
/// It takes Soft-RoCE seconds, so it is under way when its queue pair breaks.
const BULK: HeapRange = HeapRange { offset: 0, bytes: 192 << 20 };
const IN_ERROR: &str = "the queue pair is in error";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Client,
    Server,
}

/// A server with a neighbour's session, and what there is of everything while there is nothing else.
struct Scene {
    server: Oriond,
    neighbour: Client,
    /// While there is such a file, the server's queue pairs break, but for the first, the neighbour's.
    breaks: PathBuf,
    /// Queue pairs of this process up to the neighbour's.
    made: usize,
    before: Kept,
}

/// What a session could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    /// The least that were seen in a while.
    descriptors: usize,
    workers: usize,
    /// What the kernel counts of queue pairs, completion queues, protection domains and regions, of both ends.
    verbs: String,
}

impl Kept {
    fn by(server: &Oriond) -> Kept {
        let output = Command::new("/bin/rdma").args(["resource", "show"]).output().expect("rdma of iproute2");
        assert!(output.status.success(), "{output:?}");
        let verbs = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(verbs.contains("qp ") && verbs.contains("mr "), "{verbs}");
        // The log runs a moment ahead: of a worker just logged, a socket or the thread that started it may be there.
        let readings = (0..10).map(|_| {
            pause(10);
            server.descriptors()
        });
        let descriptors = readings.min().expect("ten of them");
        Kept { descriptors, workers: server.workers().len(), verbs }
    }
}

/// The kernel counts one of its own.
fn pairs(verbs: &str) -> usize {
    let count = verbs.split_once(" qp ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    count.expect("rdma counts queue pairs")
}

impl Scene {
    fn new() -> Scene {
        let breaks = new_folder().join("breaks");
        let options = Transport::Rdma.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let environment = [("ORION_SOFT_BREAKS", breaks.to_str().expect("UTF-8"))];
        let server = Oriond::start_in(&environment, &options);
        let mut neighbour = Client::attach(&server, Transport::Rdma);
        let made = breaking::made();
        // What grows once has grown.
        drop(Client::attach(&server, Transport::Rdma));
        assert_eq!(neighbour.call(0x101, &[1; 8]), [1; 8]);
        wait_until("the first session's end, and a worker for the next one", || {
            let log = server.log();
            log.contains("session over, worker ended") && log.matches("worker warm").count() == 3
        });
        let mut before = Kept::by(&server);
        wait_until("the first session to be gone", || {
            before = Kept::by(&server);
            pairs(&before.verbs) == 1 + 2 && before.workers == 2
        });
        Scene { server, neighbour, breaks, made, before }
    }

    fn attach(&self) -> Client {
        let mut client = Client::attach(&self.server, Transport::Rdma);
        assert_eq!(client.call(0x101, &[2; 8]), [2; 8]);
        client
    }

    fn break_it(&self, whose: Whose) {
        match whose {
            Whose::Client => assert!(breaking::all_after(self.made) > 0, "nothing to break"),
            Whose::Server => {
                std::fs::write(&self.breaks, []).expect("writing");
                wait_until("the server to see it", || !self.breaks.exists());
            }
        }
    }

    /// Both ends end in time and with words. Answers the server's.
    fn ends(&self, client: &Client, whose: Whose, since: Instant, step: &str) -> String {
        wait_until("the client to know", || client.is_lost());
        let here = client.carrier.death().expect("it is lost").of("the worker");
        let session = format!("session={} ", client.welcome.session);
        let line =
            |log: &str| log.lines().find(|l| l.contains("session ends") && l.contains(&session)).map(str::to_owned);
        self.server.wait_for_log(&["session ends", &session]);
        let after = since.elapsed();
        let there = line(&self.server.log()).expect("it was just there");
        println!("{step}, the {whose:?}'s: after {} ms; client: {here}; server: {there}", after.as_millis());
        assert!(after < WITHIN, "{step}: after {after:?}");
        let (broken, other) = if whose == Whose::Client { (&here, &there) } else { (&there, &here) };
        assert!(broken.contains(IN_ERROR) && broken.contains("port 1 of rxe0 is up"), "{step}: {broken}");
        let says_why = [IN_ERROR, "has ended or closed the connection", "nothing acknowledged"];
        assert!(says_why.iter().any(|why| other.contains(why)), "{step}: {other}");
        there
    }

    /// Nothing is left of it, and nobody else has noticed.
    fn is_as_before(&mut self, step: &str) {
        assert_eq!(self.neighbour.call(0x101, &[5; 64]), [5; 64], "{step}");
        let range = HeapRange { offset: 4096, bytes: 300_000 };
        self.neighbour.bytes_mut(range).fill(3);
        self.neighbour.announce(range);
        assert_eq!(self.neighbour.sum(range), 900_000, "{step}");
        let mut now = Kept::by(&self.server);
        let since = Instant::now();
        while now != self.before {
            assert!(since.elapsed() < WITHIN, "{step}: {now:?} is left, of {:?} before", self.before);
            now = Kept::by(&self.server);
        }
    }

    /// A step that is the same at either end.
    fn at_either_end(&mut self, step: &str, reach: impl Fn(&mut Client)) {
        self.in_the_middle(step, None, reach);
    }

    /// In which devices read bytes of [`BULK`], which the server's log calls so, and of which some were read and some
    /// not.
    fn in_the_middle(&mut self, step: &str, of: Option<&str>, reach: impl Fn(&mut Client)) {
        for whose in [Whose::Client, Whose::Server] {
            let mut client = self.attach();
            reach(&mut client);
            let since = Instant::now();
            self.break_it(whose);
            let line = self.ends(&client, whose, since, step);
            if let Some(of) = of {
                let after = line.split_once(&format!(" {of}=")).expect("the log says so").1;
                let bytes: u64 = after.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
                assert!(bytes > 0 && bytes < BULK.bytes, "{step}: {line}");
            }
            assert!(client.reply_or_lost().is_none(), "{step}: it was over before anything broke");
            drop(client);
            self.is_as_before(step);
        }
        let log = self.server.log();
        let odd: Vec<&str> = log.lines().filter(|l| l.contains("ERROR") || l.contains("status=signal")).collect();
        assert!(odd.is_empty(), "{step}: {odd:#?}");
    }
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_breaks_while_nothing_is_said_ends_both_ends_of_rdma() {
    Scene::new().at_either_end("idle", |_| pause(300));
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_breaks_in_the_middle_of_a_command_ends_both_ends_of_rdma() {
    Scene::new().at_either_end("in a command", |client| {
        client.start(STALL, &words(&[STALLED_MS]));
        pause(100);
    });
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_breaks_while_bytes_go_to_the_worker_ends_both_ends_of_rdma() {
    Scene::new().in_the_middle("bytes to the worker", Some("read_bytes"), |client| {
        // A page that nobody has written to is not read, from Linux 6.4 on.
        client.bytes_mut(BULK).chunks_mut(4096).for_each(|page| page[0] = 1);
        client.announce(BULK);
        client.start(SUM, &words(&[BULK.offset, BULK.bytes]));
        pause(700);
    });
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_breaks_while_bytes_come_from_the_worker_ends_both_ends_of_rdma() {
    Scene::new().in_the_middle("bytes to the client", Some("shown_bytes"), |client| {
        // Nothing is filled, and all of it announced.
        client.start(FILL, &words(&[BULK.offset, BULK.bytes, 0]));
        pause(700);
    });
}

/// The worker takes nothing, so its ring is full, and then the inbox is.
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_breaks_while_the_inbox_is_full_ends_both_ends_of_rdma() {
    Scene::new().at_either_end("a full inbox", |client| {
        client.start(STALL, &words(&[STALLED_MS]));
        client.post_until_full(0x100, &[7; 4000]);
    });
}

/// Which of the two is seen first is chance; that it is over is not.
#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_breaks_as_its_session_ends_leaves_nothing_of_rdma() {
    let mut scene = Scene::new();
    for (i, whose) in [Whose::Client, Whose::Server, Whose::Server].into_iter().enumerate() {
        for closes_first in [true, false] {
            let mut client = scene.attach();
            let session = format!("session={} ", client.welcome.session);
            let since = Instant::now();
            // The last of them is ended by its worker.
            let close = |client: &mut Client| match i {
                2 => client.post(DIE, &[]),
                _ => client.carrier.close(),
            };
            if closes_first {
                close(&mut client);
            }
            match whose {
                // It may be gone already.
                Whose::Client => drop(breaking::all_after(scene.made)),
                Whose::Server => scene.break_it(whose),
            }
            if !closes_first && !client.is_lost() {
                client.carrier.close();
            }
            scene.server.wait_for_log(&["session ends", &session]);
            wait_until("the client to know", || client.is_lost());
            assert!(since.elapsed() < WITHIN, "after {:?}", since.elapsed());
            drop(client);
            scene.is_as_before(&format!("as it ends, the {whose:?}'s"));
        }
    }
}

/// Carries one handshake, and holds it up once: before the server's frame of this kind comes to the client.
fn hold_up(listener: &TcpListener, server: &str, at: u32, meanwhile: impl FnOnce()) {
    let mut client = listener.accept().expect("a client").0;
    let mut server = TcpStream::connect(server).expect("connecting");
    let (mut from_client, mut to_server) = (client.try_clone().expect("dup"), server.try_clone().expect("dup"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = std::io::copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Write);
        });
        let mut meanwhile = Some(meanwhile);
        let mut header = [0; FRAME_HEADER_BYTES];
        loop {
            // Frame by frame: what follows the handshake is silence, and then the end.
            match server.read_exact(&mut header) {
                Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => break,
                other => other.expect("receiving"),
            }
            let (kind, len) = frame_header(&header).expect("a frame");
            let mut body = vec![0; len];
            server.read_exact(&mut body).expect("receiving");
            if let Some(meanwhile) = meanwhile.take_if(|_| kind == at) {
                meanwhile();
            }
            let _ = client.write_all(&[&header[..], &body].concat());
        }
        let _ = client.shutdown(Shutdown::Both);
        assert!(meanwhile.is_none(), "no frame of kind {at} came");
    });
}

#[test]
#[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"]
fn a_queue_pair_that_breaks_in_the_handshake_ends_both_ends_of_rdma() {
    let mut scene = Scene::new();
    let Place::Host(address) = scene.server.server(Transport::Rdma).place else { panic!("it is a host") };
    // What comes next is the request, the start, where the queue pair is, and commands.
    let steps = [kind::CHALLENGE, kind::WELCOME, kind::STARTED, kind::ENDS].map(|step| (step, Whose::Client));
    for (at, whose) in steps.into_iter().chain([(kind::ENDS, Whose::Server)]) {
        let step = format!("the handshake's frame {at}");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let relay = Server {
            carrier: Transport::Rdma.carrier(),
            place: Place::Host(listener.local_addr().expect("an address").to_string()),
        };
        std::thread::scope(|scope| {
            let (scene, address, listener) = (&scene, &address, &listener);
            scope.spawn(move || hold_up(listener, address, at, || scene.break_it(whose)));
            let since = Instant::now();
            match carrier::attach(&relay, &hello(), Tuning::default(), Listener::NOBODY) {
                Err(no) => {
                    println!("{step}, the {whose:?}'s: {}", no.text);
                    assert!(no.text.contains(IN_ERROR) && no.text.contains("port 1 of rxe0 is up"), "{}", no.text);
                }
                Ok(attached) => {
                    assert_eq!(whose, Whose::Server, "{step}: a session of a queue pair that is in error");
                    wait_until("the client to know", || attached.carrier.death().is_some());
                    println!("{step}: {}", attached.carrier.death().expect("just seen").of("the worker"));
                }
            }
            assert!(since.elapsed() < WITHIN, "{step}: after {:?}", since.elapsed());
        });
        scene.is_as_before(&step);
    }
    let log = scene.server.log();
    assert_eq!(log.matches("session ends").count(), 1 + 5, "{log}");
}
