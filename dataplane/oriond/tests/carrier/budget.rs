//! What one session may cost oriond, and what the others notice of it: nothing.

// UNSAFETY: fills a C struct of integers and pointers.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orion_cuda::sys::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_MEMCPY3D, CUDA_SUCCESS,
};
use orion_transport::stream::Frame;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::callback::{CallbackDone, LaunchHostFunc};
use orion_wire::message::calls;
use orion_wire::message::capture::{StreamBeginCapture, StreamEndCapture};
use orion_wire::message::copy::{CopyBox, CopyInInline, CopyOutInline};
use orion_wire::message::field::{Bytes, CallbackId, Existing, List, New, Size};
use orion_wire::message::graph::GraphDestroy;
use orion_wire::message::memory::MemAlloc;
use orion_wire::message::stream::StreamMark;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, op};

use crate::death::{carried_with_key, join, stream_frame};
use crate::harness::{self, Client, FILL, Oriond, Transport, body, non_blocking, wait_until, words};

/// A command that has the worker announce a range, unchanged.
fn announcement(sequence: u64, offset: u64, bytes: u64) -> Vec<u8> {
    let body = words(&[offset, bytes, 0]);
    let size = (HEADER_BYTES + body.len()) as u32;
    let mut record = Header { size, op: FILL, thread: 0, context: 0, sequence }.encode().to_vec();
    record.extend(body);
    stream_frame(Frame::Command, 0, &record)
}

/// A session that asks for more and more and reads none of it, as long as oriond takes its commands; meanwhile another
/// one asks for answers. How long nearly all of those took: a loaded machine holds up anybody now and then.
fn greedy(server: &Oriond, stream: &mut TcpStream, ranges: impl Iterator<Item = (u64, u64)> + Send) -> Duration {
    let mut witness = Client::attach(server, Transport::Tcp);
    let (sent, over, mut answers) = (AtomicBool::new(false), AtomicBool::new(false), Vec::new());
    stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a socket option");
    std::thread::scope(|scope| {
        let mut reader = stream.try_clone().expect("another descriptor");
        let (sent, over) = (&sent, &over);
        scope.spawn(move || {
            // Replies and barriers are read, so that they are not what holds the session up.
            reader.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket option");
            let mut bytes = vec![0; 1 << 20];
            loop {
                match reader.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                    // It has come to a halt, or to its end.
                    Err(_) if sent.load(Ordering::Relaxed) => break,
                    Err(_) => {}
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            for (i, (offset, bytes)) in ranges.enumerate() {
                if stream.write_all(&announcement(i as u64 + 1, offset, bytes)).is_err() {
                    break;
                }
            }
            sent.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            assert_eq!(witness.call(0x101, &[6; 8]), [6; 8]);
            answers.push(asked.elapsed());
        }
    });
    answers.sort();
    answers[answers.len() * 98 / 100]
}

#[test]
fn a_lane_that_nobody_reads_makes_its_own_session_wait() {
    let server = Oriond::start(&["--engines", "1"]);
    let (mut stream, welcome, key) = carried_with_key(&server);
    let lane = join(&server, welcome.session, &key, 0).expect("joining");
    let before = server.memory().1;
    let answer = greedy(&server, &mut stream, std::iter::repeat_n((0, 1 << 30), 40_000));
    let grown = server.memory().1.saturating_sub(before) >> 10;
    assert!(grown < 100, "oriond grew by {grown} MiB");
    assert!(answer < Duration::from_millis(100), "answers to somebody else took {answer:?}");
    drop((lane, stream));
    wait_until("the worker's end", || !crate::harness::is_alive(welcome.worker_pid));
}

#[test]
fn a_lane_is_joined_once_and_ends_with_its_session() {
    let server = Oriond::start(&["--engines", "3"]);
    let _bystander = Client::attach(&server, Transport::Tcp);
    wait_until("the lanes of the bystander, and another warm worker", || {
        server.log().matches("worker warm").count() >= 2
    });
    let idle = server.descriptors_at_rest();
    for _ in 0..20 {
        let (stream, welcome, key) = carried_with_key(&server);
        let (inside, server, key) = (Mutex::new(Vec::new()), &server, &key);
        std::thread::scope(|scope| {
            for lane in (0..8).flat_map(|_| [0, 1, 7, 8]) {
                let inside = &inside;
                scope.spawn(move || {
                    let joined = join(server, welcome.session, key, lane);
                    inside.lock().unwrap().extend(joined);
                });
            }
        });
        let inside = inside.into_inner().unwrap();
        assert!(inside.len() <= 3, "{} lanes", inside.len());
        drop(stream);
        for mut lane in inside {
            let mut rest = [0; 16];
            lane.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket option");
            assert_eq!(lane.read(&mut rest).unwrap_or(0), 0, "a lane outlived its session");
        }
        wait_until("the worker's end", || !crate::harness::is_alive(welcome.worker_pid));
    }
    wait_until("every descriptor to be closed", || server.descriptors() <= idle + 2);
}

const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;

/// A session on the software GPU, with a stream and some memory.
fn on_a_gpu(server: &Oriond, transport: Transport) -> (Client, u64) {
    let mut client = Client::attach(server, transport);
    client.context = Handle::primary_context(0).0;
    let made = client.ask(calls::cuStreamCreateWithPriority::OP, &body(&non_blocking(STREAM))).0;
    assert_eq!(made, CUDA_SUCCESS);
    let (code, reply) = client.ask(MemAlloc::OP, &body(&harness::memory(1 << 20)));
    assert_eq!(code, CUDA_SUCCESS);
    (client, Reader::new(&reply).word().expect("an address"))
}

/// MiB that are resident and nobody else's: not of the rings and the heap.
fn own_memory(pid: u32) -> u64 {
    own_memory_if_any(pid).expect("the worker runs")
}

fn own_memory_if_any(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(anonymous.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10)
}

/// Small copies behind a host function that does not end, all asked for before any can be answered.
#[test]
fn answers_that_nobody_reads_make_their_own_session_wait() {
    const COPIES: u64 = 12_000;
    let server = Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]);
    let (mut client, memory) = on_a_gpu(&server, Transport::Shm);
    let before = own_memory(client.welcome.worker_pid);
    let function = LaunchHostFunc { stream: Existing(STREAM), function: CallbackId(1), kept: true };
    assert_eq!(client.ask(LaunchHostFunc::OP, &body(&function)).0, CUDA_SUCCESS);
    let asked = client.event().0;
    assert_eq!(asked.op, op::RUN_CALLBACK);
    for _ in 0..COPIES {
        let from = ClaimedDevice::new(memory);
        client
            .start(CopyOutInline::OP, &body(&CopyOutInline { from, bytes: Size(128 << 10), stream: Existing(STREAM) }));
    }
    client.post(CallbackDone::OP, &body(&CallbackDone { round: asked.context }));
    for _ in 0..COPIES / 2 {
        assert_eq!(client.reply().0.context as u32, CUDA_SUCCESS);
    }
    let grown = own_memory(client.welcome.worker_pid).saturating_sub(before);
    for _ in 0..COPIES / 2 {
        assert_eq!(client.reply().0.context as u32, CUDA_SUCCESS);
    }
    assert!(grown < 200, "the worker grew by {grown} MiB");
}

/// More than a client has that keeps the rules, of a stream that comes no further, of none that there is, and posted.
#[test]
fn marks_without_end_are_answered_and_cost_their_own_session_only() {
    const MARKS: u64 = 12_000;
    let server = Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]);
    for transport in [Transport::Shm, Transport::Tcp] {
        let (mut client, _) = on_a_gpu(&server, transport);
        let mut witness = Client::attach(&server, transport);
        let before = own_memory(client.welcome.worker_pid);
        let function = LaunchHostFunc { stream: Existing(STREAM), function: CallbackId(1), kept: true };
        assert_eq!(client.ask(LaunchHostFunc::OP, &body(&function)).0, CUDA_SUCCESS);
        let asked = client.event().0;
        assert_eq!(asked.op, op::RUN_CALLBACK);
        let nowhere = body(&StreamMark { stream: Existing(STREAM + 1) });
        assert_eq!(client.ask(StreamMark::OP, &nowhere).0, CUDA_ERROR_INVALID_HANDLE);
        let mark = body(&StreamMark { stream: Existing(STREAM) });
        client.post(StreamMark::OP, &mark);
        (0..MARKS).for_each(|_| _ = client.start(StreamMark::OP, &mark));
        let last = client.start(op::PING, &[]);
        let mut early = 0;
        loop {
            let (header, _) = client.reply();
            assert_eq!(header.context as u32, CUDA_SUCCESS);
            if header.sequence == last {
                break;
            }
            early += 1;
        }
        assert!(early > 0 && early < MARKS, "{early} of {MARKS} before the function has returned, {transport:?}");
        witness.call(op::PING, &[]);
        let grown = own_memory(client.welcome.worker_pid).saturating_sub(before);
        assert!(grown < 20, "the worker grew by {grown} MiB");
        client.post(CallbackDone::OP, &body(&CallbackDone { round: asked.context }));
        for _ in early..MARKS {
            assert_eq!(client.reply().0.context as u32, CUDA_SUCCESS);
        }
        client.call(op::PING, &[]);
    }
}

/// As much as goes in a record.
fn small_copy(to: u64) -> CopyInInline<'static> {
    CopyInInline { to: ClaimedDevice::new(to), stream: Existing(STREAM), bytes: Bytes::from(&[7; 64 << 10][..]) }
}

#[test]
fn what_a_captured_copy_read_goes_with_its_graph() {
    let server = Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]);
    let (mut client, memory) = on_a_gpu(&server, Transport::Shm);
    let worker = client.welcome.worker_pid;
    let copy = body(&small_copy(memory));
    let mut round = |generation: u32| {
        let graph = Handle::new(Kind::Graph, generation, 0).0;
        let begin = StreamBeginCapture { stream: Existing(STREAM), mode: CU_STREAM_CAPTURE_MODE_RELAXED };
        assert_eq!(client.ask(StreamBeginCapture::OP, &body(&begin)).0, CUDA_SUCCESS);
        for _ in 0..300 {
            assert_eq!(client.ask(op::COPY_IN_INLINE, &copy).0, CUDA_SUCCESS);
        }
        let end = StreamEndCapture { stream: Existing(STREAM), name: New(graph), set_aside: List::default() };
        assert_eq!(client.ask(StreamEndCapture::OP, &body(&end)).0, CUDA_SUCCESS);
        assert_eq!(client.ask(GraphDestroy::OP, &body(&GraphDestroy { graph: Existing(graph) })).0, CUDA_SUCCESS);
    };
    (0..2).for_each(&mut round);
    let before = own_memory(worker);
    (2..12).for_each(&mut round);
    let grown = own_memory(worker).saturating_sub(before);
    assert!(grown < 60, "the worker grew by {grown} MiB");
}

/// A copy of as many rows of a byte, with gaps of one, to the heap; its answer, and whether the rows and nothing else
/// arrived.
fn copy_rows(client: &mut Client, memory: u64, rows: usize) -> (u32, bool) {
    let range = HeapRange { offset: 80 << 20, bytes: 2 * rows as u64 };
    client.bytes_mut(range).fill(0xaa);
    client.announce(range);
    let to = client.bytes(range).as_ptr();
    // SAFETY: a struct of integers and pointers, for which zero is a value.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.WidthInBytes, d.Height, d.Depth) = (1, rows, 1);
    (d.srcMemoryType, d.srcDevice, d.srcPitch) = (CU_MEMORYTYPE_DEVICE, memory, 2);
    (d.dstMemoryType, d.dstHost, d.dstPitch) = (CU_MEMORYTYPE_HOST, to.cast_mut().cast(), 2);
    let code = client.ask(CopyBox::OP, &body(&CopyBox { stream: Existing(STREAM), copy: harness::told(&d) })).0;
    client.ask(ops::CU_CTX_SYNCHRONIZE, &[]);
    (code, client.bytes(range).chunks(2).all(|row| row == [0x11, 0xaa]))
}

/// Over TCP each row goes over by itself.
#[test]
fn rows_with_gaps_to_a_client_elsewhere_have_a_bound_and_beyond_it_a_reason() {
    const ROWS_MAX: usize = 1 << 20;
    let server = Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]);
    for &transport in Transport::ALL {
        let (mut client, _) = on_a_gpu(&server, transport);
        let bytes = 2 * ROWS_MAX as u64 + 2;
        let (code, reply) = client.ask(MemAlloc::OP, &body(&harness::memory(bytes)));
        assert_eq!(code, CUDA_SUCCESS);
        let memory = Reader::new(&reply).word().expect("an address");
        let (dstDevice, N) = (ClaimedDevice::new(memory), bytes as usize);
        let fill = calls::cuMemsetD8Async { dstDevice, uc: 0x11, N, hStream: STREAM };
        assert_eq!(client.ask(calls::cuMemsetD8Async::OP, &body(&fill)).0, CUDA_SUCCESS);
        assert_eq!(copy_rows(&mut client, memory, ROWS_MAX), (CUDA_SUCCESS, true), "{transport:?}");
        let more = copy_rows(&mut client, memory, ROWS_MAX + 1);
        match client.carrier.pages().must_bring() {
            false => assert_eq!(more, (CUDA_SUCCESS, true)),
            true => {
                assert_eq!(more, (CUDA_ERROR_NOT_SUPPORTED, false));
                assert!(client.logged.contains("a copy of 1048577 rows with gaps"), "{:?}", client.logged);
            }
        }
    }
}

/// Things that a client may make without end, each of which is right by itself.
#[test]
fn a_session_whose_worker_has_taken_too_much_host_memory_ends_and_no_other() {
    let arguments = ["--driver", "soft", "--heap", "256 MiB", "--host-memory", "64 MiB", "--warm", "2"];
    let server = Oriond::start_in(&[("ORION_SOFT_MEMORY_MIB", "16")], &arguments);
    for &transport in Transport::ALL {
        let (mut witness, _) = on_a_gpu(&server, transport);
        let (mut client, memory) = on_a_gpu(&server, transport);
        let worker = client.welcome.worker_pid;
        let begin = StreamBeginCapture { stream: Existing(STREAM), mode: CU_STREAM_CAPTURE_MODE_RELAXED };
        assert_eq!(client.ask(StreamBeginCapture::OP, &body(&begin)).0, CUDA_SUCCESS);
        let copy = body(&small_copy(memory));
        let mut most = 0;
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < Duration::from_secs(20), "the session lives, with {most} MiB");
            client.start(op::COPY_IN_INLINE, &copy);
            if client.reply_or_lost().is_none() {
                break;
            }
            most = most.max(own_memory_if_any(worker).unwrap_or(0));
        }
        server.wait_for_log(&["WARN", &format!("worker={worker} "), "MiB of host memory", "may have 64 MiB"]);
        assert!(most < 400, "the worker had {most} MiB");
        assert_eq!(witness.ask(ops::CU_CTX_SYNCHRONIZE, &[]).0, CUDA_SUCCESS);
    }
}
