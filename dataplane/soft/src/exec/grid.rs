//! Runs kernels: clusters of a grid on a few host threads, blocks of a cluster in turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use crate::exec::block::Pause;
use crate::exec::cluster::CLUSTER_BARRIER;
use crate::exec::fault::{Fault, FaultKind};
use crate::exec::lanes::Lanes;
use crate::exec::state::{BARRIERS, Barrier, Block, Env, Frame, Launch, Lines, Peers, Start, Warp};
use crate::hold;
use crate::ptx::isa::operand::Reg;
use crate::ptx::isa::program::Program;

/// Warp instructions a block runs before its host thread looks for another one. Long enough that ordinary blocks end
/// in their first turn; a block that spins on another block gives way after it, and does so sooner where blocks are
/// meant to wait for each other.
const BLOCK_TURN: i64 = 200_000;
const COOPERATIVE_TURN: i64 = 20_000;

/// Blocks of an ordinary grid that may be begun and unfinished at once.
const RESIDENT_MAX: usize = 64;

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

impl Launch {
    /// Computes for all threads what they compute alike. What cannot be computed each finds for itself.
    fn prepare(&mut self) {
        let f = &self.program.funcs[self.func as usize];
        let (entry, prologue) = (f.entry, f.prologue);
        let (cleared32, cleared64) = self.program.read_first(self.func).clone();
        let (r32, r64) = (vec![Lanes::default(); f.rows32 as usize], vec![Lanes::default(); f.rows64 as usize]);
        self.start = Start { pc: entry, r32, r64, cleared32, cleared64, ..Start::default() };
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
        let frame = Frame { func: self.func, ..Frame::default() };
        for ins in &program.code[entry as usize..(entry + prologue) as usize] {
            if warp.data(ins, u32::MAX, &frame, &mut env).is_err() {
                return;
            }
        }
        let Warp { r32, r64, .. } = warp;
        let written = || program.code[entry as usize..(entry + prologue) as usize].iter().map(|ins| ins.d);
        let rows32 = written().filter_map(|d| if let Reg::R32(i) = d { Some(i) } else { None });
        let rows64 = written().filter_map(|d| if let Reg::R64(i) = d { Some(i) } else { None });
        self.start.level32 = Lines::levels(rows32, |row| r32[row as usize][0]);
        self.start.level64 = Lines::levels(rows64, |row| r64[row as usize][0]);
        (self.start.pc, self.start.r32, self.start.r64) = (entry + prologue, r32, r64);
    }

    fn turn(&self) -> i64 {
        if self.cooperative || self.cluster_blocks() > 1 { COOPERATIVE_TURN } else { BLOCK_TURN }
    }
}

pub struct Cluster {
    blocks: Vec<Block>,
}

impl Cluster {
    pub fn new(l: &Launch, index: u64) -> Self {
        Self { blocks: (0..l.cluster_blocks()).map(|rank| Block::new(l, place_of(l, index, rank))).collect() }
    }

    /// Another cluster of the same launch in the memory of this one, which has ended.
    pub fn begin(&mut self, l: &Launch, index: u64) {
        for (rank, block) in (0..).zip(&mut self.blocks) {
            block.begin(l, place_of(l, index, rank));
        }
    }

    /// Runs each block for a turn; true when every thread has exited.
    pub fn run(&mut self, l: &Launch, turn: i64, abort: &AtomicBool) -> Result<bool, Fault> {
        let (mut ended, mut stuck) = (true, true);
        for rank in 0..self.blocks.len() {
            let (below, rest) = self.blocks.split_at_mut(rank);
            let Some((block, above)) = rest.split_first_mut() else { break };
            match block.run(l, Peers { below, above }, turn, abort)? {
                Pause::Ended => {}
                Pause::Stuck => ended = false,
                Pause::Yielded => (ended, stuck) = (false, false),
            }
        }
        if abort.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if !ended && !self.release_barrier(&l.program) && stuck {
            return Err(Fault::new(FaultKind::Deadlock, "every thread of the cluster waits at a barrier"));
        }
        Ok(ended)
    }

    /// Opens the cluster's barrier when every thread that has not exited has arrived. True when it did.
    fn release_barrier(&mut self, program: &Program) -> bool {
        let mut warps = self.blocks.iter().flat_map(|b| &b.warps).filter(|w| w.live != 0).peekable();
        if warps.peek().is_none() || warps.any(|w| w.live & !w.cluster_arrived != 0) {
            return false;
        }
        for w in self.blocks.iter_mut().flat_map(|b| &mut b.warps) {
            w.cluster_arrived = 0;
            w.release_barrier(CLUSTER_BARRIER, 0, 0, program);
        }
        true
    }
}

/// The block of a rank in the cluster that comes so late in the grid.
fn place_of(l: &Launch, cluster: u64, rank: u32) -> [u32; 3] {
    let [cx, cy, cz] = l.cluster;
    let (nx, ny) = (u64::from(l.grid[0] / cx), u64::from(l.grid[1] / cy));
    let first = [(cluster % nx) as u32 * cx, (cluster / nx % ny) as u32 * cy, (cluster / (nx * ny)) as u32 * cz];
    let inside = [rank % cx, rank / cx % cy, rank / (cx * cy)];
    std::array::from_fn(|axis| first[axis] + inside[axis])
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
            hold::pass(self.launch.device);
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
