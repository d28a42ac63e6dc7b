//! A main connection that goes from one engine to another, step by step.

// UNSAFETY: reads the heap by address.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use orion_ring::memory::{Layout, Which};
use orion_ring::{Consumer, Heap, Memory, Producer};
use orion_transport::stream::{Frame, STREAM_HEADER_BYTES, StreamHeader};
use orion_wire::record::{HEADER_BYTES, Header};

use super::*;

/// The slots that it had kicked.
#[derive(Default)]
struct Kicks(Mutex<Vec<u32>>);

impl Kick for Kicks {
    fn kick(&self, slot: u32) {
        self.0.lock().expect("nothing panics under this lock").push(slot);
    }
}

struct Engine {
    io: Io,
    slot: u32,
    kicks: Arc<Kicks>,
}

impl Engine {
    fn new(slot: u32) -> Engine {
        Engine { io: Io::new().expect("an io_uring"), slot, kicks: Arc::default() }
    }

    fn begins(&mut self, main: &mut Carried) {
        main.begin(&mut self.io, self.slot, self.kicks.clone());
    }

    /// What has completed goes to the session.
    fn turn(&mut self, main: &mut Carried) {
        self.io.turn();
        let mut done = Vec::new();
        self.io.drain(&mut done);
        for done in done {
            assert_eq!(done.slot, self.slot);
            main.done(&mut self.io, self.slot, done);
        }
    }

    fn pumps(&mut self, main: &mut Carried) {
        for _ in 0..20 {
            self.turn(main);
            main.pump(&mut self.io, self.slot);
        }
    }

    /// Until it may go, or has ended.
    fn sees_off(&mut self, main: &mut Carried) {
        for _ in 0..1000 {
            self.turn(main);
            assert!(!main.pump(&mut self.io, self.slot), "it goes on while it leaves");
            if main.may_go() || main.is_finished() {
                return;
            }
        }
        panic!("{} requests are still under way", main.worker.under_way);
    }
}

/// A session, and both of whom it is between. The engines go first, and with them what is under way.
struct Scene {
    here: Engine,
    there: Engine,
    main: Box<Carried>,
    client: UnixStream,
    attach: UnixStream,
    commands: Consumer,
    replies: Producer,
    heap: Heap,
}

impl Scene {
    fn new() -> Scene {
        let memory = Memory::create(Layout { heap_bytes: 4 << 20 }).expect("memory");
        let commands = memory.consumer(Which::Command).expect("a ring");
        let replies = memory.producer(Which::Reply).expect("a ring");
        let shared = Shared::new(1, memory, std::sync::mpsc::channel().0, true).expect("its heap");
        let (client, own) = UnixStream::pair().expect("sockets");
        let (attach, of_worker) = UnixStream::pair().expect("sockets");
        let heap = shared.heap;
        let connection = Connection { socket: own.into(), secured: None };
        let main = Carried::new(connection, of_worker.into(), Arc::new(shared)).expect("its rings");
        let (here, there) = (Engine::new(3), Engine::new(9));
        let mut scene = Scene { here, there, main, client, attach, commands, replies, heap };
        scene.here.begins(&mut scene.main);
        scene.here.pumps(&mut scene.main);
        assert!(scene.main.park(&mut scene.here.io, 3));
        scene.here.turn(&mut scene.main);
        scene
    }

    fn leaves(&mut self) {
        assert!(self.main.leave(&mut self.here.io, 3));
        self.here.sees_off(&mut self.main);
    }

    fn goes_on(&mut self) {
        self.there.begins(&mut self.main);
        self.there.pumps(&mut self.main);
    }

    fn received(&mut self) -> Vec<u8> {
        let mut all = vec![0; self.commands.ready().expect("positions") as usize];
        self.commands.copy(0, &mut all);
        self.commands.consume(all.len());
        all
    }
}

fn frame(frame: Frame, offset: u64, body: &[u8]) -> Vec<u8> {
    let mut out = StreamHeader { frame, len: body.len() as u32, offset }.encode().to_vec();
    out.extend_from_slice(body);
    out
}

/// A reply, as a worker writes it.
fn record(sequence: u64) -> Vec<u8> {
    let size = HEADER_BYTES + 968;
    let header = Header { size: size as u32, op: 0x101, thread: 0, context: 0, sequence };
    [&header.encode()[..], &[sequence as u8; 968]].concat()
}

#[test]
fn it_takes_everything_back_and_goes_on_elsewhere() {
    let mut scene = Scene::new();
    scene.leaves();
    assert!(scene.main.may_go() && !scene.main.is_finished());
    scene.goes_on();
    scene.client.write_all(&frame(Frame::Command, 0, &[5; 64])).expect("sending");
    scene.there.pumps(&mut scene.main);
    assert_eq!(scene.received(), [5; 64]);
    assert!(scene.replies.push(&[&record(6)]).expect("positions"));
    scene.there.pumps(&mut scene.main);
    let expected = frame(Frame::Reply, 0, &record(6));
    // A beat came with the move: what was said before, once more.
    let mut got = vec![0; STREAM_HEADER_BYTES + expected.len()];
    scene.client.read_exact(&mut got).expect("a beat and a reply");
    assert_eq!(got[STREAM_HEADER_BYTES..], expected);
}

/// The kernel has received them, and nobody has looked yet.
#[test]
fn bytes_that_come_beside_the_cancellation_are_kept() {
    let body: Vec<u8> = (0..640).map(|i| i as u8).collect();
    let whole = frame(Frame::Command, 0, &body);
    for cut in [1, STREAM_HEADER_BYTES, 100, whole.len()] {
        let mut scene = Scene::new();
        scene.client.write_all(&whole[..cut]).expect("sending");
        scene.here.io.turn();
        scene.leaves();
        assert_eq!(scene.main.unread, 0..cut);
        scene.client.write_all(&whole[cut..]).expect("sending");
        scene.goes_on();
        assert_eq!(scene.received(), body, "cut at {cut}");
    }
}

#[test]
fn bytes_that_come_into_the_heap_beside_the_cancellation_are_counted() {
    let mut scene = Scene::new();
    let body: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    let whole = frame(Frame::Heap, 4096, &body);
    scene.client.write_all(&whole[..1000]).expect("sending");
    scene.here.pumps(&mut scene.main);
    assert!(scene.main.receiving == Receiving::InPlace, "the rest would go through a buffer");
    scene.client.write_all(&whole[1000..50_000]).expect("sending");
    scene.here.io.turn();
    scene.leaves();
    scene.client.write_all(&whole[50_000..]).expect("sending");
    scene.client.write_all(&frame(Frame::Command, 0, &[1; 8])).expect("sending");
    scene.goes_on();
    assert_eq!(scene.received(), [1; 8]);
    let at = scene.heap.at(4096, body.len() as u64).expect("inside the heap");
    // SAFETY: nobody writes there any more.
    assert!(unsafe { std::slice::from_raw_parts(at, body.len()) } == body);
}

#[test]
fn what_is_being_sent_goes_first() {
    let mut scene = Scene::new();
    let mut pushed = Vec::new();
    for sequence in 1.. {
        let next = record(sequence);
        if !scene.replies.push(&[&next]).expect("positions") {
            break;
        }
        pushed.extend(next);
    }
    scene.here.pumps(&mut scene.main);
    assert!(scene.main.worker.is_sending(), "the socket takes all that the ring holds");
    assert!(!scene.main.leave(&mut scene.here.io, 3), "it left with a send under way");
    scene.client.set_nonblocking(true).expect("a socket option");
    let (mut got, mut bytes, mut left) = (Vec::new(), vec![0; 64 << 10], false);
    for _ in 0..10_000 {
        scene.here.turn(&mut scene.main);
        left = scene.main.leave(&mut scene.here.io, 3);
        if left {
            break;
        }
        let n = scene.client.read(&mut bytes).unwrap_or(0);
        got.extend_from_slice(&bytes[..n]);
    }
    assert!(left, "it was read, and yet it does not leave");
    scene.here.sees_off(&mut scene.main);
    scene.goes_on();
    while let Ok(n @ 1..) = scene.client.read(&mut bytes) {
        got.extend_from_slice(&bytes[..n]);
        scene.there.pumps(&mut scene.main);
    }
    assert!(replies(&got) == pushed);
}

/// What a stream brings for the reply ring.
fn replies(mut stream: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((header, rest)) = stream.split_first_chunk::<STREAM_HEADER_BYTES>() {
        let header = StreamHeader::decode(header, 4 << 20).expect("a frame");
        let len = if header.frame == Frame::Taken { 0 } else { header.len as usize };
        all.extend_from_slice(&rest[..len]);
        stream = &rest[len..];
    }
    all
}

#[test]
fn it_is_kicked_where_it_is() {
    let mut scene = Scene::new();
    let shared = scene.main.shared.clone();
    let kicks = |engine: &Engine| engine.kicks.0.lock().expect("nothing panics under this lock").clone();
    scene.leaves();
    // On its way: nobody hears, and whoever gets it looks.
    shared.kick_main();
    assert_eq!(kicks(&scene.here), [3]);
    scene.goes_on();
    shared.end();
    assert_eq!((kicks(&scene.here), kicks(&scene.there)), (vec![3], vec![9]));
}

#[test]
fn whoever_dies_while_it_leaves_ends_it_there() {
    for client_dies in [true, false] {
        let mut scene = Scene::new();
        let (client, attach) = (scene.client, scene.attach);
        let kept = if client_dies {
            drop(client);
            attach
        } else {
            drop(attach);
            client
        };
        scene.here.io.turn();
        assert!(scene.main.leave(&mut scene.here.io, 3));
        scene.here.sees_off(&mut scene.main);
        assert!(scene.main.is_finished() && !scene.main.may_go());
        drop(kept);
    }
}

#[test]
fn whoever_dies_while_it_is_on_its_way_ends_it_where_it_comes_to() {
    for who in ["the client", "the worker", "a lane"] {
        let mut scene = Scene::new();
        scene.leaves();
        match who {
            "the client" => scene.client.shutdown(std::net::Shutdown::Both),
            "the worker" => scene.attach.shutdown(std::net::Shutdown::Both),
            _ => {
                scene.main.shared.end();
                Ok(())
            }
        }
        .expect("shutting down");
        assert!(!scene.main.is_finished());
        scene.there.begins(&mut scene.main);
        for _ in 0..1000 {
            scene.there.turn(&mut scene.main);
            scene.main.pump(&mut scene.there.io, 9);
        }
        assert!(scene.main.is_finished(), "{who}");
    }
}
