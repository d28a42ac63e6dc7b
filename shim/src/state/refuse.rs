//! What was refused, and how often.

use std::collections::BTreeMap;
use std::sync::Mutex;

pub static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());
