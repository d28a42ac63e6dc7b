//! Managed memory: memory of the host at one address for both, of which kernels reach every byte.
//!
//! It is what [`crate::memory::host_memory`] has as pinned memory, by another name: over shared memory kernels and the
//! application use the same pages, and elsewhere it is kept in step ([`crate::memory::in_step`]). No page moves to the
//! GPU, so advice and prefetches have no effect, and kernels read it over PCIe. `ORION_MANAGED=off` refuses it, as on a
//! device without.
//!
//! To programs the device says `concurrentManagedAccess` 0: such a device may not be prefetched to, they find, and the
//! host stays away from managed memory while a kernel runs. A prefetch that comes all the same, and that a device of
//! the stricter kind takes, is taken here too.

// UNSAFETY: writes answers through the application's pointers, and reads its arrays.

use std::ffi::c_void;
use std::sync::Once;

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;

use crate::answer::{code, not_null, write};
use crate::api::host_memory::free_in_heap;
use crate::memory::host_memory::allocate;
use crate::memory::in_step;
use crate::objects::stream::find;
use crate::objects::synchronize::{before_freeing, refused_beside_captures};
use crate::report::refuse::refused;
use crate::session::attached::session;
use crate::session::call::call;
use crate::session::context::needs_context;
use crate::session::device::told;
use crate::state::address_map::{MemoryKind, Range};
use crate::state::context;
use crate::state::managed::{Advice, Location, NOWHERE, common, is_on};
use crate::state::process::state;

/// How many ranges one call may name; the driver's own limit is not known.
const RANGES_MAX: usize = 64 << 10;

/// # Safety
/// As CUDA's `cuMemAllocManaged`.
pub unsafe fn cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, flags: u32) -> CUresult {
    let answer = (|| {
        let (s, home) = (session()?, needs_context()?);
        if out.is_null() || bytes == 0 || !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !is_on() {
            refused("cuMemAllocManaged", "ORION_MANAGED=off; unset it, or allocate by cudaMalloc");
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            crate::say!(
                "managed memory (cudaMallocManaged) lies in the host's memory and stays there: kernels reach it over \
                 PCIe, or over the network; cudaMalloc and copies are faster where they use it often, and \
                 ORION_MANAGED=off refuses it"
            );
        });
        refused_beside_captures()?;
        let range = allocate(s, bytes as u64)?;
        let base = s.heap.base() as u64 + range.offset;
        let device = context::current_device().unwrap_or(0);
        let mut entry = Range::new(base, bytes as u64, MemoryKind::Managed, home, device);
        (entry.flags, entry.owner, entry.is_mapped) = (flags, range.offset, true);
        state().addresses.insert(entry);
        // Kernels find it by whatever way, so from now on it is kept in step, or is not to be had.
        if s.pages.must_bring() && in_step::follow(s, entry).is_err() {
            state().addresses.remove(base);
            free_in_heap(s, &entry)?;
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(base)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// As `cuMemFree` of device memory it comes back when all work is done that may use it, though another thread's
/// stream may be captured.
pub fn free(range: &Range) -> CUresult {
    code((|| {
        let s = session()?;
        before_freeing(range.context)?;
        let gone = state().addresses.remove_if(range.base, |r| r.id == range.id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        state().managed.advised.lock().forget(gone.base, gone.end());
        free_in_heap(s, &gone)
    })())
}

/// The managed allocation that has some of these bytes, if one has; an error if it has not all of them.
fn managed(address: u64, bytes: usize) -> Result<Option<Range>, CUresult> {
    let Some(range) = state().addresses.find(address).filter(Range::is_managed) else {
        return Ok(None);
    };
    match (1..=range.bytes_from(address)).contains(&(bytes as u64)) {
        true => Ok(Some(range)),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// As [`managed`], of what may be nothing else.
fn only_managed(address: u64, bytes: usize) -> Result<Range, CUresult> {
    managed(address, bytes)?.ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn check(location: Location) -> Result<Location, CUresult> {
    match location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE if location.id < 0 || told(location.id as u32).is_none() => {
            Err(CUDA_ERROR_INVALID_DEVICE)
        }
        CU_MEM_LOCATION_TYPE_DEVICE
        | CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(location),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// A structure of two numbers, whose first is of the type's own.
fn in_words(location: &CUmemLocation) -> Location {
    // SAFETY: two numbers of four bytes, whatever they mean.
    let [kind, id] = unsafe { std::ptr::from_ref(location).cast::<[u32; 2]>().read() };
    Location { kind, id: id as i32 }
}

fn bytes_of(location: &CUmemLocation) -> &[u8] {
    // SAFETY: two numbers without a gap.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(location).cast(), size_of::<CUmemLocation>()) }
}

/// Of `bytes` at `address`, all managed.
fn advise(address: u64, bytes: usize, advice: CUmem_advise, location: Location) -> Result<(), CUresult> {
    let wanted = || check(location);
    let device = || match check(location)?.device() {
        NOWHERE => Err(CUDA_ERROR_INVALID_VALUE),
        device => Ok(device),
    };
    let mut advised = state().managed.advised.lock();
    let mut change = |change: &dyn Fn(&mut Advice)| advised.advise(address, address + bytes as u64, change);
    match advice {
        CU_MEM_ADVISE_SET_READ_MOSTLY => change(&|a| a.is_read_mostly = true),
        CU_MEM_ADVISE_UNSET_READ_MOSTLY => change(&|a| a.is_read_mostly = false),
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            let wanted = wanted()?;
            change(&|a| a.preferred = wanted);
        }
        CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => change(&|a| a.preferred = Location::NONE),
        CU_MEM_ADVISE_SET_ACCESSED_BY => {
            let device = device()?;
            change(&|a| {
                if !a.accessed_by.contains(&device) {
                    a.accessed_by.push(device);
                }
            });
        }
        CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            let device = device()?;
            change(&|a| a.accessed_by.retain(|d| *d != device));
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// Of `bytes` at `address`, all managed, in a stream.
fn prefetch(address: u64, bytes: usize, to: Location, stream: CUstream) -> Result<(), CUresult> {
    find(stream)?;
    let to = check(to)?;
    state().managed.advised.lock().advise(address, address + bytes as u64, |advice| advice.prefetched = to);
    Ok(())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice) -> CUresult {
    code((|| {
        session()?;
        if managed(address, bytes)?.is_some() {
            return advise(address, bytes, advice, Location::of_device(device));
        }
        let q = calls::cuMemAdvise { devPtr: ClaimedDevice::new(address), count: bytes, advice, device };
        call(ops::CU_MEM_ADVISE, |w| q.encode(w), |_| Ok(()))
    })())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemAdvise_v2(
    address: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> CUresult {
    code((|| {
        session()?;
        if managed(address, bytes)?.is_some() {
            return advise(address, bytes, advice, in_words(&location));
        }
        let (devPtr, location) = (ClaimedDevice::new(address), bytes_of(&location));
        let q = calls::cuMemAdvise_v2 { devPtr, count: bytes, advice, location };
        call(ops::CU_MEM_ADVISE_V2, |w| q.encode(w), |_| Ok(()))
    })())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, to: CUdevice, stream: CUstream) -> CUresult {
    code((|| {
        session()?;
        if managed(address, bytes)?.is_some() {
            return prefetch(address, bytes, Location::of_device(to), stream);
        }
        let (devPtr, hStream) = (ClaimedDevice::new(address), stream as u64);
        let q = calls::cuMemPrefetchAsync { devPtr, count: bytes, dstDevice: to, hStream };
        call(ops::CU_MEM_PREFETCH_ASYNC, |w| q.encode(w), |_| Ok(()))
    })())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemPrefetchAsync_v2(
    address: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> CUresult {
    code((|| {
        session()?;
        if managed(address, bytes)?.is_some() {
            return match flags {
                0 => prefetch(address, bytes, in_words(&location), stream),
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            };
        }
        let (devPtr, hStream) = (ClaimedDevice::new(address), stream as u64);
        let q = calls::cuMemPrefetchAsync_v2 { devPtr, count: bytes, location: bytes_of(&location), flags, hStream };
        call(ops::CU_MEM_PREFETCH_ASYNC_V2, |w| q.encode(w), |_| Ok(()))
    })())
}

/// # Safety
/// As CUDA's `cuStreamAttachMemAsync`.
pub unsafe fn cuStreamAttachMemAsync(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: u32) -> CUresult {
    code((|| {
        session()?;
        let own = find(stream)?;
        let range = only_managed(address, 1)?;
        let is_whole = range.base == address && (bytes == 0 || bytes as u64 == range.bytes);
        let is_known = match flags {
            CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST => true,
            // To a default stream nothing can be attached.
            CU_MEM_ATTACH_SINGLE => own.is_some(),
            _ => false,
        };
        if is_whole && is_known { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    })())
}

/// Of all bytes of a range.
///
/// # Safety
/// `to` has `bytes` writable bytes.
unsafe fn tell(
    to: *mut c_void,
    bytes: usize,
    attribute: CUmem_range_attribute,
    advice: &[Advice],
) -> Result<(), CUresult> {
    let preferred = common(advice, |a| a.preferred, Location::NONE);
    let prefetched = common(advice, |a| a.prefetched, Location::NONE);
    let value = match attribute {
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => i32::from(common(advice, |a| a.is_read_mostly, false)),
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => preferred.device(),
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => prefetched.device(),
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => preferred.kind as i32,
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => preferred.id,
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => prefetched.kind as i32,
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => prefetched.id,
        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            if bytes < size_of::<CUdevice>() || !bytes.is_multiple_of(size_of::<CUdevice>()) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let by_all = |device: &&CUdevice| advice.iter().all(|a| a.accessed_by.contains(device));
            let first = advice.first().map_or(&[][..], |a| &a.accessed_by);
            let devices = first.iter().filter(by_all).copied().chain(std::iter::repeat(NOWHERE));
            for (i, device) in devices.take(bytes / size_of::<CUdevice>()).enumerate() {
                // SAFETY: within the caller's bytes, which need not be aligned for all that is known.
                unsafe { to.cast::<CUdevice>().add(i).write_unaligned(device) };
            }
            return Ok(());
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if bytes != size_of::<i32>() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: four of the caller's bytes.
    unsafe { to.cast::<i32>().write_unaligned(value) };
    Ok(())
}

/// # Safety
/// As CUDA's `cuMemRangeGetAttribute`.
pub unsafe fn cuMemRangeGetAttribute(
    to: *mut c_void,
    size: usize,
    attribute: CUmem_range_attribute,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    code((|| {
        session()?;
        not_null(to)?;
        only_managed(address, bytes)?;
        let advice = state().managed.advised.lock().of(address, address + bytes as u64);
        // SAFETY: not null; the caller's place of that size.
        unsafe { tell(to, size, attribute, &advice) }
    })())
}

/// # Safety
/// As CUDA's `cuMemRangeGetAttributes`.
pub unsafe fn cuMemRangeGetAttributes(
    to: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    count: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    code((|| {
        session()?;
        not_null(to)?;
        not_null(sizes)?;
        not_null(attributes)?;
        only_managed(address, bytes)?;
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let advice = state().managed.advised.lock().of(address, address + bytes as u64);
        for i in 0..count {
            // SAFETY: three arrays of `count` elements, by the caller's promise.
            let (place, size, attribute) = unsafe { (to.add(i).read(), sizes.add(i).read(), attributes.add(i).read()) };
            not_null(place)?;
            // SAFETY: not null; the caller's place of that size.
            unsafe { tell(place, size, attribute, &advice) }?;
        }
        Ok(())
    })())
}

/// Ranges of managed memory that one call names.
///
/// # Safety
/// Two arrays of `count` elements, or null.
unsafe fn ranges(
    addresses: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
) -> Result<Vec<(u64, usize)>, CUresult> {
    session()?;
    not_null(addresses)?;
    not_null(sizes)?;
    if count == 0 || count > RANGES_MAX {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let all: Vec<_> = (0..count).map(|i| unsafe { (addresses.add(i).read(), sizes.add(i).read()) }).collect();
    for (address, bytes) in &all {
        only_managed(*address, *bytes)?;
    }
    Ok(all)
}

/// # Safety
/// As CUDA's `cuMemPrefetchBatchAsync`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuMemPrefetchBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    firsts: *mut usize,
    location_count: usize,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    code((|| {
        // SAFETY: the caller's promise.
        let all = unsafe { ranges(addresses, sizes, count) }?;
        not_null(locations)?;
        not_null(firsts)?;
        if flags != 0 || location_count == 0 || location_count > count {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: two arrays of `location_count` elements, by the caller's promise.
        let places: Vec<_> =
            (0..location_count).map(|i| unsafe { (firsts.add(i).read(), in_words(&*locations.add(i))) }).collect();
        // The first is for the first range, and each for those up to the next.
        let is_in_order = places[0].0 == 0 && places.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !is_in_order || places.last().is_some_and(|(first, _)| *first >= count) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (_, place) in &places {
            check(*place)?;
        }
        find(stream)?;
        for (i, (address, bytes)) in all.into_iter().enumerate() {
            let (_, place) = places[places.partition_point(|(first, _)| *first <= i) - 1];
            prefetch(address, bytes, place, stream)?;
        }
        Ok(())
    })())
}

/// # Safety
/// As CUDA's `cuMemDiscardBatchAsync`.
pub unsafe fn cuMemDiscardBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    code((|| {
        // SAFETY: the caller's promise.
        unsafe { ranges(addresses, sizes, count) }?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        find(stream).map(drop)
    })())
}

/// # Safety
/// As CUDA's `cuMemDiscardAndPrefetchBatchAsync`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuMemDiscardAndPrefetchBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    firsts: *mut usize,
    location_count: usize,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the same promises. What was discarded may be anything, so also what it was.
    unsafe { cuMemPrefetchBatchAsync(addresses, sizes, count, locations, firsts, location_count, flags, stream) }
}
