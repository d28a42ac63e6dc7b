//! A client that gives the software GPU kernels to do, and how many it has done.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orion_cuda::sys::CUDA_SUCCESS;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;
use orion_wire::message::copy::{CopyOutInline, CopyOutInlineReply};
use orion_wire::message::field::{Bytes, Existing, List, New, Size};
use orion_wire::message::image::Payload;
use orion_wire::message::memory::MemAlloc;
use orion_wire::message::module::{ModuleGetFunction, ModuleLoadData};
use orion_wire::message::stream::StreamSynchronize;

use crate::harness::{Client, Oriond, Transport, body, memory, non_blocking, words};

pub const WORK: u64 = Handle::new(Kind::Function, 0, 0).0;
pub const FOREVER: u64 = Handle::new(Kind::Function, 0, 1).0;
pub const BRIEF: u64 = Handle::new(Kind::Function, 0, 2).0;
pub const COUNTS: u64 = Handle::new(Kind::Function, 0, 3).0;
pub const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
pub const SOFT: [&str; 4] = ["--driver", "soft", "--heap", "256 MiB"];

/// A kernel that takes some milliseconds, one that is over at once, one that does not end, and one that stores how far
/// it has counted.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry work()
{
    .reg .pred %more;
    .reg .u32 %left;
    mov.u32 %left, 20000;
TURN:
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra TURN;
    ret;
}
.visible .entry brief()
{
    ret;
}
.visible .entry forever()
{
    .reg .pred %more;
    .reg .u32 %left;
    mov.u32 %left, 1;
TURN:
    add.u32 %left, %left, 2;
    setp.ne.u32 %more, %left, 0;
    @%more bra TURN;
    ret;
}
.visible .entry counts(.param .u64 at, .param .u64 turns)
{
    .reg .pred %more;
    .reg .u64 %at, %turns, %turn;
    ld.param.u64 %at, [at];
    ld.param.u64 %turns, [turns];
    mov.u64 %turn, 0;
TURN:
    add.u64 %turn, %turn, 1;
    setp.lt.u64 %more, %turn, %turns;
    @%more bra TURN;
    st.global.u64 [%at], %turn;
    ret;
}
\0";

/// A client with these kernels and a stream.
pub struct Program(pub Client);

impl Program {
    pub fn with(client: Client) -> Program {
        Program::on(0, client)
    }

    /// On one of the session's vGPUs.
    pub fn on(vgpu: u32, mut client: Client) -> Program {
        client.context = Handle::primary_context(vgpu).0;
        let mut program = Program(client);
        let kernels = [(WORK, c"work"), (FOREVER, c"forever"), (BRIEF, c"brief"), (COUNTS, c"counts")];
        program.load(Handle::new(Kind::Module, 0, 0).0, &kernels);
        program.done(calls::cuStreamCreateWithPriority::OP, &body(&non_blocking(STREAM)));
        program
    }

    pub fn attach(server: &Oriond) -> Program {
        Program::with(Client::attach(server, Transport::Shm))
    }

    /// These kernels, in the current context.
    pub fn load(&mut self, module: u64, kernels: &[(u64, &CStr)]) {
        let image = Payload::Inline(Bytes::from(PTX.as_bytes()));
        let load = ModuleLoadData { module: New(module), image, options: List::default(), owner: c"".into() };
        self.done(ModuleLoadData::OP, &body(&load));
        for (function, name) in kernels {
            let find = ModuleGetFunction { module: Existing(module), function: New(*function), name: (*name).into() };
            self.done(ModuleGetFunction::OP, &body(&find));
        }
    }

    pub fn done(&mut self, op: u16, body: &[u8]) {
        let (code, _) = self.0.ask(op, body);
        assert_eq!(code, CUDA_SUCCESS, "operation {op:#x}");
    }

    pub fn launch(&mut self, function: u64) {
        self.launch_on(STREAM, function);
    }

    pub fn launch_on(&mut self, stream: u64, function: u64) {
        self.0.post(ops::CU_LAUNCH_KERNEL, &words(&[function, 1 << 32 | 1, 1 << 32 | 1, 1 << 32 | 1, 0, stream, 0]));
    }

    pub fn synchronize(&mut self) {
        self.done(StreamSynchronize::OP, &body(&StreamSynchronize { stream: Existing(STREAM) }));
    }

    /// Counts so far on the GPU, in one kernel, and answers how long that took.
    pub fn count(&mut self, turns: u64) -> Duration {
        let (code, reply) = self.0.ask(MemAlloc::OP, &body(&memory(4096)));
        let at = Reader::new(&reply).word().expect("an address");
        assert_eq!(code, CUDA_SUCCESS);
        let begun = Instant::now();
        let launch = [COUNTS, 1 << 32 | 1, 1 << 32 | 1, 1 << 32 | 1, 0, STREAM, 16, at, turns];
        self.0.post(ops::CU_LAUNCH_KERNEL, &words(&launch));
        self.synchronize();
        let took = begun.elapsed();
        let get = CopyOutInline { from: ClaimedDevice::new(at), bytes: Size(8), stream: Existing(STREAM) };
        let (code, reply) = self.0.ask(CopyOutInline::OP, &body(&get));
        let counted = CopyOutInlineReply::decode(&mut Reader::new(&reply)).expect("bytes");
        assert_eq!((code, counted.bytes.get()), (CUDA_SUCCESS, &turns.to_le_bytes()[..]));
        took
    }

    /// Gives the GPU always something to do, and counts what it has done.
    pub fn work_until(&mut self, is_over: &AtomicBool, done: &AtomicU64) {
        self.launch_until(WORK, is_over, done);
    }

    pub fn launch_until(&mut self, kernel: u64, is_over: &AtomicBool, done: &AtomicU64) {
        const BATCH: u64 = 8;
        (0..BATCH).for_each(|_| self.launch(kernel));
        while !is_over.load(Ordering::Relaxed) {
            let waiting = self.0.start(StreamSynchronize::OP, &body(&StreamSynchronize { stream: Existing(STREAM) }));
            (0..BATCH).for_each(|_| self.launch(kernel));
            let (header, _) = self.0.reply();
            assert_eq!((header.sequence, header.context as u32), (waiting, CUDA_SUCCESS));
            done.fetch_add(BATCH, Ordering::Relaxed);
        }
        self.synchronize();
    }

    /// Kernels in so long, after a moment.
    pub fn rate(&mut self, time: Duration) -> u64 {
        let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| self.work_until(&is_over, &done));
            count_for(&[&done], time, &is_over)[0]
        })
    }
}

/// How far each counter comes in so long.
pub fn count_for(counters: &[&AtomicU64], time: Duration, is_over: &AtomicBool) -> Vec<u64> {
    let all = || counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect::<Vec<_>>();
    std::thread::sleep(Duration::from_millis(300));
    let before = all();
    std::thread::sleep(time);
    let after = all();
    is_over.store(true, Ordering::Relaxed);
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

/// What the log says at its end of a session's part of the GPU.
pub fn part_of(server: &Oriond, session: u64, names: &[&str]) -> Vec<u64> {
    part_of_gpu(server, session, None, names)
}

pub fn part_of_gpu(server: &Oriond, session: u64, gpu: Option<u32>, names: &[&str]) -> Vec<u64> {
    let its = gpu.map_or(String::new(), |gpu| format!("gpu={gpu} "));
    let words = ["the session's part of the GPU's time".to_owned(), format!("session={session} {its}")];
    server.wait_for_log(&words.each_ref().map(String::as_str));
    let log = server.log();
    let line = log.lines().find(|line| words.iter().all(|word| line.contains(word))).expect("it was waited for");
    let number = |name: &&str| line.split(&format!(" {name}=")).nth(1)?.split(' ').next()?.parse().ok();
    names.iter().map(|name| number(name).unwrap_or_else(|| panic!("{name} in {line}"))).collect()
}
