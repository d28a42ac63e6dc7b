//! Copies of all shapes.

// UNSAFETY: copies memory at addresses that were checked when the work was accepted.

use std::ffi::c_void;
use std::sync::Arc;

use orion_cuda::sys::*;
use orion_ring::once;

use crate::api::{R, Raw};
use crate::array::ARRAYS;
use crate::vram;

#[derive(Clone)]
pub struct Copy3D {
    pub raw: Raw<CUDA_MEMCPY3D>,
    /// The source's rows, taken when the call was made because the source is pageable.
    pub staged: Option<Arc<Vec<u8>>>,
}

/// One side of a copy, as addresses.
#[derive(Clone, Copy)]
pub struct Side {
    pub base: u64,
    pub pitch: u64,
    pub slice: u64,
    /// The host side of a copy is the application's memory, which no table knows.
    pub known: bool,
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
            if !a.has([x, y, z], [r.WidthInBytes, r.Height, r.Depth]) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
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

    pub(crate) fn is_empty(&self) -> bool {
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
                // keep valid. ptr::copy allows overlap, which CUDA leaves undefined but must not be undefined here.
                unsafe {
                    match (to as usize).wrapping_sub(from as usize) < n {
                        true => std::ptr::copy(from, to, n),
                        false => once::copy(from, to, n),
                    }
                }
            }
        }
        Ok(())
    }
}
