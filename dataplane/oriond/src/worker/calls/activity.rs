//! What a profiler in the application wants to know of the GPU.

use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;
use orion_wire::activity::{COPIES, GRAPH, GRAPH_EXEC, GRAPH_NODE, KERNELS, SETS};
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Fault, Reader, Writer};

use crate::worker::driver::cupti;
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::waits::Wait;

/// Which kinds are recorded from now on. On a helper thread: loading CUPTI takes a while, and it takes the driver's
/// locks.
pub fn enable(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let kinds = r.word()?;
    r.finish()?;
    if kinds & !(KERNELS | COPIES | SETS) != 0 {
        reply
            .bytes(format!("this oriond knows no kinds of activity beyond 7, and was asked for {kinds:#x}").as_bytes());
        return Ok(Outcome::Done(CUDA_ERROR_INVALID_VALUE));
    }
    if kinds == 0 {
        s.stop_recording();
    }
    if kinds == 0 && cupti::loaded().is_none() {
        reply.word(cupti::now());
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    let refusal = Arc::new(Mutex::new(String::new()));
    let (theirs, source) = (refusal.clone(), s.profiler.clone());
    let job = s.helpers.run(std::ptr::null_mut(), move |_| match cupti::record(&source, kinds) {
        Ok(()) => CUDA_SUCCESS,
        Err(text) => {
            *theirs.lock().expect("no panic happens under this lock") = text;
            CUDA_ERROR_NOT_SUPPORTED
        }
    });
    Ok(s.park(&contextless(header), Wait::Job(job), move |s, code, reply| {
        match code {
            CUDA_SUCCESS if kinds != 0 => s.start_recording(),
            CUDA_SUCCESS => {}
            _ => s.stop_recording(),
        }
        match code {
            CUDA_SUCCESS => reply.word(cupti::now()),
            _ => reply.bytes(refusal.lock().expect("no panic happens under this lock").as_bytes()),
        }
        code
    }))
}

/// What was recorded, after a flush if the client wants one. CUPTI waits in a flush for its own thread and for buffers
/// to be read, so that happens on a helper thread.
pub fn take(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let flush = r.word()?;
    r.finish()?;
    match flush {
        0 => {
            cupti::store().take(&s.vgpus.devices(), reply);
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        1 => {
            let job = s.helpers.run(std::ptr::null_mut(), |_| {
                cupti::flush();
                CUDA_SUCCESS
            });
            Ok(s.park(&contextless(header), Wait::Job(job), |s, code, reply| {
                cupti::store().take(&s.vgpus.devices(), reply);
                code
            }))
        }
        _ => Err(Fault("activities with an unknown way to take them").into()),
    }
}

/// Asked of the profiler, whose records have it too.
pub fn graph_id(s: &mut Session, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (what, word) = (r.word()?, r.word()?);
    r.finish()?;
    let kind = match what {
        GRAPH => Kind::Graph,
        GRAPH_EXEC => Kind::GraphExec,
        GRAPH_NODE => Kind::GraphNode,
        _ => return Err(Fault("the number of an unknown part of a graph").into()),
    };
    let object = match s.handle(kind, word) {
        Ok(object) if !object.is_null() => object,
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_VALUE)),
    };
    let Some(cupti) = cupti::loaded() else { return Ok(Outcome::Done(CUDA_ERROR_NOT_INITIALIZED)) };
    match cupti.graph_id(kind, object) {
        Some(id) => {
            reply.word(id);
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        None => Ok(Outcome::Done(CUDA_ERROR_NOT_SUPPORTED)),
    }
}

pub fn clock(r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    r.finish()?;
    reply.word(cupti::now());
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// Whose the thread's commands are from now on.
pub fn correlation(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    let id = u32::try_from(r.word()?).map_err(|_| Fault("correlation id of more than 32 bits"))?;
    r.finish()?;
    s.name_call(header.thread, id);
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// Whether it is done is asked with no context, not with one that may be gone by then.
fn contextless(header: &Header) -> Header {
    Header { context: 0, ..*header }
}
