//! Pinned and registered host memory: ranges of the heap that the driver knows, and of files that the client maps.

// UNSAFETY: registers memory with the driver, and maps it at the application's addresses.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use orion_cuda::sys::*;
use orion_wire::message::address::ClaimedRange;
use orion_wire::message::host_memory::{
    MemFreeHost, MemHostAlloc, MemHostRegister, MemHostUnregister, PagesOf, Pinned,
};
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Fault, Reader};

use crate::lines;
use crate::worker::calls::shared_file::{self, SharedFile};
use crate::worker::driver::capture_mode::relaxed;
use crate::worker::driver::log as driver_log;
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::pinned::Alias;
use crate::worker::state::waits::Wait;

const PAGE: u64 = 4096;

const FLAGS: u32 = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

/// A page-aligned, non-empty range of the heap.
fn pages(s: &Session, range: ClaimedRange) -> Result<(HeapRange, *mut u8), Fault> {
    let range = range.check(s.heap.bytes())?;
    if range.bytes == 0 || !range.offset.is_multiple_of(PAGE) || !range.bytes.is_multiple_of(PAGE) {
        return Err(Fault("pinned range is not made of pages"));
    }
    Ok((range, s.heap_pointer(range)?))
}

/// As [`clear`], of a range that may have been anything, and whose pages nobody has pinned. The client awaits it.
fn renew(s: &Session, range: HeapRange, at: *mut u8) {
    if s.pages.are_separate() {
        // SAFETY: the range lies inside the heap, and the client has just begun to use it for something else.
        unsafe { libc::madvise(at.cast(), range.bytes as usize, libc::MADV_REMOVE) };
    }
}

pub fn cuMemHostAlloc(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemHostAlloc::decode(&mut r)?;
    if matches!(q.request, Pinned::Idle | Pinned::Allowed) {
        return Ok(match q.request {
            // SAFETY: no arguments. Forbidden as it is, the driver waits for nothing.
            _ if s.captures.forbids(header.thread) => Outcome::Done(unsafe { s.driver.cuCtxSynchronize() }),
            Pinned::Idle => when_idle(s, header),
            _ => Outcome::Done(CUDA_SUCCESS),
        });
    }
    let (range, at) = pages(s, q.range)?;
    match q.request {
        Pinned::Idle | Pinned::Allowed => unreachable!("answered above"),
        Pinned::Register => {
            renew(s, range, at);
            s.heap.make_huge(range.offset, range.bytes);
            // SAFETY: a range of the heap, which is mapped for as long as the session lives.
            let code = unsafe { s.driver.cuMemHostRegister_v2(at.cast(), range.bytes as usize, FLAGS) };
            if code != CUDA_SUCCESS {
                // Copies work all the same, at the speed of pageable memory; kernels do not.
                lines::warn(&format!("pinning {} bytes failed with {code}", range.bytes));
            }
            Ok(Outcome::Done(code))
        }
        Pinned::Mapped => {
            if s.pages.must_bring() {
                s.in_step.add(&s.heap, range)?;
            }
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        Pinned::Copied => Ok(s.park(header, Wait::Copies(range), |_, code, _| code)),
    }
}

/// Answers when all that the session's contexts have been given is done. Each stream is waited for by asking: inside
/// the driver the wait could hold up what the device is waiting for.
fn when_idle(s: &mut Session, header: &Header) -> Outcome {
    let streams = s.beside_captures(s.streams_of_all(header.context));
    s.park(header, Wait::Everywhere(streams), |_, code, _| code)
}

/// The client gets the range back once nothing can be using it: when the device has been seen idle. Nothing waits
/// here, because what waits inside the driver can hold up the very call that would let the device go on.
pub fn cuMemFreeHost(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemFreeHost::decode(&mut r)?;
    let (range, at) = pages(s, q.range)?;
    s.in_step.remove(range);
    s.forget_heap_copies(range);
    s.host_memory.freed.push((range, if q.registered_alone { at as usize } else { 0 }));
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// Maps memory of the client's at the application's address too, and registers it there.
pub fn cuMemHostRegister_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemHostRegister::decode(&mut r)?;
    match q.pages {
        PagesOf::Heap => register_of_heap(s, &q),
        PagesOf::File => register_of_file(s, &q),
    }
}

fn register_of_heap(s: &mut Session, q: &MemHostRegister) -> Handled {
    let (range, in_heap) = pages(s, q.range)?;
    let address = s.mappable(q.address, range.bytes)?;
    if !s.host_memory.takes(range.bytes, s.heap.bytes()) {
        return Ok(Outcome::Done(CUDA_ERROR_OUT_OF_MEMORY));
    }
    renew(s, range, in_heap);
    let offset = s.memory.heap_at() + range.offset;
    let mapped = map_at(address, range.bytes, s.memory.fd(), offset);
    Ok(Outcome::Done(register_at(s, address, Alias::of_heap(range), mapped)))
}

/// Of a file that the client and others map. The driver pins its pages, which stay whatever becomes of the file.
fn register_of_file(s: &mut Session, q: &MemHostRegister) -> Handled {
    let refuse = |why: &str, code| {
        driver_log::refuse(&format!("a file is not registered: {why}"));
        Ok(Outcome::Done(code))
    };
    let Some(file) = s.attachment.handed() else {
        return refuse("its descriptor has not come", CUDA_ERROR_INVALID_VALUE);
    };
    let file = match SharedFile::new(file) {
        Ok(file) => file,
        Err(why) => return refuse(&why, CUDA_ERROR_NOT_SUPPORTED),
    };
    // A file that ends inside a page has the whole page, as far as mappings and the GPU are concerned.
    let Ok(range) = q.range.check(file.bytes.next_multiple_of(PAGE)) else {
        return refuse(&format!("it has {} bytes and ends before the range", file.bytes), CUDA_ERROR_INVALID_VALUE);
    };
    let address = s.mappable(q.address, range.bytes)?;
    if range.bytes == 0 || !range.bytes.is_multiple_of(PAGE) || !range.offset.is_multiple_of(PAGE) {
        return Err(Fault("registered range is not made of pages").into());
    }
    if !s.host_memory.takes(range.bytes, s.heap.bytes()) {
        let most = s.heap.bytes() >> 20;
        let why = format!("with its {} bytes a session would have registered more than {most} MiB", range.bytes);
        return refuse(&why, CUDA_ERROR_OUT_OF_MEMORY);
    }
    if let Err(why) = shared_file::survive_truncation() {
        return refuse(&why, CUDA_ERROR_OPERATING_SYSTEM);
    }
    let mapped = map_at(address, range.bytes, file.fd.as_fd(), range.offset);
    Ok(Outcome::Done(register_at(s, address, Alias::of_file(range.bytes), mapped)))
}

/// Maps pages at an address where nothing is mapped yet, or answers false.
fn map_at(address: u64, bytes: u64, file: BorrowedFd<'_>, offset: u64) -> bool {
    // SAFETY: MAP_FIXED_NOREPLACE never replaces what is mapped here.
    let at = unsafe {
        libc::mmap(
            address as *mut c_void,
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if at != libc::MAP_FAILED && at as u64 != address {
        unmap(at as u64, bytes);
    }
    at as u64 == address
}

/// Registers what was mapped.
fn register_at(s: &mut Session, address: u64, alias: Alias, is_mapped: bool) -> CUresult {
    if !is_mapped {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    // SAFETY: just mapped; it stays until it is unregistered.
    let code = unsafe { s.driver.cuMemHostRegister_v2(address as *mut c_void, alias.bytes as usize, FLAGS) };
    match code {
        CUDA_SUCCESS => s.host_memory.mapped(address, alias),
        _ => unmap(address, alias.bytes),
    }
    code
}

pub fn cuMemHostUnregister(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemHostUnregister::decode(&mut r)?;
    let Some((address, alias)) = s.take_alias(q.address) else {
        return Ok(Outcome::Done(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
    };
    if let Some(range) = alias.of.heap() {
        s.in_step.remove(range);
    }
    s.park_blocking(
        header,
        move |driver| {
            // It waits for the device by itself. Whether a capture forbids that was asked before.
            // SAFETY: registered by `register_at` above, and taken off the list.
            let code = relaxed(driver, || unsafe { driver.cuMemHostUnregister(address as *mut c_void) });
            unmap(address, alias.bytes);
            code
        },
        move |s, code, _| {
            // The application keeps the memory, with what copies wrote to it.
            if let Err(fault) = s.flush_ranges() {
                lines::warn(&format!("heap ranges lost: {fault}"));
            }
            if let Some(range) = alias.of.heap() {
                s.forget_heap_copies(range);
            }
            code
        },
    )
}

fn unmap(address: u64, bytes: u64) {
    // SAFETY: called only with what this module mapped.
    unsafe { libc::munmap(address as *mut c_void, bytes as usize) };
}
