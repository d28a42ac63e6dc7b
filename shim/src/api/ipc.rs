//! Device memory of another session. Handles are the driver's own: both workers run on the GPU's host.

// UNSAFETY: writes answers to the application's memory.

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;
use orion_wire::message::field::Exactly;
use orion_wire::message::ipc::{IpcCloseMemHandle, IpcOpenMemHandle, IpcOpenMemHandleReply};

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
        crate::objects::handles::made(event, call(calls::cuIpcOpenEventHandle::OP, |w| request.encode(w), |_| Ok(())))?;
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
        let q = IpcOpenMemHandle { flags, handle: Exactly(handle.reserved.map(|b| b as u8)) };
        let answer = call(IpcOpenMemHandle::OP, |w| q.encode(w), IpcOpenMemHandleReply::decode)?;
        let IpcOpenMemHandleReply { address: base, bytes } = answer;
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
    let q = IpcCloseMemHandle { address: ClaimedDevice::new(base) };
    match call(IpcCloseMemHandle::OP, |w| q.encode(w), |_| Ok(())) {
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
