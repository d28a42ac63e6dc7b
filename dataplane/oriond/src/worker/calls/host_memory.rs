//! Pinned and registered host memory: ranges of the heap that the driver knows.

// UNSAFETY: registers heap ranges with the driver, and maps them a second time at the application's addresses.

use std::ffi::c_void;
use std::os::fd::AsRawFd;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::message::address::ClaimedRange;
use orion_wire::message::host_memory::{MemFreeHost, MemHostAlloc, MemHostRegister, MemHostUnregister, Pinned};
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Fault, Reader};

use crate::lines;
use crate::worker::driver::capture_mode::relaxed;
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::waits::Wait;

const PAGE: u64 = 4096;

const FLAGS: u32 = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

/// Registered ranges of one session, and so mappings that a client can make here.
const ALIASES_MAX: usize = 16 << 10;

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
    let (range, at) = pages(s, q.range)?;
    match q.request {
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

/// Runs on a helper thread: waits until nothing uses host memory any more.
fn wait_for_device(driver: &Driver) {
    // SAFETY: a plain call. An error of the device is somebody else's to report.
    relaxed(driver, || unsafe { driver.cuCtxSynchronize() });
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

/// Maps a range of the heap at the application's address too, and registers it there.
pub fn cuMemHostRegister_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemHostRegister::decode(&mut r)?;
    let (range, in_heap) = pages(s, q.range)?;
    let address = s.mappable(q.address, range.bytes)?;
    let mapped: u64 = s.host_memory.aliases.values().map(|r| r.bytes).sum();
    if s.host_memory.aliases.len() >= ALIASES_MAX || mapped + range.bytes > s.heap.bytes() {
        return Ok(Outcome::Done(CUDA_ERROR_OUT_OF_MEMORY));
    }
    renew(s, range, in_heap);
    // SAFETY: MAP_FIXED_NOREPLACE never replaces what is mapped here; the range lies inside the sealed file.
    let at = unsafe {
        libc::mmap(
            address as *mut c_void,
            range.bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE,
            s.memory.fd().as_raw_fd(),
            (s.memory.heap_at() + range.offset) as libc::off_t,
        )
    };
    if at as u64 != address {
        if at != libc::MAP_FAILED {
            unmap(at as u64, range.bytes);
        }
        return Ok(Outcome::Done(CUDA_ERROR_NOT_SUPPORTED));
    }
    // SAFETY: just mapped; it stays until it is unregistered.
    let code = unsafe { s.driver.cuMemHostRegister_v2(at, range.bytes as usize, FLAGS) };
    if code == CUDA_SUCCESS {
        s.host_memory.aliases.insert(address, range);
    } else {
        unmap(address, range.bytes);
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemHostUnregister(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemHostUnregister::decode(&mut r)?;
    let Some((address, range)) = s.take_alias(q.address) else {
        return Ok(Outcome::Done(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
    };
    s.in_step.remove(range);
    s.park_blocking(
        header,
        move |driver| {
            wait_for_device(driver);
            // SAFETY: registered by `cuMemHostRegister_v2` above, and taken off the list.
            let code = unsafe { driver.cuMemHostUnregister(address as *mut c_void) };
            unmap(address, range.bytes);
            code
        },
        move |s, code, _| {
            // The application keeps the memory, with what copies wrote to it.
            if let Err(fault) = s.flush_ranges() {
                lines::warn(&format!("heap ranges lost: {fault}"));
            }
            s.forget_heap_copies(range);
            code
        },
    )
}

fn unmap(address: u64, bytes: u64) {
    // SAFETY: called only with what this module mapped.
    unsafe { libc::munmap(address as *mut c_void, bytes as usize) };
}
