//! Green contexts: parts of a device's multiprocessors, and contexts that run on them.
//!
//! Work is interpreted wherever a host thread is free, so a partition is only book-keeping; which partitions there are
//! and what may be done with them follows the rules for compute capability 9.0.

// UNSAFETY: C entry points; reads and writes the opaque part of `CUdevResource`.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, get, handle, list, put, put_some};
use crate::context::{self, Context};
use crate::device::{self, SM_COUNT};
use crate::green_context::{GREENS, Green, green};

/// The fewest multiprocessors of a partition and what their number is a multiple of: compute capability 9.0.
const PARTITION: u32 = 8;

/// The same where clusters need not be scheduled together.
const PARTITION_LOOSE: u32 = 2;
const EVERY_PROCESSOR: u64 = (1 << SM_COUNT) - 1;

/// What the opaque bytes of a resource hold.
#[repr(C)]
#[derive(Clone, Copy)]
struct Inside {
    magic: u64,
    processors: u64,
    /// The split that made it; 0 for what a device or a context has.
    split: u64,
    device: u64,
}

const MAGIC: u64 = 0x6f72_696f_6e5f_736d;

struct Descriptor {
    device: i32,
    processors: u64,
}

static DESCRIPTORS: Registry<Descriptor> = Registry::new();

fn resource(device: i32, processors: u64, split: u64) -> CUdevResource {
    // SAFETY: integers and bytes.
    let mut r: CUdevResource = unsafe { std::mem::zeroed() };
    if processors == 0 {
        return r;
    }
    r.type_ = CU_DEV_RESOURCE_TYPE_SM;
    r.__bindgen_anon_1.sm = CUdevSmResource {
        smCount: processors.count_ones(),
        minSmPartitionSize: PARTITION,
        smCoscheduledAlignment: PARTITION,
    };
    let inside = Inside { magic: MAGIC, processors, split, device: device as u64 };
    // SAFETY: the 92 opaque bytes have room for it.
    unsafe { r._internal_padding.as_mut_ptr().cast::<Inside>().write_unaligned(inside) };
    r
}

fn look_inside(r: &CUdevResource) -> R<Inside> {
    if r.type_ != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    // SAFETY: integers, from the 92 opaque bytes.
    let inside = unsafe { r._internal_padding.as_ptr().cast::<Inside>().read_unaligned() };
    if inside.magic == MAGIC { Ok(inside) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn only_processors(kind: CUdevResourceType) -> R {
    if kind == CU_DEV_RESOURCE_TYPE_SM { Ok(()) } else { Err(CUDA_ERROR_INVALID_RESOURCE_TYPE) }
}

/// Takes the `n` lowest processors out of a set.
fn take(from: &mut u64, n: u32) -> u64 {
    let before = *from;
    for _ in 0..n {
        *from &= from.wrapping_sub(1);
    }
    before & !*from
}

/// How many multiprocessors each group of a split has, and how many groups there can be.
fn groups(available: u32, flags: c_uint, wanted: c_uint) -> R<(u32, u32)> {
    let known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    if flags & !known != 0 || wanted > available {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let loose = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING != 0;
    let step = if loose { PARTITION_LOOSE } else { PARTITION };
    let each = wanted.max(step).next_multiple_of(step);
    match available / each {
        0 => Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION),
        count => Ok((each, count)),
    }
}

api! {
    fn cuDeviceGetDevResource(dev: CUdevice, out: *mut CUdevResource, kind: CUdevResourceType) {
        let dev = device::check(dev)?;
        only_processors(kind)?;
        put(out, resource(dev, EVERY_PROCESSOR, 0))
    }
    fn cuCtxGetDevResource(ctx: CUcontext, out: *mut CUdevResource, kind: CUdevResourceType) {
        let c = context::from_handle(ctx)?;
        only_processors(kind)?;
        put(out, resource(c.device, c.green.unwrap_or(EVERY_PROCESSOR), 0))
    }
    fn cuGreenCtxGetDevResource(h: CUgreenCtx, out: *mut CUdevResource, kind: CUdevResourceType) {
        let c = &green(h)?.context;
        only_processors(kind)?;
        put(out, resource(c.device, c.green.unwrap_or(EVERY_PROCESSOR), 0))
    }
    fn cuDevSmResourceSplitByCount(
        out: *mut CUdevResource,
        count: *mut c_uint,
        input: *const CUdevResource,
        remaining: *mut CUdevResource,
        flags: c_uint,
        wanted: c_uint,
    ) {
        static SPLITS: AtomicU64 = AtomicU64::new(1);
        device::initialised()?;
        let from = look_inside(&get(input)?)?;
        let asked = get(count)?;
        if from.split != 0 {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let (each, possible) = groups(from.processors.count_ones(), flags, wanted)?;
        let made = if out.is_null() { possible } else { asked.min(possible) };
        let (split, dev) = (SPLITS.fetch_add(1, Ordering::Relaxed), from.device as i32);
        let mut left = from.processors;
        for i in 0..made {
            let part = take(&mut left, each);
            if !out.is_null() {
                put(out.add(i as usize), resource(dev, part, split))?;
            }
        }
        put_some(remaining, resource(dev, left, split));
        put(count, made)
    }
    fn cuDevResourceGenerateDesc(out: *mut CUdevResourceDesc, resources: *mut CUdevResource, n: c_uint) {
        device::initialised()?;
        if out.is_null() || n == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let parts = list(resources, n as usize)?.iter().map(look_inside).collect::<R<Vec<_>>>()?;
        let first = parts[0];
        let one_split = parts.iter().all(|p| p.device == first.device && p.split == first.split);
        if !one_split || (parts.len() > 1 && first.split == 0) {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let processors = parts.iter().fold(0, |all, p| all | p.processors);
        put(out, DESCRIPTORS.add(&Arc::new(Descriptor { device: first.device as i32, processors })))
    }
    fn cuGreenCtxCreate(out: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: c_uint) {
        let dev = device::check(dev)?;
        if out.is_null() || flags != CU_GREEN_CTX_DEFAULT_STREAM {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let d = DESCRIPTORS.get(desc).filter(|d| d.device == dev).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::green(dev, d.processors)?;
        put(out, GREENS.add(&Arc::new(Green { context })))
    }
    fn cuGreenCtxDestroy(h: CUgreenCtx) {
        let g = green(h)?;
        GREENS.remove(h);
        g.context.end_green()
    }
    fn cuCtxFromGreenCtx(out: *mut CUcontext, h: CUgreenCtx) {
        put(out, handle(&green(h)?.context))
    }
    fn cuGreenCtxRecordEvent(h: CUgreenCtx, e: CUevent) {
        super::context::record_context(&green(h)?.context, e)
    }
    fn cuGreenCtxWaitEvent(h: CUgreenCtx, e: CUevent) {
        super::context::wait_context(&green(h)?.context, e)
    }
    fn cuGreenCtxStreamCreate(out: *mut CUstream, h: CUgreenCtx, flags: c_uint, priority: c_int) {
        let g = green(h)?;
        if flags != CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        super::stream::create_in(&g.context, out, flags, priority)
    }
    fn cuGreenCtxGetId(h: CUgreenCtx, id: *mut c_ulonglong) {
        if !h.is_null() {
            return put(id, green(h)?.context.number);
        }
        let c = context::current_any()?;
        if c.green.is_none() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        put(id, c.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_rounded_up_to_the_architectures_steps() {
        let split = |wanted, flags| groups(SM_COUNT, flags, wanted);
        assert_eq!(split(0, 0), Ok((8, 2)));
        assert_eq!(split(9, 0), Ok((16, 1)));
        assert_eq!(split(3, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING), Ok((4, 4)));
        assert_eq!(split(17, 0), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(split(1, 4), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(groups(4, 0, 1), Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION));
    }

    #[test]
    fn parts_are_disjoint() {
        let mut left = EVERY_PROCESSOR;
        let (a, b) = (take(&mut left, 8), take(&mut left, 6));
        assert_eq!((a, b, left), (0x00ff, 0x3f00, 0xc000));
    }
}
