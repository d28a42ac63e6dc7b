//! Device memory of another session. Handles are the driver's own: both workers run on the GPU's host.

// UNSAFETY: writes answers to the application's memory.

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;
use orion_wire::handle::Kind;
use orion_wire::message::calls;

use crate::answer::write;
use crate::session::attached::session;
use crate::session::call::call;
use crate::state::address_map::{self, Range};
use crate::state::context;
use crate::state::process::state;

/// # Safety
/// As CUDA's `cuIpcOpenEventHandle`.
pub unsafe fn cuIpcOpenEventHandle(out: *mut CUevent, handle: CUipcEventHandle) -> CUresult {
    let answer = (|| {
        session()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let event = state().handles.reserve_in(Kind::Event, context::current_home());
        let name = handle.reserved.map(|b| b as u8);
        let request = calls::cuIpcOpenEventHandle { phEvent: event.0, handle: &name };
        crate::objects::handles::made(event, call(ops::CU_IPC_OPEN_EVENT_HANDLE, |w| request.encode(w), |_| Ok(())))?;
        state().events.share(event);
        Ok(event.0 as CUevent)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuIpcOpenMemHandle_v2`.
pub unsafe fn cuIpcOpenMemHandle_v2(out: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) -> CUresult {
    let answer = (|| {
        session()?;
        let ctx = context::current_home();
        let device = context::current_device().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let name: Vec<u8> = handle.reserved.iter().map(|b| *b as u8).collect();
        let request = |w: &mut Vec<u8>| {
            w.word(flags as u64);
            w.bytes(&name);
        };
        let (base, bytes) = call(ops::CU_IPC_OPEN_MEM_HANDLE_V2, request, |r| Ok((r.word()?, r.word()?)))?;
        // The driver counts: one allocation opened twice is at one address and has to be closed twice.
        let again =
            state().addresses.find(base).is_some_and(|r| r.kind == address_map::MemoryKind::Ipc && r.base == base);
        if !again || !state().addresses.update(base, |r| r.flags += 1) {
            state().addresses.insert(Range::new(base, bytes, address_map::MemoryKind::Ipc, ctx, device));
        }
        Ok(base)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuIpcCloseMemHandle(base: CUdeviceptr) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    let Some(range) = state().addresses.find(base).filter(|r| r.kind == address_map::MemoryKind::Ipc && r.base == base)
    else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    match call(ops::CU_IPC_CLOSE_MEM_HANDLE, |w| w.word(base), |_| Ok(())) {
        Ok(()) if range.flags > 0 => {
            state().addresses.update(base, |r| r.flags -= 1);
            CUDA_SUCCESS
        }
        Ok(()) => {
            state().addresses.remove(base);
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}
