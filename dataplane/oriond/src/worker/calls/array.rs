//! The ends of arrays, for which the driver waits until the device is idle.

// UNSAFETY: calls the driver with handles that were looked up here.

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::array::{ArrayDestroy, MipmappedArrayDestroy};
use orion_wire::record::Header;

use crate::worker::outcome::Handled;
use crate::worker::session::Session;
use crate::worker::state::ledger::What;

pub fn cuArrayDestroy(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = ArrayDestroy::decode(&mut r)?.array.0;
    let array = s.handle(Kind::Array, word)? as usize;
    // SAFETY: an array of this session's that the client gives up.
    destroy(s, header, (Kind::Array, word, What::Array(array)), move |driver| unsafe {
        driver.cuArrayDestroy(array as CUarray)
    })
}

pub fn cuMipmappedArrayDestroy(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = MipmappedArrayDestroy::decode(&mut r)?.array.0;
    let array = s.handle(Kind::MipmappedArray, word)? as usize;
    destroy(s, header, (Kind::MipmappedArray, word, What::MipmappedArray(array)), move |driver| {
        // SAFETY: as above.
        unsafe { driver.cuMipmappedArrayDestroy(array as CUmipmappedArray) }
    })
}

/// On a helper thread: what another thread of the client has queued since the device was seen idle may be waiting for
/// the client, and so for the executor. Nobody can name the array from here on.
fn destroy(
    s: &mut Session,
    header: &Header,
    (kind, word, what): (Kind, u64, What),
    call: impl FnOnce(&'static Driver) -> CUresult + Send + 'static,
) -> Handled {
    s.give_up(kind, word);
    // Another thread may be given the same address as soon as it is free.
    let ending = s.array_ends(what);
    s.park_blocking(header, call, move |s, code, _| {
        if code == CUDA_SUCCESS {
            s.array_ended(ending);
        }
        code
    })
}
