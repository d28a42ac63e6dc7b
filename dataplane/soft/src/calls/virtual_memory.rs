//! Virtual memory management: address ranges, physical handles, mappings between them.
//!
//! A physical handle is an anonymous file, because one handle may be mapped at several addresses that must then show
//! the same bytes.

// UNSAFETY: C entry points, and mmap over parts of the reserved window.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, get, list, put};
use crate::device;
use crate::log::refuse;
use crate::vram::{self, Kind, Range};

const GRANULARITY: u64 = 2 << 20;

struct Physical {
    file: OwnedFd,
    bytes: u64,
    props: CUmemAllocationProp,
    /// Releases that the handle still takes: one for its creation, one for each time it was retained.
    references: AtomicU32,
}

// SAFETY: the property block's pointer is for Windows and never followed.
unsafe impl Send for Physical {}

// SAFETY: as above; the rest is read-only.
unsafe impl Sync for Physical {}

impl Drop for Physical {
    fn drop(&mut self) {
        device::refund(self.props.location.id, self.bytes);
    }
}

struct Mapping {
    bytes: u64,
    /// Keeps the memory alive after its handle was released.
    physical: Arc<Physical>,
}

static HANDLES: Registry<Physical> = Registry::new();
static RESERVED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
static MAPPED: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());

fn aligned(v: u64) -> R {
    if v != 0 && v.is_multiple_of(GRANULARITY) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn physical(h: CUmemGenericAllocationHandle) -> R<Arc<Physical>> {
    device::initialised()?;
    HANDLES.get(h as *mut c_void).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn check_props(p: &CUmemAllocationProp) -> R<i32> {
    if p.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
        return refuse("cuMemCreate", "memory outside the device");
    }
    if p.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE {
        return refuse("cuMemCreate", "a shareable handle");
    }
    if p.type_ != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    device::check(p.location.id)
}

/// Maps a file, or fresh zeroes when there is none, over part of the window.
fn place(at: u64, bytes: u64, file: Option<(c_int, u64)>) -> R {
    let (flags, fd, offset) = match file {
        Some((fd, offset)) => (libc::MAP_SHARED, fd, offset as i64),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
    };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range is inside an address reservation of the window, which belongs to this file.
    let got = unsafe { libc::mmap(at as *mut c_void, bytes as usize, protection, flags | libc::MAP_FIXED, fd, offset) };
    if got == libc::MAP_FAILED { Err(CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(()) }
}

/// The mappings that make up exactly `[at, at + bytes)`.
fn mappings(map: &BTreeMap<u64, Mapping>, at: u64, bytes: u64) -> R<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut next = at;
    while next < at.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)? {
        let m = map.get(&next).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        found.push((next, m.bytes));
        next += m.bytes;
    }
    if next == at + bytes { Ok(found) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// The mappings inside of `[at, at + bytes)`, of which none may be cut. Where there is none an H200 succeeds.
fn mappings_within(map: &BTreeMap<u64, Mapping>, at: u64, bytes: u64) -> R<Vec<(u64, u64)>> {
    let end = at.checked_add(bytes).filter(|end| *end > at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let before = map.range(..at).next_back().is_some_and(|(base, m)| base + m.bytes > at);
    let found: Vec<(u64, u64)> = map.range(at..end).map(|(base, m)| (*base, m.bytes)).collect();
    match before || found.iter().any(|(base, bytes)| base + bytes > end) {
        true => Err(CUDA_ERROR_INVALID_VALUE),
        false => Ok(found),
    }
}

api! {
    fn cuMemGetAllocationGranularity(
        out: *mut usize,
        props: *const CUmemAllocationProp,
        _option: CUmemAllocationGranularity_flags,
    ) {
        check_props(&get(props)?)?;
        put(out, GRANULARITY as usize)
    }
    fn cuMemAddressReserve(
        out: *mut CUdeviceptr,
        bytes: usize,
        align: usize,
        wanted: CUdeviceptr,
        flags: c_ulonglong,
    ) {
        device::initialised()?;
        aligned(bytes as u64)?;
        if flags != 0 || out.is_null() || (align != 0 && !align.is_power_of_two()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let align = (align as u64).max(GRANULARITY);
        let wanted = if wanted.is_multiple_of(GRANULARITY) { wanted } else { 0 };
        let at = vram::reserve(bytes as u64, align, wanted).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        RESERVED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.insert(at, bytes as u64);
        put(out, at)
    }
    fn cuMemAddressFree(at: CUdeviceptr, bytes: usize) {
        let mut all = RESERVED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let mapped = MAPPED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        if all.get(&at) != Some(&(bytes as u64)) || mapped.range(at..at + bytes as u64).next().is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        all.remove(&at);
        vram::release(at, bytes as u64);
        Ok(())
    }
    fn cuMemCreate(
        out: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        props: *const CUmemAllocationProp,
        flags: c_ulonglong,
    ) {
        let props = get(props)?;
        let dev = check_props(&props)?;
        aligned(bytes as u64)?;
        if flags != 0 || out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        device::charge(dev, bytes as u64).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let fd = libc::memfd_create(c"orion-soft".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 || libc::ftruncate(fd, bytes as i64) != 0 {
            if fd >= 0 {
                libc::close(fd);
            }
            device::refund(dev, bytes as u64);
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let file = OwnedFd::from_raw_fd(fd);
        let p = Arc::new(Physical { file, bytes: bytes as u64, props, references: AtomicU32::new(1) });
        put(out, HANDLES.add::<c_void>(&p) as CUmemGenericAllocationHandle)
    }
    fn cuMemRelease(h: CUmemGenericAllocationHandle) {
        // The lock keeps two releases, or a release and a retain, from passing each other.
        let _order = MAPPED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        if physical(h)?.references.fetch_sub(1, Ordering::Relaxed) == 1 {
            HANDLES.remove(h as *mut c_void);
        }
        Ok(())
    }
    fn cuMemMap(
        at: CUdeviceptr,
        bytes: usize,
        offset: usize,
        h: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    ) {
        let p = physical(h)?;
        let (bytes, offset) = (bytes as u64, offset as u64);
        if flags != 0 || bytes == 0 || !at.is_multiple_of(GRANULARITY) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= p.bytes);
        if !fits || !bytes.is_multiple_of(GRANULARITY) || !offset.is_multiple_of(GRANULARITY) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if at.checked_add(bytes).is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let reserved = RESERVED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let home = reserved.range(..=at).next_back().is_some_and(|(base, n)| at + bytes <= base + n);
        let mut map = MAPPED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let taken = map.range(..at + bytes).next_back().is_some_and(|(base, m)| base + m.bytes > at);
        if !home || taken {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        place(at, bytes, Some((p.file.as_raw_fd(), offset)))?;
        map.insert(at, Mapping { bytes, physical: p });
        Ok(())
    }
    fn cuMemUnmap(at: CUdeviceptr, bytes: usize) {
        device::initialised()?;
        let mut map = MAPPED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        for (base, n) in mappings_within(&map, at, bytes as u64)? {
            vram::remove(base);
            place(base, n, None)?;
            map.remove(&base);
        }
        Ok(())
    }
    fn cuMemSetAccess(at: CUdeviceptr, bytes: usize, descs: *const CUmemAccessDesc, count: usize) {
        device::initialised()?;
        let map = MAPPED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let parts = mappings(&map, at, bytes as u64)?;
        for d in list(descs, count)? {
            if d.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE {
                device::check(d.location.id)?;
            }
            for &(base, n) in &parts {
                if d.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE {
                    vram::remove(base);
                    continue;
                }
                let device = map.get(&base).map_or(0, |m| m.physical.props.location.id);
                vram::insert(Range {
                    base,
                    bytes: n,
                    reach: n,
                    kind: Kind::Mapped,
                    device,
                    context: 0,
                    flags: 0,
                    id: 0,
                    writable: d.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                    pool: 0,
                });
            }
        }
        Ok(())
    }
    fn cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, at: CUdeviceptr) {
        get(location)?;
        put(flags, match vram::find(at) {
            Some(r) if r.writable => CU_MEM_ACCESS_FLAGS_PROT_READWRITE.into(),
            Some(_) => CU_MEM_ACCESS_FLAGS_PROT_READ.into(),
            None => 0,
        })
    }
    fn cuMemRetainAllocationHandle(out: *mut CUmemGenericAllocationHandle, at: *mut c_void) {
        device::initialised()?;
        let map = MAPPED.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let at = at as u64;
        let hit = map.range(..=at).next_back().filter(|(base, m)| at < *base + m.bytes);
        let (_, m) = hit.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        get(out)?;
        m.physical.references.fetch_add(1, Ordering::Relaxed);
        put(out, HANDLES.add::<c_void>(&m.physical) as CUmemGenericAllocationHandle)
    }
    fn cuMemGetAllocationPropertiesFromHandle(out: *mut CUmemAllocationProp, h: CUmemGenericAllocationHandle) {
        put(out, physical(h)?.props)
    }
}
