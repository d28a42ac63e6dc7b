//! Runs kernels: clusters of a grid on a few host threads, blocks of a cluster and warps of a block in turn.

pub mod cluster;
pub mod fast;
pub mod float;
pub mod lanes;
pub mod matrix;
pub mod mbarrier;
pub mod memory;
pub mod narrow;
pub mod ops;
pub mod texture;
pub mod video;
pub mod warp;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Instant;

use crate::ptx::isa::{Program, RESERVED_SHARED};
use crate::vram;
use cluster::{Cluster, Peers};
use lanes::Lanes;
use warp::Warp;

/// Two partitions of the size that compute capability 9.0 asks for.
pub const SM_COUNT: u32 = 16;
pub const BARRIERS: usize = 16;

/// Warp instructions a block runs before its host thread looks for another one. Long enough that ordinary blocks end
/// in their first turn; a block that spins on another block gives way after it, and does so sooner where blocks are
/// meant to wait for each other.
const BLOCK_TURN: i64 = 200_000;
const COOPERATIVE_TURN: i64 = 20_000;
const WARP_TURN: i64 = 8192;
/// Blocks of an ordinary grid that may be begun and unfinished at once.
const RESIDENT_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    IllegalAddress,
    Misaligned,
    Trap,
    Assert,
    Unsupported,
    Deadlock,
}

/// Why a kernel stopped. Becomes the context's sticky error.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub what: String,
    pub line: u32,
}

impl Fault {
    pub fn new(kind: FaultKind, what: &str) -> Self {
        Self { kind, what: what.to_string(), line: 0 }
    }
}

/// One kernel launch, shared by the threads that run its blocks.
pub struct Launch {
    pub id: u64,
    pub program: Arc<Program>,
    pub func: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Blocks of a cluster, which divide the grid.
    pub cluster: [u32; 3],
    pub explicit_cluster: bool,
    pub params: Vec<u8>,
    pub static_shared: u32,
    pub dynamic_shared: u32,
    /// Offset of dynamic shared memory.
    pub dynamic_base: u32,
    pub cooperative: bool,
    /// Address of the grid barrier cooperative groups use; zero for ordinary launches.
    pub workspace: u64,
    pub device: i32,
    pub context: u64,
    pub start: Start,
}

/// Where the threads of a launch begin, and with what: behind what they all compute alike.
#[derive(Default)]
pub struct Start {
    pub pc: u32,
    pub r32: Vec<Lanes<u32>>,
    pub r64: Vec<Lanes<u64>>,
    /// Rows that a thread may read before it writes them, and finds zero.
    pub cleared32: Vec<u32>,
    pub cleared64: Vec<u32>,
}

impl Launch {
    /// Computes for all threads what they compute alike. What cannot be computed each finds for itself.
    fn prepare(&mut self) {
        let f = &self.program.funcs[self.func as usize];
        let (entry, prologue) = (f.entry, f.prologue);
        let (cleared32, cleared64) = self.program.read_first(self.func).clone();
        let (r32, r64) = (vec![Lanes::default(); f.rows32 as usize], vec![Lanes::default(); f.rows64 as usize]);
        self.start = Start { pc: entry, r32, r64, cleared32, cleared64 };
        if prologue == 0 {
            return;
        }
        let mut warp = Warp::new(0, self);
        let program = self.program.clone();
        let (mut bars, mut arrived, mut live) = ([Barrier::default(); BARRIERS], false, 0);
        let mut env = Env {
            launch: self,
            program: &program,
            shared: &mut [],
            ctaid: [0; 3],
            block_index: 0,
            bars: &mut bars,
            bar_arrived: &mut arrived,
            live_threads: &mut live,
            peers: Peers::none(),
        };
        let frame = warp::Frame { func: self.func, ..warp::Frame::default() };
        for ins in &program.code[entry as usize..(entry + prologue) as usize] {
            if warp.data(ins, u32::MAX, &frame, &mut env).is_err() {
                return;
            }
        }
        let Warp { r32, r64, .. } = warp;
        (self.start.pc, self.start.r32, self.start.r64) = (entry + prologue, r32, r64);
    }

    pub fn threads(&self) -> u32 {
        self.block[0] * self.block[1] * self.block[2]
    }
    pub fn blocks(&self) -> u64 {
        u64::from(self.grid[0]) * u64::from(self.grid[1]) * u64::from(self.grid[2])
    }
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster[0] * self.cluster[1] * self.cluster[2]
    }
    fn clusters(&self) -> u64 {
        self.blocks() / u64::from(self.cluster_blocks())
    }
    fn turn(&self) -> i64 {
        if self.cooperative || self.cluster_blocks() > 1 { COOPERATIVE_TURN } else { BLOCK_TURN }
    }
}

#[derive(Clone, Copy, Default)]
pub struct Barrier {
    pub arrived: u32,
    /// Threads the barrier waits for; zero for all of the block.
    pub expected: u32,
    pub popc: u32,
}

/// What a warp sees of its block.
pub struct Env<'a> {
    pub launch: &'a Launch,
    pub program: &'a Program,
    pub shared: &'a mut [u8],
    pub ctaid: [u32; 3],
    pub block_index: u64,
    pub bars: &'a mut [Barrier; BARRIERS],
    pub bar_arrived: &'a mut bool,
    pub live_threads: &'a mut u32,
    pub peers: Peers<'a>,
}

/// Why a block stopped running.
enum Pause {
    Ended,
    Yielded,
    /// Every thread waits at a barrier.
    Stuck,
}

struct Block {
    index: u64,
    ctaid: [u32; 3],
    shared: Vec<u8>,
    warps: Vec<Warp>,
    bars: [Barrier; BARRIERS],
    /// Some thread has arrived at a barrier since the block began.
    has_arrived: bool,
    live_threads: u32,
}

impl Block {
    fn new(l: &Launch, ctaid: [u32; 3]) -> Self {
        let threads = l.threads();
        let warps = (0..threads.div_ceil(32)).map(|w| Warp::new(w, l)).collect();
        let bars = [Barrier::default(); BARRIERS];
        let mut block = Self { index: 0, ctaid, shared: Vec::new(), warps, bars, has_arrived: false, live_threads: 0 };
        block.place(l, ctaid);
        block
    }

    /// Another block of the same launch in the memory of this one, which has ended.
    fn begin(&mut self, l: &Launch, ctaid: [u32; 3]) {
        for w in &mut self.warps {
            w.begin(l);
        }
        if std::mem::take(&mut self.has_arrived) {
            self.bars = [Barrier::default(); BARRIERS];
        }
        self.place(l, ctaid);
    }

    fn place(&mut self, l: &Launch, ctaid: [u32; 3]) {
        let [x, y, z] = ctaid.map(u64::from);
        self.index = x + u64::from(l.grid[0]) * (y + u64::from(l.grid[1]) * z);
        self.ctaid = ctaid;
        self.live_threads = l.threads();
        self.shared.clear();
        self.shared.resize(((l.dynamic_base + l.dynamic_shared).next_multiple_of(16) + RESERVED_SHARED) as usize, 0);
    }

    /// Runs up to `turn` warp instructions.
    fn run(&mut self, l: &Launch, mut peers: Peers, mut turn: i64, abort: &AtomicBool) -> Result<Pause, Fault> {
        loop {
            let mut ran = false;
            for w in 0..self.warps.len() {
                if self.warps[w].runnable == 0 {
                    continue;
                }
                ran = true;
                let mut arrived = false;
                let mut budget = WARP_TURN;
                let live_before = self.live_threads;
                let mut env = Env {
                    launch: l,
                    program: &l.program,
                    shared: &mut self.shared,
                    ctaid: self.ctaid,
                    block_index: self.index,
                    bars: &mut self.bars,
                    bar_arrived: &mut arrived,
                    live_threads: &mut self.live_threads,
                    peers: peers.reborrow(),
                };
                self.warps[w].run(&mut env, &mut budget)?;
                turn -= WARP_TURN - budget;
                self.has_arrived |= arrived;
                if self.has_arrived && (arrived || self.live_threads != live_before) {
                    self.release_barriers(&l.program);
                }
                if abort.load(Ordering::Relaxed) {
                    return Ok(Pause::Ended);
                }
            }
            if self.live_threads == 0 {
                return Ok(Pause::Ended);
            }
            if !ran && !self.release_stuck(&l.program) {
                return Ok(Pause::Stuck);
            }
            if turn <= 0 {
                return Ok(Pause::Yielded);
            }
        }
    }

    fn release_barriers(&mut self, program: &Program) {
        for id in 0..BARRIERS {
            let b = self.bars[id];
            let expected = if b.expected == 0 { self.live_threads } else { b.expected };
            if b.arrived > 0 && b.arrived >= expected {
                self.release(id, program);
            }
        }
    }

    /// All live threads wait: a barrier whose count can no longer be met by arrivals of part warps lets go.
    fn release_stuck(&mut self, program: &Program) -> bool {
        for id in 0..BARRIERS {
            let waiting: u32 = self
                .warps
                .iter()
                .map(|w| lanes::lanes(w.barred).filter(|&k| usize::from(w.bar[k]) == id).count() as u32)
                .sum();
            if waiting > 0 && waiting == self.live_threads {
                self.release(id, program);
                return true;
            }
        }
        false
    }

    fn release(&mut self, id: usize, program: &Program) {
        let b = std::mem::take(&mut self.bars[id]);
        for w in &mut self.warps {
            w.release_barrier(id as u8, b.arrived, b.popc, program);
        }
    }
}

/// A grid in progress.
struct Job {
    launch: Launch,
    next: AtomicU64,
    begun: Mutex<VecDeque<Cluster>>,
    /// As many as are in `begun`, give or take one that is on its way.
    begun_count: AtomicUsize,
    /// Clusters not yet finished.
    left: AtomicU64,
    abort: AtomicBool,
    fault: Mutex<Option<Fault>>,
    done: Mutex<bool>,
    finished: Condvar,
}

impl Job {
    /// A cluster to go on with, or one that begins, in the memory of one that has ended if there is any.
    fn take(&self, ended: &mut Option<Cluster>) -> Option<Cluster> {
        let total = self.launch.clusters();
        let blocks = self.begun_count.load(Ordering::Relaxed) * self.launch.cluster_blocks() as usize;
        let start_new = self.launch.cooperative || blocks < RESIDENT_MAX;
        if start_new {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index < total {
                return Some(match ended.take() {
                    Some(mut cluster) => {
                        cluster.begin(&self.launch, index);
                        cluster
                    }
                    None => Cluster::new(&self.launch, index),
                });
            }
        }
        let cluster = self.begun.lock().ok()?.pop_front();
        if cluster.is_some() {
            self.begun_count.fetch_sub(1, Ordering::Relaxed);
        }
        cluster
    }

    /// Runs clusters until none can be taken.
    fn work(&self) {
        let turn = self.launch.turn();
        let mut ended = None;
        let mut finished = 0;
        while let Some(mut cluster) = self.take(&mut ended) {
            let outcome = if self.abort.load(Ordering::Relaxed) {
                Ok(true)
            } else {
                cluster.run(&self.launch, turn, &self.abort)
            };
            match outcome {
                Ok(false) => {
                    self.begun_count.fetch_add(1, Ordering::Relaxed);
                    if let Ok(mut begun) = self.begun.lock() {
                        begun.push_back(cluster);
                    }
                    continue;
                }
                Ok(true) => ended = Some(cluster),
                Err(fault) => {
                    self.abort.store(true, Ordering::Relaxed);
                    if let Ok(mut f) = self.fault.lock() {
                        f.get_or_insert(fault);
                    }
                }
            }
            finished += 1;
        }
        // Whoever is told that it was the last sees what all of them wrote: each Release pairs with its Acquire.
        if finished > 0
            && self.left.fetch_sub(finished, Ordering::AcqRel) == finished
            && let Ok(mut done) = self.done.lock()
        {
            *done = true;
            self.finished.notify_all();
        }
    }
}

/// Threads that help with grids of more than one cluster.
struct Pool {
    queue: Mutex<VecDeque<Arc<Job>>>,
    wake: Condvar,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let pool: &'static Pool = Box::leak(Box::new(Pool { queue: Mutex::default(), wake: Condvar::new() }));
        let helpers = std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1)).clamp(1, 15);
        for n in 0..helpers {
            let helper = move || {
                loop {
                    let Ok(mut q) = pool.queue.lock() else { return };
                    let job = loop {
                        if let Some(job) = q.pop_front() {
                            break job;
                        }
                        match pool.wake.wait(q) {
                            Ok(guard) => q = guard,
                            Err(_) => return,
                        }
                    };
                    drop(q);
                    job.work();
                }
            };
            // Without helpers the stream's own thread runs every block.
            let _ = std::thread::Builder::new().name(format!("soft-block-{n}")).spawn(helper);
        }
        pool
    })
}

/// Runs a grid to its end on this thread and the pool's.
pub fn run(mut launch: Launch) -> Result<(), Fault> {
    let clusters = launch.clusters();
    if clusters == 0 {
        return Ok(());
    }
    launch.prepare();
    let job = Arc::new(Job {
        launch,
        next: AtomicU64::new(0),
        begun: Mutex::default(),
        begun_count: AtomicUsize::new(0),
        left: AtomicU64::new(clusters),
        abort: AtomicBool::new(false),
        fault: Mutex::new(None),
        done: Mutex::new(false),
        finished: Condvar::new(),
    });
    if clusters > 1 {
        let pool = pool();
        if let Ok(mut q) = pool.queue.lock() {
            let copies = (clusters - 1).min(15);
            for _ in 0..copies {
                q.push_back(job.clone());
            }
        }
        pool.wake.notify_all();
    }
    job.work();
    // Another thread may hold the last cluster; it may also put it back for us to finish.
    while let Ok(done) = job.done.lock() {
        if *done {
            break;
        }
        let wait = std::time::Duration::from_millis(1);
        let Ok((done, _)) = job.finished.wait_timeout(done, wait) else { break };
        let finished = *done;
        drop(done);
        if finished {
            break;
        }
        job.work();
    }
    let fault = job.fault.lock().ok().and_then(|mut f| f.take());
    fault.map_or(Ok(()), Err)
}

pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Device-side `malloc`. Zero when the device is out of memory, as the C function answers.
pub fn heap_allocate(l: &Launch, bytes: u64) -> u64 {
    crate::device::charge(l.device, bytes.max(1).next_multiple_of(512))
        .and_then(|()| vram::allocate(bytes, vram::Kind::Internal, l.device, l.context))
        .map_or(0, |r| r.base)
}

pub fn heap_free(l: &Launch, at: u64) {
    if let Some(r) = vram::find(at).filter(|r| r.kind == vram::Kind::Internal && r.base == at) {
        crate::device::refund(l.device, r.reach);
        vram::free(at);
    }
}
