//! What a profiler in the application wants to know of the GPU.

use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::activity::{COPIES, KERNELS, SETS};
use orion_wire::handle::Kind;
use orion_wire::message::activity::{ActivityClock, ActivityClockReply, ActivityCorrelation, ActivityEnable};
use orion_wire::message::activity::{ActivityEnableReply, ActivityGraphId, ActivityGraphIdReply, ActivityRefused};
use orion_wire::message::activity::{ActivityTake, GraphObject};
use orion_wire::record::Header;

use crate::worker::driver::cupti;
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::waits::Wait;

/// Which kinds are recorded from now on. On a helper thread: loading CUPTI takes a while, and it takes the driver's
/// locks.
pub fn enable(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let ActivityEnable { kinds } = ActivityEnable::decode(&mut r)?;
    if kinds & !(KERNELS | COPIES | SETS) != 0 {
        let why = format!("this oriond knows no kinds of activity beyond 7, and was asked for {kinds:#x}");
        ActivityRefused { why: why.as_bytes().into() }.encode(reply);
        return Ok(Outcome::Done(CUDA_ERROR_INVALID_VALUE));
    }
    if kinds == 0 {
        s.stop_recording();
    }
    if kinds == 0 && cupti::loaded().is_none() {
        ActivityEnableReply { clock: cupti::now() }.encode(reply);
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
            CUDA_SUCCESS => ActivityEnableReply { clock: cupti::now() }.encode(reply),
            _ => {
                let why = refusal.lock().expect("no panic happens under this lock");
                ActivityRefused { why: why.as_bytes().into() }.encode(reply);
            }
        }
        code
    }))
}

/// What was recorded, after a flush if the client wants one. CUPTI waits in a flush for its own thread and for buffers
/// to be read, so that happens on a helper thread.
pub fn take(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    match ActivityTake::decode(&mut r)?.flush {
        false => {
            cupti::store().take(&s.vgpus.devices(), reply);
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        true => {
            let job = s.helpers.run(std::ptr::null_mut(), |_| {
                cupti::flush();
                CUDA_SUCCESS
            });
            Ok(s.park(&contextless(header), Wait::Job(job), |s, code, reply| {
                cupti::store().take(&s.vgpus.devices(), reply);
                code
            }))
        }
    }
}

/// Asked of the profiler, whose records have it too.
pub fn graph_id(s: &mut Session, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (kind, word) = match ActivityGraphId::decode(&mut r)?.object {
        GraphObject::Graph(name) => (Kind::Graph, name.0),
        GraphObject::Exec(name) => (Kind::GraphExec, name.0),
        GraphObject::Node(name) => (Kind::GraphNode, name.0),
    };
    let object = match s.handle(kind, word) {
        Ok(object) if !object.is_null() => object,
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_VALUE)),
    };
    let Some(cupti) = cupti::loaded() else { return Ok(Outcome::Done(CUDA_ERROR_NOT_INITIALIZED)) };
    match cupti.graph_id(kind, object) {
        Some(id) => {
            ActivityGraphIdReply { id }.encode(reply);
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        None => Ok(Outcome::Done(CUDA_ERROR_NOT_SUPPORTED)),
    }
}

pub fn clock(mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    ActivityClock::decode(&mut r)?;
    ActivityClockReply { clock: cupti::now() }.encode(reply);
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// Whose the thread's commands are from now on.
pub fn correlation(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    s.name_call(header.thread, ActivityCorrelation::decode(&mut r)?.id);
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// Whether it is done is asked with no context, not with one that may be gone by then.
fn contextless(header: &Header) -> Header {
    Header { context: 0, ..*header }
}
