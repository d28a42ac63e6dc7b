//! Green contexts.

// UNSAFETY: calls the driver with handles and resources of this session.

use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::calls;
use orion_wire::message::field::{Exactly, List};
use orion_wire::message::green_context::{
    DevResourceGenerateDesc, DevSmResourceSplitByCount, DevSmResourceSplitByCountReply, GROUPS_MAX, GreenCtxCreate,
    GreenCtxDestroy, RESOURCE_BYTES,
};
use orion_wire::record::Header;

use crate::worker::driver::log as driver_log;
use crate::worker::outcome::{Handled, Outcome, Stop, finish};
use crate::worker::session::Session;
use crate::worker::state::green::{Green, empty};
use crate::worker::state::waits::Wait;

/// Asks the driver for a resource and answers the client's copy of it.
fn get(
    s: &mut Session,
    type_: CUdevResourceType,
    ask: impl FnOnce(&'static Driver, &mut CUdevResource) -> CUresult,
) -> Result<[u8; RESOURCE_BYTES], Stop> {
    // Of later types this driver's ABI has other structures.
    if type_ != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE.into());
    }
    let mut resource = empty();
    match ask(s.driver, &mut resource) {
        CUDA_SUCCESS => Ok(s.green.give(&resource)),
        code => Err(code.into()),
    }
}

pub fn cuDeviceGetDevResource(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = calls::cuDeviceGetDevResource::decode(&mut r)?;
        let device = s.device(q.device)?;
        // SAFETY: a device of this session and a valid out pointer.
        let resource = get(s, q.type_, |d, out| unsafe { d.cuDeviceGetDevResource(device, out, q.type_) })?;
        calls::cuDeviceGetDevResource_reply { resource: &resource }.encode(reply);
        Ok(CUDA_SUCCESS)
    })
}

pub fn cuCtxGetDevResource(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = calls::cuCtxGetDevResource::decode(&mut r)?;
        if q.hCtx == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT.into());
        }
        let context = s.context(q.hCtx)?;
        // SAFETY: a context of this session and a valid out pointer.
        let resource = get(s, q.type_, |d, out| unsafe { d.cuCtxGetDevResource(context, out, q.type_) })?;
        calls::cuCtxGetDevResource_reply { resource: &resource }.encode(reply);
        Ok(CUDA_SUCCESS)
    })
}

pub fn cuGreenCtxGetDevResource(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = calls::cuGreenCtxGetDevResource::decode(&mut r)?;
        let green: CUgreenCtx = named(s, q.hCtx)?;
        // SAFETY: a green context of this session and a valid out pointer.
        let resource = get(s, q.type_, |d, out| unsafe { d.cuGreenCtxGetDevResource(green, out, q.type_) })?;
        calls::cuGreenCtxGetDevResource_reply { resource: &resource }.encode(reply);
        Ok(CUDA_SUCCESS)
    })
}

fn named(s: &mut Session, word: u64) -> Result<CUgreenCtx, CUresult> {
    match s.handle(Kind::GreenContext, word) {
        Ok(g) if !g.is_null() => Ok(g.cast()),
        _ => Err(CUDA_ERROR_INVALID_CONTEXT),
    }
}

pub fn cuDevSmResourceSplitByCount(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = DevSmResourceSplitByCount::decode(&mut r)?;
        let input = s.green.original(&q.input.0)?;
        let room = (q.room as usize).min(GROUPS_MAX);
        let (mut groups, mut rest, mut count) = (vec![empty(); room], empty(), room as u32);
        let groups_at = if q.wants_groups { groups.as_mut_ptr() } else { ptr::null_mut() };
        let rest_at = if q.wants_rest { &raw mut rest } else { ptr::null_mut() };
        // SAFETY: an array of `count` elements or null, a resource of the driver's own, and valid out pointers.
        let code =
            unsafe { s.driver.cuDevSmResourceSplitByCount(groups_at, &mut count, &input, rest_at, q.flags, q.least) };
        if code == CUDA_SUCCESS {
            let rest = Exactly(s.green.give(&rest));
            let made = if q.wants_groups { (count as usize).min(room) } else { 0 };
            let groups = groups[..made].iter().map(|g| Exactly(s.green.give(g))).collect();
            let groups = List::of(groups).expect("no more than there was room for");
            DevSmResourceSplitByCountReply { count, rest, groups }.encode(reply);
        }
        Ok(code)
    })
}

pub fn cuDevResourceGenerateDesc(s: &mut Session, _: &Header, mut r: Reader<'_>, _: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = DevResourceGenerateDesc::decode(&mut r)?;
        let count = q.resources.len() as u32;
        let mut resources = q.resources.iter().map(|c| s.green.original(&c.0)).collect::<Result<Vec<_>, _>>()?;
        let mut descriptor = ptr::null_mut();
        // SAFETY: as many resources as the count says, and a valid out pointer.
        let code = unsafe { s.driver.cuDevResourceGenerateDesc(&mut descriptor, resources.as_mut_ptr(), count) };
        if code == CUDA_SUCCESS {
            s.bind(Kind::DevResourceDesc, q.descriptor.0, descriptor.cast())?;
        }
        Ok(code)
    })
}

pub fn cuGreenCtxCreate(s: &mut Session, _: &Header, mut r: Reader<'_>, _: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = GreenCtxCreate::decode(&mut r)?;
        let (name, context_name, ordinal) = (q.green.0, q.context.0, q.device.0);
        let descriptor = s.existing(Kind::DevResourceDesc, q.descriptor.0).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let vgpu = s.vgpus.get(s.vgpus.at(ordinal)?);
        if !vgpu.is_first() {
            // The driver would put it beside another vGPU's primary context, whose modules and memory it would have.
            driver_log::refuse("a vGPU that shares its GPU with another one of the session has no green contexts");
            return Err(CUDA_ERROR_NOT_SUPPORTED.into());
        }
        let device = vgpu.device;
        let (mut green, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a descriptor and a device of this session, and a valid out pointer.
        let code = unsafe { s.driver.cuGreenCtxCreate(&mut green, descriptor.cast(), device, q.flags) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        // SAFETY: the green context just made and a valid out pointer.
        let code = unsafe { s.driver.cuCtxFromGreenCtx(&mut context, green) };
        if code != CUDA_SUCCESS {
            // SAFETY: nobody knows it.
            unsafe { s.driver.cuGreenCtxDestroy(green) };
            return Ok(code);
        }
        s.bind(Kind::GreenContext, name, green.cast())?;
        s.bind(Kind::Context, context_name, context.cast())?;
        s.green.greens.insert(name, Green { context: context_name, ordinal });
        s.green.contexts.insert(green as usize, context_name);
        Ok(CUDA_SUCCESS)
    })
}

/// Waits for its work first, which may wait for the client, where the driver might.
pub fn cuGreenCtxDestroy(s: &mut Session, header: &Header, mut r: Reader<'_>, _: &mut Vec<u8>) -> Handled {
    let name = GreenCtxDestroy::decode(&mut r)?.green.0;
    let Some(context) = s.green.greens.get(&name).map(|g| g.context) else {
        return Ok(Outcome::Done(CUDA_ERROR_INVALID_CONTEXT));
    };
    let mut streams: Vec<_> = s.busy_streams_of(context).into_iter().map(|stream| (context, stream)).collect();
    streams.push((context, ptr::null_mut()));
    // Whatever the streams answer, an error for instance: it is given up.
    Ok(s.park(header, Wait::Everywhere(streams), move |s, _, _| end(s, name)))
}

/// Ends the green contexts of a device.
pub fn end_all(s: &mut Session, ordinal: i32) {
    let here = s.green.greens.iter().filter(|(_, g)| g.ordinal == ordinal).map(|(name, _)| *name);
    for name in here.collect::<Vec<_>>() {
        end(s, name);
    }
}

fn end(s: &mut Session, name: u64) -> CUresult {
    let Some(Green { context, .. }) = s.green.greens.remove(&name) else { return CUDA_ERROR_CONTEXT_IS_DESTROYED };
    let Ok(green) = named(s, name) else { return CUDA_ERROR_INVALID_CONTEXT };
    let (streams, events) = s.own_objects(context);
    for stream in streams {
        s.stream_gone(stream);
        // SAFETY: a stream made for the session itself, which nothing refers to any more.
        unsafe { s.driver.cuStreamDestroy_v2(stream) };
    }
    for event in events {
        // SAFETY: an event from the stock, which nobody uses.
        unsafe { s.driver.cuEventDestroy_v2(event) };
    }
    // The driver does not destroy the application's streams, and no call may name one afterwards.
    let own = s.green.streams.iter().filter(|(_, (_, of))| *of == context).map(|(stream, (word, _))| (*stream, *word));
    for (stream, word) in own.collect::<Vec<_>>() {
        s.stream_gone(stream as CUstream);
        s.unbind(Kind::Stream, word);
        s.green.orphans.insert(word);
    }
    s.forget_context(context);
    // SAFETY: no context is current on this thread afterwards.
    unsafe { s.driver.cuCtxSetCurrent(ptr::null_mut()) };
    // SAFETY: a green context of this session that nothing refers to any more.
    let code = unsafe { s.driver.cuGreenCtxDestroy(green) };
    s.green.contexts.remove(&(green as usize));
    s.unbind(Kind::Context, context);
    s.unbind(Kind::GreenContext, name);
    code
}
