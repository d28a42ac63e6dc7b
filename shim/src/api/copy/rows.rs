//! Copies of boxes: two and three dimensions, between devices, and to and from arrays.

// UNSAFETY: copies between the application's buffers and the heap; addresses and sizes are the application's.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::handle::Handle;
use orion_wire::message::copy::CopyBox;
use orion_wire::message::field::Existing;
use orion_wire::record::HeapRange;

use crate::answer::{code, posted};
use crate::api::copy::linear::{Bringing, Side, is_allocation_known, side};
use crate::memory::copy::message;
use crate::memory::payload::{Loan, announce};
use crate::memory::reading::Reading;
use crate::memory::{host_memory, in_step};
use crate::objects::stream::in_context_of_copy;
use crate::objects::{capture, synchronize};
use crate::session::attached::session;
use crate::session::call::{post_sealed, start_sealed};
use crate::session::context::needs_context;
use crate::session::reply::wait;
use crate::session::route::{self, Key};
use crate::state::graph_copies::Shape;
use crate::state::process::state;
use crate::state::session::Session;

/// Two-dimensional copies are three-dimensional ones of depth 1.
fn as_3d(c: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    d.srcXInBytes = c.srcXInBytes;
    d.srcY = c.srcY;
    d.srcMemoryType = c.srcMemoryType;
    d.srcHost = c.srcHost;
    d.srcDevice = c.srcDevice;
    d.srcArray = c.srcArray;
    d.srcPitch = c.srcPitch;
    d.dstXInBytes = c.dstXInBytes;
    d.dstY = c.dstY;
    d.dstMemoryType = c.dstMemoryType;
    d.dstHost = c.dstHost;
    d.dstDevice = c.dstDevice;
    d.dstArray = c.dstArray;
    d.dstPitch = c.dstPitch;
    d.WidthInBytes = c.WidthInBytes;
    d.Height = c.Height;
    d.Depth = 1;
    d
}

/// One side's host memory in a shaped copy: rows of a box.
struct Rows {
    first: *mut u8,
    pitch: usize,
    slice: usize,
    width: usize,
    height: usize,
    depth: usize,
}

impl Rows {
    fn packed_bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    fn shape(&self) -> Shape {
        let Rows { pitch, slice, width, height, depth, .. } = *self;
        Shape { width, rows: height, slices: depth, pitch, slice_pitch: slice }
    }

    /// The rows in the heap, where `all` is from the first to the last byte touched. Rows without a gap are one.
    fn ranges(&self, all: HeapRange) -> Vec<HeapRange> {
        let mut rows: Vec<HeapRange> = Vec::new();
        for at in (0..self.depth).flat_map(|z| (0..self.height).map(move |y| z * self.slice + y * self.pitch)) {
            let (offset, bytes) = (all.offset + at as u64, self.width as u64);
            match rows.last_mut() {
                Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
                _ => rows.push(HeapRange { offset, bytes }),
            }
        }
        rows
    }

    /// Bytes from the first to the last one touched.
    fn span(&self) -> usize {
        (self.depth - 1) * self.slice + (self.height - 1) * self.pitch + self.width
    }

    /// # Safety
    /// Every row of both lies in the application's memory, and both have the same box.
    unsafe fn copy_to(&self, to: &Rows) {
        for z in 0..self.depth {
            for y in 0..self.height {
                // SAFETY: the caller's promise.
                unsafe {
                    let at = to.first.add(z * to.slice + y * to.pitch);
                    std::ptr::copy(self.first.add(z * self.slice + y * self.pitch), at, self.width);
                }
            }
        }
    }

    /// # Safety
    /// Every row lies in the application's memory; `packed` has `packed_bytes`.
    unsafe fn each(&self, packed: *mut u8, mut copy: impl FnMut(*mut u8, *mut u8, usize)) {
        let mut at = packed;
        for z in 0..self.depth {
            for y in 0..self.height {
                // SAFETY: the caller's promise.
                unsafe {
                    copy(self.first.add(z * self.slice + y * self.pitch), at, self.width);
                    at = at.wrapping_add(self.width);
                }
            }
        }
    }
}

/// Any shape. A pageable side is packed through the heap, so a copy with one is complete when the call returns.
///
/// # Safety
/// Host sides have the rows that the descriptor names.
pub unsafe fn copy_3d(c: *const CUDA_MEMCPY3D, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    let copy = || unsafe { copy_3d_here(c, stream, synchronous) };
    // SAFETY: null or valid, by the caller's promise.
    let sides = unsafe { c.as_ref() }.map_or((0, 0), |c| {
        let side = |kind, host: *const c_void, device| match kind {
            CU_MEMORYTYPE_HOST => host as u64,
            _ => device,
        };
        (side(c.dstMemoryType, c.dstHost, c.dstDevice), side(c.srcMemoryType, c.srcHost, c.srcDevice))
    });
    in_context_of_copy(stream, sides, synchronous, copy)
}

/// As above, in a context.
///
/// # Safety
/// As [`copy_3d`].
unsafe fn copy_3d_here(c: *const CUDA_MEMCPY3D, stream: CUstream, synchronous: bool) -> CUresult {
    code((|| {
        let s = session()?;
        needs_context()?;
        // SAFETY: null or a valid descriptor.
        let mut d = *unsafe { c.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if d.WidthInBytes == 0 || d.Height == 0 || d.Depth == 0 {
            return Ok(());
        }
        let (src, dst) = host_sides(s, &mut d)?;
        route::together("a copy of rows", &device_sides(&d))?;
        if let (Some(from), Some(to)) = (&src, &dst)
            && (synchronous || !capture::is_active(stream)?)
        {
            posted(synchronize::stream(stream))?;
            // SAFETY: the caller's promise.
            unsafe { from.copy_to(to) };
            return Ok(());
        }
        let mut way = Way { s, stream, synchronous, loan: None, unpack: None, to_host: Vec::new(), reading: None };
        let (src, dst) = (src.or_else(|| mirrored(s, &d, false)), dst.or_else(|| mirrored(s, &d, true)));
        if let Some(from) = src {
            // SAFETY: the caller's promise.
            unsafe { way.source(&mut d, from)? };
        }
        if let Some(to) = dst {
            way.destination(&mut d, to)?;
        }
        // SAFETY: the caller's promise.
        unsafe { way.send(&d) }
    })())
}

/// What a copy names of devices' memory.
fn device_sides(d: &CUDA_MEMCPY3D) -> [Key; 2] {
    let side = |kind, device: u64, array: CUarray| match kind {
        CU_MEMORYTYPE_DEVICE => Key::Address(device),
        CU_MEMORYTYPE_ARRAY => Key::Object(array as u64),
        _ => Key::Current,
    };
    [side(d.srcMemoryType, d.srcDevice, d.srcArray), side(d.dstMemoryType, d.dstDevice, d.dstArray)]
}

/// The rows of a side that is said to be in a device's memory, as the driver is told, and lies in memory of which the
/// worker has a copy: those are brought there and back.
fn mirrored(s: &Session, d: &CUDA_MEMCPY3D, is_destination: bool) -> Option<Rows> {
    let (kind, base, at, pitch, rows) = match is_destination {
        false => (d.srcMemoryType, d.srcDevice, [d.srcXInBytes, d.srcY, d.srcZ], d.srcPitch, d.srcHeight),
        true => (d.dstMemoryType, d.dstDevice, [d.dstXInBytes, d.dstY, d.dstZ], d.dstPitch, d.dstHeight),
    };
    if kind != CU_MEMORYTYPE_DEVICE || !s.pages.must_bring() {
        return None;
    }
    let side = rows_of(base, at, pitch, rows, d)?;
    host_memory::shared(s, side.first as u64, side.span() as u64)?;
    Some(side)
}

/// A side's rows. Nothing if that is none.
fn rows_of(base: u64, at: [usize; 3], pitch: usize, rows: usize, d: &CUDA_MEMCPY3D) -> Option<Rows> {
    let (first, _) = extent(base, at, pitch, rows, d)?;
    let (width, height, depth) = (d.WidthInBytes, d.Height, d.Depth);
    let pitch = if pitch == 0 { width } else { pitch };
    // With one layer nobody has said that this product is a number.
    let slice = pitch.saturating_mul(if rows == 0 { height } else { rows });
    Some(Rows { first: first as *mut u8, pitch, slice, width, height, depth })
}

/// The first byte of a side, and how many there are from it to the last. Nothing if that is none.
fn extent(base: u64, at: [usize; 3], pitch: usize, rows: usize, d: &CUDA_MEMCPY3D) -> Option<(u64, usize)> {
    let (width, height, depth) = (d.WidthInBytes, d.Height, d.Depth);
    let pitch = if pitch == 0 { width } else { pitch };
    let rows = if rows == 0 { height } else { rows };
    let place = |x: usize, y: usize, z: usize| rows.checked_mul(z)?.checked_add(y)?.checked_mul(pitch)?.checked_add(x);
    let first = base.checked_add(place(at[0], at[1], at[2])? as u64)?;
    let span = place(width, height - 1, depth - 1)?;
    first.checked_add(span as u64).filter(|_| base != 0 && pitch >= width).map(|_| (first, span))
}

/// Whether the driver does the copy without doubt, which then may be posted: each side in a device's memory is inside
/// of something that the shim knows. Else the driver has to judge before the call returns.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where a side is no memory, or reaches beyond its allocation.
fn is_certain(d: &CUDA_MEMCPY3D) -> Result<bool, CUresult> {
    let (width, height, depth) = (d.WidthInBytes, d.Height, d.Depth);
    let linear = |base: u64, at: [usize; 3], pitch: usize, rows: usize| {
        if base == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        extent(base, at, pitch, rows, d).map_or(Ok(false), |(first, span)| is_allocation_known(first, span))
    };
    let in_array = |array: CUarray, at: [usize; 3]| {
        let (arrays, handle) = (&state().arrays, Handle(array as u64));
        let (Some(element), Some(array)) = (arrays.element_bytes(array), arrays.arrays.get(handle)) else {
            return false;
        };
        let of = &array.descriptor;
        let extents = [of.Width.saturating_mul(element), of.Height.max(1), of.Depth.max(1)];
        let copied = [width, height, depth];
        (0..3).all(|i| at[i].checked_add(copied[i]).is_some_and(|end| end <= extents[i]))
    };
    let side = |kind, device, array, at: [usize; 3], pitch, rows| match kind {
        CU_MEMORYTYPE_DEVICE => linear(device, at, pitch, rows),
        CU_MEMORYTYPE_ARRAY => Ok(in_array(array, at)),
        CU_MEMORYTYPE_HOST => Ok(true),
        _ => Ok(false),
    };
    let from = [d.srcXInBytes, d.srcY, d.srcZ];
    let to = [d.dstXInBytes, d.dstY, d.dstZ];
    let source = side(d.srcMemoryType, d.srcDevice, d.srcArray, from, d.srcPitch, d.srcHeight)?;
    let destination = side(d.dstMemoryType, d.dstDevice, d.dstArray, to, d.dstPitch, d.dstHeight)?;
    Ok(source && destination)
}

/// The rows of the sides that are host memory; `d` says so of them from now on.
fn host_sides(s: &Session, d: &mut CUDA_MEMCPY3D) -> Result<(Option<Rows>, Option<Rows>), CUresult> {
    // "Unified" says: find out by the address.
    let resolve = |kind: &mut CUmemorytype, device: u64, host: &mut u64| {
        if *kind == CU_MEMORYTYPE_UNIFIED {
            if side(s, device, 1) == Ok(Side::Device) {
                *kind = CU_MEMORYTYPE_DEVICE;
            } else {
                (*kind, *host) = (CU_MEMORYTYPE_HOST, device);
            }
        }
    };
    let (mut src_host, mut dst_host) = (d.srcHost as u64, d.dstHost as u64);
    resolve(&mut d.srcMemoryType, d.srcDevice, &mut src_host);
    resolve(&mut d.dstMemoryType, d.dstDevice, &mut dst_host);
    let rows = |base, at, pitch, rows| rows_of(base, at, pitch, rows, d).ok_or(CUDA_ERROR_INVALID_VALUE);
    let src = match d.srcMemoryType {
        CU_MEMORYTYPE_HOST => Some(rows(src_host, [d.srcXInBytes, d.srcY, d.srcZ], d.srcPitch, d.srcHeight)?),
        _ => None,
    };
    let dst = match d.dstMemoryType {
        CU_MEMORYTYPE_HOST => Some(rows(dst_host, [d.dstXInBytes, d.dstY, d.dstZ], d.dstPitch, d.dstHeight)?),
        _ => None,
    };
    if src.is_some() {
        d.srcHost = src_host as *const c_void;
    }
    if dst.is_some() {
        d.dstHost = dst_host as *mut c_void;
    }
    Ok((src, dst))
}

/// How the host side of a copy gets to the worker, or comes from there.
struct Way {
    s: &'static Session,
    stream: CUstream,
    synchronous: bool,
    /// Memory that stands for pageable memory until the call returns.
    loan: Option<Loan>,
    /// Where the loan's bytes go in the end.
    unpack: Option<Rows>,
    /// Rows of pinned memory that the copy writes.
    to_host: Vec<HeapRange>,
    reading: Option<Reading>,
}

impl Way {
    /// What is captured is copied when the graph runs.
    fn set_aside(&self, rows: &Rows) -> Result<Option<u64>, CUresult> {
        match self.synchronous {
            true => Ok(None),
            false => capture::set_aside(self.s, self.stream, rows.first as u64, rows.shape()),
        }
    }

    /// # Safety
    /// Every row lies in the application's memory.
    unsafe fn source(&mut self, d: &mut CUDA_MEMCPY3D, from: Rows) -> Result<(), CUresult> {
        let s = self.s;
        if s.pages.must_bring() {
            // SAFETY: the caller's promise.
            unsafe { from.each(std::ptr::null_mut(), |row, _, n| in_step::note_bytes(s, row.addr() as u64, row, n)) };
        }
        host_memory::ends_in_one_allocation(from.first as u64, from.span() as u64)?;
        if let Some(memory) = host_memory::shared(s, from.first as u64, from.span() as u64) {
            if s.pages.must_bring()
                && let Some(range) = memory.heap()
            {
                let rows = from.ranges(range);
                self.reading = Some(Reading::of(s, || rows.clone()));
                in_step::announce_rows(s, range, &rows);
            }
            return Ok(());
        }
        match self.set_aside(&from)? {
            Some(at) => {
                d.srcHost = at as *const c_void;
                (d.srcPitch, d.srcHeight) = (from.pitch, from.slice / from.pitch);
            }
            None => {
                let loan = Loan::general(s, from.packed_bytes())?;
                // SAFETY: the caller's promise; the loan has room for the packed rows.
                unsafe { from.each(loan.pointer(), |row, at, n| std::ptr::copy_nonoverlapping(row, at, n)) };
                announce(s, loan.range);
                d.srcHost = loan.pointer().cast_const().cast();
                (d.srcPitch, d.srcHeight) = (d.WidthInBytes, d.Height);
                self.loan = Some(loan);
            }
        }
        (d.srcXInBytes, d.srcY, d.srcZ) = (0, 0, 0);
        Ok(())
    }

    fn destination(&mut self, d: &mut CUDA_MEMCPY3D, to: Rows) -> Result<(), CUresult> {
        let s = self.s;
        host_memory::ends_in_one_allocation(to.first as u64, to.span() as u64)?;
        if let Some(memory) = host_memory::shared(s, to.first as u64, to.span() as u64) {
            if let Some(range) = memory.heap() {
                if s.pages.must_bring() {
                    self.to_host = to.ranges(range);
                }
                in_step::before_overwrite(s, range);
            }
            return Ok(());
        }
        match self.set_aside(&to)? {
            Some(at) => {
                d.dstHost = at as *mut c_void;
                (d.dstPitch, d.dstHeight) = (to.pitch, to.slice / to.pitch);
            }
            None => {
                let loan = Loan::general(s, to.packed_bytes())?;
                d.dstHost = loan.pointer().cast();
                (d.dstPitch, d.dstHeight) = (d.WidthInBytes, d.Height);
                self.loan = Some(loan);
                self.unpack = Some(to);
            }
        }
        (d.dstXInBytes, d.dstY, d.dstZ) = (0, 0, 0);
        Ok(())
    }

    /// # Safety
    /// Every row lies in the application's memory.
    unsafe fn send(self, d: &CUDA_MEMCPY3D) -> Result<(), CUresult> {
        let q = CopyBox { stream: Existing(self.stream as u64), copy: message(d) };
        let request = |w: &mut Vec<u8>| q.encode(w);
        let is_posted = !self.synchronous && self.loan.is_none() && is_certain(d)?;
        let bringing = Bringing::new(self.s, self.to_host);
        if is_posted {
            return posted(post_sealed(CopyBox::OP, request, |number| {
                bringing.posted(number);
                self.reading.iter().for_each(|reading| reading.posted(number));
            }));
        }
        let ticket = start_sealed(self.s, CopyBox::OP, request, |number| bringing.called(number))?;
        posted(wait(self.s, ticket)?.result)?;
        if let (Some(to), Some(loan)) = (self.unpack, &self.loan) {
            // SAFETY: the caller's promise; the copy into the loan is complete.
            unsafe { to.each(loan.pointer(), |row, at, n| std::ptr::copy_nonoverlapping(at, row, n)) };
        }
        Ok(())
    }
}

/// # Safety
/// `c` is null or a valid descriptor whose host side has the rows it names.
unsafe fn copy_2d(c: *const CUDA_MEMCPY2D, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    let Some(c) = (unsafe { c.as_ref() }) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&as_3d(c), stream, synchronous) }
}

/// # Safety
/// As CUDA's `cuMemcpy2D_v2`.
pub unsafe fn cuMemcpy2D_v2(d: CUstream, c: *const CUDA_MEMCPY2D) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_2d(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy2DUnaligned_v2`.
pub unsafe fn cuMemcpy2DUnaligned_v2(d: CUstream, c: *const CUDA_MEMCPY2D) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_2d(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy2DAsync_v2`.
pub unsafe fn cuMemcpy2DAsync_v2(c: *const CUDA_MEMCPY2D, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_2d(c, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpy3D_v2`.
pub unsafe fn cuMemcpy3D_v2(d: CUstream, c: *const CUDA_MEMCPY3D) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy3DAsync_v2`.
pub unsafe fn cuMemcpy3DAsync_v2(c: *const CUDA_MEMCPY3D, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d(c, stream, false) }
}

/// Within one device a peer copy is a plain one; between devices the worker's driver takes its own path.
///
/// # Safety
/// As CUDA's `cuMemcpy3DPeer`.
unsafe fn copy_3d_peer(c: *const CUDA_MEMCPY3D_PEER, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: null or a valid descriptor.
    let Some(p) = (unsafe { c.as_ref() }) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.srcXInBytes, d.srcY, d.srcZ, d.srcLOD) = (p.srcXInBytes, p.srcY, p.srcZ, p.srcLOD);
    (d.srcMemoryType, d.srcHost, d.srcDevice, d.srcArray) = (p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray);
    (d.srcPitch, d.srcHeight) = (p.srcPitch, p.srcHeight);
    (d.dstXInBytes, d.dstY, d.dstZ, d.dstLOD) = (p.dstXInBytes, p.dstY, p.dstZ, p.dstLOD);
    (d.dstMemoryType, d.dstHost, d.dstDevice, d.dstArray) = (p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray);
    (d.dstPitch, d.dstHeight) = (p.dstPitch, p.dstHeight);
    (d.WidthInBytes, d.Height, d.Depth) = (p.WidthInBytes, p.Height, p.Depth);
    // Addresses are unified: the driver finds both devices from them, whichever context is current.
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&d, stream, synchronous) }
}

/// # Safety
/// As CUDA's `cuMemcpy3DPeer`.
pub unsafe fn cuMemcpy3DPeer(d: CUstream, c: *const CUDA_MEMCPY3D_PEER) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d_peer(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy3DPeerAsync`.
pub unsafe fn cuMemcpy3DPeerAsync(c: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d_peer(c, stream, false) }
}

/// A row in an array, as a copy of height 1.
fn array_row(array: CUarray, offset: usize, bytes: usize) -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.srcMemoryType, d.srcArray, d.srcXInBytes) = (CU_MEMORYTYPE_ARRAY, array, offset);
    (d.dstMemoryType, d.dstArray, d.dstXInBytes) = (CU_MEMORYTYPE_ARRAY, array, offset);
    (d.WidthInBytes, d.Height, d.Depth) = (bytes, 1, 1);
    d
}

unsafe fn copy_into_array(
    array: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    let mut d = array_row(array, offset, bytes);
    (d.srcMemoryType, d.srcHost, d.srcXInBytes) = (CU_MEMORYTYPE_HOST, from, 0);
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&d, stream, synchronous) }
}

unsafe fn copy_out_of_array(
    to: *mut c_void,
    array: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    let mut d = array_row(array, offset, bytes);
    (d.dstMemoryType, d.dstHost, d.dstXInBytes) = (CU_MEMORYTYPE_HOST, to, 0);
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&d, stream, synchronous) }
}

/// # Safety
/// As CUDA's `cuMemcpyHtoA_v2`.
pub unsafe fn cuMemcpyHtoA_v2(d: CUstream, a: CUarray, offset: usize, from: *const c_void, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_into_array(a, offset, from, bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyHtoAAsync_v2`.
pub unsafe fn cuMemcpyHtoAAsync_v2(
    a: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_into_array(a, offset, from, bytes, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpyAtoH_v2`.
pub unsafe fn cuMemcpyAtoH_v2(d: CUstream, to: *mut c_void, a: CUarray, offset: usize, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_out_of_array(to, a, offset, bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyAtoHAsync_v2`.
pub unsafe fn cuMemcpyAtoHAsync_v2(
    to: *mut c_void,
    a: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_out_of_array(to, a, offset, bytes, stream, false) }
}
