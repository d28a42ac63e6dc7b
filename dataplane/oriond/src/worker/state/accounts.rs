//! A session's ledger, and what has to be known to keep it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use orion_cuda::sys::*;

use crate::worker::driver::rounding::Rounding;
use crate::worker::state::ledger::Ledger;
use crate::worker::state::stacks::Stacks;

/// A pool that the session takes memory out of.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    pub vgpu: usize,
    /// It lives as long as its device.
    pub is_default: bool,
}

/// A session's ledger and what it is kept with.
pub struct Accounts {
    ledger: Arc<Mutex<Ledger>>,
    pub rounding: Rounding,
    pub pools: HashMap<usize, Pool>,
    /// Pools' memory: whose, and how much.
    pub from_pools: HashMap<CUdeviceptr, (usize, u64)>,
    /// The vGPU of each context that the client has made.
    pub contexts: HashMap<u64, usize>,
    /// The least that one of them took. Other programs on the GPU allocate meanwhile, so a single one may seem larger.
    context_bytes: Option<u64>,
    /// Values that limits of contexts had before they were set.
    pub defaults: HashMap<(u64, CUlimit), u64>,
    pub stacks: Stacks,
    /// The software GPU gives graphs their memory when the node is added, NVIDIA's driver when they are launched, and
    /// only there a context has memory.
    pub is_software: bool,
}

impl Accounts {
    pub fn new(ledger: Arc<Mutex<Ledger>>, rounding: Rounding, is_software: bool) -> Accounts {
        Accounts {
            ledger,
            rounding,
            pools: HashMap::new(),
            from_pools: HashMap::new(),
            contexts: HashMap::new(),
            context_bytes: None,
            defaults: HashMap::new(),
            stacks: Stacks::default(),
            is_software,
        }
    }

    /// What a context costs, when as much was missing on the GPU after one was made. Another program that frees memory
    /// meanwhile makes it look cheap, so `stacks` is the least: what its stacks take, which it has from the beginning.
    pub fn context_bytes(&mut self, missing: u64, stacks: u64) -> u64 {
        if self.is_software {
            return 0;
        }
        let missing = missing.max(stacks);
        let least = self.context_bytes.map_or(missing, |least| least.min(missing));
        *self.context_bytes.insert(least)
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// For a helper thread.
    pub fn shared(&self) -> (Arc<Mutex<Ledger>>, Rounding) {
        (self.ledger.clone(), self.rounding)
    }
}

pub fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().expect("no panic happens under this lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(is_software: bool) -> Accounts {
        Accounts::new(Arc::new(Mutex::new(Ledger::new(&[]))), Rounding { granule: 512, page: 2 << 20 }, is_software)
    }

    #[test]
    fn a_context_costs_what_the_smallest_one_took() {
        let mut accounts = accounts(false);
        let stacks = 264 << 20;
        assert_eq!(accounts.context_bytes(900 << 20, stacks), 900 << 20);
        assert_eq!(accounts.context_bytes(300 << 20, stacks), 300 << 20);
        assert_eq!(accounts.context_bytes(700 << 20, stacks), 300 << 20);
    }

    #[test]
    fn a_context_is_not_cheap_because_others_free_memory() {
        let mut accounts = accounts(false);
        assert_eq!(accounts.context_bytes(0, 264 << 20), 264 << 20);
        assert_eq!(accounts.context_bytes(524 << 20, 264 << 20), 264 << 20);
    }

    #[test]
    fn a_context_of_the_software_gpu_costs_nothing() {
        assert_eq!(accounts(true).context_bytes(700 << 20, 264 << 20), 0);
    }
}
