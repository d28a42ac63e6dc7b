//! Device memory of another session.

// UNSAFETY: passes a client's handle to the driver, which checks it.

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::message::ipc::{IpcCloseMemHandle, IpcOpenMemHandle, IpcOpenMemHandleReply};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;

/// Answers the address and how much lies there.
pub fn cuIpcOpenMemHandle_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = IpcOpenMemHandle::decode(&mut r)?;
    let handle = CUipcMemHandle { reserved: q.handle.0.map(|b| b as _) };
    let (mut base, mut start, mut size) = (0, 0, 0);
    // SAFETY: valid out pointers.
    let code = unsafe { s.driver.cuIpcOpenMemHandle_v2(&mut base, handle, q.flags) };
    if code == CUDA_SUCCESS {
        // SAFETY: valid out pointers. Where the driver does not know, the client finds the base alone.
        unsafe { s.driver.cuMemGetAddressRange_v2(&mut start, &mut size, base) };
        s.addresses.given(base, size as u64, Of::Imported);
    }
    IpcOpenMemHandleReply { address: base, bytes: size.max(1) as u64 }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuIpcCloseMemHandle(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let base = s.reach(IpcCloseMemHandle::decode(&mut r)?.address, 1)?;
    s.addresses.ended(base.raw());
    // SAFETY: device memory of the session; the driver checks that it was opened there.
    Ok(Outcome::Done(unsafe { s.driver.cuIpcCloseMemHandle(base.raw()) }))
}
