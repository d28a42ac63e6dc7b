//! Textures and surfaces.

use crate::generated::ops;
use crate::message::declare::{messages, variants};
use crate::message::field::{ARRAY, Existing, FollowedByDevice, MIPMAPPED_ARRAY, Size};

messages! {
    command TexObjectCreate(ops::CU_TEX_OBJECT_CREATE) {
        resource: Resource,
        texture: Texture,
        view: Option<View>,
    }

    reply TexObjectCreateReply(ops::CU_TEX_OBJECT_CREATE) {
        /// The driver's own, because kernels receive it.
        texture: u64,
    }

    command SurfObjectCreate(ops::CU_SURF_OBJECT_CREATE) {
        resource: Resource,
    }

    reply SurfObjectCreateReply(ops::CU_SURF_OBJECT_CREATE) {
        /// As a texture's.
        surface: u64,
    }

    /// A `CUDA_RESOURCE_DESC`.
    part Resource {
        flags: u32,
        of: ResourceOf,
    }

    part Linear {
        address: FollowedByDevice,
        format: u32,
        channels: u32,
        bytes: Size,
    }

    part Rows {
        address: FollowedByDevice,
        format: u32,
        channels: u32,
        width: Size,
        rows: Size,
        /// In bytes.
        pitch: Size,
    }

    /// A `CUDA_TEXTURE_DESC`.
    part Texture {
        address_modes: [u32; 3],
        filter_mode: u32,
        flags: u32,
        max_anisotropy: u32,
        mipmap_filter_mode: u32,
        mipmap_level_bias: f32,
        min_mipmap_level: f32,
        max_mipmap_level: f32,
        border: [f32; 4],
    }

    /// A `CUDA_RESOURCE_VIEW_DESC`.
    part View {
        format: u32,
        width: Size,
        height: Size,
        depth: Size,
        first_level: u32,
        last_level: u32,
        first_layer: u32,
        last_layer: u32,
    }
}

variants! {
    /// By `CUresourcetype`.
    ResourceOf {
        Array(Existing<ARRAY>) = 0,
        Mipmapped(Existing<MIPMAPPED_ARRAY>) = 1,
        Linear(Linear) = 2,
        Rows(Rows) = 3,
    }
}
