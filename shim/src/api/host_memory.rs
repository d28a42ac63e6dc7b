//! Host memory that the GPU reaches. How it comes to be: [`crate::memory::host_memory`].

// UNSAFETY: writes answers through the application's pointers.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_transport::thread::Uncancelled;
use orion_wire::message::address::ClaimedHost;
use orion_wire::message::host_memory::{MemFreeHost, MemHostUnregister};
use orion_wire::record::HeapRange;

use crate::answer::{code, posted, write};
use crate::memory::host_memory::{Backing, allocate, backing_of, is_still_there, move_all_out, move_in, page_of};
use crate::memory::in_step;
use crate::memory::shared_file;
use crate::objects::synchronize::{before_freeing, refused_beside_captures};
use crate::session::attached::session;
use crate::session::call::{call, post, post_to};
use crate::session::poison;
use crate::state::address_map::{MemoryKind, Range};
use crate::state::context;
use crate::state::heap::PAGE;
use crate::state::host_memory::{BLOCK, Moved, Pages, moved_at};
use crate::state::process::state;
use crate::state::session::Session;

fn needs_context() -> Result<(&'static Session, u64, u32), CUresult> {
    let s = session()?;
    match (context::current_home(), context::current_device()) {
        (0, _) | (_, None) => Err(CUDA_ERROR_INVALID_CONTEXT),
        (ctx, Some(device)) => Ok((s, ctx, device)),
    }
}

/// # Safety
/// As CUDA's `cuMemHostAlloc`.
pub unsafe fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: u32) -> CUresult {
    let answer = (|| {
        let (s, ctx, device) = needs_context()?;
        let known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
        if out.is_null() || flags & !known != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        refused_beside_captures()?;
        let range = allocate(s, bytes as u64)?;
        let base = s.heap.base() as u64 + range.offset;
        let mut entry = Range::new(base, bytes as u64, MemoryKind::PinnedHost, ctx, device);
        // All pinned memory is mapped, and the driver says so.
        // As driver 580 tells it: PORTABLE is told back alone, but not beside DEVICEMAP.
        entry.flags = match flags & CU_MEMHOSTALLOC_DEVICEMAP {
            0 => flags | CU_MEMHOSTALLOC_DEVICEMAP,
            _ => flags & !CU_MEMHOSTALLOC_PORTABLE,
        };
        entry.owner = range.offset;
        entry.is_mapped = flags & CU_MEMHOSTALLOC_DEVICEMAP != 0;
        state().addresses.insert(entry);
        in_step::allocated(s, entry);
        Ok(base as *mut c_void)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuMemAllocHost_v2`.
pub unsafe fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuMemHostAlloc(out, bytes, 0) }
}

/// Waits for the device, as the driver's does.
///
/// # Safety
/// As CUDA's `cuMemFreeHost`.
pub unsafe fn cuMemFreeHost(p: *mut c_void) -> CUresult {
    code((|| {
        let s = session()?;
        if p.is_null() {
            return Ok(());
        }
        let is_pinned = |r: &Range| r.kind == MemoryKind::PinnedHost && r.base == p as u64;
        let range = state().addresses.find(p as u64).filter(is_pinned).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        before_freeing(range.context)?;
        // Another thread may have freed it meanwhile.
        let gone = state().addresses.remove_if(range.base, |r| r.id == range.id);
        free_in_heap(s, &gone.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    })())
}

/// Gives back pages of the heap that were an allocation's, which nobody finds any more.
pub fn free_in_heap(s: &'static Session, gone: &Range) -> Result<(), CUresult> {
    let range = HeapRange { offset: gone.owner, bytes: gone.bytes.next_multiple_of(PAGE) };
    in_step::freed(s, gone, range);
    s.on_the_way.freed(range);
    let registered_alone = gone.bytes > BLOCK / 2;
    s.host_memory.freed.lock().insert(range.offset, registered_alone);
    let q = MemFreeHost { range: range.into(), registered_alone };
    match poison::of(crate::state::context::current()) {
        None => posted(post(MemFreeHost::OP, |w| q.encode(w))),
        // A broken context answers its error, but the memory comes back.
        Some(code) => {
            post_to(s, MemFreeHost::OP, |w| q.encode(w));
            Err(code)
        }
    }
}

/// Flags of pinned and registered memory.
///
/// # Safety
/// As CUDA's `cuMemHostGetFlags`.
pub unsafe fn cuMemHostGetFlags(out: *mut u32, p: *mut c_void) -> CUresult {
    let answer = needs_context().and_then(|_| match state().addresses.find(p as u64) {
        Some(r) if r.is_host() => Ok(r.flags),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuMemHostGetDevicePointer_v2`.
pub unsafe fn cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, p: *mut c_void, flags: u32) -> CUresult {
    let answer = (|| {
        let (s, ..) = needs_context()?;
        if flags != 0 || out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let range = match state().addresses.find(p as u64) {
            Some(r) if r.is_host() => r,
            _ => {
                // SAFETY: not null, and valid by the caller's promise; the driver writes 0 too.
                unsafe { out.write(0) };
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        };
        if range.device_pointer == 0 {
            let why = s.host_memory.unreached.lock().get(&range.base).cloned();
            crate::say!(
                "{:#x} ({} bytes) is registered, but kernels cannot use it: {}",
                range.base,
                range.bytes,
                why.as_deref().unwrap_or("it cannot be shared with the GPU's host")
            );
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if s.pages.are_separate() {
            in_step::follow(s, range)?;
        }
        Ok(p as u64)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuMemHostRegister_v2`.
pub unsafe fn cuMemHostRegister_v2(p: *mut c_void, bytes: usize, flags: u32) -> CUresult {
    // Reads and sends under the lock.
    let _whole = Uncancelled::hold();
    code((|| {
        let (s, ctx, device) = needs_context()?;
        let known = CU_MEMHOSTREGISTER_PORTABLE
            | CU_MEMHOSTREGISTER_DEVICEMAP
            | CU_MEMHOSTREGISTER_IOMEMORY
            | CU_MEMHOSTREGISTER_READ_ONLY;
        let base = p as u64;
        let end = base.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if base == 0 || bytes == 0 || flags & !known != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        refused_beside_captures()?;
        // One at a time: two registrations may share a page.
        let mut moved = s.host_memory.moved.lock();
        match state().addresses.overlapping(base, bytes as u64) {
            Some(r) if r.is_registered() => return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
            Some(_) => return Err(CUDA_ERROR_INVALID_VALUE),
            None => {}
        }
        let (first, last) = (page_of(base), end.next_multiple_of(PAGE));
        // Pages that were moved for other memory that is registered, among these.
        let before = moved.range(..last).next_back().map(|(at, pages)| (*at, *pages));
        let before = before.filter(|(at, pages)| at + pages.range.bytes > first);
        let backing = match backing_of(first, last)? {
            // They are the heap's, whatever they look like.
            Backing::Shared | Backing::Other if before.is_some() => Backing::Private,
            backing => backing,
        };
        if backing == Backing::ReadOnly && flags & CU_MEMHOSTREGISTER_READ_ONLY == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut entry = Range::new(base, bytes as u64, MemoryKind::RegisteredHost, ctx, device);
        entry.flags = flags & CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        entry.is_mapped = flags & CU_MEMHOSTREGISTER_DEVICEMAP != 0;
        if flags & CU_MEMHOSTREGISTER_READ_ONLY != 0 {
            entry.access = CU_MEM_ACCESS_FLAGS_PROT_READ;
        }
        if backing == Backing::Shared {
            match shared_file::share(s, first, last) {
                Ok(mapped_at) => {
                    (entry.kind, entry.owner, entry.device_pointer) = (MemoryKind::RegisteredFile, mapped_at, base);
                }
                Err(why) => drop(s.host_memory.unreached.lock().insert(base, why)),
            }
        }
        if backing == Backing::Private {
            let found = match before {
                Some((at, pages)) => join(s, &mut moved, (at, pages), first, last).map(|()| (at, pages.range)),
                None => move_in(s, &mut moved, first, last - first).map(|range| {
                    moved.insert(first, Pages { range, registrations: 1 });
                    (first, range)
                }),
            };
            match found {
                Ok((at, range)) => {
                    (entry.owner, entry.moved) = (range.offset + (first - at), range);
                    entry.device_pointer = base;
                }
                Err(why) => {
                    crate::say!("registered memory stays pageable, and kernels cannot use it: {why}");
                    s.host_memory.unreached.lock().insert(base, why);
                }
            }
        }
        if let Backing::Other | Backing::ReadOnly = backing {
            let why = "it is a stack, a device, huge pages or a private view of a file, or may only be read";
            s.host_memory.unreached.lock().insert(base, why.to_owned());
        }
        s.host_memory.any_registered.store(true, Ordering::Relaxed);
        state().addresses.insert(entry);
        drop(moved);
        in_step::allocated(s, entry);
        Ok(())
    })())
}

/// Has pages that were moved to `at` serve memory from `first` to `last`, too, or says why they cannot.
fn join(s: &Session, moved: &mut Moved, (at, mut pages): (u64, Pages), first: u64, last: u64) -> Result<(), String> {
    if first < at || at + pages.range.bytes < last {
        return Err("some of its pages have other registered memory, and some have not; give it pages of its own \
                    (posix_memalign), or register both at once"
            .to_owned());
    }
    if pages.registrations == 0 || !is_still_there(s, at, pages.range, first, last) {
        return Err("its pages had other registered memory, and are something else now".to_owned());
    }
    pages.registrations += 1;
    moved.insert(at, pages);
    Ok(())
}

/// # Safety
/// As CUDA's `cuMemHostUnregister`.
pub unsafe fn cuMemHostUnregister(p: *mut c_void) -> CUresult {
    let _whole = Uncancelled::hold();
    code((|| {
        let s = session()?;
        if p.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let registered = || {
            let found = state().addresses.find(p as u64).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
            if found.is_registered() && found.base == p as u64 { Ok(found) } else { Err(CUDA_ERROR_INVALID_VALUE) }
        };
        before_freeing(registered()?.context)?;
        let mut moved = s.host_memory.moved.lock();
        let found = registered()?;
        state().addresses.remove(found.base);
        if found.device_pointer == 0 {
            s.host_memory.unreached.lock().remove(&found.base);
            return Ok(());
        }
        if found.kind == MemoryKind::RegisteredFile {
            return shared_file::leave(found.owner);
        }
        let Some((first, pages)) = moved_at(&mut moved, page_of(found.base)) else { return Ok(()) };
        let range = pages.range;
        pages.registrations = pages.registrations.saturating_sub(1);
        if pages.registrations > 0 {
            in_step::gone(s, &found, range);
            return Ok(());
        }
        moved.remove(&first);
        in_step::freed(s, &found, range);
        s.on_the_way.freed(range);
        let q = MemHostUnregister { address: ClaimedHost::new(first) };
        let answer = call(MemHostUnregister::OP, |w| q.encode(w), |_| Ok(()));
        // Whatever became of the device, the application keeps its memory.
        moved.extend(move_all_out(s, first, range));
        answer
    })())
}
