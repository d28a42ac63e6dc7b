//! Contexts by their handles, and the current one.

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};

use crate::session::attached::session;
use crate::session::device::facts;
use crate::state::context::{self, Context, pop, push, top};
use crate::state::device::Facts;
use crate::state::process::state;

/// The context whose memory the current one has, for what cannot be done without one.
#[inline]
pub fn needs_context() -> Result<u64, CUresult> {
    session()?;
    match context::current_home() {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        home => Ok(home),
    }
}

/// The calling thread's current context if it can be used: otherwise `CUDA_ERROR_NOT_INITIALIZED`,
/// `CUDA_ERROR_INVALID_CONTEXT` or `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
#[inline]
pub fn current_active() -> Result<&'static Context, CUresult> {
    let c = current_any()?;
    if c.is_active() { Ok(c) } else { Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) }
}

/// The context of a handle, or the current one for null and for -1, which libraries use for it.
pub fn resolve(ctx: CUcontext) -> Result<&'static Context, CUresult> {
    match ctx.addr() {
        0 | usize::MAX => current_any(),
        handle => lookup(handle as u64),
    }
}

/// The device of a context, as the application counts devices; `None` if the handle names none.
pub fn device_of(handle: u64) -> Option<u32> {
    lookup(handle).ok().map(|c| c.device)
}

/// Runs `f` with another context current (null: the one that is), or answers why that context cannot be used.
pub fn with_current(handle: u64, f: impl FnOnce() -> CUresult) -> CUresult {
    let context = resolve(std::ptr::without_provenance_mut(handle as usize));
    match context {
        Ok(c) if c.is_active() => {
            push(c);
            let result = f();
            pop();
            result
        }
        Ok(_) => CUDA_ERROR_CONTEXT_IS_DESTROYED,
        Err(code) => code,
    }
}

/// In a thread without a current context, with `home` as that, if it is one.
pub fn with_home<T>(home: impl FnOnce() -> u64, f: impl FnOnce() -> T) -> T {
    let home = if context::current() == 0 { lookup(home()).ok() } else { None };
    home.inspect(|home| push(home));
    let answer = f();
    if home.is_some() {
        pop();
    }
    answer
}

/// As [`current_home`], of any context; what is no context stays as it is.
pub fn home_of(handle: u64) -> u64 {
    lookup(handle).map_or(handle, Context::home)
}

/// The green context that a context was converted from; 0 for an ordinary one.
pub fn green_of(handle: u64) -> u64 {
    lookup(handle).map_or(0, |c| c.green)
}

/// The current context's green context; 0 if it is an ordinary one.
pub fn current_green() -> Result<u64, CUresult> {
    current_any().map(|c| c.green)
}

/// The context of a handle. One that was destroyed is told from one that never was.
pub fn lookup(handle: u64) -> Result<&'static Context, CUresult> {
    let f: &'static Facts = facts()?;
    let h = Handle(handle);
    if !h.is(Kind::Context) {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if h.index() < PRIMARY_CONTEXTS_MAX {
        let device = f.devices.get(h.index() as usize).filter(|_| h.generation() == 0);
        return device.map(|d| &d.primary).ok_or(CUDA_ERROR_INVALID_CONTEXT);
    }
    state().contexts.created.get(h).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

#[inline]
pub fn current_any() -> Result<&'static Context, CUresult> {
    match top() {
        Some(c) => Ok(c),
        None => Err(facts().map_or_else(|code| code, |_| CUDA_ERROR_INVALID_CONTEXT)),
    }
}
