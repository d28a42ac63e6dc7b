//! Which allocations connections to this controller claim. The pool may have to be read while they last; then who has
//! one is told from who has gone meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orion_pool::AllocationId;

/// How many connections claim each.
#[derive(Clone, Default)]
pub struct Claimed(Arc<Mutex<HashMap<AllocationId, usize>>>);

/// Of one connection, as long as this is there.
pub struct Claim {
    pub id: AllocationId,
    all: Claimed,
}

impl Claimed {
    pub fn claim(&self, id: AllocationId) -> Claim {
        *self.all().entry(id).or_default() += 1;
        Claim { id, all: self.clone() }
    }

    pub fn has(&self, id: AllocationId) -> bool {
        self.all().contains_key(&id)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<AllocationId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(count) = all.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_connections_claim_is_claimed_until_both_have_ended() {
        let claimed = Claimed::default();
        let id = AllocationId(1);
        let (first, second) = (claimed.claim(id), claimed.claim(id));
        drop(first);
        assert!(claimed.has(id) && !claimed.has(AllocationId(2)));
        drop(second);
        assert!(!claimed.has(id) && claimed.all().is_empty());
    }
}
