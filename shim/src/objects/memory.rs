//! Device memory as a whole.

use orion_cuda::sys::CUresult;
use orion_wire::message::memory::{MemGetInfo, MemGetInfoReply};

use crate::session::call::call;
use crate::session::context::needs_context;

/// Bytes of the current context's device that are free, and all of them.
pub fn free_and_total() -> Result<(usize, usize), CUresult> {
    needs_context()?;
    let MemGetInfoReply { free, total } = call(MemGetInfo::OP, |w| MemGetInfo {}.encode(w), MemGetInfoReply::decode)?;
    Ok((free as usize, total as usize))
}
