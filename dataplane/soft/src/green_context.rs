//! Green contexts by their handles.

use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, Registry, handle};
use crate::context::Context;
use crate::device;

pub struct Green {
    pub context: Arc<Context>,
}

pub(crate) static GREENS: Registry<Green> = Registry::new();

/// The green context behind a context; null for an ordinary one.
pub fn of(c: &Arc<Context>) -> CUgreenCtx {
    let found = GREENS.all().into_iter().find(|g| Arc::ptr_eq(&g.context, c));
    found.map_or(std::ptr::null_mut(), |g| handle(&g))
}

pub(crate) fn green(h: CUgreenCtx) -> R<Arc<Green>> {
    device::initialised()?;
    GREENS.get(h).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}
