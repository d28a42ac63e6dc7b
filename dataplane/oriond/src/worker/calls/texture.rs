//! Textures and surfaces: their descriptions name arrays by the session's handles.

// UNSAFETY: fills C unions for the driver from messages.

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::texture::{
    Resource, ResourceOf, SurfObjectCreate, SurfObjectCreateReply, TexObjectCreate, TexObjectCreateReply, Texture, View,
};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;

fn resource(s: &mut Session, resource: &Resource) -> Result<CUDA_RESOURCE_DESC, CUresult> {
    // SAFETY: integers and pointers only: all zeros are a value.
    let mut d: CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
    d.flags = resource.flags;
    match &resource.of {
        ResourceOf::Array(array) => {
            d.resType = CU_RESOURCE_TYPE_ARRAY;
            d.res.array.hArray = s.handle(Kind::Array, array.0)?.cast();
        }
        ResourceOf::Mipmapped(array) => {
            d.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
            d.res.mipmap.hMipmappedArray = s.handle(Kind::MipmappedArray, array.0)?.cast();
        }
        ResourceOf::Linear(of) => {
            d.resType = CU_RESOURCE_TYPE_LINEAR;
            d.res.linear = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
                devPtr: of.address.0,
                format: of.format,
                numChannels: of.channels,
                sizeInBytes: of.bytes.0 as usize,
            };
        }
        ResourceOf::Rows(of) => {
            d.resType = CU_RESOURCE_TYPE_PITCH2D;
            d.res.pitch2D = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
                devPtr: of.address.0,
                format: of.format,
                numChannels: of.channels,
                width: of.width.0 as usize,
                height: of.rows.0 as usize,
                pitchInBytes: of.pitch.0 as usize,
            };
        }
    }
    Ok(d)
}

fn texture(of: &Texture) -> CUDA_TEXTURE_DESC {
    CUDA_TEXTURE_DESC {
        addressMode: of.address_modes,
        filterMode: of.filter_mode,
        flags: of.flags,
        maxAnisotropy: of.max_anisotropy,
        mipmapFilterMode: of.mipmap_filter_mode,
        mipmapLevelBias: of.mipmap_level_bias,
        minMipmapLevelClamp: of.min_mipmap_level,
        maxMipmapLevelClamp: of.max_mipmap_level,
        borderColor: of.border,
        reserved: [0; 12],
    }
}

fn view(of: &View) -> CUDA_RESOURCE_VIEW_DESC {
    CUDA_RESOURCE_VIEW_DESC {
        format: of.format,
        width: of.width.0 as usize,
        height: of.height.0 as usize,
        depth: of.depth.0 as usize,
        firstMipmapLevel: of.first_level,
        lastMipmapLevel: of.last_level,
        firstLayer: of.first_layer,
        lastLayer: of.last_layer,
        reserved: [0; 16],
    }
}

/// The number is the driver's own: kernels receive it.
pub fn cuTexObjectCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = TexObjectCreate::decode(&mut r)?;
    let (resource, texture, view) = (resource(s, &q.resource)?, texture(&q.texture), q.view.as_ref().map(view));
    let mut number = 0;
    let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid pointers to locals, or null for no view.
    let code = unsafe { s.driver.cuTexObjectCreate(&mut number, &resource, &texture, view) };
    TexObjectCreateReply { texture: number }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuSurfObjectCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = SurfObjectCreate::decode(&mut r)?;
    let resource = resource(s, &q.resource)?;
    let mut number = 0;
    // SAFETY: valid pointers to locals.
    let code = unsafe { s.driver.cuSurfObjectCreate(&mut number, &resource) };
    SurfObjectCreateReply { surface: number }.encode(reply);
    Ok(Outcome::Done(code))
}
