//! What a stream does and what a graph node holds: one enumeration for both.

// UNSAFETY: copies and fills memory at addresses that were checked when the work was accepted, and calls host
// functions the application handed over.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use orion_cuda::sys::*;

use crate::api::{R, Raw};
use crate::context::Context;
use crate::event::Event;
use crate::exec::fault::{Fault, FaultKind};
use crate::exec::grid;
use crate::exec::state::Launch;
use crate::launch::KernelLaunch;
use crate::memory::ARRAYS;
use crate::{cupti, vram};

#[derive(Clone)]
pub enum Work {
    Empty,
    Kernel(Arc<KernelLaunch>),
    Copy(Copy3D),
    Set(Set),
    Host(Raw<(CUhostFn, *mut c_void)>),
    MemOps(Vec<MemOp>),
    /// Graph nodes only.
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Child(Arc<crate::graph::Graph>),
    Conditional(Arc<crate::conditional::Conditional>),
    Alloc(Arc<crate::graph::GraphAllocation>),
    /// Ends an allocation in stream order.
    Free(u64),
}

#[derive(Clone)]
pub struct Copy3D {
    pub raw: Raw<CUDA_MEMCPY3D>,
    /// The source's rows, taken when the call was made because the source is pageable.
    pub staged: Option<Arc<Vec<u8>>>,
}

#[derive(Clone, Copy)]
pub struct Set {
    pub dst: u64,
    pub pitch: u64,
    pub value: u32,
    pub element: u32,
    pub width: u64,
    pub height: u64,
}

#[derive(Clone, Copy)]
pub enum MemOp {
    Write { at: u64, bytes: u64, value: u64 },
    Wait { at: u64, bytes: u64, value: u64, flags: u32 },
    Barrier,
}

impl MemOp {
    pub fn target(self) -> (u64, u64) {
        match self {
            Self::Write { at, bytes, .. } | Self::Wait { at, bytes, .. } => (at, bytes),
            Self::Barrier => (0, 1),
        }
    }
}

pub fn mem_ops(params: &[CUstreamBatchMemOpParams]) -> R<Vec<MemOp>> {
    let mut out = Vec::new();
    for p in params {
        // SAFETY: every member of the union begins with the operation.
        let op = unsafe { p.operation };
        let wide = matches!(op, CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64);
        let bytes = if wide { 8 } else { 4 };
        let trim = |v: u64| if wide { v } else { v & 0xffff_ffff };
        // SAFETY: the operation says which member is set.
        out.push(unsafe {
            match op {
                CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                    let w = p.waitValue;
                    MemOp::Wait { at: w.address, bytes, value: trim(w.__bindgen_anon_1.value64), flags: w.flags }
                }
                CU_STREAM_MEM_OP_WRITE_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                    let w = p.writeValue;
                    MemOp::Write { at: w.address, bytes, value: trim(w.__bindgen_anon_1.value64) }
                }
                CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | CU_STREAM_MEM_OP_BARRIER => MemOp::Barrier,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        });
    }
    Ok(out)
}

impl Work {
    /// Runs on a stream's thread. After a failure of the context only its consequences remain, so nothing runs.
    /// `origin` is what a profiler has to be told of it.
    pub fn run(&self, c: &Arc<Context>, origin: Option<cupti::Origin>) {
        if c.error() != CUDA_SUCCESS {
            return;
        }
        let running = cupti::begin(self, origin);
        let outcome = match self {
            Self::Empty | Self::Record(_) | Self::Wait(_) | Self::Child(_) | Self::Conditional(_) | Self::Alloc(_) => {
                Ok(())
            }
            Self::Kernel(k) => k.run(c),
            Self::Copy(copy) => copy.run(),
            Self::Set(set) => {
                set.run();
                Ok(())
            }
            Self::Host(call) => {
                let Raw((f, data)) = *call;
                if let Some(f) = f {
                    // SAFETY: the application's function with the application's argument, in stream order.
                    crate::device::host_function(|| unsafe { f(data) });
                }
                Ok(())
            }
            Self::MemOps(ops) => {
                ops.iter().for_each(|op| op.run(c));
                Ok(())
            }
            Self::Free(at) => {
                if let Some(r) = vram::find(*at).filter(|r| r.base == *at) {
                    crate::memory::drop_range(&r);
                }
                Ok(())
            }
        };
        match (outcome, running) {
            (Err(e), _) => c.fail(e),
            (Ok(()), Some(running)) => running.end(self, c),
            (Ok(()), None) => {}
        }
    }
}

pub fn fault_code(f: &Fault) -> CUresult {
    match f.kind {
        FaultKind::IllegalAddress => CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::Misaligned => CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::Assert => CUDA_ERROR_ASSERT,
        FaultKind::Unsupported => CUDA_ERROR_NOT_SUPPORTED,
        FaultKind::Trap | FaultKind::Deadlock => CUDA_ERROR_LAUNCH_FAILED,
    }
}

impl MemOp {
    fn run(self, c: &Arc<Context>) {
        match self {
            Self::Barrier => std::sync::atomic::fence(Ordering::SeqCst),
            Self::Write { at, bytes, value } => {
                if !vram::covers(at, bytes) {
                    c.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
                    return;
                }
                // SAFETY: covered by a live range, and aligned as the caller checked.
                unsafe {
                    if bytes == 4 {
                        AtomicU32::from_ptr(at as *mut u32).store(value as u32, Ordering::SeqCst);
                    } else {
                        AtomicU64::from_ptr(at as *mut u64).store(value, Ordering::SeqCst);
                    }
                }
            }
            Self::Wait { at, bytes, value, flags } => loop {
                // A wait that nobody satisfies ends with the context, as it would on hardware.
                if !vram::covers(at, bytes) || c.error() != CUDA_SUCCESS {
                    return;
                }
                // SAFETY: as above.
                let now = unsafe {
                    if bytes == 4 {
                        u64::from(AtomicU32::from_ptr(at as *mut u32).load(Ordering::SeqCst))
                    } else {
                        AtomicU64::from_ptr(at as *mut u64).load(Ordering::SeqCst)
                    }
                };
                let top = 8 * bytes as u32 - 1;
                let met = match flags & 3 {
                    CU_STREAM_WAIT_VALUE_EQ => now == value,
                    CU_STREAM_WAIT_VALUE_AND => now & value != 0,
                    CU_STREAM_WAIT_VALUE_NOR => {
                        (now | value) != if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX }
                    }
                    _ => now.wrapping_sub(value) >> top & 1 == 0,
                };
                if met {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_micros(20));
            },
        }
    }
}

impl Set {
    pub fn check(&self) -> R {
        if !matches!(self.element, 1 | 2 | 4)
            || !self.dst.is_multiple_of(u64::from(self.element))
            || (self.height > 1 && self.pitch < self.width.saturating_mul(u64::from(self.element)))
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let span = self.span().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if span > 0 && !vram::covers(self.dst, span) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    fn span(&self) -> Option<u64> {
        let row = self.width.checked_mul(u64::from(self.element))?;
        if row == 0 || self.height == 0 {
            return Some(0);
        }
        self.pitch.checked_mul(self.height - 1)?.checked_add(row)
    }

    fn run(&self) {
        // The memory may have been freed since; a stale fill must not touch its next owner.
        if self.check().is_err() {
            return;
        }
        for y in 0..self.height {
            let at = self.dst + y * self.pitch;
            let n = self.width as usize;
            // SAFETY: the row is inside a live range by check().
            unsafe {
                match self.element {
                    1 => std::ptr::write_bytes(at as *mut u8, self.value as u8, n),
                    2 => std::slice::from_raw_parts_mut(at as *mut u16, n).fill(self.value as u16),
                    _ => std::slice::from_raw_parts_mut(at as *mut u32, n).fill(self.value),
                }
            }
        }
    }
}

/// One side of a copy, as addresses.
#[derive(Clone, Copy)]
struct Side {
    base: u64,
    pitch: u64,
    slice: u64,
    /// The host side of a copy is the application's memory, which no table knows.
    known: bool,
}

impl Copy3D {
    pub fn flat(dst: u64, dst_kind: CUmemorytype, src: u64, src_kind: CUmemorytype, bytes: usize) -> Self {
        // SAFETY: all zeroes is a valid value of this C struct.
        let mut raw: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        raw.srcMemoryType = src_kind;
        raw.srcDevice = src;
        raw.srcHost = src as *const c_void;
        raw.dstMemoryType = dst_kind;
        raw.dstDevice = dst;
        raw.dstHost = dst as *mut c_void;
        raw.WidthInBytes = bytes;
        raw.Height = 1;
        raw.Depth = 1;
        Self { raw: Raw(raw), staged: None }
    }

    fn sides(&self) -> R<(Side, Side)> {
        let r = &self.raw.0;
        let (w, h) = (r.WidthInBytes as u64, r.Height as u64);
        let linear = |base: u64, pitch: usize, height: usize, x: usize, y: usize, z: usize, known: bool| {
            let pitch = if pitch == 0 { w + x as u64 } else { pitch as u64 };
            let slice = pitch.saturating_mul(if height == 0 { h + y as u64 } else { height as u64 });
            let skip = (x as u64)
                .saturating_add((y as u64).saturating_mul(pitch))
                .saturating_add((z as u64).saturating_mul(slice));
            Side { base: base.wrapping_add(skip), pitch, slice, known }
        };
        let array = |h: CUarray, x: usize, y: usize, z: usize| -> R<Side> {
            let a = ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            let (pitch, slice) = (a.pitch, a.pitch * a.rows());
            let skip = (y as u64).checked_mul(pitch).zip((z as u64).checked_mul(slice));
            let skip = skip.and_then(|(rows, slices)| rows.checked_add(slices)?.checked_add(x as u64));
            let base = skip.and_then(|skip| a.base.checked_add(skip)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            Ok(Side { base, pitch, slice, known: true })
        };
        let side = |kind, host: u64, device: u64, h, pitch, height, x, y, z| -> R<Side> {
            Ok(match kind {
                CU_MEMORYTYPE_HOST => linear(host, pitch, height, x, y, z, false),
                CU_MEMORYTYPE_DEVICE => linear(device, pitch, height, x, y, z, true),
                CU_MEMORYTYPE_ARRAY => array(h, x, y, z)?,
                CU_MEMORYTYPE_UNIFIED => linear(device, pitch, height, x, y, z, vram::find(device).is_some()),
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            })
        };
        let src = side(
            r.srcMemoryType,
            r.srcHost as u64,
            r.srcDevice,
            r.srcArray,
            r.srcPitch,
            r.srcHeight,
            r.srcXInBytes,
            r.srcY,
            r.srcZ,
        )?;
        let dst = side(
            r.dstMemoryType,
            r.dstHost as u64,
            r.dstDevice,
            r.dstArray,
            r.dstPitch,
            r.dstHeight,
            r.dstXInBytes,
            r.dstY,
            r.dstZ,
        )?;
        Ok((src, dst))
    }

    fn is_empty(&self) -> bool {
        let r = &self.raw.0;
        r.WidthInBytes == 0 || r.Height == 0 || r.Depth == 0
    }

    pub fn check(&self) -> R {
        if self.is_empty() {
            return Ok(());
        }
        let (src, dst) = self.sides()?;
        let r = &self.raw.0;
        for s in [src, dst] {
            let (w, h, d) = (r.WidthInBytes as u64, r.Height as u64, r.Depth as u64);
            if s.base == 0 || (h > 1 && s.pitch < w) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let span = (d - 1)
                .checked_mul(s.slice)
                .and_then(|n| n.checked_add((h - 1).checked_mul(s.pitch)?)?.checked_add(w))
                .ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let fits = if s.known { vram::covers(s.base, span) } else { vram::ends_in_one_registration(s.base, span) };
            if !fits {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Where source and destination begin; nothing of a copy that is empty or impossible.
    pub fn bases(&self) -> Option<(u64, u64)> {
        let (from, to) = self.sides().ok().filter(|_| !self.is_empty())?;
        Some((from.base, to.base))
    }

    /// Whether the source or destination is memory CUDA does not know.
    pub fn pageable(&self) -> (bool, bool) {
        let unknown = |s: Side| !s.known && vram::find(s.base).is_none();
        self.sides().map_or((false, false), |(s, d)| (unknown(s), unknown(d)))
    }

    /// Takes the source's bytes now.
    pub fn stage(&mut self) -> R {
        if self.is_empty() {
            return Ok(());
        }
        let (src, _) = self.sides()?;
        let r = &self.raw.0;
        let mut bytes = Vec::with_capacity(r.WidthInBytes * r.Height * r.Depth);
        for z in 0..r.Depth as u64 {
            for y in 0..r.Height as u64 {
                let at = src.base + z * src.slice + y * src.pitch;
                // SAFETY: the application's source, which it promises is readable during the call.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at as *const u8, r.WidthInBytes) });
            }
        }
        self.staged = Some(Arc::new(bytes));
        Ok(())
    }

    pub fn run(&self) -> R {
        if self.is_empty() {
            return Ok(());
        }
        self.check().map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS)?;
        let (src, dst) = self.sides()?;
        let r = &self.raw.0;
        let n = r.WidthInBytes;
        for z in 0..r.Depth as u64 {
            for y in 0..r.Height as u64 {
                let to = (dst.base + z * dst.slice + y * dst.pitch) as *mut u8;
                let from = match &self.staged {
                    Some(b) => b[(z as usize * r.Height + y as usize) * n..].as_ptr(),
                    None => (src.base + z * src.slice + y * src.pitch) as *const u8,
                };
                // SAFETY: known sides were checked against the table just above; host sides are the application's to
                // keep valid. copy() allows overlap, which CUDA leaves undefined but must not be undefined here.
                unsafe { std::ptr::copy(from, to, n) };
            }
        }
        Ok(())
    }
}

/// Logs why a kernel stopped; the application only gets the code.
pub fn log_fault(kernel: &str, f: &Fault) {
    crate::say::say(&format!("kernel {kernel}: {} (PTX line {})", f.what, f.line));
}

pub fn run_launch(l: Launch, name: &str) -> R {
    grid::run(l).map_err(|f| {
        log_fault(name, &f);
        fault_code(&f)
    })
}
