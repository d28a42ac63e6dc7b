//! One session of the load generator: several threads that replay a recorded call stream.

// UNSAFETY: calls the library's C functions with buffers that live as long as the session.

use std::ffi::c_void;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use orion_cuda::sys::*;

use crate::gpu::{Gpu, ok, open};
use crate::report::{Better, Sample};
use crate::stream::{Local, Op, Stream};
use crate::task::{Replay, Through, wait_for_start};
use crate::timing::Times;
use crate::workload::raw::{Caller, Client};

/// One in so many posts is timed: reading the clock twice costs as much as a post.
const POSTS_PER_TIMED: u64 = 16;

/// What a thread does its calls with.
trait Driver {
    fn call(&mut self, op: Op) -> Result<(), String>;
}

#[derive(Default)]
struct Tally {
    answers: Option<Times>,
    posts: Option<Times>,
    calls: u64,
    steps: u64,
}

/// Samples `answer` and `post` with their histograms; the details hold the counts.
pub fn run(replay: &Replay) -> Result<Vec<Sample>, String> {
    let stream = Stream::named(&replay.stream)?;
    match &replay.through {
        Through::Library(library) => {
            let gpu = Gpu::new(open(library)?)?;
            spread(replay, &stream, |_| Session::new(gpu, &stream))
        }
        Through::Records { server } => {
            let client = Client::attach(server)?;
            spread(replay, &stream, |slot| Ok(Records { caller: client.caller(slot) }))
        }
    }
}

/// Sets up every thread, waits for the start, and adds up what they did.
fn spread<D: Driver>(
    replay: &Replay,
    stream: &Stream,
    driver: impl Fn(usize) -> Result<D, String> + Sync,
) -> Result<Vec<Sample>, String> {
    let (set_up, started) = (Barrier::new(replay.threads + 1), Barrier::new(replay.threads + 1));
    let mut total = Tally { answers: Some(Times::new()), posts: Some(Times::new()), ..Tally::default() };
    let (mut elapsed, mut cpu_ns) = (Duration::ZERO, 0);
    std::thread::scope(|scope| {
        let one = |slot| {
            let (set_up, started, driver) = (&set_up, &started, &driver);
            scope.spawn(move || {
                let ready = driver(slot).and_then(|mut d| replay_once(stream, &mut d, 0.0, None).map(|_| d));
                set_up.wait();
                started.wait();
                drive(stream, &mut ready?, replay)
            })
        };
        let threads: Vec<_> = (0..replay.threads).map(one).collect();
        set_up.wait();
        let told = wait_for_start();
        let (begin, before) = (Instant::now(), own_cpu_ns());
        started.wait();
        for thread in threads {
            let tally = thread.join().map_err(|_| "a thread of the load generator panicked")??;
            total.calls += tally.calls;
            total.steps += tally.steps;
            for (sum, times) in [(&mut total.answers, tally.answers), (&mut total.posts, tally.posts)] {
                if let (Some(sum), Some(times)) = (sum.as_mut(), times) {
                    sum.add(&times);
                }
            }
        }
        elapsed = begin.elapsed();
        cpu_ns = own_cpu_ns() - before;
        told
    })?;
    let calls = total.calls as f64;
    let answers = Sample::of_times("answer", "us", &total.answers.take().unwrap_or_else(Times::new));
    let posts = Sample::of_times("post", "ns", &total.posts.take().unwrap_or_else(Times::new));
    let rate = Sample::new("calls", "per s", Better::Higher, calls / elapsed.as_secs_f64());
    let details = rate.detail("calls", calls).detail("steps", total.steps as f64).detail("cpu_ns", cpu_ns as f64);
    Ok(vec![details, answers, posts])
}

/// Replays until the time is over. A step is cut short then: with many threads on few cores one step takes long.
fn drive(stream: &Stream, driver: &mut impl Driver, replay: &Replay) -> Result<Tally, String> {
    let mut tally = Tally { answers: Some(Times::new()), posts: Some(Times::new()), ..Tally::default() };
    let end = Instant::now() + Duration::from_secs_f64(replay.seconds);
    while Instant::now() < end {
        replay_once(stream, driver, replay.think, Some((&mut tally, end)))?;
    }
    // What lies in the ring has not been carried out yet, and must not count as done in this time.
    driver.call(Op::Sync)?;
    Ok(tally)
}

fn replay_once(
    stream: &Stream,
    driver: &mut impl Driver,
    think: f64,
    mut tally: Option<(&mut Tally, Instant)>,
) -> Result<(), String> {
    for run in &stream.runs {
        for _ in 0..run.count {
            match (run.op, &mut tally) {
                (Op::Think(time), _) => busy(time.mul_f64(think)),
                (Op::Local(_), _) | (_, None) => driver.call(run.op)?,
                (op, Some((tally, _))) => timed(op, driver, tally)?,
            }
        }
        if tally.as_ref().is_some_and(|(_, end)| Instant::now() >= *end) {
            return Ok(());
        }
    }
    if let Some((tally, _)) = tally {
        tally.steps += 1;
    }
    Ok(())
}

fn timed(op: Op, driver: &mut impl Driver, tally: &mut Tally) -> Result<(), String> {
    tally.calls += 1;
    let answered = matches!(op, Op::Call | Op::Sync | Op::ToHost { .. });
    let times = if answered { &mut tally.answers } else { &mut tally.posts };
    match times.as_mut().filter(|_| answered || tally.calls.is_multiple_of(POSTS_PER_TIMED)) {
        Some(times) => {
            let start = Instant::now();
            driver.call(op)?;
            times.record(start.elapsed());
            Ok(())
        }
        None => driver.call(op),
    }
}

/// Thinking is work of the application: it keeps its core.
fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A thread with a stream and buffers of its own.
struct Session {
    gpu: Gpu,
    stream: CUstream,
    functions: [(usize, CUfunction); 4],
    parameters: Vec<u64>,
    device: CUdeviceptr,
    pageable: Vec<u8>,
    pinned: *mut c_void,
}

impl Session {
    fn new(gpu: Gpu, stream: &Stream) -> Result<Session, String> {
        ok!(gpu.cu, cuCtxSetCurrent(gpu.context));
        let most = |wanted: fn(&Op) -> usize| stream.runs.iter().map(|run| wanted(&run.op)).max().unwrap_or(0);
        let on_device = most(|op| match op {
            Op::Set { bytes } | Op::ToDevice { bytes, .. } | Op::ToHost { bytes, .. } => *bytes,
            Op::Copy { bytes } => 2 * *bytes,
            _ => 0,
        });
        let host = |wanted: bool| {
            stream.runs.iter().map(move |run| match run.op {
                Op::ToDevice { pinned, bytes } | Op::ToHost { pinned, bytes } if pinned == wanted => bytes,
                _ => 0,
            })
        };
        let pinned = host(true).max().unwrap_or(0);
        Ok(Session {
            stream: gpu.stream()?,
            functions: [
                (16, gpu.function("bytes16")?),
                (64, gpu.function("bytes64")?),
                (256, gpu.function("bytes256")?),
                (1024, gpu.function("bytes1024")?),
            ],
            parameters: vec![7; 128],
            device: gpu.alloc(on_device.max(8))?,
            pageable: vec![7; host(false).max().unwrap_or(0)],
            pinned: if pinned > 0 { gpu.pinned(pinned)? } else { std::ptr::null_mut() },
            gpu,
        })
    }

    fn host(&mut self, pinned: bool) -> *mut c_void {
        if pinned { self.pinned } else { self.pageable.as_mut_ptr().cast() }
    }

    fn local(&self, what: Local) -> Result<(), String> {
        let (cu, device) = (self.gpu.cu, self.gpu.device);
        let (mut number, mut flags, mut active) = (0, 0, 0);
        let (mut context, mut capturing) = (std::ptr::null_mut(), CU_STREAM_CAPTURE_STATUS_NONE);
        match what {
            Local::Device => ok!(cu, cuCtxGetDevice(&mut number)),
            Local::State => ok!(cu, cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)),
            Local::Context => ok!(cu, cuCtxGetCurrent(&mut context)),
            Local::Attribute => {
                ok!(cu, cuDeviceGetAttribute(&mut number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
            }
            Local::Capturing => ok!(cu, cuStreamIsCapturing(self.stream, &mut capturing)),
        }
        Ok(())
    }
}

impl Driver for Session {
    fn call(&mut self, op: Op) -> Result<(), String> {
        let (cu, stream, device) = (self.gpu.cu, self.stream, self.device);
        match op {
            Op::Launch { bytes } => {
                let wide = self.functions.iter().find(|(room, _)| *room >= bytes).unwrap_or(&self.functions[3]);
                let mut pointers = [self.parameters.as_mut_ptr().cast()];
                return self.gpu.launch(wide.1, stream, &mut pointers);
            }
            Op::Local(what) => return self.local(what),
            Op::Call => return self.gpu.ask(),
            Op::Sync => return self.gpu.synchronize(stream),
            Op::Set { bytes } => ok!(cu, cuMemsetD8Async(device, 0, bytes, stream)),
            Op::Copy { bytes } => ok!(cu, cuMemcpyDtoDAsync_v2(device + bytes as u64, device, bytes, stream)),
            Op::ToDevice { pinned, bytes } => {
                let from = self.host(pinned);
                ok!(cu, cuMemcpyHtoDAsync_v2(device, from, bytes, stream));
            }
            Op::ToHost { pinned, bytes } => {
                let to = self.host(pinned);
                ok!(cu, cuMemcpyDtoHAsync_v2(to, device, bytes, stream));
                return self.gpu.synchronize(stream);
            }
            Op::Think(_) => {}
        }
        Ok(())
    }
}

struct Records<'a> {
    caller: Caller<'a>,
}

/// Words of a launch record besides the parameters.
const LAUNCH_BYTES: usize = 56;

impl Driver for Records<'_> {
    fn call(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Launch { bytes } => self.caller.post(LAUNCH_BYTES + bytes),
            Op::Set { .. } | Op::Copy { .. } => self.caller.post(40),
            Op::Call | Op::Sync => self.caller.call(&[]),
            Op::ToDevice { pinned, bytes } => self.caller.to_device(pinned, bytes),
            Op::ToHost { pinned, bytes } => self.caller.to_host(pinned, bytes),
            // No record exists for what the shim answers.
            Op::Local(_) | Op::Think(_) => Ok(()),
        }
    }
}

/// CPU time of this process, all threads.
fn own_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
