//! What copies and fills have in common.

use orion_cuda::sys::*;

use crate::answer::posted;
use crate::memory::host_memory;
use crate::session::call::{call, post, put_words};
use crate::state::address_map;
use crate::state::process::state;
use crate::state::session::Session;

/// Posts work on device memory that the shim knows. What it does not know (memory opened from elsewhere, or
/// rubbish) the driver has to judge, so that the caller learns of it at once.
pub fn post_or_call(op: u16, known: bool, words: &[u64]) -> Result<(), CUresult> {
    if known { posted(post(op, |w| put_words(w, words))) } else { call(op, |w| put_words(w, words), |_| Ok(())) }
}

pub fn is_known(s: &Session, address: u64, bytes: usize) -> bool {
    match state().addresses.find(address) {
        Some(range) => {
            address.saturating_add(bytes as u64) <= range.end() || range.kind != address_map::MemoryKind::Device
        }
        None => host_memory::shared_range(s, address, bytes as u64).is_some(),
    }
}
