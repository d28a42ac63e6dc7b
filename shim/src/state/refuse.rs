//! What was refused, and how often.

use std::collections::BTreeMap;

use crate::state::lock::{Lock, Rank};

pub struct Refusals {
    pub counts: Lock<BTreeMap<&'static str, u64>>,
}

impl Refusals {
    pub const fn new() -> Refusals {
        Refusals { counts: Lock::new(Rank::Leaf, BTreeMap::new()) }
    }
}
