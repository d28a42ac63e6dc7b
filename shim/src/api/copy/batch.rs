//! Many copies by one call.

// UNSAFETY: copies between the application's buffers and the heap; addresses and sizes are the application's.

use orion_cuda::sys::*;

use crate::api::copy::linear::{Side, copy_any_here, copy_in_pageable, is_allocation_known, side};
use crate::api::copy::rows::copy_3d;
use crate::objects::synchronize;
use crate::session::attached::session;
use crate::state::process::state;

/// # Safety
/// As CUDA's `cuMemcpyBatchAsync_v2`: three arrays of `count` elements.
#[allow(clippy::too_many_arguments, reason = "the header's signature")]
pub unsafe fn cuMemcpyBatchAsync_v2(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> CUresult {
    // The driver refuses the default streams here.
    if to.is_null() || from.is_null() || bytes.is_null() || count == 0 || (stream as u64) < 2 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's promise: two arrays of `attribute_count` elements.
    let orders = match unsafe { access_orders(attributes, indices, attribute_count, count) } {
        Ok(orders) => orders,
        Err(code) => return code,
    };
    let mut next = orders.iter().peekable();
    let mut order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for i in 0..count {
        if let Some((_, of_more)) = next.next_if(|(first, _)| *first == i) {
            order = *of_more;
        }
        // SAFETY: the caller's promise.
        let code = unsafe { copy_ordered(*to.add(i), *from.add(i), *bytes.add(i), stream, order) };
        if code != CUDA_SUCCESS {
            return code;
        }
    }
    CUDA_SUCCESS
}

/// From which copy on which order of reading the source holds. The first attributes are the first copy's.
///
/// # Safety
/// Both arrays have `attribute_count` elements.
unsafe fn access_orders(
    attributes: *const CUmemcpyAttributes,
    indices: *const usize,
    attribute_count: usize,
    count: usize,
) -> Result<Vec<(usize, CUmemcpySrcAccessOrder)>, CUresult> {
    let known = CU_MEMCPY_FLAG_DEFAULT | CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    if attribute_count > count || (attribute_count > 0 && (attributes.is_null() || indices.is_null())) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut orders: Vec<(usize, CUmemcpySrcAccessOrder)> = Vec::with_capacity(attribute_count);
    for i in 0..attribute_count {
        // SAFETY: inside the caller's arrays.
        let (first, a) = unsafe { (*indices.add(i), &*attributes.add(i)) };
        let in_turn = orders.last().map_or(first == 0, |(last, _)| *last < first);
        let ordered = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM..=CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
        if !in_turn || first >= count || !ordered.contains(&a.srcAccessOrder) || a.flags & !known != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        orders.push((first, a.srcAccessOrder));
    }
    Ok(orders)
}

/// A copy of a batch: its source, if it is the host's, is read before this returns, or in stream order, or whenever.
///
/// # Safety
/// Host addresses have `bytes` bytes.
unsafe fn copy_ordered(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    order: CUmemcpySrcAccessOrder,
) -> CUresult {
    crate::objects::stream::in_context_of_copy(stream, (to, from), false, || {
        let of_source = session().and_then(|s| Ok((s, side(s, from, bytes)?)));
        match of_source {
            // As from pageable memory: the bytes travel with the command, and nothing is waited for.
            Ok((s, Side::Shared(_)))
                if order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
                    && bytes != 0
                    && matches!(side(s, to, bytes), Ok(Side::Device)) =>
            {
                let from = from as *const u8;
                // SAFETY: the caller's promise.
                let copied = is_allocation_known(to, bytes)
                    .and_then(|is_known| unsafe { copy_in_pageable(s, to, is_known, from, bytes, stream, false) });
                copied.err().unwrap_or(CUDA_SUCCESS)
            }
            // It is captured now, so what the stream does before the copy has to be over.
            Ok((_, Side::Pageable))
                if order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && !crate::objects::capture::capturing(stream) =>
            {
                match synchronize::stream(stream) {
                    // SAFETY: the caller's promise.
                    CUDA_SUCCESS => unsafe { copy_any_here(to, from, bytes, stream, false) },
                    code => code,
                }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { copy_any_here(to, from, bytes, stream, false) },
        }
    })
}

/// # Safety
/// As CUDA's `cuMemcpyBatchAsync` of 12.8, which also reports the index that failed.
#[allow(clippy::too_many_arguments, reason = "the header's signature")]
pub unsafe fn cuMemcpyBatchAsync(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe {
        let code = cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, indices, attribute_count, stream);
        if code != CUDA_SUCCESS && !failed.is_null() {
            failed.write(usize::MAX);
        }
        code
    }
}

/// One copy of a 3D batch as a 3D copy, and when its source is read.
fn batch_copy(op: &CUDA_MEMCPY3D_BATCH_OP) -> Result<(CUDA_MEMCPY3D, CUmemcpySrcAccessOrder), CUresult> {
    let known = CU_MEMCPY_FLAG_DEFAULT | CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    let ordered = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM..=CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    let extent = op.extent;
    if op.flags & !known != 0
        || !ordered.contains(&op.srcAccessOrder)
        || [extent.width, extent.height, extent.depth].contains(&0)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Extents count elements: an array's, which have to be the same where both sides are arrays, or bytes.
    let element = match (element_of(&op.src)?, element_of(&op.dst)?) {
        (Some(a), Some(b)) if a != b => return Err(CUDA_ERROR_INVALID_VALUE),
        (Some(a), _) | (None, Some(a)) => a,
        (None, None) => 1,
    };
    let (src, dst) = (batch_side(&op.src, extent, element)?, batch_side(&op.dst, extent, element)?);
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.srcMemoryType, d.srcDevice, d.srcArray) = (src.kind, src.address, src.array);
    (d.srcXInBytes, d.srcY, d.srcZ, d.srcPitch, d.srcHeight) = (src.at[0], src.at[1], src.at[2], src.pitch, src.height);
    (d.dstMemoryType, d.dstDevice, d.dstArray) = (dst.kind, dst.address, dst.array);
    (d.dstXInBytes, d.dstY, d.dstZ, d.dstPitch, d.dstHeight) = (dst.at[0], dst.at[1], dst.at[2], dst.pitch, dst.height);
    let width = extent.width.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    (d.WidthInBytes, d.Height, d.Depth) = (width, extent.height, extent.depth);
    Ok((d, op.srcAccessOrder))
}

/// Bytes of a copy between pointers that leaves nothing out on either side: a plain one, which captures pageable
/// memory without waiting.
fn gapless(d: &CUDA_MEMCPY3D) -> Option<usize> {
    let pointers = d.srcMemoryType == CU_MEMORYTYPE_UNIFIED && d.dstMemoryType == CU_MEMORYTYPE_UNIFIED;
    let rows = d.Height * d.Depth == 1 || (d.srcPitch == d.WidthInBytes && d.dstPitch == d.WidthInBytes);
    let layers = d.Depth == 1 || (d.srcHeight == d.Height && d.dstHeight == d.Height);
    (pointers && rows && layers).then_some(d.WidthInBytes * d.Height * d.Depth)
}

/// The size of an operand's elements, if it says one.
fn element_of(operand: &CUmemcpy3DOperand) -> Result<Option<usize>, CUresult> {
    match operand.type_ {
        CU_MEMCPY_OPERAND_TYPE_POINTER => Ok(None),
        // SAFETY: the type says which it is; any bits are a handle.
        CU_MEMCPY_OPERAND_TYPE_ARRAY => match state().arrays.element_bytes(unsafe { operand.op.array.array }) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(CUDA_ERROR_INVALID_VALUE),
        },
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// One side of a copy, in bytes.
struct BatchSide {
    kind: CUmemorytype,
    address: u64,
    array: CUarray,
    at: [usize; 3],
    pitch: usize,
    height: usize,
}

fn batch_side(operand: &CUmemcpy3DOperand, extent: CUextent3D, element: usize) -> Result<BatchSide, CUresult> {
    if operand.type_ == CU_MEMCPY_OPERAND_TYPE_ARRAY {
        // SAFETY: the type says which it is.
        let a = unsafe { operand.op.array };
        let x = a.offset.x.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let at = [x, a.offset.y, a.offset.z];
        return Ok(BatchSide { kind: CU_MEMORYTYPE_ARRAY, address: 0, array: a.array, at, pitch: 0, height: 0 });
    }
    // SAFETY: the type says which it is.
    let p = unsafe { operand.op.ptr };
    let packed = |given: usize, least: usize| match given {
        0 => Ok(least),
        n if n >= least => Ok(n),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    };
    let (row, height) = (packed(p.rowLength, extent.width)?, packed(p.layerHeight, extent.height)?);
    let pitch = row.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // Bytes from the first to the end of the last layer have to be an address range at all.
    let end =
        pitch.checked_mul(height).and_then(|n| n.checked_mul(extent.depth)).and_then(|n| n.checked_add(p.ptr as usize));
    if p.ptr == 0 || end.is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (kind, array) = (CU_MEMORYTYPE_UNIFIED, std::ptr::null_mut());
    // Whether it is the host's is found out by the address; hints where to place it are for managed memory.
    Ok(BatchSide { kind, address: p.ptr, array, at: [0; 3], pitch, height })
}

/// Judges the whole batch before anything of it is copied. The error names the copy at fault, if it is one's.
///
/// # Safety
/// As CUDA's `cuMemcpy3DBatchAsync_v2`: an array of `count` copies.
unsafe fn batch_3d(
    count: usize,
    list: *const CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> Result<(), (usize, CUresult)> {
    let whole = |code| (usize::MAX, code);
    session().map_err(whole)?;
    // The driver refuses the default streams here.
    if list.is_null() || count == 0 || flags != 0 || (stream as u64) < 2 {
        return Err(whole(CUDA_ERROR_INVALID_VALUE));
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let judged = list.iter().enumerate().map(|(i, op)| batch_copy(op).map_err(|code| (i, code)));
    let copies = judged.collect::<Result<Vec<_>, _>>()?;
    for (i, (copy, order)) in copies.iter().enumerate() {
        let at_once = *order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        // SAFETY: the caller's promise.
        let code = unsafe {
            match gapless(copy) {
                Some(bytes) => copy_ordered(copy.dstDevice, copy.srcDevice, bytes, stream, *order),
                None => copy_3d(copy, stream, at_once),
            }
        };
        if code != CUDA_SUCCESS {
            return Err((i, code));
        }
    }
    Ok(())
}

/// # Safety
/// As CUDA's `cuMemcpy3DBatchAsync_v2`.
pub unsafe fn cuMemcpy3DBatchAsync_v2(
    count: usize,
    list: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { batch_3d(count, list, flags, stream) }.map_or_else(|(_, code)| code, |()| CUDA_SUCCESS)
}

/// # Safety
/// As CUDA's `cuMemcpy3DBatchAsync` of 12.8, which also reports the index that failed, or `SIZE_MAX`.
pub unsafe fn cuMemcpy3DBatchAsync(
    count: usize,
    list: *mut CUDA_MEMCPY3D_BATCH_OP,
    failed: *mut usize,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    match unsafe { batch_3d(count, list, flags, stream) } {
        Ok(()) => CUDA_SUCCESS,
        Err((index, code)) => {
            if !failed.is_null() {
                // SAFETY: not null; the caller's promise.
                unsafe { failed.write(index) };
            }
            code
        }
    }
}
