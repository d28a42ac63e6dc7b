//! Stream-ordered allocation and its pools.

// UNSAFETY: calls the driver with pools and streams that were looked up, and addresses that were decided on.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::{Existing, MEM_POOL};
use orion_wire::message::pool::{DeviceGetDefaultMemPool, DeviceSetMemPool, MemAllocAsync, MemAllocAsyncReply};
use orion_wire::message::pool::{MemAllocFromPoolAsync, MemAllocFromPoolAsyncReply, MemFreeAsync, MemPoolCreate};
use orion_wire::message::pool::{MemPoolDestroy, MemPoolGetAttribute, MemPoolGetAttributeReply, MemPoolSetAttribute};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;

/// The pool behind a handle; 0 is none.
fn pool(s: &mut Session, name: Existing<MEM_POOL>) -> Result<CUmemoryPool, CUresult> {
    match s.handle(Kind::MemPool, name.0) {
        Ok(p) if !p.is_null() => Ok(p.cast()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// In a stream that is being captured it is a graph that allocates, each time it runs, and frees.
fn given(s: &mut Session, code: CUresult, base: u64, bytes: usize, stream: CUstream) {
    if code == CUDA_SUCCESS {
        let of = if s.captures.open() && s.is_capturing(stream) { Of::Graph } else { Of::Pool };
        s.addresses.given(base, bytes as u64, of);
    }
}

/// The pool that streams of the current context allocate from, where it is not their device's: null, or of a vGPU that
/// is not the first on its device.
fn own_pool(s: &mut Session) -> Result<CUmemoryPool, CUresult> {
    let (vgpu, _) = s.place();
    if s.vgpus.get(vgpu).is_first() {
        return Ok(ptr::null_mut());
    }
    match s.vgpus.current_pools.get(&vgpu) {
        Some(pool) => Ok(*pool),
        None => default_pool(s, vgpu),
    }
}

/// A vGPU's default pool.
fn default_pool(s: &mut Session, vgpu: usize) -> Result<CUmemoryPool, CUresult> {
    let (of, mut pool) = (s.vgpus.get(vgpu), ptr::null_mut());
    if let Some(pool) = s.vgpus.default_pools.get(&vgpu) {
        return Ok(*pool);
    }
    let code = if of.is_first() {
        // SAFETY: a device of this session and a valid out pointer.
        unsafe { s.driver.cuDeviceGetDefaultMemPool(&mut pool, of.device) }
    } else {
        let props = properties(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, of.device, 0, 0);
        // SAFETY: valid pointers to locals.
        unsafe { s.driver.cuMemPoolCreate(&mut pool, &props) }
    };
    if code != CUDA_SUCCESS {
        return Err(code);
    }
    s.pool_named(pool, vgpu, true);
    s.vgpus.default_pools.insert(vgpu, pool);
    if !of.is_first() {
        s.vgpus.current_pools.insert(vgpu, pool);
    }
    Ok(pool)
}

fn properties(kind: u32, handle_types: u32, device: CUdevice, bytes_max: usize, usage: u16) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: kind,
        handleTypes: handle_types,
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: bytes_max,
        usage,
        reserved: [0; 54],
    }
}

/// As `Session::taking`; in a stream that is being captured, what a graph is to allocate.
fn take(
    s: &mut Session,
    pool: CUmemoryPool,
    bytes: usize,
    stream: CUstream,
    call: impl FnOnce(&'static Driver) -> (CUresult, CUdeviceptr),
) -> CUresult {
    if s.captures.open() && s.is_capturing(stream) {
        s.graph_nodes.allocates = true;
        let graph = s.captures.graph_of(s.driver, stream).unwrap_or(ptr::null_mut());
        return s
            .allocating_in_graph(graph, bytes as u64, |s| match call(s.driver).0 {
                CUDA_SUCCESS => Ok(CUDA_SUCCESS),
                code => Err(code),
            })
            .unwrap_or_else(|code| code);
    }
    s.taking(pool, bytes as u64, stream, call)
}

pub fn cuMemAllocAsync(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = MemAllocAsync::decode(&mut r)?;
    let (bytes, stream) = (q.bytes.0 as usize, s.stream(q.stream.0, header.thread)?);
    let mut base = 0;
    let own = own_pool(s)?;
    // SAFETY: a valid out pointer; a stream of this session, and null or a pool of it.
    let code = take(s, own, bytes, stream, |d| unsafe {
        let code = match own.is_null() {
            true => d.cuMemAllocAsync(&mut base, bytes, stream),
            false => d.cuMemAllocFromPoolAsync(&mut base, bytes, own, stream),
        };
        (code, base)
    });
    s.note_pools();
    given(s, code, base, bytes, stream);
    MemAllocAsyncReply { address: base }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuMemAllocFromPoolAsync(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = MemAllocFromPoolAsync::decode(&mut r)?;
    let (bytes, stream) = (q.bytes.0 as usize, s.stream(q.stream.0, header.thread)?);
    let pool = pool(s, q.pool)?;
    let mut base = 0;
    // SAFETY: a valid out pointer; stream and pool are this session's.
    let code = take(s, pool, bytes, stream, |d| unsafe {
        let code = d.cuMemAllocFromPoolAsync(&mut base, bytes, pool, stream);
        (code, base)
    });
    s.note_pools();
    given(s, code, base, bytes, stream);
    MemAllocFromPoolAsyncReply { address: base }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuMemFreeAsync(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemFreeAsync::decode(&mut r)?;
    let stream = s.stream(q.stream.0, header.thread)?;
    s.note_free(stream);
    let base = s.reach(q.address, 1)?;
    if s.is_managed_variable(base) {
        return Ok(Outcome::Done(CUDA_ERROR_INVALID_VALUE));
    }
    // SAFETY: a stream and device memory of this session; the driver checks that an allocation begins there.
    let code = unsafe { s.driver.cuMemFreeAsync(base.raw(), stream) };
    // In a stream that is being captured nothing is freed now.
    if code == CUDA_SUCCESS && !(s.captures.open() && s.is_capturing(stream)) {
        s.addresses.ended(base.raw());
        let ending = s.memory_ends(base.raw());
        s.memory_ended(ending, true);
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemPoolSetAttribute(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let MemPoolSetAttribute { pool: name, attribute, mut value } = MemPoolSetAttribute::decode(&mut r)?;
    let pool = pool(s, name)?;
    let at: *mut c_void = (&raw mut value).cast();
    // SAFETY: eight bytes are enough for every attribute; narrow ones lie in the first four.
    Ok(Outcome::Done(unsafe { s.driver.cuMemPoolSetAttribute(pool, attribute, at) }))
}

pub fn cuMemPoolGetAttribute(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = MemPoolGetAttribute::decode(&mut r)?;
    let pool = pool(s, q.pool)?;
    let mut value = 0u64;
    // SAFETY: as above.
    let code = unsafe { s.driver.cuMemPoolGetAttribute(pool, q.attribute, (&raw mut value).cast()) };
    MemPoolGetAttributeReply { value }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuMemPoolCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemPoolCreate::decode(&mut r)?;
    let vgpu = s.vgpus.at(q.device.0)?;
    let (device, bytes_max) = (s.vgpus.get(vgpu).device, q.bytes_max.0 as usize);
    let props = properties(q.allocation_type, q.handle_types, device, bytes_max, q.usage);
    let mut pool: CUmemoryPool = ptr::null_mut();
    // SAFETY: valid pointers to locals.
    let code = unsafe { s.driver.cuMemPoolCreate(&mut pool, &props) };
    if code == CUDA_SUCCESS {
        s.pool_named(pool, vgpu, false);
        s.bind(Kind::MemPool, q.pool.0, pool.cast())?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemPoolDestroy(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemPoolDestroy::decode(&mut r)?;
    let pool = pool(s, q.pool)?;
    if s.vgpus.default_pools.values().any(|default| *default == pool) {
        return Err(CUDA_ERROR_NOT_PERMITTED.into());
    }
    s.unbind(Kind::MemPool, q.pool.0);
    s.vgpus.current_pools.retain(|_, current| *current != pool);
    // SAFETY: a live pool; a default one is refused by the driver.
    let code = unsafe { s.driver.cuMemPoolDestroy(pool) };
    if code == CUDA_SUCCESS {
        s.pool_ends(pool);
    }
    Ok(Outcome::Done(code))
}

/// Gives a device's default pool the name that the client chose for it.
pub fn cuDeviceGetDefaultMemPool(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    let q = DeviceGetDefaultMemPool::decode(&mut r)?;
    let vgpu = s.vgpus.at(q.device.0)?;
    let pool = default_pool(s, vgpu)?;
    s.bind(Kind::MemPool, q.pool.0, pool.cast())?;
    Ok(Outcome::Done(CUDA_SUCCESS))
}

pub fn cuDeviceSetMemPool(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = DeviceSetMemPool::decode(&mut r)?;
    let (vgpu, pool) = (s.vgpus.at(q.device.0)?, pool(s, q.pool)?);
    let of = s.vgpus.get(vgpu);
    if !of.is_first() {
        s.vgpus.current_pools.insert(vgpu, pool);
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    // SAFETY: a device and a pool of this session.
    Ok(Outcome::Done(unsafe { s.driver.cuDeviceSetMemPool(of.device, pool) }))
}
