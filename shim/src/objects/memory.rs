//! Device memory as a whole.

use orion_cuda::sys::CUresult;
use orion_wire::generated::ops;

use crate::session::call::call;
use crate::session::context::needs_context;

/// Bytes of the current context's device that are free, and all of them.
pub fn free_and_total() -> Result<(usize, usize), CUresult> {
    needs_context()?;
    call(ops::CU_MEM_GET_INFO_V2, |_| {}, |r| Ok((r.word()? as usize, r.word()? as usize)))
}
