//! Host memory of copy nodes.
//!
//! Memory that both sides share is named to the worker as it is. For pageable memory a range of the heap is set
//! aside: what the node reads is copied there before every launch, what it writes is copied from there after the
//! launch has finished, and before host functions that run meanwhile. The range lives as long as any graph refers to
//! it; the worker's driver counts that, and the worker tells.

// UNSAFETY: copies between the application's buffers and the heap; addresses and sizes are the application's.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_ring::once;
use orion_wire::record::HeapRange;

use crate::memory::host_memory;
use crate::state::graph_copies::{Shape, Staged};
use crate::state::heap::PAGE;
use crate::state::process::state;
use crate::state::session::Session;

/// Sets a range aside for a captured copy at `host`; the copy is made with the range's address instead.
pub fn set_aside(s: &'static Session, host: u64, shape: Shape) -> Result<Staged, CUresult> {
    let bytes = shape.bytes() as u64;
    let range = HeapRange { offset: allocate(s, bytes)?, bytes };
    let staged = Staged { range, host, shape };
    s.graph_copies.keep(&staged);
    Ok(staged)
}

fn allocate(s: &Session, bytes: u64) -> Result<u64, CUresult> {
    let mut allocator = s.heap_allocator.lock();
    allocator.take(bytes, PAGE).ok_or_else(|| {
        crate::say!("the session's host heap has no {bytes} bytes left for pageable memory that a graph copies");
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// No graph refers to the range at `offset` any more.
pub fn release_staged(s: &Session, offset: u64) {
    let gone = s.graph_copies.staged.lock().remove(&offset);
    if let Some(staged) = gone {
        release(s, staged.range);
    }
}

fn release(s: &Session, range: HeapRange) {
    let mut allocator = s.heap_allocator.lock();
    allocator.release(range.offset, range.bytes);
}

/// Ranges that the worker does not know go back.
pub fn give_back(staged: &[Staged]) {
    if let Ok(s) = crate::session::attached::session() {
        staged.iter().for_each(|staged| release(s, staged.range));
    }
}

/// Makes both sides of a copy addresses that mean the same to the worker; answers what was set aside for it.
pub fn to_shared(s: &'static Session, c: &mut CUDA_MEMCPY3D) -> Result<Vec<Staged>, CUresult> {
    let mut staged = Vec::new();
    match both_to_shared(s, c, &mut staged) {
        Ok(()) => Ok(staged),
        Err(code) => {
            give_back(&staged);
            Err(code)
        }
    }
}

fn both_to_shared(s: &'static Session, c: &mut CUDA_MEMCPY3D, staged: &mut Vec<Staged>) -> Result<(), CUresult> {
    if let Some(address) = host_side(c.srcMemoryType, c.srcHost as u64, c.srcDevice) {
        let place = Place { x: c.srcXInBytes, y: c.srcY, z: c.srcZ, pitch: c.srcPitch, height: c.srcHeight };
        c.srcMemoryType = CU_MEMORYTYPE_HOST;
        c.srcHost = side(s, address, place, c, staged)? as *const c_void;
    }
    if let Some(address) = host_side(c.dstMemoryType, c.dstHost as u64, c.dstDevice) {
        let place = Place { x: c.dstXInBytes, y: c.dstY, z: c.dstZ, pitch: c.dstPitch, height: c.dstHeight };
        c.dstMemoryType = CU_MEMORYTYPE_HOST;
        c.dstHost = side(s, address, place, c, staged)? as *mut c_void;
    }
    Ok(())
}

/// The base address of a side in host memory.
fn host_side(kind: CUmemorytype, host: u64, device: CUdeviceptr) -> Option<u64> {
    match kind {
        CU_MEMORYTYPE_HOST => Some(host),
        CU_MEMORYTYPE_UNIFIED if !state().addresses.is_device(device) => Some(device),
        _ => None,
    }
}

/// Where in its base a side begins.
pub struct Place {
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

/// Bytes from the base to the first byte copied, and the shape from there on.
pub fn shape(place: &Place, c: &CUDA_MEMCPY3D) -> Option<(usize, Shape)> {
    let (rows, slices) = (c.Height.max(1), c.Depth.max(1));
    let pitch = if place.pitch == 0 { place.x.checked_add(c.WidthInBytes)? } else { place.pitch };
    let height = if place.height == 0 { place.y.checked_add(rows)? } else { place.height };
    let slice_pitch = pitch.checked_mul(height)?;
    let skipped = place.z.checked_mul(slice_pitch)?.checked_add(place.y.checked_mul(pitch)?)?.checked_add(place.x)?;
    // The same sum as `Shape::bytes`, checked.
    (slices - 1)
        .checked_mul(slice_pitch)?
        .checked_add((rows - 1).checked_mul(pitch)?)?
        .checked_add(c.WidthInBytes)?
        .checked_add(skipped)?;
    Some((skipped, Shape { width: c.WidthInBytes, rows, slices, pitch, slice_pitch }))
}

/// The base that the worker is told.
fn side(
    s: &'static Session,
    base: u64,
    place: Place,
    c: &CUDA_MEMCPY3D,
    staged: &mut Vec<Staged>,
) -> Result<u64, CUresult> {
    let (skipped, shape) = shape(&place, c).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let host = base.checked_add(skipped as u64).filter(|_| base != 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let bytes = shape.bytes() as u64;
    if host_memory::shared(s, host, bytes).is_some() {
        return Ok(base);
    }
    let offset = allocate(s, bytes)?;
    let range = HeapRange { offset, bytes };
    staged.push(Staged { range, host, shape });
    let at = s.heap.at(offset, bytes).expect("the range lies inside the heap") as u64;
    Ok(at.wrapping_sub(skipped as u64))
}

/// Replaces addresses of ranges set aside by those that the application named.
pub fn to_application(s: &Session, c: &mut CUDA_MEMCPY3D) {
    let original = |base: u64, place: Place, c: &CUDA_MEMCPY3D| {
        let (skipped, shape) = shape(&place, c)?;
        let offset = s.heap.offset_of(base.wrapping_add(skipped as u64), shape.bytes() as u64)?;
        s.graph_copies.staged(offset).map(|known| known.host.wrapping_sub(skipped as u64))
    };
    if c.srcMemoryType == CU_MEMORYTYPE_HOST {
        let place = Place { x: c.srcXInBytes, y: c.srcY, z: c.srcZ, pitch: c.srcPitch, height: c.srcHeight };
        c.srcHost = original(c.srcHost as u64, place, c).map_or(c.srcHost, |p| p as *const c_void);
    }
    if c.dstMemoryType == CU_MEMORYTYPE_HOST {
        let place = Place { x: c.dstXInBytes, y: c.dstY, z: c.dstZ, pitch: c.dstPitch, height: c.dstHeight };
        c.dstHost = original(c.dstHost as u64, place, c).map_or(c.dstHost, |p| p as *mut c_void);
    }
}

impl Staged {
    /// Brings the application's bytes into the heap.
    pub fn copy_in(&self, s: &Session) {
        let Some(at) = s.heap.at(self.range.offset, self.range.bytes) else { return };
        for row in self.shape.rows() {
            // SAFETY: the application named this memory as the node's source for as long as the graph may run;
            // the range in the heap has the same shape.
            unsafe { std::ptr::copy_nonoverlapping((self.host as *const u8).add(row), at.add(row), self.shape.width) };
        }
    }

    /// What lies in the heap now, for [`Staged::copy_out`] to compare with.
    pub fn snapshot(&self, s: &Session) -> Vec<u8> {
        let Some(at) = s.heap.at(self.range.offset, self.range.bytes) else { return Vec::new() };
        let mut bytes = vec![0; self.range.bytes as usize];
        // SAFETY: the range lies inside the heap; no node writes to it before the launch that follows.
        unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    /// Brings the rows that were written since the snapshot to the application, and nothing of what lies between them:
    /// a copy that its graph has not come to, or does not make, leaves the application's memory alone.
    pub fn copy_out(&self, s: &Session, snapshot: &mut [u8]) {
        let Some(at) = s.heap.at(self.range.offset, self.range.bytes) else { return };
        let mut now = vec![0; self.shape.width];
        for row in self.shape.rows() {
            // SAFETY: the row lies inside the range. The device may be writing to it: then it is not finished, as it
            // would not be in the application's own memory, and differs again the next time.
            unsafe { std::ptr::copy_nonoverlapping(at.add(row), now.as_mut_ptr(), now.len()) };
            let before = &mut snapshot[row..row + now.len()];
            if now == *before {
                continue;
            }
            before.copy_from_slice(&now);
            // SAFETY: as in `copy_in`, with the memory as the node's destination.
            unsafe { once::copy(now.as_ptr(), (self.host as *mut u8).add(row), now.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_where_the_pitches_say() {
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut c: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (c.WidthInBytes, c.Height, c.Depth) = (16, 2, 2);
        let place = Place { x: 4, y: 1, z: 1, pitch: 32, height: 4 };
        let (skipped, shape) = shape(&place, &c).unwrap();
        assert_eq!(skipped, 128 + 32 + 4);
        assert_eq!(shape.rows().collect::<Vec<_>>(), [0, 32, 128, 160]);
        assert_eq!(shape.bytes(), 176);
    }

    #[test]
    fn a_copy_larger_than_memory_has_no_shape() {
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut c: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (c.WidthInBytes, c.Height, c.Depth) = (16, usize::MAX, 2);
        assert_eq!(shape(&Place { x: 0, y: 0, z: 0, pitch: 32, height: 0 }, &c), None);
    }
}
