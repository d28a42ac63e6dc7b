//! Stream-ordered allocation and its pools.

// UNSAFETY: calls the driver with pools and streams that were looked up, and addresses that were decided on.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::record::Header;
use orion_wire::{Reader, Writer};

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;

/// The pool behind a handle; 0 is none.
fn pool(s: &mut Session, word: u64) -> Result<CUmemoryPool, CUresult> {
    match s.handle(Kind::MemPool, word) {
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
    let (bytes, stream) = (r.word()? as usize, s.stream(r.word()?, header.thread));
    let stream = stream?;
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
    reply.word(base);
    Ok(Outcome::Done(code))
}

pub fn cuMemAllocFromPoolAsync(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (bytes, stream) = (r.word()? as usize, s.stream(r.word()?, header.thread));
    let pool = pool(s, r.word()?);
    let (stream, pool) = match (stream, pool) {
        (Ok(stream), Ok(pool)) => (stream, pool),
        (Err(code), _) | (_, Err(code)) => return Ok(Outcome::Done(code)),
    };
    let mut base = 0;
    // SAFETY: a valid out pointer; stream and pool are this session's.
    let code = take(s, pool, bytes, stream, |d| unsafe {
        let code = d.cuMemAllocFromPoolAsync(&mut base, bytes, pool, stream);
        (code, base)
    });
    s.note_pools();
    given(s, code, base, bytes, stream);
    reply.word(base);
    Ok(Outcome::Done(code))
}

pub fn cuMemFreeAsync(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let base = r.word()?;
    let stream = s.stream(r.word()?, header.thread)?;
    s.note_free(stream);
    let base = s.reach(ClaimedDevice::new(base), 1)?;
    // SAFETY: a stream and device memory of this session; the driver checks that an allocation begins there.
    let code = unsafe { s.driver.cuMemFreeAsync(base.raw(), stream) };
    // In a stream that is being captured nothing is freed now.
    if code == CUDA_SUCCESS && !s.captures.open() {
        s.addresses.ended(base.raw());
        let ending = s.memory_ends(base.raw());
        s.memory_ended(ending, true);
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemPoolSetAttribute(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let pool = pool(s, r.word()?);
    let (attribute, mut value) = (r.word()? as u32, r.word()?);
    let pool = pool?;
    let at: *mut c_void = (&raw mut value).cast();
    // SAFETY: eight bytes are enough for every attribute; narrow ones lie in the first four.
    Ok(Outcome::Done(unsafe { s.driver.cuMemPoolSetAttribute(pool, attribute, at) }))
}

pub fn cuMemPoolGetAttribute(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let pool = pool(s, r.word()?);
    let attribute = r.word()? as u32;
    let pool = pool?;
    let mut value = 0u64;
    // SAFETY: as above.
    let code = unsafe { s.driver.cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) };
    reply.word(value);
    Ok(Outcome::Done(code))
}

pub fn cuMemPoolCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = r.word()?;
    let (kind, handle_types, ordinal) = (r.word()? as u32, r.word()? as u32, r.word()? as i32);
    let (bytes_max, usage) = (r.word()? as usize, r.word()? as u16);
    let vgpu = s.vgpus.at(ordinal)?;
    let props = properties(kind, handle_types, s.vgpus.get(vgpu).device, bytes_max, usage);
    let mut pool: CUmemoryPool = ptr::null_mut();
    // SAFETY: valid pointers to locals.
    let code = unsafe { s.driver.cuMemPoolCreate(&mut pool, &props) };
    if code == CUDA_SUCCESS {
        s.pool_named(pool, vgpu, false);
        s.bind(Kind::MemPool, word, pool.cast())?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemPoolDestroy(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = r.word()?;
    let pool = pool(s, word)?;
    if s.vgpus.default_pools.values().any(|default| *default == pool) {
        return Err(CUDA_ERROR_NOT_PERMITTED.into());
    }
    s.unbind(Kind::MemPool, word);
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
    let (word, vgpu) = (r.word()?, s.vgpus.at(r.word()? as i32));
    let pool = default_pool(s, vgpu?)?;
    s.bind(Kind::MemPool, word, pool.cast())?;
    Ok(Outcome::Done(CUDA_SUCCESS))
}

pub fn cuDeviceSetMemPool(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let (vgpu, pool) = (s.vgpus.at(r.word()? as i32), pool(s, r.word()?));
    let (vgpu, pool) = (vgpu?, pool?);
    let of = s.vgpus.get(vgpu);
    if !of.is_first() {
        s.vgpus.current_pools.insert(vgpu, pool);
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    // SAFETY: a device and a pool of this session.
    Ok(Outcome::Done(unsafe { s.driver.cuDeviceSetMemPool(of.device, pool) }))
}
