//! The values behind the handles of conditional graph nodes, which kernels set.
//!
//! A value lies with its handle, not with an executable graph: of a graph with conditional nodes CUDA allows one
//! executable at a time, whose launches run one after the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};

use orion_cuda::sys::*;

/// The value behind a conditional handle.
pub struct Condition {
    pub number: CUgraphConditionalHandle,
    /// The graph that the handle was created for.
    pub graph: u64,
    pub context: u64,
    pub default: Option<u32>,
    pub value: AtomicU32,
    /// A handle has one node.
    pub used: AtomicBool,
}

/// Conditions by handle: what a kernel has is the number.
pub(crate) static CONDITIONS: RwLock<BTreeMap<CUgraphConditionalHandle, Weak<Condition>>> =
    RwLock::new(BTreeMap::new());
pub(crate) static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);

impl Condition {
    pub(crate) fn find(number: CUgraphConditionalHandle) -> Option<Arc<Self>> {
        CONDITIONS.read().ok()?.get(&number)?.upgrade()
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        if let Ok(mut all) = CONDITIONS.write() {
            all.remove(&self.number);
        }
    }
}

/// `cudaGraphSetConditional` in a kernel of a context; false for a handle that is not of that context.
pub fn set(context: u64, number: CUgraphConditionalHandle, value: u32) -> bool {
    let condition = Condition::find(number).filter(|c| c.context == context);
    condition.inspect(|c| c.value.store(value, Ordering::Release)).is_some()
}
