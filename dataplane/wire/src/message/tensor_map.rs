//! Tensor maps: 128 bytes that the driver computes from their arguments.

use crate::generated::ops;
use crate::message::declare::{choices, messages};
use crate::message::field::{FollowedByDevice, Ordinal};

messages! {
    command TensorMapEncodeTiled(ops::CU_TENSOR_MAP_ENCODE_TILED) {
        address: FollowedByDevice,
        map: Tiled,
    }

    reply TensorMapEncodeTiledReply(ops::CU_TENSOR_MAP_ENCODE_TILED) {
        map: [u64; 16],
    }

    command TensorMapEncodeIm2col(ops::CU_TENSOR_MAP_ENCODE_IM2COL) {
        address: FollowedByDevice,
        map: Im2col,
    }

    reply TensorMapEncodeIm2colReply(ops::CU_TENSOR_MAP_ENCODE_IM2COL) {
        map: [u64; 16],
    }

    command TensorMapEncodeIm2colWide(ops::CU_TENSOR_MAP_ENCODE_IM2COL_WIDE) {
        address: FollowedByDevice,
        map: Im2colWide,
    }

    reply TensorMapEncodeIm2colWideReply(ops::CU_TENSOR_MAP_ENCODE_IM2COL_WIDE) {
        map: [u64; 16],
    }

    command TensorMapReplaceAddress(ops::CU_TENSOR_MAP_REPLACE_ADDRESS) {
        address: FollowedByDevice,
        map: [u64; 16],
    }

    reply TensorMapReplaceAddressReply(ops::CU_TENSOR_MAP_REPLACE_ADDRESS) {
        map: [u64; 16],
    }

    /// What every kind of map has. Of its arrays as many elements count as the rank says, one less of the strides; the
    /// others are zero.
    part Common {
        /// Where the map will be used: a map of one device is not another's.
        device: Ordinal,
        data_type: u32,
        rank: Rank,
        interleave: u32,
        swizzle: u32,
        promotion: u32,
        fill: u32,
        dimensions: [u64; 5],
        strides: [u64; 4],
        element_strides: [u32; 5],
    }

    part Tiled {
        common: Common,
        box_dimensions: [u32; 5],
    }

    part Im2col {
        common: Common,
        channels: u32,
        pixels: u32,
        /// Of the corners two elements less than the rank count.
        lower: [i32; 3],
        upper: [i32; 3],
    }

    part Im2colWide {
        common: Common,
        channels: u32,
        pixels: u32,
        mode: u32,
        lower: i32,
        upper: i32,
    }
}

choices! {
    /// Dimensions of a tensor.
    Rank {
        One = 1,
        Two = 2,
        Three = 3,
        Four = 4,
        Five = 5,
    }
}
