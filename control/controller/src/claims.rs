//! What was given over a connection on condition that somebody comes for it over the same one. If the connection ends
//! before, it is free again: its client was killed, perhaps before it had read the answer.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orion_pool::AllocationId;
use tokio::runtime::Handle;

use crate::claimed::Claim;
use crate::desk::Counter;

/// By which a request says that this is so for what it asks for.
pub const HEADER: &str = "orion-claims";

/// At the end of a path: what is told there is that a session has begun, by a body that waits for that.
pub const SESSION: &str = "/session";

/// A program has one, and a second one while it asks again.
const CLAIMS_MAX: usize = 64;

/// Of one connection.
#[derive(Default)]
pub struct Claims(Mutex<Vec<(Claim, Counter)>>);

impl Claims {
    /// From before it is given, so that there is no moment at which nobody has it. False if the connection has more of
    /// them than any needs.
    pub fn await_claim(&self, id: AllocationId, counter: Counter) -> bool {
        let mut all = self.all();
        let has_room = all.len() < CLAIMS_MAX;
        if has_room {
            all.push((counter.claimed.claim(id), counter));
        }
        has_room
    }

    /// Somebody has come for it, or it was not given, or given back.
    pub fn settle(&self, id: AllocationId) {
        self.all().retain(|(claim, _)| claim.id != id);
    }

    fn all(&self) -> MutexGuard<'_, Vec<(Claim, Counter)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        // Without a runtime the process is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        for (claim, counter) in self.all().drain(..) {
            let id = claim.id;
            drop(claim);
            // Who refuses that reads the pool again before he gives anything, and then it is one that nobody claims.
            runtime.spawn(async move { counter.ask(move |d| d.pool.forsake(d.now, id)).await.is_ok() });
        }
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|(claim, _)| claim.id)).finish()
    }
}
