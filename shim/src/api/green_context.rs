//! Green contexts: contexts on part of a device's multiprocessors.
//!
//! Each is made together with the `CUcontext` it converts to, so everything about that one is known here. Resources
//! pass through as bytes: the worker knows what it gave out.

// UNSAFETY: reads resources from the application's memory and writes answers to it.

use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::calls;
use orion_wire::message::field::{Exactly, Existing, List, Ordinal};
use orion_wire::message::green_context::{
    DevResourceGenerateDesc, DevSmResourceSplitByCount, DevSmResourceSplitByCountReply, GreenCtxCreate,
    GreenCtxDestroy, RESOURCE_BYTES, RESOURCES_MAX, ResourceCopy,
};

use crate::answer::{code, posted, write};
use crate::objects::stream::clamped;
use crate::session::attached::session;
use crate::session::call::{call, post};
use crate::session::{context, device};
use crate::state::green_context::Green;
use crate::state::process::state;
use crate::state::stream::Stream;

/// Awaited, unlike the others: the driver has to judge the green context.
///
/// # Safety
/// As CUDA's `cuGreenCtxStreamCreate`.
pub unsafe fn cuGreenCtxStreamCreate(out: *mut CUstream, green: CUgreenCtx, flags: u32, priority: i32) -> CUresult {
    let answer = (|| {
        let ctx = context_of(green)?;
        if out.is_null() || flags != CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let priority = clamped(priority, context::device_of(ctx).unwrap_or(0))?;
        let handle = state().handles.reserve(Kind::Stream);
        let q = calls::cuGreenCtxStreamCreate { phStream: handle.0, greenCtx: green as u64, flags, priority };
        let made = call(ops::CU_GREEN_CTX_STREAM_CREATE, |w| q.encode(w), |_| Ok(()));
        crate::objects::handles::made(handle, made)?;
        let id = state().streams.next_id.fetch_add(1, Ordering::Relaxed);
        state().streams.table.insert(handle, Stream { flags, priority, context: ctx, in_green: true, id });
        Ok(handle.0 as CUstream)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

const _: () = assert!(size_of::<ResourceCopy>() == size_of::<CUdevResource>());

/// One that was destroyed, or whose device was reset, is told from one that never was.
fn find(green: CUgreenCtx) -> Result<&'static Green, CUresult> {
    session()?;
    let handle = Handle(green as u64);
    if !handle.is(Kind::GreenContext) {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let g = state().green_contexts.table.get(handle).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    match context::device_of(g.context.0) {
        Some(_) => Ok(g),
        None => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
    }
}

/// The context that a green one converts to.
pub fn context_of(green: CUgreenCtx) -> Result<u64, CUresult> {
    find(green).map(|g| g.context.0)
}

/// # Safety
/// As CUDA's `cuDevResourceGenerateDesc`.
pub unsafe fn cuDevResourceGenerateDesc(
    out: *mut CUdevResourceDesc,
    resources: *mut CUdevResource,
    count: u32,
) -> CUresult {
    let answer = (|| {
        session()?;
        if out.is_null() || count as usize > RESOURCES_MAX || (resources.is_null() && count != 0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let copies = match count {
            0 => Vec::new(),
            // SAFETY: not null, and so many by the contract: integers and bytes without gaps.
            _ => {
                unsafe { std::slice::from_raw_parts(resources.cast::<[u8; RESOURCE_BYTES]>(), count as usize) }.to_vec()
            }
        };
        let mut known = state().green_contexts.descriptors.lock();
        let known = known.get_or_insert_default();
        if let Some(descriptor) = known.get(&copies) {
            return Ok(*descriptor as CUdevResourceDesc);
        }
        let handle = state().handles.reserve(Kind::DevResourceDesc);
        let resources =
            List::of(copies.iter().copied().map(Exactly).collect()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let q = DevResourceGenerateDesc { descriptor: handle.into(), resources };
        let made = call(DevResourceGenerateDesc::OP, |w| q.encode(w), |_| Ok(()));
        crate::objects::handles::made(handle, made)?;
        known.insert(copies, handle.0);
        Ok(handle.0 as CUdevResourceDesc)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGreenCtxCreate`.
pub unsafe fn cuGreenCtxCreate(
    out: *mut CUgreenCtx,
    descriptor: CUdevResourceDesc,
    dev: CUdevice,
    flags: u32,
) -> CUresult {
    let answer = (|| {
        session()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        device::exists(dev)?;
        if !Handle(descriptor as u64).is(Kind::DevResourceDesc) || flags != CU_GREEN_CTX_DEFAULT_STREAM {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (green, context) = (state().handles.reserve(Kind::GreenContext), state().handles.reserve(Kind::Context));
        let q = GreenCtxCreate {
            green: green.into(),
            context: context.into(),
            descriptor: Existing(descriptor as u64),
            device: Ordinal(dev),
            flags,
        };
        let made = call(GreenCtxCreate::OP, |w| q.encode(w), |_| Ok(()));
        if let Err(code) = made.and_then(|()| crate::objects::context::adopt(context, green, dev)) {
            crate::objects::handles::release(green);
            crate::objects::handles::release(context);
            return Err(code);
        }
        state().green_contexts.table.insert(green, Green { context, device: dev });
        Ok(green.0 as CUgreenCtx)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGreenCtxDestroy(green: CUgreenCtx) -> CUresult {
    code((|| {
        let g = find(green)?;
        // Of two threads that destroy it, one does.
        if state().green_contexts.table.remove(Handle(green as u64)).is_none()
            || !crate::objects::context::disown(g.context)
        {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        let q = GreenCtxDestroy { green: Existing(green as u64) };
        let destroyed = call(GreenCtxDestroy::OP, |w| q.encode(w), |_| Ok(()));
        crate::objects::handles::release(Handle(green as u64));
        crate::objects::handles::release(g.context);
        crate::objects::context::release_green(g.device)?;
        destroyed
    })())
}

/// # Safety
/// As CUDA's `cuCtxFromGreenCtx`.
pub unsafe fn cuCtxFromGreenCtx(out: *mut CUcontext, green: CUgreenCtx) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, context_of(green).map(|c| c as CUcontext)) }
}

/// Null means the current context, if that is a green one.
///
/// # Safety
/// As CUDA's `cuGreenCtxGetId`.
pub unsafe fn cuGreenCtxGetId(green: CUgreenCtx, id: *mut u64) -> CUresult {
    let context = if green.is_null() {
        context::current_green().and_then(|g| context_of(g as CUgreenCtx))
    } else {
        context_of(green)
    };
    match context {
        // SAFETY: the caller's promise.
        Ok(c) => unsafe { crate::api::context::cuCtxGetId(c as CUcontext, id) },
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuDevSmResourceSplitByCount`.
pub unsafe fn cuDevSmResourceSplitByCount(
    result: *mut CUdevResource,
    nbGroups: *mut u32,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    useFlags: u32,
    minCount: u32,
) -> CUresult {
    code((|| {
        session()?;
        if nbGroups.is_null() || input.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, valid by the caller's promise; a resource has no gaps.
        let (room, input) = unsafe { (nbGroups.read(), Exactly(input.cast::<[u8; RESOURCE_BYTES]>().read())) };
        let room = if result.is_null() { 0 } else { room };
        let q = DevSmResourceSplitByCount {
            wants_groups: !result.is_null(),
            room,
            wants_rest: !remaining.is_null(),
            input,
            flags: useFlags,
            least: minCount,
        };
        call(
            DevSmResourceSplitByCount::OP,
            |w| q.encode(w),
            |r| {
                let answer = DevSmResourceSplitByCountReply::decode(r)?;
                if answer.groups.len() > room as usize {
                    return Err(Fault("more groups than there is room for"));
                }
                // SAFETY: the caller's promise: `room` groups, or none where null was given, and one rest.
                unsafe {
                    for (i, group) in answer.groups.iter().enumerate() {
                        result.cast::<[u8; RESOURCE_BYTES]>().add(i).write(group.0);
                    }
                    if !remaining.is_null() {
                        remaining.cast::<[u8; RESOURCE_BYTES]>().write(answer.rest.0);
                    }
                    nbGroups.write(answer.count);
                }
                Ok(())
            },
        )
    })())
}

fn event_command(op: u16, green: CUgreenCtx, event: CUevent, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    code((|| {
        find(green)?;
        if !Handle(event as u64).is(Kind::Event) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        posted(post(op, encode))
    })())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) -> CUresult {
    let q = calls::cuGreenCtxRecordEvent { hCtx: green as u64, hEvent: event as u64 };
    event_command(ops::CU_GREEN_CTX_RECORD_EVENT, green, event, |w| q.encode(w))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) -> CUresult {
    let q = calls::cuGreenCtxWaitEvent { hCtx: green as u64, hEvent: event as u64 };
    event_command(ops::CU_GREEN_CTX_WAIT_EVENT, green, event, |w| q.encode(w))
}
