//! Memory of a context: allocation, pinning, copies, fills, arrays, pointer attributes.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, Raw, Registry, api, get, handle, list, put, put_some, refuse};
use crate::context::{self, Context};
use crate::device;
use crate::graph;
use crate::pool;
use crate::stream::{self, Stream};
use crate::vram::{self, Kind, Range};
use crate::work::{Copy3D, Set, Work};

pub struct Array {
    pub base: u64,
    pub pitch: u64,
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// A level of a mipmapped array, which alone ends it.
    pub is_level: bool,
}

impl Array {
    pub fn free(&self) {
        if let Some(r) = vram::find(self.base) {
            drop_range(&r);
        }
    }
    pub fn rows(&self) -> u64 {
        self.descriptor.Height.max(1) as u64
    }
}

pub static ARRAYS: Registry<Array> = Registry::new();

/// Allocates charged device memory.
pub fn allocate(c: &Context, bytes: u64, kind: Kind) -> R<Range> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charged = bytes.checked_next_multiple_of(512).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    device::charge(c.device, charged).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    vram::allocate(bytes, kind, c.device, c.id).ok_or_else(|| {
        device::refund(c.device, charged);
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// Range flag: the memory belongs to a graph's allocation node, which alone ends it.
pub const GRAPH_OWNED: u32 = 1 << 30;

/// Range flag: a free of the memory is queued.
pub const FREED: u32 = 1 << 29;

/// Ends a range of any kind and returns what it was charged.
pub fn drop_range(r: &Range) {
    if r.flags & GRAPH_OWNED != 0 {
        return;
    }
    match r.kind {
        Kind::Registered => {
            vram::remove(r.base);
        }
        Kind::Mapped => {}
        Kind::Host => {
            vram::free(r.base);
        }
        Kind::Device | Kind::Pool | Kind::Managed | Kind::Internal => {
            if vram::free(r.base).is_some() {
                device::refund(r.device, r.reach);
                crate::pool::returned(r);
            }
        }
    }
}

fn free(at: u64) -> R {
    let c = context::current()?;
    graph::forbid_unsafe()?;
    if at == 0 {
        return Ok(());
    }
    let r = vram::find(at).filter(|r| r.base == at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if !matches!(r.kind, Kind::Device | Kind::Pool | Kind::Managed) || r.flags & FREED != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Freeing waits for the device, so that no kernel loses its memory.
    let owner = context::by_id(r.context).unwrap_or(c);
    for s in owner.streams_of_all() {
        s.wait_all();
    }
    drop_range(&r);
    owner.check()
}

fn host_allocate(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> R {
    let c = context::current()?;
    graph::forbid_unsafe()?;
    let known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if out.is_null() || flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if bytes == 0 {
        // SAFETY: not null, and the caller's out parameter.
        return unsafe { put(out, std::ptr::null_mut()) };
    }
    let r = vram::allocate(bytes as u64, Kind::Host, c.device, c.id).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    vram::update(r.base, |r| r.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP);
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, r.base as *mut c_void) }
}

fn register(p: *mut c_void, bytes: usize, flags: c_uint) -> R {
    let c = context::current()?;
    if p.is_null() || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
        return refuse("cuMemHostRegister", "I/O memory");
    }
    let base = p as u64;
    if vram::overlaps(base, bytes as u64) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    vram::insert(Range {
        base,
        bytes: bytes as u64,
        reach: bytes as u64,
        kind: Kind::Registered,
        device: c.device,
        context: c.id,
        flags: flags | CU_MEMHOSTREGISTER_DEVICEMAP,
        id: 0,
        writable: flags & CU_MEMHOSTREGISTER_READ_ONLY == 0,
        pool: 0,
    });
    Ok(())
}

/// Runs a copy on the calling context's default stream and waits, as the synchronous calls do.
fn copy_now(copy: Copy3D) -> R {
    let c = context::current()?;
    copy.check()?;
    stream::run_now(&c.legacy_stream()?, Work::Copy(copy))
}

/// Queues a copy. Pageable memory is handled as the driver documents it: a source is taken before the call returns, a
/// destination is written before the call returns.
fn copy_async(mut copy: Copy3D, h: CUstream) -> R {
    let s = stream::resolve(h)?;
    copy.check()?;
    if s.capture().is_some() {
        return stream::enqueue(&s, Work::Copy(copy)).map(drop);
    }
    let (source, destination) = copy.pageable();
    if source {
        copy.stage()?;
    }
    if destination { stream::run_now(&s, Work::Copy(copy)) } else { stream::enqueue(&s, Work::Copy(copy)).map(drop) }
}

const HOST: CUmemorytype = CU_MEMORYTYPE_HOST;
const DEVICE: CUmemorytype = CU_MEMORYTYPE_DEVICE;
const UNIFIED: CUmemorytype = CU_MEMORYTYPE_UNIFIED;

fn from_2d(c: &CUDA_MEMCPY2D) -> Copy3D {
    // SAFETY: all zeroes is a valid value of this C struct.
    let mut r: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (r.srcXInBytes, r.srcY, r.srcMemoryType) = (c.srcXInBytes, c.srcY, c.srcMemoryType);
    (r.srcHost, r.srcDevice, r.srcArray, r.srcPitch) = (c.srcHost, c.srcDevice, c.srcArray, c.srcPitch);
    (r.dstXInBytes, r.dstY, r.dstMemoryType) = (c.dstXInBytes, c.dstY, c.dstMemoryType);
    (r.dstHost, r.dstDevice, r.dstArray, r.dstPitch) = (c.dstHost, c.dstDevice, c.dstArray, c.dstPitch);
    (r.WidthInBytes, r.Height, r.Depth) = (c.WidthInBytes, c.Height, 1);
    Copy3D { raw: Raw(r), staged: None }
}

fn from_peer(c: &CUDA_MEMCPY3D_PEER) -> Copy3D {
    // SAFETY: all zeroes is a valid value of this C struct.
    let mut r: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (r.srcXInBytes, r.srcY, r.srcZ, r.srcMemoryType) = (c.srcXInBytes, c.srcY, c.srcZ, c.srcMemoryType);
    (r.srcHost, r.srcDevice, r.srcArray) = (c.srcHost, c.srcDevice, c.srcArray);
    (r.srcPitch, r.srcHeight) = (c.srcPitch, c.srcHeight);
    (r.dstXInBytes, r.dstY, r.dstZ, r.dstMemoryType) = (c.dstXInBytes, c.dstY, c.dstZ, c.dstMemoryType);
    (r.dstHost, r.dstDevice, r.dstArray) = (c.dstHost, c.dstDevice, c.dstArray);
    (r.dstPitch, r.dstHeight) = (c.dstPitch, c.dstHeight);
    (r.WidthInBytes, r.Height, r.Depth) = (c.WidthInBytes, c.Height, c.Depth);
    Copy3D { raw: Raw(r), staged: None }
}

fn plain(c: CUDA_MEMCPY3D) -> Copy3D {
    Copy3D { raw: Raw(c), staged: None }
}

fn array_at(h: CUarray, offset: usize) -> R<u64> {
    let base = ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.base;
    base.checked_add(offset as u64).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Fills memory; `None` waits, as far as a fill is observable, on the default stream.
fn fill(set: Set, h: Option<CUstream>) -> R {
    let c = context::current()?;
    let s: Arc<Stream> = match h {
        Some(h) => stream::resolve(h)?,
        None => c.legacy_stream()?,
    };
    set.check()?;
    if set.width == 0 || set.height == 0 {
        return Ok(());
    }
    let in_reach = vram::find(set.dst).is_none_or(|r| match r.kind {
        Kind::Device => c.reaches(r.device),
        Kind::Pool => pool::reaches(&r, c.device),
        _ => true,
    });
    if !in_reach {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    stream::enqueue(&s, Work::Set(set)).map(drop)
}

fn row(dst: u64, value: u32, element: u32, n: usize) -> Set {
    Set { dst, pitch: 0, value, element, width: n as u64, height: 1 }
}

fn rows(dst: u64, pitch: usize, value: u32, element: u32, w: usize, h: usize) -> Set {
    Set { dst, pitch: pitch as u64, value, element, width: w as u64, height: h as u64 }
}

pub fn element_bytes(format: CUarray_format, channels: c_uint) -> R<u64> {
    let one = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return refuse("cuArrayCreate", "this array format"),
    };
    if matches!(channels, 1 | 2 | 4) { Ok(one * u64::from(channels)) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Memory for an array whose shape was checked.
pub fn new_array(c: &Context, d: CUDA_ARRAY3D_DESCRIPTOR, is_level: bool) -> R<Arc<Array>> {
    let pitch = element_bytes(d.Format, d.NumChannels)?.checked_mul(d.Width as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let cells = (d.Height.max(1) as u64).checked_mul(d.Depth.max(1) as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let bytes = pitch.checked_mul(cells).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let r = allocate(c, bytes, Kind::Internal)?;
    Ok(Arc::new(Array { base: r.base, pitch, descriptor: d, is_level }))
}

fn create_array(out: *mut CUarray, d: CUDA_ARRAY3D_DESCRIPTOR) -> R {
    let c = context::current()?;
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    crate::array::check(&d)?;
    let a = new_array(&c, d, false)?;
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, ARRAYS.add(&a)) }
}

/// Writes one pointer attribute.
///
/// # Safety
/// `data` has room for the attribute's type.
unsafe fn attribute(data: *mut c_void, attribute: CUpointer_attribute, at: u64) -> R {
    let r = vram::find(at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let host = matches!(r.kind, Kind::Host | Kind::Registered);
    // SAFETY: forwarded from this function's contract.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => {
                let c = context::by_id(r.context);
                put(data.cast::<CUcontext>(), c.as_ref().map_or(std::ptr::null_mut(), handle))
            }
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => put(data.cast::<c_uint>(), if host { HOST } else { DEVICE }),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => put(data.cast::<u64>(), at),
            CU_POINTER_ATTRIBUTE_HOST_POINTER if host || r.kind == Kind::Managed => put(data.cast::<u64>(), at),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => Err(CUDA_ERROR_INVALID_VALUE),
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => put(data.cast::<c_uint>(), r.flags >> 31),
            CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put(data.cast::<u64>(), r.id),
            // Booleans are one byte, as cuda.h's documentation has it for these.
            CU_POINTER_ATTRIBUTE_IS_MANAGED => put(data.cast::<u8>(), u8::from(r.kind == Kind::Managed)),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast::<c_int>(), r.device),
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => put(data.cast::<u8>(), 0),
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
                put(data.cast::<u64>(), r.base)
            }
            CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
                put(data.cast::<usize>(), r.bytes as usize)
            }
            CU_POINTER_ATTRIBUTE_MAPPED => put(data.cast::<u8>(), 1),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => put(data.cast::<u64>(), 0),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
                let flags = if r.writable {
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                } else {
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                };
                put(data.cast::<c_uint>(), flags)
            }
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => put(data.cast::<CUmemoryPool>(), r.pool as CUmemoryPool),
            unknown if unknown == 0 || unknown > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => {
                Err(CUDA_ERROR_INVALID_VALUE)
            }
            _ => refuse("cuPointerGetAttribute", "this attribute"),
        }
    }
}

api! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let c = context::current()?;
        put_some(free, device::total_bytes().saturating_sub(device::used_bytes(c.device)) as usize);
        put_some(total, device::total_bytes() as usize);
        Ok(())
    }
    fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize) {
        let c = context::current()?;
        graph::forbid_unsafe()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, allocate(&c, bytes as u64, Kind::Device)?.base)
    }
    fn cuMemAllocPitch_v2(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) {
        let c = context::current()?;
        graph::forbid_unsafe()?;
        if out.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let p = width.checked_next_multiple_of(512).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = p.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(out, allocate(&c, bytes as u64, Kind::Device)?.base)?;
        put(pitch, p)
    }
    fn cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, flags: c_uint) {
        let c = context::current()?;
        graph::forbid_unsafe()?;
        if out.is_null() || !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, allocate(&c, bytes as u64, Kind::Managed)?.base)
    }
    fn cuMemFree_v2(at: CUdeviceptr) { free(at) }
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, at: CUdeviceptr) {
        context::current()?;
        let r = vram::find(at).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(base, r.base);
        put_some(size, r.bytes as usize);
        Ok(())
    }
    fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) { host_allocate(out, bytes, 0) }
    fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) { host_allocate(out, bytes, flags) }
    fn cuMemFreeHost(p: *mut c_void) {
        let c = context::current()?;
        graph::forbid_unsafe()?;
        let r = vram::find(p as u64).filter(|r| r.base == p as u64 && r.kind == Kind::Host);
        let r = r.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        for s in context::by_id(r.context).unwrap_or(c).streams_of_all() {
            s.wait_all();
        }
        drop_range(&r);
        Ok(())
    }
    fn cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, p: *mut c_void, flags: c_uint) {
        context::current()?;
        let r = vram::find(p as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 || !matches!(r.kind, Kind::Host | Kind::Registered) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, p as u64)
    }
    fn cuMemHostGetFlags(flags: *mut c_uint, p: *mut c_void) {
        context::current()?;
        let r = vram::find(p as u64).filter(|r| r.kind == Kind::Host).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(flags, r.flags)
    }
    fn cuMemHostRegister_v2(p: *mut c_void, bytes: usize, flags: c_uint) { register(p, bytes, flags) }
    fn cuMemHostUnregister(p: *mut c_void) {
        let c = context::current()?;
        let r = vram::find(p as u64).filter(|r| r.base == p as u64 && r.kind == Kind::Registered);
        let r = r.ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        for s in context::by_id(r.context).unwrap_or(c).streams_of_all() {
            s.wait_all();
        }
        drop_range(&r);
        Ok(())
    }
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, n: usize) {
        copy_now(Copy3D::flat(dst, UNIFIED, src, UNIFIED, n))
    }
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst, UNIFIED, src, UNIFIED, n), h)
    }
    fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, n: usize) {
        copy_now(Copy3D::flat(dst, DEVICE, src as u64, HOST, n))
    }
    fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, n: usize) {
        copy_now(Copy3D::flat(dst as u64, HOST, src, DEVICE, n))
    }
    fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize) {
        let c = context::current()?;
        let copy = Copy3D::flat(dst, DEVICE, src, DEVICE, n);
        copy.check()?;
        // Copies inside device memory do not wait, which only a query of the default stream could show.
        stream::enqueue(&c.legacy_stream()?, Work::Copy(copy)).map(drop)
    }
    fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst, DEVICE, src as u64, HOST, n), h)
    }
    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst as u64, HOST, src, DEVICE, n), h)
    }
    fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst, DEVICE, src, DEVICE, n), h)
    }
    fn cuMemcpyPeer(dst: CUdeviceptr, to: CUcontext, src: CUdeviceptr, from: CUcontext, n: usize) {
        context::from_handle(to)?;
        context::from_handle(from)?;
        copy_now(Copy3D::flat(dst, DEVICE, src, DEVICE, n))
    }
    fn cuMemcpyPeerAsync(
        dst: CUdeviceptr,
        to: CUcontext,
        src: CUdeviceptr,
        from: CUcontext,
        n: usize,
        h: CUstream,
    ) {
        context::from_handle(to)?;
        context::from_handle(from)?;
        if let Some(capture) = stream::resolve(h)?.capture() {
            capture.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        copy_async(Copy3D::flat(dst, DEVICE, src, DEVICE, n), h)
    }
    fn cuMemcpyDtoA_v2(dst: CUarray, offset: usize, src: CUdeviceptr, n: usize) {
        copy_now(Copy3D::flat(array_at(dst, offset)?, DEVICE, src, DEVICE, n))
    }
    fn cuMemcpyAtoD_v2(dst: CUdeviceptr, src: CUarray, offset: usize, n: usize) {
        copy_now(Copy3D::flat(dst, DEVICE, array_at(src, offset)?, DEVICE, n))
    }
    fn cuMemcpyHtoA_v2(dst: CUarray, offset: usize, src: *const c_void, n: usize) {
        copy_now(Copy3D::flat(array_at(dst, offset)?, DEVICE, src as u64, HOST, n))
    }
    fn cuMemcpyAtoH_v2(dst: *mut c_void, src: CUarray, offset: usize, n: usize) {
        copy_now(Copy3D::flat(dst as u64, HOST, array_at(src, offset)?, DEVICE, n))
    }
    fn cuMemcpyAtoA_v2(dst: CUarray, to: usize, src: CUarray, from: usize, n: usize) {
        copy_now(Copy3D::flat(array_at(dst, to)?, DEVICE, array_at(src, from)?, DEVICE, n))
    }
    fn cuMemcpyHtoAAsync_v2(dst: CUarray, offset: usize, src: *const c_void, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(array_at(dst, offset)?, DEVICE, src as u64, HOST, n), h)
    }
    fn cuMemcpyAtoHAsync_v2(dst: *mut c_void, src: CUarray, offset: usize, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst as u64, HOST, array_at(src, offset)?, DEVICE, n), h)
    }
    fn cuMemcpy2D_v2(c: *const CUDA_MEMCPY2D) { copy_now(from_2d(&get(c)?)) }
    fn cuMemcpy2DUnaligned_v2(c: *const CUDA_MEMCPY2D) { copy_now(from_2d(&get(c)?)) }
    fn cuMemcpy2DAsync_v2(c: *const CUDA_MEMCPY2D, h: CUstream) { copy_async(from_2d(&get(c)?), h) }
    fn cuMemcpy3D_v2(c: *const CUDA_MEMCPY3D) { copy_now(plain(get(c)?)) }
    fn cuMemcpy3DAsync_v2(c: *const CUDA_MEMCPY3D, h: CUstream) { copy_async(plain(get(c)?), h) }
    fn cuMemcpy3DPeer(c: *const CUDA_MEMCPY3D_PEER) { copy_now(from_peer(&get(c)?)) }
    fn cuMemcpy3DPeerAsync(c: *const CUDA_MEMCPY3D_PEER, h: CUstream) { copy_async(from_peer(&get(c)?), h) }
    fn cuMemcpyBatchAsync_v2(
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        _attrs: *mut CUmemcpyAttributes,
        _indices: *mut usize,
        _attr_count: usize,
        h: CUstream,
    ) {
        let (d, s, n) = (list(dsts, count)?, list(srcs, count)?, list(sizes, count)?);
        for i in 0..count {
            copy_async(Copy3D::flat(d[i], UNIFIED, s[i], UNIFIED, n[i]), h)?;
        }
        Ok(())
    }
    fn cuMemsetD8_v2(at: CUdeviceptr, v: c_uchar, n: usize) { fill(row(at, v.into(), 1, n), None) }
    fn cuMemsetD16_v2(at: CUdeviceptr, v: c_ushort, n: usize) { fill(row(at, v.into(), 2, n), None) }
    fn cuMemsetD32_v2(at: CUdeviceptr, v: c_uint, n: usize) { fill(row(at, v, 4, n), None) }
    fn cuMemsetD2D8_v2(at: CUdeviceptr, pitch: usize, v: c_uchar, w: usize, h: usize) {
        fill(rows(at, pitch, v.into(), 1, w, h), None)
    }
    fn cuMemsetD2D16_v2(at: CUdeviceptr, pitch: usize, v: c_ushort, w: usize, h: usize) {
        fill(rows(at, pitch, v.into(), 2, w, h), None)
    }
    fn cuMemsetD2D32_v2(at: CUdeviceptr, pitch: usize, v: c_uint, w: usize, h: usize) {
        fill(rows(at, pitch, v, 4, w, h), None)
    }
    fn cuMemsetD8Async(at: CUdeviceptr, v: c_uchar, n: usize, s: CUstream) { fill(row(at, v.into(), 1, n), Some(s)) }
    fn cuMemsetD16Async(at: CUdeviceptr, v: c_ushort, n: usize, s: CUstream) {
        fill(row(at, v.into(), 2, n), Some(s))
    }
    fn cuMemsetD32Async(at: CUdeviceptr, v: c_uint, n: usize, s: CUstream) { fill(row(at, v, 4, n), Some(s)) }
    fn cuMemsetD2D8Async(at: CUdeviceptr, pitch: usize, v: c_uchar, w: usize, h: usize, s: CUstream) {
        fill(rows(at, pitch, v.into(), 1, w, h), Some(s))
    }
    fn cuMemsetD2D16Async(at: CUdeviceptr, pitch: usize, v: c_ushort, w: usize, h: usize, s: CUstream) {
        fill(rows(at, pitch, v.into(), 2, w, h), Some(s))
    }
    fn cuMemsetD2D32Async(at: CUdeviceptr, pitch: usize, v: c_uint, w: usize, h: usize, s: CUstream) {
        fill(rows(at, pitch, v, 4, w, h), Some(s))
    }
    fn cuArrayCreate_v2(out: *mut CUarray, d: *const CUDA_ARRAY_DESCRIPTOR) {
        let d = get(d)?;
        create_array(out, CUDA_ARRAY3D_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Depth: 0,
            Format: d.Format,
            NumChannels: d.NumChannels,
            Flags: 0,
        })
    }
    fn cuArray3DCreate_v2(out: *mut CUarray, d: *const CUDA_ARRAY3D_DESCRIPTOR) { create_array(out, get(d)?) }
    fn cuArrayGetDescriptor_v2(out: *mut CUDA_ARRAY_DESCRIPTOR, h: CUarray) {
        let d = ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.descriptor;
        put(out, CUDA_ARRAY_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Format: d.Format,
            NumChannels: d.NumChannels,
        })
    }
    fn cuArray3DGetDescriptor_v2(out: *mut CUDA_ARRAY3D_DESCRIPTOR, h: CUarray) {
        put(out, ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.descriptor)
    }
    fn cuArrayDestroy(h: CUarray) {
        let c = context::current()?;
        if ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.is_level {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let a = ARRAYS.remove(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        for s in c.every_stream() {
            s.wait_all();
        }
        a.free();
        Ok(())
    }
    fn cuPointerGetAttribute(data: *mut c_void, which: CUpointer_attribute, at: CUdeviceptr) {
        device::initialised()?;
        attribute(data, which, at)
    }
    fn cuPointerGetAttributes(n: c_uint, which: *mut CUpointer_attribute, data: *mut *mut c_void, at: CUdeviceptr) {
        device::initialised()?;
        let (which, data) = (list(which, n as usize)?, list(data, n as usize)?);
        let known = vram::find(at).is_some();
        for (w, d) in which.iter().zip(data) {
            if known && attribute(d, *w, at).is_ok() {
                continue;
            }
            // Memory CUDA does not know gets zeroes and no error, as the plural call documents, and its own address.
            match *w {
                CU_POINTER_ATTRIBUTE_HOST_POINTER if !known => put_some(d.cast::<u64>(), at),
                CU_POINTER_ATTRIBUTE_CONTEXT
                | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
                | CU_POINTER_ATTRIBUTE_HOST_POINTER
                | CU_POINTER_ATTRIBUTE_BUFFER_ID
                | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
                | CU_POINTER_ATTRIBUTE_RANGE_SIZE
                | CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
                | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => put_some(d.cast::<u64>(), 0),
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put_some(d.cast::<c_int>(), -2),
                CU_POINTER_ATTRIBUTE_IS_MANAGED
                | CU_POINTER_ATTRIBUTE_MAPPED
                | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
                | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => put_some(d.cast::<u8>(), 0),
                _ => put_some(d.cast::<c_uint>(), 0),
            }
        }
        Ok(())
    }
    fn cuPointerSetAttribute(value: *const c_void, which: CUpointer_attribute, at: CUdeviceptr) {
        context::current()?;
        if which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let on = get(value.cast::<c_uint>())?;
        let r = vram::find(at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        vram::update(r.base, |r| r.flags = (r.flags & !(1 << 31)) | (u32::from(on != 0) << 31));
        Ok(())
    }
    fn cuMemAdvise(_at: CUdeviceptr, _n: usize, _advice: CUmem_advise, _dev: CUdevice) {
        context::current().map(drop)
    }
    fn cuMemPrefetchAsync(at: CUdeviceptr, n: usize, _dev: CUdevice, h: CUstream) {
        stream::resolve(h)?;
        if vram::covers(at, n as u64) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
    fn cuMemAdvise_v2(_at: CUdeviceptr, _n: usize, _advice: CUmem_advise, _where: CUmemLocation) {
        context::current().map(drop)
    }
    fn cuMemPrefetchAsync_v2(at: CUdeviceptr, n: usize, _where: CUmemLocation, _flags: c_uint, h: CUstream) {
        stream::resolve(h)?;
        if vram::covers(at, n as u64) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}
