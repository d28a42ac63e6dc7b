//! Tensor maps: 128 bytes that the driver computes from nothing but their arguments.
//!
//! The encoding is NVIDIA's, so the worker's driver does it, once for each set of arguments. The first eight
//! bytes are the address (H200, driver 580: natively an encoding takes 34 ns; programs re-encode for every
//! launch because the address is all that changed), so what is remembered is the other 120 and the address is
//! put in here. A map whose first word is not its address is not remembered: on such a driver every encoding asks.

// UNSAFETY: reads arguments from the application's arrays and writes maps to its memory.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::{Fault, Reader, Writer};

use crate::session::attached::session;
use crate::session::call::call;
use crate::state::context;
use crate::state::process::state;
use crate::state::tensor_map::{Map, tail};

const DIMENSIONS_MAX: u32 = 5;
const ADDRESS_MAX: u64 = 1 << 48;

/// A request: which function, and its arguments as words.
struct Arguments {
    words: Vec<u64>,
    address: u64,
    /// The address has to be a multiple of this.
    alignment: u64,
}

impl Arguments {
    /// The device, the function's number, then what all of them have in common.
    #[allow(clippy::too_many_arguments)]
    fn new(
        function: u32,
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
        if rank == 0 || rank > DIMENSIONS_MAX {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut words = Vec::with_capacity(48);
        words.push(device as u64);
        words.extend([function, data_type, rank, interleave, swizzle, promotion, fill].map(u64::from));
        // Interleaved and sub-byte layouts; the plain ones need half of it.
        let wide = interleave == CU_TENSOR_MAP_INTERLEAVE_32B || data_type >= CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
        Ok(Arguments { words, address: address as u64, alignment: if wide { 32 } else { 16 } })
    }

    /// # Safety
    /// `from` is null or has `count` elements.
    unsafe fn array<T: Copy>(&mut self, from: *const T, count: u32, word: impl Fn(T) -> u64) -> Result<(), CUresult> {
        // Also where there is nothing to read, as the driver.
        if from.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for i in 0..count as usize {
            // SAFETY: not null, so there are `count` elements by the contract.
            self.words.push(word(unsafe { from.add(i).read() }));
        }
        Ok(())
    }

    /// The map, remembered or from the worker.
    fn encode(self, op: u16) -> Result<Map, CUresult> {
        let plain = self.address.is_multiple_of(self.alignment) && self.address < ADDRESS_MAX;
        if plain && let Some(mut map) = state().tensor_maps.remembered(&self.words) {
            map[0] = self.address;
            return Ok(map);
        }
        let map = call(
            op,
            |w| {
                w.word(self.address);
                for v in &self.words {
                    w.word(*v);
                }
            },
            read_map,
        )?;
        if plain && map[0] == self.address {
            state().tensor_maps.remember(self.alignment, self.words, &map);
        }
        Ok(map)
    }
}

fn read_map(r: &mut Reader<'_>) -> Result<Map, Fault> {
    let mut map = [0; 16];
    for word in &mut map {
        *word = r.word()?;
    }
    Ok(map)
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
            let mut a = Arguments::new(0, data_type, rank, address, interleave, swizzle, promotion, fill)?;
            a.array(dims, rank, |v| v)?;
            a.array(strides, rank - 1, |v| v)?;
            a.array(box_dims, rank, u64::from)?;
            a.array(element_strides, rank, u64::from)?;
            a.encode(ops::CU_TENSOR_MAP_ENCODE_TILED)
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
            let mut a = Arguments::new(1, data_type, rank, address, interleave, swizzle, promotion, fill)?;
            if rank < 3 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            a.words.extend([channels as u64, pixels as u64]);
            a.array(dims, rank, |v| v)?;
            a.array(strides, rank - 1, |v| v)?;
            a.array(lower, rank - 2, |v| v as u32 as u64)?;
            a.array(upper, rank - 2, |v| v as u32 as u64)?;
            a.array(element_strides, rank, u64::from)?;
            a.encode(ops::CU_TENSOR_MAP_ENCODE_IM2COL)
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
            let mut a = Arguments::new(2, data_type, rank, address, interleave, swizzle, promotion, fill)?;
            a.words.extend([channels, pixels, mode, lower as u32, upper as u32].map(u64::from));
            a.array(dims, rank, |v| v)?;
            a.array(strides, rank - 1, |v| v)?;
            a.array(element_strides, rank, u64::from)?;
            a.encode(ops::CU_TENSOR_MAP_ENCODE_IM2COL_WIDE)
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
        call(
            ops::CU_TENSOR_MAP_REPLACE_ADDRESS,
            |w| {
                w.word(address);
                for v in now {
                    w.word(v);
                }
            },
            read_map,
        )
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
