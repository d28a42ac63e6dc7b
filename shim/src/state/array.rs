//! Arrays, with what they were made from.

use std::collections::HashMap;

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

use crate::state::lock::Lock;
use crate::state::table::Table;

/// A `CUarray` or a `CUmipmappedArray`, with the levels that were asked for.
pub struct Array {
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub levels: Lock<HashMap<u32, u64>>,
}

pub struct Arrays {
    pub arrays: Table<Array>,
    pub mipmapped: Table<Array>,
}

impl Arrays {
    pub const fn new() -> Arrays {
        Arrays { arrays: Table::new(), mipmapped: Table::new() }
    }

    /// Bytes of an element of an array. `None` for what is no array, and for formats whose elements are blocks.
    pub fn element_bytes(&self, array: CUarray) -> Option<usize> {
        let d = &self.arrays.get(Handle(array as u64))?.descriptor;
        let channel = match d.Format {
            CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
            CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
            CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
            CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => return Some(1),
            CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 => return Some(2),
            CU_AD_FORMAT_UNORM_INT8X4 | CU_AD_FORMAT_SNORM_INT8X4 | CU_AD_FORMAT_UNORM_INT_101010_2 => return Some(4),
            CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X1 => return Some(2),
            CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X2 => return Some(4),
            CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => return Some(8),
            _ => return None,
        };
        Some(channel * d.NumChannels as usize)
    }
}
