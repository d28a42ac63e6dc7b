//! Contexts that a kernel broke. The driver answers everything in such a context with the same error, and so
//! does the shim once it has seen it, also to calls that are only posted.

use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::record::op;

use crate::state::process::state;

/// The error that a context is broken by.
#[inline(always)]
pub fn of(context: u64) -> Option<CUresult> {
    if state().poison.any.load(Ordering::Relaxed) { find(context) } else { None }
}

#[cold]
#[inline(never)]
fn find(context: u64) -> Option<CUresult> {
    // What a kernel breaks in a green context it breaks in the context that this one shares.
    let context = crate::session::context::home_of(context);
    let contexts = state().poison.contexts.lock();
    contexts.iter().find(|(c, _)| *c == context).map(|(_, code)| *code)
}

pub fn note(context: u64, code: CUresult) {
    let breaks = matches!(
        code,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_ECC_UNCORRECTABLE
    );
    if breaks {
        if code == CUDA_ERROR_ILLEGAL_ADDRESS && of(context).is_none() {
            hint();
        }
        end(context, code);
    }
}

/// On a GPU of its own a program's kernels would reach all that it has registered.
fn hint() {
    for s in state().attachment.all() {
        let unreached = s.host_memory.unreached.lock().clone();
        if let Some((base, why)) = unreached.first_key_value() {
            crate::say!(
                "a kernel used an address that is none to it; it may be that of registered memory, of which {} ranges \
                 are out of kernels' reach: the one at {base:#x}, because {why}",
                unreached.len()
            );
        }
    }
}

/// From now on the context answers this error.
pub fn end(context: u64, code: CUresult) {
    if context != 0 && of(context).is_none() {
        let context = crate::session::context::home_of(context);
        state().poison.contexts.lock().push((context, code));
        state().poison.any.store(true, Ordering::Relaxed);
    }
}

/// Whether a broken context refuses this operation. Destroying and resetting it go through.
pub fn stops(op: u16) -> bool {
    op >= op::HAND_FIRST && !(ops::CU_DEVICE_PRIMARY_CTX_RETAIN..=ops::CU_CTX_DESTROY_V2).contains(&op)
}

/// The context was reset or destroyed. The driver makes no new one in a process whose GPU work has faulted;
/// it answers so until the process ends.
pub fn forget(context: u64) {
    let mut contexts = state().poison.contexts.lock();
    for (_, code) in contexts.iter_mut().filter(|(c, _)| *c == context) {
        *code = CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
}
