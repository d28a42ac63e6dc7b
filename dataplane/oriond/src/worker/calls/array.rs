//! The ends of arrays, for which the driver waits until the device is idle.

use orion_cuda::sys::CUDA_SUCCESS;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::array::{ArrayDestroy, MipmappedArrayDestroy};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::ledger::What;
use crate::worker::state::waits::{Wait, Waiting};

pub fn cuArrayDestroy(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = ArrayDestroy::decode(&mut r)?.array.0;
    let array = s.handle(Kind::Array, word)? as usize;
    destroy(s, header, (Kind::Array, word), What::Array(array), Waiting::Array(array))
}

pub fn cuMipmappedArrayDestroy(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = MipmappedArrayDestroy::decode(&mut r)?.array.0;
    let array = s.handle(Kind::MipmappedArray, word)? as usize;
    destroy(s, header, (Kind::MipmappedArray, word), What::MipmappedArray(array), Waiting::Mipmapped(array))
}

fn destroy(s: &mut Session, header: &Header, (kind, word): (Kind, u64), what: What, call: Waiting) -> Handled {
    // What is refused, by a capture or because no context is current, has not happened.
    if s.captures.forbids(header.thread) || header.context == 0 {
        let code = call.call(s.driver);
        if code == CUDA_SUCCESS {
            s.unbind(kind, word);
        }
        return Ok(Outcome::Done(code));
    }
    // Nobody can name it from here on, and another thread may be given the same address as soon as it is free.
    s.give_up(kind, word);
    let ending = s.array_ends(what);
    let streams = s.beside_captures(s.streams_of_all(header.context));
    Ok(s.park(header, Wait::Then(streams, call), move |s, code, _| {
        if code == CUDA_SUCCESS {
            s.array_ended(ending);
        }
        code
    }))
}
