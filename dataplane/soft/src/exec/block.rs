//! A block: its warps take turns.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::exec::fault::Fault;
use crate::exec::lanes::lanes;
use crate::exec::state::{BARRIERS, Barrier, Block, Env, Launch, Peers, Warp};
use crate::exec::together;
use crate::ptx::isa::operand::RESERVED_SHARED;
use crate::ptx::isa::program::Program;

const WARP_TURN: i64 = 8192;

/// Why a block stopped running.
pub enum Pause {
    Ended,
    Yielded,
    /// Every thread waits at a barrier.
    Stuck,
}

impl Block {
    pub fn new(l: &Launch, ctaid: [u32; 3]) -> Self {
        let threads = l.threads();
        let warps = (0..threads.div_ceil(32)).map(|w| Warp::new(w, l)).collect();
        let bars = [Barrier::default(); BARRIERS];
        let mut block = Self {
            index: 0,
            ctaid,
            shared: Vec::new(),
            warps,
            bars,
            has_arrived: false,
            live_threads: 0,
            is_fresh: true,
            lines: Box::default(),
        };
        block.place(l, ctaid);
        block
    }

    /// Another block of the same launch in the memory of this one, which has ended.
    pub fn begin(&mut self, l: &Launch, ctaid: [u32; 3]) {
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
        self.is_fresh = true;
        self.shared.clear();
        self.shared.resize(((l.dynamic_base + l.dynamic_shared).next_multiple_of(16) + RESERVED_SHARED) as usize, 0);
    }

    /// Runs up to `turn` warp instructions.
    pub fn run(&mut self, l: &Launch, mut peers: Peers, mut turn: i64, abort: &AtomicBool) -> Result<Pause, Fault> {
        let (count, together_max) = (self.warps.len(), l.warps_together(self.warps.len()));
        let most = |first: usize| count.min(first + together_max);
        loop {
            let mut ran = false;
            let fresh = std::mem::take(&mut self.is_fresh);
            // Warps before these have run together, and have had all of their turn.
            let (mut next_together, mut next_turn) = (0, 0);
            for w in 0..self.warps.len() {
                if self.warps[w].runnable == 0 || w < next_turn {
                    continue;
                }
                ran = true;
                let mut arrived = false;
                let mut budget = WARP_TURN;
                let live_before = self.live_threads;
                let together = match () {
                    _ if w < next_together => 1,
                    // All are at the kernel's start, and all but the last are whole for certain.
                    _ if fresh => (l.threads() as usize / 32).min(most(w)).saturating_sub(w),
                    _ => together::count(&self.warps[w..most(w)]),
                };
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
                if together > 1 {
                    next_together = w + together;
                    together::run(&mut self.warps[w..next_together], &mut self.lines, &mut env, &mut budget);
                    turn -= (WARP_TURN - budget) * (together as i64 - 1);
                    if budget <= 0 {
                        next_turn = next_together;
                    }
                }
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
                .map(|w| lanes(w.barred).filter(|&k| usize::from(w.bar[k]) == id).count() as u32)
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
