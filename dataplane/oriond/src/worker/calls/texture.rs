//! Textures and surfaces: their descriptions name arrays by the session's handles.

// UNSAFETY: fills C unions for the driver from words that were decoded here.

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Fault, Reader, Writer};

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;

/// What the shim's `put_resource` wrote.
fn resource(s: &mut Session, r: &mut Reader<'_>) -> Result<Result<CUDA_RESOURCE_DESC, CUresult>, Fault> {
    let first = r.word()?;
    // SAFETY: integers and pointers only: all zeros are a value.
    let mut d: CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
    d.resType = first as u32;
    d.flags = (first >> 32) as u32;
    match d.resType {
        CU_RESOURCE_TYPE_ARRAY => match s.handle(Kind::Array, r.word()?) {
            Ok(array) => d.res.array.hArray = array.cast(),
            Err(code) => return Ok(Err(code)),
        },
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => match s.handle(Kind::MipmappedArray, r.word()?) {
            Ok(array) => d.res.mipmap.hMipmappedArray = array.cast(),
            Err(code) => return Ok(Err(code)),
        },
        CU_RESOURCE_TYPE_LINEAR => {
            let (address, format, bytes) = (r.word()?, r.word()?, r.word()?);
            d.res.linear = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
                devPtr: address,
                format: format as u32,
                numChannels: (format >> 32) as u32,
                sizeInBytes: bytes as usize,
            };
        }
        CU_RESOURCE_TYPE_PITCH2D => {
            let (address, format) = (r.word()?, r.word()?);
            d.res.pitch2D = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
                devPtr: address,
                format: format as u32,
                numChannels: (format >> 32) as u32,
                width: r.word()? as usize,
                height: r.word()? as usize,
                pitchInBytes: r.word()? as usize,
            };
        }
        _ => return Err(Fault("resource of an unknown type")),
    }
    Ok(Ok(d))
}

fn texture(r: &mut Reader<'_>) -> Result<CUDA_TEXTURE_DESC, Fault> {
    let mut word = || r.word().map(|v| v as u32);
    Ok(CUDA_TEXTURE_DESC {
        addressMode: [word()?, word()?, word()?],
        filterMode: word()?,
        flags: word()?,
        maxAnisotropy: word()?,
        mipmapFilterMode: word()?,
        mipmapLevelBias: f32::from_bits(word()?),
        minMipmapLevelClamp: f32::from_bits(word()?),
        maxMipmapLevelClamp: f32::from_bits(word()?),
        borderColor: [
            f32::from_bits(word()?),
            f32::from_bits(word()?),
            f32::from_bits(word()?),
            f32::from_bits(word()?),
        ],
        reserved: [0; 12],
    })
}

fn view(r: &mut Reader<'_>) -> Result<Option<CUDA_RESOURCE_VIEW_DESC>, Fault> {
    if r.word()? == 0 {
        return Ok(None);
    }
    let mut word = || r.word();
    Ok(Some(CUDA_RESOURCE_VIEW_DESC {
        format: word()? as u32,
        width: word()? as usize,
        height: word()? as usize,
        depth: word()? as usize,
        firstMipmapLevel: word()? as u32,
        lastMipmapLevel: word()? as u32,
        firstLayer: word()? as u32,
        lastLayer: word()? as u32,
        reserved: [0; 16],
    }))
}

/// The number is the driver's own: kernels receive it.
pub fn cuTexObjectCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let resource = resource(s, &mut r)??;
    let (texture, view) = (texture(&mut r)?, view(&mut r)?);
    let mut number = 0;
    let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid pointers to locals, or null for no view.
    let code = unsafe { s.driver.cuTexObjectCreate(&mut number, &resource, &texture, view) };
    reply.word(number);
    Ok(Outcome::Done(code))
}

pub fn cuSurfObjectCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let resource = resource(s, &mut r)??;
    let mut number = 0;
    // SAFETY: valid pointers to locals.
    let code = unsafe { s.driver.cuSurfObjectCreate(&mut number, &resource) };
    reply.word(number);
    Ok(Outcome::Done(code))
}
