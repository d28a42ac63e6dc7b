//! What copies and fills have in common.

use orion_cuda::sys::*;
use orion_wire::Writer;

use crate::memory::host_memory;
use crate::session::attached::session;
use crate::session::call::{call, post};
use crate::state::session::Session;
use crate::state::{address_map, context};

pub fn needs_context() -> Result<u64, CUresult> {
    session()?;
    match context::current_home() {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        ctx => Ok(ctx),
    }
}

pub fn copy_words(w: &mut Vec<u8>, words: &[u64]) {
    for v in words {
        w.word(*v);
    }
}

pub fn result(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// Posts work on device memory that the shim knows. What it does not know (memory opened from elsewhere, or
/// rubbish) the driver has to judge, so that the caller learns of it at once.
pub fn post_or_call(op: u16, known: bool, words: &[u64]) -> Result<(), CUresult> {
    if known { result(post(op, |w| copy_words(w, words))) } else { call(op, |w| copy_words(w, words), |_| Ok(())) }
}

pub fn is_known(s: &Session, address: u64, bytes: usize) -> bool {
    match address_map::find(address) {
        Some(range) => address.saturating_add(bytes as u64) <= range.end() || range.kind != address_map::Kind::Device,
        None => host_memory::shared_range(s, address, bytes as u64).is_some(),
    }
}
