//! The one session of this process.

use std::sync::OnceLock;

use orion_cuda::sys::*;
use orion_wire::hello::Welcome;

/// Everything that exists once `cuInit` has succeeded.
pub struct Session {
    pub welcome: Welcome,
}

static SESSION: OnceLock<Session> = OnceLock::new();

/// The session, or `CUDA_ERROR_NOT_INITIALIZED` before `cuInit`.
pub fn session() -> Result<&'static Session, CUresult> {
    SESSION.get().ok_or(CUDA_ERROR_NOT_INITIALIZED)
}
