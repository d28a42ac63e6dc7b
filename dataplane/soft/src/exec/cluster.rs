//! Clusters: blocks that run together and reach each other's shared memory. Every block belongs to one; most clusters
//! have one block.
//!
//! One host thread at a time runs all blocks of a cluster in turn, so accesses to another block's shared memory need
//! no synchronisation of their own.

use crate::exec::fault::{Fault, FaultKind, fault};
use crate::exec::lanes::lanes;
use crate::exec::memory::{load_slice, store_slice};
use crate::exec::state::{BARRIERS, Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::operand::{ClusterOp, RANK_SHIFT, SHARED_WINDOW, Space, Special, WINDOW_MASK};

/// What lanes that wait at the cluster's barrier have in place of a barrier number of their block.
pub const CLUSTER_BARRIER: u8 = BARRIERS as u8;

/// The rank that an address in shared memory names; `None` for the block's own.
fn rank_of(at: u64) -> Option<u64> {
    ((at & !WINDOW_MASK) >> RANK_SHIFT).checked_sub(1)
}

fn with_rank(at: u64, rank: u64) -> u64 {
    let offset = at & ((1 << RANK_SHIFT) - 1);
    // No cluster has so many blocks that the greatest rank that fits is that of one.
    at & WINDOW_MASK | (rank.min(254) + 1) << RANK_SHIFT | offset
}

impl Env<'_> {
    /// A generic address of the block's own shared memory, as another block of its cluster can use it.
    pub fn generic_shared(&self, at: u64) -> u64 {
        let at = at | SHARED_WINDOW;
        if self.peers.is_alone() || rank_of(at).is_some() { at } else { with_rank(at, self.peers.own_rank()) }
    }

    pub fn is_own_shared(&self, at: u64) -> bool {
        at & WINDOW_MASK == SHARED_WINDOW && rank_of(at).is_none_or(|r| r == self.peers.own_rank())
    }

    /// The same variable in the block of a rank.
    fn mapa(&self, at: u64, rank: u64) -> u64 {
        let alone = self.peers.is_alone() && rank == 0;
        if alone { at } else { with_rank(at, rank) }
    }

    /// The shared memory that an address names by its block's rank, and the offset in it; `None` where it names none.
    fn shared_of_rank(&mut self, space: Space, at: u64) -> Result<Option<(&mut [u8], u64)>, Fault> {
        let is_shared = space == Space::Shared || space == Space::Generic && at & WINDOW_MASK == SHARED_WINDOW;
        let own = self.peers.own_rank();
        let rank = rank_of(at).filter(|_| is_shared && !self.peers.is_alone());
        let Some(rank) = rank else { return Ok(None) };
        let offset = at & ((1 << RANK_SHIFT) - 1);
        if rank == own {
            return Ok(Some((self.shared, offset)));
        }
        let peer = if rank < own {
            self.peers.below.get_mut(rank as usize)
        } else {
            self.peers.above.get_mut((rank - own - 1) as usize)
        };
        let what = match peer {
            Some(b) if b.live_threads > 0 => return Ok(Some((&mut b.shared, offset))),
            Some(_) => format!("access to the shared memory of block {rank} of the cluster, which has exited"),
            None => {
                format!("access to the shared memory of block {rank} of a cluster of {}", self.launch.cluster_blocks())
            }
        };
        Err(Fault::new(FaultKind::Trap, &what))
    }

    /// A load that nothing of the block itself answered: from another block's shared memory, or a fault.
    #[cold]
    pub fn load_in_cluster(&mut self, space: Space, at: u64, bytes: u32) -> Result<u64, Fault> {
        if !at.is_multiple_of(u64::from(bytes)) {
            return Err(fault(FaultKind::Misaligned, "misaligned load", at, bytes));
        }
        let place = self.shared_of_rank(space, at)?;
        place
            .and_then(|(shared, offset)| load_slice(shared, offset, bytes))
            .ok_or_else(|| fault(FaultKind::IllegalAddress, "load", at, bytes))
    }

    #[cold]
    pub fn store_in_cluster(&mut self, space: Space, at: u64, bytes: u32, v: u64) -> Result<(), Fault> {
        if !at.is_multiple_of(u64::from(bytes)) {
            return Err(fault(FaultKind::Misaligned, "misaligned store", at, bytes));
        }
        let place = self.shared_of_rank(space, at)?;
        place
            .and_then(|(shared, offset)| store_slice(shared, offset, bytes, v))
            .ok_or_else(|| fault(FaultKind::IllegalAddress, "store", at, bytes))
    }

    /// The place of an address in each block of a mask.
    pub fn in_each(&self, at: u64, mask: u32) -> Vec<u64> {
        lanes(mask).map(|rank| self.mapa(at, rank as u64)).collect()
    }

    /// A special register of clusters.
    pub fn cluster_register(&self, s: Special) -> u64 {
        let l = self.launch;
        let n = |axis: u8| l.cluster[axis as usize];
        u64::from(match s {
            Special::ClusterId(a) => self.ctaid[a as usize] / n(a),
            Special::NclusterId(a) => l.grid[a as usize] / n(a),
            Special::ClusterCtaid(a) => self.ctaid[a as usize] % n(a),
            Special::ClusterNctaid(a) => n(a),
            Special::ClusterCtarank => self.peers.own_rank() as u32,
            Special::ClusterNctarank => l.cluster_blocks(),
            _ => u32::from(l.explicit_cluster),
        })
    }
}

impl Warp {
    pub fn cluster_op(&mut self, ins: &Instr, op: ClusterOp, m: u32, f: &Frame, env: &Env) -> Result<(), Fault> {
        let a = self.read::<u64>(ins.a, f, env);
        let b = self.read::<u32>(ins.b, f, env);
        if let ClusterOp::Mapa { generic: true } | ClusterOp::CtaRank { generic: true } = op
            && let Some(l) = lanes(m).find(|&l| a[l] & WINDOW_MASK != SHARED_WINDOW)
        {
            let what = format!("{:#x} is no address of shared memory", a[l]);
            return Err(Fault::new(FaultKind::IllegalAddress, &what));
        }
        let mut d = [0; 32];
        for l in lanes(m) {
            d[l] = match op {
                ClusterOp::Mapa { .. } => env.mapa(a[l], u64::from(b[l])),
                ClusterOp::CtaRank { .. } => rank_of(a[l]).unwrap_or(env.peers.own_rank()),
                ClusterOp::IsShared => {
                    let rank = rank_of(a[l]).unwrap_or(0);
                    u64::from(a[l] & WINDOW_MASK == SHARED_WINDOW && rank < u64::from(env.launch.cluster_blocks()))
                }
            };
        }
        self.write(ins.d, m, &d, f);
        Ok(())
    }

    /// Arrival at the cluster's barrier, or the wait for the phase that the lanes have arrived at.
    pub fn cluster_barrier(&mut self, mask: u32, pc: u32, frame: Frame, wait: bool) {
        if !wait {
            self.cluster_arrived |= mask;
            self.save(mask, pc + 1, frame);
            return;
        }
        let held = mask & self.cluster_arrived;
        self.save(mask & !held, pc + 1, frame);
        self.save(held, pc, frame);
        for l in lanes(held) {
            self.bar[l] = CLUSTER_BARRIER;
        }
        self.barred |= held;
        self.runnable &= !held;
    }
}
