//! Handles this process has handed out.

use std::collections::VecDeque;
use std::sync::OnceLock;

use orion_wire::handle::{Handle, INDEX_MAX, KIND_MAX, Kind, OWNERS_MAX, PRIMARY_CONTEXTS_MAX};

use crate::state::context;
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

type Pools = [Lock<Pool>; KIND_MAX as usize + 1];

pub struct Handles {
    first: Pools,
    /// Those of further sessions: each worker wants the indices it is told to begin low and to have no gaps.
    others: [OnceLock<Box<Pools>>; OWNERS_MAX - 1],
}

/// Libraries and what is found in them are the same objects in every session, under the same handles.
fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Library | Kind::Function)
}

impl Pool {
    const fn new() -> Lock<Pool> {
        Lock::new(Rank::Leaf, Pool { next: PRIMARY_CONTEXTS_MAX, free: VecDeque::new(), used: Vec::new() })
    }
}

impl Handles {
    pub const fn new() -> Handles {
        Handles {
            first: [const { Pool::new() }; KIND_MAX as usize + 1],
            others: [const { OnceLock::new() }; OWNERS_MAX - 1],
        }
    }

    fn pool(&self, kind: Kind, owner: usize) -> &Lock<Pool> {
        let pools = match owner.checked_sub(1) {
            None => &self.first,
            Some(other) => self.others[other].get_or_init(|| Box::new([const { Pool::new() }; KIND_MAX as usize + 1])),
        };
        &pools[kind as usize]
    }

    /// A fresh handle; the worker learns it with the command that creates the object.
    ///
    /// # Panics
    /// When four million objects of one kind are alive, which no driver survives either.
    pub fn reserve(&self, kind: Kind) -> Handle {
        self.reserve_in(kind, 0)
    }

    /// As [`reserve`], for an object that ends with its context.
    pub fn reserve_in(&self, kind: Kind, context: u64) -> Handle {
        self.reserve_of(kind, context::current_session(), context)
    }

    /// As [`reserve_in`], for an object of this session.
    pub fn reserve_of(&self, kind: Kind, session: usize, context: u64) -> Handle {
        let owner = if is_shared(kind) { 0 } else { session };
        let mut pool = self.pool(kind, owner).lock();
        // Oldest first, so that a stale handle is told apart for as long as possible.
        if pool.free.len() > 1024
            && let Some((index, generation)) = pool.free.pop_front()
        {
            let generation = generation.wrapping_add(1);
            pool.used[(index - PRIMARY_CONTEXTS_MAX) as usize] = Used { generation, alive: true, context };
            return Handle::of_owner(kind, owner, generation, index);
        }
        let index = pool.next;
        assert!(index < INDEX_MAX, "four million live CUDA objects of kind {kind:?}");
        pool.next += 1;
        pool.used.push(Used { generation: 0, alive: true, context });
        Handle::of_owner(kind, owner, 0, index)
    }

    /// Others may be given the handle's index. For a handle whose object was never made, or ends with nothing else.
    pub fn give_back(&self, handle: Handle) {
        let Some(kind) = kind_of(handle) else { return };
        let mut pool = self.pool(kind, handle.owner()).lock();
        let index = (handle.index() as usize).wrapping_sub(PRIMARY_CONTEXTS_MAX as usize);
        if let Some(used) = pool.used.get_mut(index)
            && used.alive
            && Handle::of_owner(kind, handle.owner(), used.generation, handle.index()) == handle
        {
            used.alive = false;
            let generation = used.generation;
            pool.free.push_back((handle.index(), generation));
        }
    }

    /// The handles of one kind whose objects live in a context.
    pub fn made_in(&self, kind: Kind, context: u64) -> Vec<Handle> {
        let in_pool = |owner: usize| {
            let pool = self.pool(kind, owner).lock();
            let indices = (PRIMARY_CONTEXTS_MAX..).zip(&pool.used);
            let there = indices.filter(|(_, used)| used.alive && used.context == context);
            there.map(|(index, used)| Handle::of_owner(kind, owner, used.generation, index)).collect::<Vec<_>>()
        };
        let others = self.others.iter().zip(1..).filter(|(pools, _)| pools.get().is_some());
        std::iter::once(0).chain(others.map(|(_, owner)| owner)).flat_map(in_pool).collect()
    }

    /// The context that an object ends with; 0 for none, and for what is not there.
    pub fn context_of(&self, handle: Handle) -> u64 {
        let Some(kind) = kind_of(handle) else { return 0 };
        let pool = self.pool(kind, handle.owner()).lock();
        let index = (handle.index() as usize).wrapping_sub(PRIMARY_CONTEXTS_MAX as usize);
        pool.used.get(index).filter(|used| used.alive).map_or(0, |used| used.context)
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
