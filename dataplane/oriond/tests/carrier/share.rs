//! Sessions that take turns on the software GPU. It computes on the machine's cores, which others use too, so the
//! bounds here are wide; how exactly shares are kept is what `orion-arbiter` is tested for, and `perf/suite/shares.py`
//! measures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orion_cuda::sys::{CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_WAIT_VALUE_EQ, CUDA_SUCCESS};
use orion_wire::Reader;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::callback::{CallbackDone, LaunchHostFunc};
use orion_wire::message::calls;
use orion_wire::message::capture::{StreamBeginCapture, StreamEndCapture};
use orion_wire::message::field::{CallbackId, Existing, List, New};
use orion_wire::message::graph_exec::{GraphInstantiateWithFlags, GraphLaunch};
use orion_wire::message::memory::MemAlloc;
use orion_wire::message::stream::StreamSynchronize;

use crate::harness::{Client, Oriond, Transport, body, holds, measured, memory, non_blocking, wait_until};
use crate::lease::Node;
use crate::program::{FOREVER, Program, SOFT, STREAM, WORK, count_for, part_of};

const WAITING: u64 = Handle::new(Kind::Stream, 0, 1).0;
const GRAPH: u64 = Handle::new(Kind::Graph, 0, 0).0;
const GRAPH_EXEC: u64 = Handle::new(Kind::GraphExec, 0, 0).0;
const EVENT: u64 = Handle::new(Kind::Event, 0, 0).0;

#[test]
fn sessions_have_their_shares_of_a_gpus_time() {
    let node = Node::start_with("share", &[&SOFT[..], &["--warm", "2"]].concat());
    node.belong();
    let mut programs = [75, 25].map(|ratio| {
        let mut lease = node.lease(ratio as u8);
        lease.vgpus.truncate(1);
        lease.vgpus[0].ratio = ratio;
        let signed = node.key().sign(&lease);
        let client = node.attach(Transport::Shm, Some(signed)).unwrap_or_else(|(_, why)| panic!("{why}"));
        Program::with(client)
    });
    let (is_over, done) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    measured(|| {
        is_over.store(false, Ordering::Relaxed);
        let counts = std::thread::scope(|scope| {
            for (program, done) in programs.iter_mut().zip(&done) {
                let is_over = &is_over;
                scope.spawn(move || program.work_until(is_over, done));
            }
            count_for(&[&done[0], &done[1]], Duration::from_secs(3), &is_over)
        });
        let part = counts[0] as f64 / (counts[0] + counts[1]) as f64;
        holds((0.62..0.88).contains(&part), || format!("{counts:?}: {part:.2}"))
    });
    drop(programs);
    node.oriond.wait_for_log(&["the session's part of the GPU's time", "share=75"]);
}

/// Each GPU of a session has turns of its own: who works on another GPU than his neighbour has that to himself.
#[test]
fn sessions_with_two_gpus_wait_for_each_of_them_by_itself() {
    let arguments = [&SOFT[..], &["--vgpus", "2", "--memory-limit", "256 MiB", "--share", "50"]].concat();
    let server = Oriond::start_in(&[("ORION_SOFT_DEVICES", "2")], &arguments);
    let mut programs = [0, 1].map(|vgpu| Program::on(vgpu, Client::attach(&server, Transport::Shm)));
    let (is_over, done) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let counts = std::thread::scope(|scope| {
        for (program, done) in programs.iter_mut().zip(&done) {
            let is_over = &is_over;
            scope.spawn(move || program.work_until(is_over, done));
        }
        count_for(&[&done[0], &done[1]], Duration::from_millis(1500), &is_over)
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    drop(programs);
    for (session, gpu, works) in [(1, 0, true), (1, 1, false), (2, 0, false), (2, 1, true)] {
        let words = format!("session={session} gpu={gpu} share=50 used_ms=");
        server.wait_for_log(&["the session's part of the GPU's time", &words]);
        let log = server.log();
        let rest = log.split(&words).nth(1).expect("it was waited for");
        let used_ms: u64 = rest.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
        assert!(if works { used_ms > 1000 } else { used_ms == 0 }, "{words}{used_ms}");
    }
}

#[test]
fn a_hard_cap_keeps_a_session_to_its_share_though_it_is_alone() {
    let free = Oriond::start(&SOFT);
    let capped = Oriond::start(&[&SOFT[..], &["--share", "25", "--throttle-level", "0"]].concat());
    let lent = Oriond::start(&[&SOFT[..], &["--share", "25"]].concat());
    let mut programs = [&free, &capped, &lent].map(Program::attach);
    measured(|| {
        let [free, capped, lent] = [0, 1, 2].map(|i: usize| programs[i].rate(Duration::from_millis(1500)));
        let is_capped = (capped as f64) < 0.4 * free as f64 && capped > 0;
        let is_lent = lent as f64 > 0.6 * free as f64;
        holds(is_capped && is_lent, || format!("{capped} with a cap and {lent} without, of {free}"))
    });
}

/// What a session's work waits for in these tests.
#[derive(Debug, Clone, Copy, PartialEq)]
enum WaitsFor {
    /// A host function of its own stream.
    Function,
    /// An event behind a host function.
    Event,
    /// A host function of the graph that it belongs to.
    FunctionOfGraph,
    /// A value in memory.
    Value,
}

/// While work of the session waits for its host the GPU does nothing for it: the session is not charged, what it has in
/// another stream goes on at the rate of its share, and afterwards it owes nothing.
#[test]
fn what_waits_for_a_host_function_is_not_charged() {
    is_not_charged(&[WaitsFor::Function, WaitsFor::Event]);
}

#[test]
fn a_graph_that_waits_for_its_host_function_is_not_charged() {
    is_not_charged(&[WaitsFor::FunctionOfGraph]);
}

#[test]
fn what_waits_for_a_value_in_memory_is_not_charged() {
    is_not_charged(&[WaitsFor::Value]);
}

fn is_not_charged(all: &[WaitsFor]) {
    let server = Oriond::start(&[&SOFT[..], &["--share", "40", "--throttle-level", "0", "--warm", "2"]].concat());
    let time = Duration::from_millis(1500);
    let rate = Program::attach(&server).rate(time);
    let mut program = Program::attach(&server);
    program.done(calls::cuStreamCreateWithPriority::OP, &body(&non_blocking(WAITING)));
    program.done(calls::cuEventCreate::OP, &body(&calls::cuEventCreate { phEvent: EVENT, Flags: 0 }));
    let (code, reply) = program.0.ask(MemAlloc::OP, &body(&memory(4096)));
    let addr = Reader::new(&reply).word().expect("an address");
    assert_eq!(code, CUDA_SUCCESS);
    let function = |stream, kept| body(&LaunchHostFunc { stream: Existing(stream), function: CallbackId(1), kept });
    if all.contains(&WaitsFor::FunctionOfGraph) {
        let begin = StreamBeginCapture { stream: Existing(WAITING), mode: CU_STREAM_CAPTURE_MODE_RELAXED };
        program.done(StreamBeginCapture::OP, &body(&begin));
        program.launch_on(WAITING, WORK);
        program.done(LaunchHostFunc::OP, &function(WAITING, true));
        program.launch_on(WAITING, WORK);
        let end = StreamEndCapture { stream: Existing(WAITING), name: New(GRAPH), set_aside: List::default() };
        program.done(StreamEndCapture::OP, &body(&end));
        let (exec, graph) = (New(GRAPH_EXEC), Existing(GRAPH));
        let made = GraphInstantiateWithFlags { exec, graph, flags: 0, some_set_aside: false };
        program.done(GraphInstantiateWithFlags::OP, &body(&made));
    }
    let mut values = 0;
    for waits_for in all {
        measured(|| {
            let round = program.begin_to_wait(*waits_for, addr, &mut values, &function);
            if *waits_for != WaitsFor::Event {
                measured(|| {
                    let beside = program.rate(time);
                    holds(beside * 2 > rate, || format!("{beside} beside {waits_for:?}, {rate} without"))
                });
            } else {
                std::thread::sleep(time);
            }
            match round {
                Some(round) => program.0.post(CallbackDone::OP, &body(&CallbackDone { round })),
                None => {
                    let write = calls::cuStreamWriteValue32_v2 {
                        stream: STREAM,
                        addr: ClaimedDevice::new(addr),
                        value: values,
                        flags: 0,
                    };
                    program.done(calls::cuStreamWriteValue32_v2::OP, &body(&write));
                }
            }
            let begun = Instant::now();
            let synchronize = |stream| body(&StreamSynchronize { stream: Existing(stream) });
            program.done(StreamSynchronize::OP, &synchronize(WAITING));
            program.launch(WORK);
            program.done(StreamSynchronize::OP, &synchronize(STREAM));
            let took = begun.elapsed();
            holds(took < time / 2, || format!("{took:?} after {waits_for:?}"))
        });
    }
}

impl Program {
    /// Answers the round of the host function that is waited for.
    fn begin_to_wait(
        &mut self,
        waits_for: WaitsFor,
        addr: u64,
        values: &mut u32,
        function: &impl Fn(u64, bool) -> Vec<u8>,
    ) -> Option<u64> {
        match waits_for {
            WaitsFor::FunctionOfGraph => {
                let launch = GraphLaunch { exec: Existing(GRAPH_EXEC), stream: Existing(WAITING), is_awaited: false };
                self.0.post(GraphLaunch::OP, &body(&launch));
                return Some(self.0.event().0.context);
            }
            WaitsFor::Value => {
                *values += 1;
                self.launch_on(WAITING, WORK);
                let flags = CU_STREAM_WAIT_VALUE_EQ;
                let wait = calls::cuStreamWaitValue32_v2 {
                    stream: WAITING,
                    addr: ClaimedDevice::new(addr),
                    value: *values,
                    flags,
                };
                self.done(calls::cuStreamWaitValue32_v2::OP, &body(&wait));
                self.launch_on(WAITING, WORK);
                return None;
            }
            WaitsFor::Function | WaitsFor::Event => {}
        }
        let at = if waits_for == WaitsFor::Event { STREAM } else { WAITING };
        self.launch_on(WAITING, WORK);
        self.done(LaunchHostFunc::OP, &function(at, false));
        let (asked, _) = self.0.event();
        if waits_for == WaitsFor::Event {
            let record = calls::cuEventRecord { hEvent: EVENT, hStream: STREAM };
            self.done(calls::cuEventRecord::OP, &body(&record));
            let wait = calls::cuStreamWaitEvent { hStream: WAITING, hEvent: EVENT, Flags: 0 };
            self.done(calls::cuStreamWaitEvent::OP, &body(&wait));
        }
        self.launch_on(WAITING, WORK);
        Some(asked.context)
    }
}

#[test]
fn whoever_holds_the_gpu_and_is_killed_does_not_keep_it() {
    measured(|| {
        let server = Oriond::start(&[&SOFT[..], &["--share", "50", "--warm", "2"]].concat());
        let (mut first, mut other) = (Program::attach(&server), Program::attach(&server));
        for _ in 0..3 {
            (0..50).for_each(|_| first.launch(WORK));
            first.0.start(StreamSynchronize::OP, &body(&StreamSynchronize { stream: Existing(STREAM) }));
        }
        other.launch(WORK);
        other.synchronize();
        // SAFETY: a worker of this test's own oriond.
        unsafe { libc::kill(first.0.welcome.worker_pid as i32, libc::SIGKILL) };
        let begun = Instant::now();
        other.launch(WORK);
        other.synchronize();
        let took = begun.elapsed();
        wait_until("the end of the session", || first.0.is_lost());
        server.wait_for_log(&["the session's part of the GPU's time", "session=1 "]);
        holds(took < Duration::from_secs(2), || format!("{took:?}"))
    });
}

/// By the arbiter's own stamps, but for what its thread came late itself: a wait has three of its looks at most, at the
/// turn's end, when the holder is passed by, and when the next one has begun. How late the survivor's worker got a core
/// is in them too, so on a busy machine it is asked again: who does not pass a dead holder by fails each time.
#[test]
fn the_next_lease_comes_within_20_ms_of_a_holder_that_is_killed() {
    measured(|| {
        let (waited, late, line) = wait_beside_holders_that_are_killed();
        println!("{line}");
        holds(waited <= 20 + 3 * late, || line)
    });
}

/// How long a session has waited at most, by how much its arbiter was late, in milliseconds, and the line that says so.
fn wait_beside_holders_that_are_killed() -> (u64, u64, String) {
    const KILLED: u64 = 20;
    let server = Oriond::start(&[&SOFT[..], &["--share", "50", "--warm", "2"]].concat());
    let mut survivor = Program::attach(&server);
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| survivor.work_until(&is_over, &done));
        for round in 0..KILLED {
            let mut victim = Program::attach(&server);
            (0..200).for_each(|_| victim.launch(WORK));
            // Somewhere in one of its turns, or in one of the other's.
            std::thread::sleep(Duration::from_millis(15 + round % 11));
            // SAFETY: a worker of this test's own oriond.
            unsafe { libc::kill(victim.0.welcome.worker_pid as i32, libc::SIGKILL) };
            wait_until("the end of the session", || victim.0.is_lost());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(survivor);
    let words = ["the session's part of the GPU's time", "session=1 "];
    server.wait_for_log(&words);
    let log = server.log();
    let line = log.lines().find(|line| words.iter().all(|word| line.contains(word))).expect("it was waited for");
    let [waited, late, leases] = ["waited_for_others_ms_max=", "arbiter_late_ms_max=", "leases="].map(|name| {
        let number = line.split(name).nth(1).and_then(|rest| rest.split(' ').next());
        number.and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{name} in {line}"))
    });
    // Fewer than one for each where the machine had no time for the victim.
    assert!(leases > KILLED / 4, "{line}");
    (waited, late, line.to_owned())
}

#[test]
fn a_kernel_without_end_keeps_nobody_else_from_the_gpu() {
    for preemption in ["auto", "off"] {
        keeps_nobody_else_from_the_gpu(preemption);
    }
}

fn keeps_nobody_else_from_the_gpu(preemption: &str) {
    let arguments = ["--share", "50", "--warm", "2", "--preemption", preemption];
    let server = Oriond::start(&[&SOFT[..], &arguments].concat());
    let (mut first, mut other) = (Program::attach(&server), Program::attach(&server));
    first.launch(FOREVER);
    let begun = Instant::now();
    for _ in 0..20 {
        other.launch(WORK);
        other.synchronize();
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// A kernel of many turns is off the GPU while others have theirs, and while its session's own limit says so: it ends
/// right, and of the time that it took the session has had no more than its part. How long it takes alone is no
/// measure: on a busy machine it has no core for most of that.
#[test]
fn a_kernel_that_goes_on_after_its_turn_is_taken_off_the_gpu_and_ends_right() {
    const TURNS: u64 = 3_000_000;
    let capped = Oriond::start(&[&SOFT[..], &["--share", "30", "--throttle-level", "0"]].concat());
    let shared = Oriond::start(&[&SOFT[..], &["--share", "50", "--warm", "2"]].concat());
    let held = Program::attach(&capped).count(TURNS);
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut neighbour = Program::attach(&shared);
        let (is_over, done) = (&is_over, &done);
        scope.spawn(move || neighbour.work_until(is_over, done));
        std::thread::sleep(Duration::from_millis(100));
        Program::attach(&shared).count(TURNS);
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 0);
    let [taken_off, used_ms] = part_of(&capped, 1, &["taken_off", "used_ms"])[..] else { unreachable!("two") };
    assert!(taken_off > 5 && used_ms * 2 < held.as_millis() as u64, "{taken_off} times, {used_ms} ms of {held:?}");
    let taken_off = part_of(&shared, 2, &["taken_off"])[0];
    assert!(taken_off > 2, "{taken_off} times");
}

/// A hard cap is kept from session to session: who has run a kernel that does not end and is killed is not let on at
/// once, and who had nothing is.
#[test]
fn a_debt_is_not_shed_by_a_new_session() {
    let arguments = ["--share", "25", "--throttle-level", "0", "--warm", "2", "--preemption", "off"];
    let server = Oriond::start(&[&SOFT[..], &arguments].concat());
    let mut first = Program::attach(&server);
    first.launch(FOREVER);
    std::thread::sleep(Duration::from_millis(1000));
    // From here on it is paid back, whether or not this thread has a core.
    let begun = Instant::now();
    // SAFETY: a worker of this test's own oriond.
    unsafe { libc::kill(first.0.welcome.worker_pid as i32, libc::SIGKILL) };
    server.wait_for_log(&["the session's part of the GPU's time", "session=1 "]);
    let mut again = Program::attach(&server);
    again.launch(WORK);
    again.synchronize();
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
}

/// A switch that only builds with debug assertions have.
#[cfg(debug_assertions)]
#[test]
fn sessions_go_on_when_nobody_divides_the_gpus_time_any_more() {
    let arguments = [&SOFT[..], &["--share", "50", "--warm", "2"]].concat();
    measured(|| {
        let server = Oriond::start_in(&[("ORION_SOFT_ARBITER_STOPS_MS", "500")], &arguments);
        let mut programs = [Program::attach(&server), Program::attach(&server)];
        let (begun, mut longest) = (Instant::now(), Duration::ZERO);
        while begun.elapsed() < Duration::from_secs(2) {
            for program in &mut programs {
                let before = Instant::now();
                program.launch(WORK);
                program.synchronize();
                longest = longest.max(before.elapsed());
            }
        }
        server.wait_for_log(&["nobody divides the time of GPU 0 any more"]);
        holds(longest < Duration::from_secs(2), || format!("{longest:?}"))
    });
}
