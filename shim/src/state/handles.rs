//! Handles this process has handed out.

use std::collections::VecDeque;

use orion_wire::handle::{Handle, INDEX_MAX, KIND_MAX, Kind, PRIMARY_CONTEXTS_MAX};

use crate::state::lock::{Lock, Rank};

/// Indices of one kind: which are free, and how often each was used.
pub struct Pool {
    next: u32,
    free: VecDeque<(u32, u16)>,
    used: Vec<Used>,
}

/// What became of an index.
#[derive(Clone, Copy)]
struct Used {
    generation: u16,
    /// An application that destroys an object twice must not make two objects share a handle.
    alive: bool,
    /// The context that the object ends with; 0 for none.
    context: u64,
}

pub struct Handles {
    pub pools: [Lock<Pool>; KIND_MAX as usize + 1],
}

impl Handles {
    pub const fn new() -> Handles {
        Handles {
            pools: [const {
                Lock::new(Rank::Leaf, Pool { next: PRIMARY_CONTEXTS_MAX, free: VecDeque::new(), used: Vec::new() })
            }; KIND_MAX as usize + 1],
        }
    }

    /// A fresh handle; the worker learns it with the command that creates the object.
    ///
    /// # Panics
    /// When 16 million objects of one kind are alive, which no driver survives either.
    pub fn reserve(&self, kind: Kind) -> Handle {
        self.reserve_in(kind, 0)
    }

    /// As [`reserve`], for an object that ends with its context.
    pub fn reserve_in(&self, kind: Kind, context: u64) -> Handle {
        let mut pool = self.pools[kind as usize].lock();
        // Oldest first, so that a stale handle is told apart for as long as possible.
        if pool.free.len() > 1024
            && let Some((index, generation)) = pool.free.pop_front()
        {
            let generation = generation.wrapping_add(1);
            pool.used[(index - PRIMARY_CONTEXTS_MAX) as usize] = Used { generation, alive: true, context };
            return Handle::new(kind, generation, index);
        }
        let index = pool.next;
        assert!(index < INDEX_MAX, "16 million live CUDA objects of kind {kind:?}");
        pool.next += 1;
        pool.used.push(Used { generation: 0, alive: true, context });
        Handle::new(kind, 0, index)
    }

    /// Others may be given the handle's index. For a handle whose object was never made, or ends with nothing else.
    pub fn give_back(&self, handle: Handle) {
        let Some(kind) = kind_of(handle) else { return };
        let mut pool = self.pools[kind as usize].lock();
        let index = (handle.index() as usize).wrapping_sub(PRIMARY_CONTEXTS_MAX as usize);
        if let Some(used) = pool.used.get_mut(index)
            && (used.generation, used.alive) == (handle.generation(), true)
        {
            used.alive = false;
            pool.free.push_back((handle.index(), handle.generation()));
        }
    }

    /// The handles of one kind whose objects live in a context.
    pub fn made_in(&self, kind: Kind, context: u64) -> Vec<Handle> {
        let pool = self.pools[kind as usize].lock();
        let indices = (PRIMARY_CONTEXTS_MAX..).zip(&pool.used);
        let there = indices.filter(|(_, used)| used.alive && used.context == context);
        there.map(|(index, used)| Handle::new(kind, used.generation, index)).collect()
    }
}

pub fn kind_of(handle: Handle) -> Option<Kind> {
    KINDS.into_iter().find(|kind| handle.is(*kind))
}

pub const KINDS: [Kind; KIND_MAX as usize] = [
    Kind::Context,
    Kind::Module,
    Kind::Library,
    Kind::Function,
    Kind::Stream,
    Kind::Event,
    Kind::Array,
    Kind::MipmappedArray,
    Kind::Graph,
    Kind::GraphNode,
    Kind::GraphExec,
    Kind::MemPool,
    Kind::MemAllocation,
    Kind::LinkState,
    Kind::GreenContext,
    Kind::UserObject,
    Kind::TexRef,
    Kind::SurfRef,
    Kind::ExternalMemory,
    Kind::ExternalSemaphore,
    Kind::DevResourceDesc,
    Kind::AsyncCallback,
    Kind::LogCallback,
];
