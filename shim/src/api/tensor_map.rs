//! Tensor maps: 128 bytes that the driver computes from nothing but their arguments.
//!
//! The encoding is NVIDIA's, so the worker's driver does it, once for each set of arguments. The first eight
//! bytes are the address (H200, driver 580: natively an encoding takes 34 ns; programs re-encode for every
//! launch because the address is all that changed), so what is remembered is the other 120 and the address is
//! put in here. A map whose first word is not its address is not remembered: on such a driver every encoding asks.

// UNSAFETY: reads arguments from the application's arrays and writes maps to its memory.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::message::field::{Field, FollowedByDevice, Ordinal};
use orion_wire::message::tensor_map::{
    Common, Im2col, Im2colWide, Rank, TensorMapEncodeIm2col, TensorMapEncodeIm2colReply, TensorMapEncodeIm2colWide,
    TensorMapEncodeIm2colWideReply, TensorMapEncodeTiled, TensorMapEncodeTiledReply, TensorMapReplaceAddress,
    TensorMapReplaceAddressReply, Tiled,
};

use crate::session::attached::session;
use crate::session::call::call;
use crate::state::context;
use crate::state::process::state;
use crate::state::tensor_map::{Map, key, tail};

const ADDRESS_MAX: u64 = 1 << 48;

/// What all functions have in common.
struct Arguments {
    common: Common,
    address: u64,
    /// The address has to be a multiple of this.
    alignment: u64,
}

impl Arguments {
    #[allow(clippy::too_many_arguments)]
    fn new(
        data_type: u32,
        rank: u32,
        address: *mut c_void,
        interleave: u32,
        swizzle: u32,
        promotion: u32,
        fill: u32,
    ) -> Result<Arguments, CUresult> {
        session()?;
        let device = context::current_device().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let rank = Rank::of(rank.into()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Interleaved and sub-byte layouts; the plain ones need half of it.
        let wide = interleave == CU_TENSOR_MAP_INTERLEAVE_32B || data_type >= CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
        let common = Common {
            device: Ordinal(device as i32),
            data_type,
            rank,
            interleave,
            swizzle,
            promotion,
            fill,
            dimensions: [0; 5],
            strides: [0; 4],
            element_strides: [0; 5],
        };
        Ok(Arguments { common, address: address as u64, alignment: if wide { 32 } else { 16 } })
    }

    fn rank(&self) -> usize {
        self.common.rank as usize
    }

    /// # Safety
    /// Each is null or has as many elements as the rank says, one less of strides.
    unsafe fn arrays(
        &mut self,
        dims: *const u64,
        strides: *const u64,
        element_strides: *const u32,
    ) -> Result<(), CUresult> {
        let rank = self.rank();
        // SAFETY: the caller's promise.
        unsafe {
            self.common.dimensions = array(dims, rank)?;
            self.common.strides = array(strides, rank - 1)?;
            self.common.element_strides = array(element_strides, rank)?;
        }
        Ok(())
    }
}

/// The map, remembered or from the worker. `map` is all of the request but the address.
fn encode<'a>(
    address: u64,
    alignment: u64,
    op: u16,
    map: &impl Field<'a>,
    ask: impl FnOnce() -> Result<Map, CUresult>,
) -> Result<Map, CUresult> {
    let key = key(op, map);
    let plain = address.is_multiple_of(alignment) && address < ADDRESS_MAX;
    if plain && let Some(mut map) = state().tensor_maps.remembered(&key) {
        map[0] = address;
        return Ok(map);
    }
    let map = ask()?;
    if plain && map[0] == address {
        state().tensor_maps.remember(alignment, key, &map);
    }
    Ok(map)
}

/// The first `count` elements of an array, and zeros.
///
/// # Safety
/// `from` is null or has `count` elements, which are no more than `N`.
unsafe fn array<T: Copy + Default, const N: usize>(from: *const T, count: usize) -> Result<[T; N], CUresult> {
    // Also where there is nothing to read, as the driver.
    if from.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut all = [T::default(); N];
    for (i, element) in all.iter_mut().enumerate().take(count) {
        // SAFETY: not null, so there are `count` elements by the contract.
        *element = unsafe { from.add(i).read() };
    }
    Ok(all)
}

/// Writes the map, or zeros with an error, as the driver does.
///
/// # Safety
/// `out` is null or has room for a map. It need not be aligned as CUDA asks: the driver does not check.
unsafe fn answer(out: *mut CUtensorMap, answer: impl FnOnce() -> Result<Map, CUresult>) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let (map, code) = match answer() {
        Ok(map) => (map, CUDA_SUCCESS),
        Err(code) => ([0; 16], code),
    };
    // SAFETY: not null, with room for the 128 bytes by the contract.
    unsafe { out.cast::<Map>().write_unaligned(map) };
    code
}

/// # Safety
/// As CUDA's `cuTensorMapEncodeTiled`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuTensorMapEncodeTiled(
    out: *mut CUtensorMap,
    data_type: CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    box_dims: *const u32,
    element_strides: *const u32,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> CUresult {
    // SAFETY: the caller's promise: `rank` elements each, one less for strides.
    unsafe {
        answer(out, || {
            let mut a = Arguments::new(data_type, rank, address, interleave, swizzle, promotion, fill)?;
            a.arrays(dims, strides, element_strides)?;
            let box_dimensions = array(box_dims, a.rank())?;
            let q = TensorMapEncodeTiled {
                address: FollowedByDevice(a.address),
                map: Tiled { common: a.common, box_dimensions },
            };
            encode(a.address, a.alignment, TensorMapEncodeTiled::OP, &q.map, || {
                Ok(call(TensorMapEncodeTiled::OP, |w| q.encode(w), TensorMapEncodeTiledReply::decode)?.map)
            })
        })
    }
}

/// # Safety
/// As CUDA's `cuTensorMapEncodeIm2col`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuTensorMapEncodeIm2col(
    out: *mut CUtensorMap,
    data_type: CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    lower: *const i32,
    upper: *const i32,
    channels: u32,
    pixels: u32,
    element_strides: *const u32,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> CUresult {
    // SAFETY: the caller's promise: `rank` elements each, one less for strides, two less for the corners.
    unsafe {
        answer(out, || {
            let mut a = Arguments::new(data_type, rank, address, interleave, swizzle, promotion, fill)?;
            if rank < 3 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            a.arrays(dims, strides, element_strides)?;
            let (lower, upper) = (array(lower, a.rank() - 2)?, array(upper, a.rank() - 2)?);
            let q = TensorMapEncodeIm2col {
                address: FollowedByDevice(a.address),
                map: Im2col { common: a.common, channels, pixels, lower, upper },
            };
            encode(a.address, a.alignment, TensorMapEncodeIm2col::OP, &q.map, || {
                Ok(call(TensorMapEncodeIm2col::OP, |w| q.encode(w), TensorMapEncodeIm2colReply::decode)?.map)
            })
        })
    }
}

/// # Safety
/// As CUDA's `cuTensorMapEncodeIm2colWide`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuTensorMapEncodeIm2colWide(
    out: *mut CUtensorMap,
    data_type: CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    lower: i32,
    upper: i32,
    channels: u32,
    pixels: u32,
    element_strides: *const u32,
    interleave: CUtensorMapInterleave,
    mode: CUtensorMapIm2ColWideMode,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> CUresult {
    // SAFETY: the caller's promise: `rank` elements each, one less for strides.
    unsafe {
        answer(out, || {
            let mut a = Arguments::new(data_type, rank, address, interleave, swizzle, promotion, fill)?;
            a.arrays(dims, strides, element_strides)?;
            let q = TensorMapEncodeIm2colWide {
                address: FollowedByDevice(a.address),
                map: Im2colWide { common: a.common, channels, pixels, mode, lower, upper },
            };
            encode(a.address, a.alignment, TensorMapEncodeIm2colWide::OP, &q.map, || {
                Ok(call(TensorMapEncodeIm2colWide::OP, |w| q.encode(w), TensorMapEncodeIm2colWideReply::decode)?.map)
            })
        })
    }
}

/// # Safety
/// As CUDA's `cuTensorMapReplaceAddress`.
pub unsafe fn cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: *mut c_void) -> CUresult {
    let answer = (|| {
        session()?;
        context::current_device().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if map.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = address as u64;
        // SAFETY: not null, and a map by the caller's promise.
        let mut now = unsafe { map.cast::<Map>().read_unaligned() };
        let alignment = {
            let memory = state().tensor_maps.remembered.read();
            memory.as_ref().and_then(|m| m.alignment.get(&tail(&now)).copied())
        };
        if let Some(alignment) = alignment
            && address != 0
            && address < ADDRESS_MAX
            && address.is_multiple_of(alignment)
        {
            now[0] = address;
            return Ok(now);
        }
        let q = TensorMapReplaceAddress { address: FollowedByDevice(address), map: now };
        Ok(call(TensorMapReplaceAddress::OP, |w| q.encode(w), TensorMapReplaceAddressReply::decode)?.map)
    })();
    match answer {
        Ok(now) => {
            // SAFETY: not null, with room for the 128 bytes.
            unsafe { map.cast::<Map>().write_unaligned(now) };
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}
