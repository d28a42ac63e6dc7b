//! Textures and surfaces against values worked out here from CUDA's formulas.

mod common;

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use common::*;
use orion_cuda::sys::*;
use orion_soft::calls::array::{
    cuArray3DCreate_v2, cuArray3DGetDescriptor_v2, cuArrayDestroy, cuMipmappedArrayCreate, cuMipmappedArrayDestroy,
    cuMipmappedArrayGetLevel,
};
use orion_soft::calls::copy::{cuMemcpy3D_v2, cuMemcpy3DAsync_v2};
use orion_soft::calls::memset::{cuMemsetD8Async, cuMemsetD32Async};
use orion_soft::calls::stream::{cuStreamCreate, cuStreamDestroy_v2, cuStreamSynchronize};
use orion_soft::calls::stream_memory::cuStreamWaitValue32_v2;
use orion_soft::calls::texture::{
    cuSurfObjectCreate, cuSurfObjectDestroy, cuSurfObjectGetResourceDesc, cuTexObjectCreate, cuTexObjectDestroy,
    cuTexObjectGetResourceDesc, cuTexObjectGetResourceViewDesc, cuTexObjectGetTextureDesc,
};
use orion_soft::exec::float::{f16_from, f16_to};
use orion_soft::ptx::isa::operand::Round;

fn gpu() -> Gpu {
    let text = CString::new(include_str!("kernels/textures.ptx")).unwrap();
    Gpu::with(text.as_ptr().cast())
}

fn zeroed<T>() -> T {
    // SAFETY: used for the driver's C structs of integers and pointers.
    unsafe { std::mem::zeroed() }
}

fn shape(extent: [usize; 3], format: CUarray_format, channels: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: extent[0],
        Height: extent[1],
        Depth: extent[2],
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

fn array(extent: [usize; 3], format: CUarray_format, channels: u32, flags: u32) -> Result<CUarray, CUresult> {
    let mut a = null_mut();
    match unsafe { cuArray3DCreate_v2(&mut a, &shape(extent, format, channels, flags)) } {
        CUDA_SUCCESS => Ok(a),
        e => Err(e),
    }
}

/// Copies rows of `width` bytes between an array and the host.
fn copy(a: CUarray, host: *mut c_void, [width, height, depth]: [usize; 3], to_array: bool) {
    let mut c: CUDA_MEMCPY3D = zeroed();
    (c.srcMemoryType, c.dstMemoryType) = (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_ARRAY);
    if !to_array {
        (c.srcMemoryType, c.dstMemoryType) = (c.dstMemoryType, c.srcMemoryType);
    }
    (c.srcHost, c.dstHost, c.srcArray, c.dstArray) = (host, host, a, a);
    (c.srcPitch, c.srcHeight, c.dstPitch, c.dstHeight) = (width, height, width, height);
    (c.WidthInBytes, c.Height, c.Depth) = (width, height, depth);
    unsafe { ok(cuMemcpy3D_v2(&c)) };
}

fn filled<T: Copy>(extent: [usize; 3], format: CUarray_format, channels: u32, flags: u32, v: &[T]) -> CUarray {
    let a = array(extent, format, channels, flags).unwrap();
    let rows = extent[1].max(1) * extent[2].max(1);
    copy(a, v.as_ptr() as *mut c_void, [size_of_val(v) / rows, extent[1].max(1), extent[2].max(1)], true);
    a
}

fn of_array(a: CUarray) -> CUDA_RESOURCE_DESC {
    let mut d: CUDA_RESOURCE_DESC = zeroed();
    d.resType = CU_RESOURCE_TYPE_ARRAY;
    d.res.array.hArray = a;
    d
}

fn described(filter: CUfilter_mode, address: CUaddress_mode, flags: u32) -> CUDA_TEXTURE_DESC {
    let mut d: CUDA_TEXTURE_DESC = zeroed();
    (d.addressMode, d.filterMode, d.flags, d.maxMipmapLevelClamp) = ([address; 3], filter, flags, 100.0);
    d
}

#[track_caller]
fn texture(resource: &CUDA_RESOURCE_DESC, description: &CUDA_TEXTURE_DESC) -> CUtexObject {
    let mut t = 0;
    unsafe { ok(cuTexObjectCreate(&mut t, resource, description, null())) };
    t
}

fn refused(resource: &CUDA_RESOURCE_DESC, description: &CUDA_TEXTURE_DESC) -> CUresult {
    unsafe { cuTexObjectCreate(&mut 0, resource, description, null()) }
}

fn surface(a: CUarray) -> CUsurfObject {
    let mut s = 0;
    unsafe { ok(cuSurfObjectCreate(&mut s, &of_array(a))) };
    s
}

/// What the kernel returns for each place.
#[track_caller]
fn run<T: Copy + Default>(g: &Gpu, kernel: &str, t: u64, at: &[[f32; 4]]) -> Vec<T> {
    let (places, out) = (Buffer::new(at), Buffer::<T>::zeroed(at.len()));
    ok(g.launch(kernel, 1, at.len() as u32, 0, &mut args![t, places.at, out.at]));
    out.read()
}

const POINT: CUfilter_mode = CU_TR_FILTER_MODE_POINT;
const LINEAR: CUfilter_mode = CU_TR_FILTER_MODE_LINEAR;
const WRAP: CUaddress_mode = CU_TR_ADDRESS_MODE_WRAP;
const CLAMP: CUaddress_mode = CU_TR_ADDRESS_MODE_CLAMP;
const MIRROR: CUaddress_mode = CU_TR_ADDRESS_MODE_MIRROR;
const BORDER: CUaddress_mode = CU_TR_ADDRESS_MODE_BORDER;
const NORMALISED: u32 = CU_TRSF_NORMALIZED_COORDINATES;
const F32: CUarray_format = CU_AD_FORMAT_FLOAT;

/// The row of texels continued over both ends by walking from the nearest one.
fn continued(row: &[f32], i: i64, mode: CUaddress_mode, border: f32) -> f32 {
    let n = row.len() as i64;
    let (mut k, mut step) = (0, if i < 0 { -1 } else { 1 });
    for _ in 0..i.abs() {
        k += step;
        if !(0..n).contains(&k) {
            match mode {
                WRAP => k -= step * n,
                CLAMP => k -= step,
                MIRROR => {
                    k -= step;
                    step = -step;
                }
                _ => return border,
            }
        }
    }
    row[k as usize]
}

/// The programming guide's formula for one axis; x counts texels.
fn expected(row: &[f32], x: f64, linear: bool, mode: CUaddress_mode, border: f32) -> f64 {
    let texel = |i: f64| f64::from(continued(row, i as i64, mode, border));
    if !linear {
        return texel(x.floor());
    }
    let (i, part) = ((x - 0.5).floor(), (x - 0.5) - (x - 0.5).floor());
    let part = (part * 256.0).round() / 256.0;
    (1.0 - part) * texel(i) + part * texel(i + 1.0)
}

#[track_caller]
fn close(got: f32, want: f64, what: &str) {
    assert!((f64::from(got) - want).abs() <= want.abs().max(1.0) * 1e-6, "{what}: {got}, not {want}");
}

#[test]
fn every_address_mode_under_both_filters() {
    let g = gpu();
    let row = [3.0f32, -1.0, 10.0, 0.5, 7.25, 100.0];
    let n = row.len() as f32;
    let a = filled([row.len(), 0, 0], F32, 1, 0, &row);
    // No coordinate is on an edge between two texels of either filter.
    let at: Vec<_> = (0..200).map(|i| [(i as f32 - 90.0) * 0.123 + 0.017, 0.0, 0.0, 0.0]).collect();
    for (filter, normalised) in [(POINT, false), (LINEAR, false), (POINT, true), (LINEAR, true)] {
        for mode in [WRAP, CLAMP, MIRROR, BORDER] {
            let mut d = described(filter, mode, if normalised { NORMALISED } else { 0 });
            d.borderColor = [42.0, 0.0, 0.0, 0.0];
            let t = texture(&of_array(a), &d);
            // Wrapping and mirroring are for normalised coordinates; others are clamped.
            let mode = if normalised || mode == BORDER { mode } else { CLAMP };
            for (p, v) in at.iter().zip(run::<[f32; 4]>(&g, "sample_1d", t, &at)) {
                let x = if normalised { f64::from(p[0]) * f64::from(n) } else { p[0].into() };
                let want = expected(&row, x, filter == LINEAR, mode, 42.0);
                close(v[0], want, &format!("filter {filter} mode {mode} at {}", p[0]));
            }
        }
    }
}

#[test]
fn the_weight_of_a_texel_has_eight_bits() {
    let g = gpu();
    let a = filled([2, 0, 0], F32, 1, 0, &[0.0f32, 1.0]);
    let t = texture(&of_array(a), &described(LINEAR, CLAMP, 0));
    let at =
        [0.5, 0.5 + 1.0 / 256.0, 0.5 + 1.2 / 256.0, 0.5 + 0.4 / 256.0, 1.0, 1.4990, 0.0].map(|x| [x, 0.0, 0.0, 0.0]);
    let got: Vec<f32> = run::<[f32; 4]>(&g, "sample_1d", t, &at).iter().map(|v| v[0]).collect();
    assert_eq!(got, [0.0, 1.0 / 256.0, 1.0 / 256.0, 0.0, 0.5, 1.0, 0.0]);
}

#[test]
fn two_and_three_dimensions_filter_each_axis() {
    let g = gpu();
    let (w, h, d) = (5, 4, 3);
    // Linear in each coordinate, so that filtering gives the function itself between texel centres.
    let f = |x: f64, y: f64, z: f64| 2.0 * x + 100.0 * y + 1000.0 * z;
    let at_centre = |i: usize| f((i % w) as f64 + 0.5, (i / w % h) as f64 + 0.5, (i / (w * h)) as f64 + 0.5) as f32;
    let texels: Vec<f32> = (0..w * h * d).map(at_centre).collect();
    let at: Vec<[f32; 4]> =
        (0..64).map(|i| [0.5 + i as f32 / 16.0, 0.5 + (63 - i) as f32 / 32.0, 0.75 + i as f32 / 64.0, 0.0]).collect();
    let volume = texture(&of_array(filled([w, h, d], F32, 1, 0, &texels)), &described(LINEAR, CLAMP, 0));
    for (p, v) in at.iter().zip(run::<[f32; 4]>(&g, "sample_3d", volume, &at)) {
        close(v[0], f(p[0].into(), p[1].into(), p[2].into()), &format!("{p:?}"));
    }
    let plane = texture(&of_array(filled([w, h, 0], F32, 1, 0, &texels[..w * h])), &described(LINEAR, CLAMP, 0));
    for (p, v) in at.iter().zip(run::<[f32; 4]>(&g, "sample_2d", plane, &at)) {
        close(v[0], f(p[0].into(), p[1].into(), 0.5), &format!("{p:?}"));
    }
    // Each axis has an address mode of its own.
    let mut modes = described(POINT, CLAMP, NORMALISED);
    modes.addressMode = [WRAP, MIRROR, BORDER];
    modes.borderColor[0] = -1.0;
    let t = texture(&of_array(filled([w, h, d], F32, 1, 0, &texels)), &modes);
    let got = run::<[f32; 4]>(&g, "sample_3d", t, &[[1.1, 1.1, 0.5, 0.0], [0.1, 0.1, 1.1, 0.0]]);
    assert_eq!((got[0][0], got[1][0]), (texels[w * h + (h - 1) * w], -1.0));
}

/// As an H200 has it (driver 580), of these four texels.
#[test]
fn integers_are_filtered_linearly_and_rounded() {
    let g = gpu();
    let row = [10, 20, 101, 100];
    let at: Vec<[f32; 4]> = (0..17).map(|i| [i as f32 / 4.0, 0.5, 0.0, 0.0]).collect();
    let nearest = [10, 10, 10, 13, 15, 18, 20, 40, 61, 81, 101, 101, 101, 100, 100, 100, 100];
    let down = [10, 10, 10, 12, 15, 17, 20, 40, 60, 80, 101, 100, 100, 100, 100, 100, 100];
    let sampled = |format, bytes: Vec<u8>, at: &[[f32; 4]]| {
        let a = filled([4, 1, 0], format, 1, 0, &bytes);
        let t = texture(&of_array(a), &described(LINEAR, CLAMP, CU_TRSF_READ_AS_INTEGER));
        run::<[i32; 4]>(&g, "integers", t, at).iter().map(|v| v[0]).collect::<Vec<i32>>()
    };
    let bytes = |width: usize, row: &[i32]| row.iter().flat_map(|v| v.to_le_bytes()[..width].to_vec()).collect();
    for (format, width, expected) in [
        (CU_AD_FORMAT_UNSIGNED_INT8, 1, nearest),
        (CU_AD_FORMAT_SIGNED_INT8, 1, nearest),
        (CU_AD_FORMAT_UNSIGNED_INT16, 2, nearest),
        (CU_AD_FORMAT_SIGNED_INT16, 2, nearest),
        (CU_AD_FORMAT_UNSIGNED_INT32, 4, down),
        (CU_AD_FORMAT_SIGNED_INT32, 4, down),
    ] {
        assert_eq!(sampled(format, bytes(width, &row), &at), expected, "format {format}");
    }
    // Between -5 and -4, and between -37244 and -37243: halves go up, 32 bits down.
    let between = [[1.0, 0.5, 0.0, 0.0]];
    assert_eq!(sampled(CU_AD_FORMAT_SIGNED_INT8, bytes(1, &[-5, -4, 0, 0]), &between), [-4]);
    assert_eq!(sampled(CU_AD_FORMAT_SIGNED_INT32, bytes(4, &[-37244, -37243, 0, 0]), &between), [-37244]);
}

#[test]
fn formats_are_read_as_integers_or_as_fractions() {
    let g = gpu();
    let half = |v: f64| f16_from(v, Round::Nearest);
    let at = [[0.5, 0.5, 0.0, 0.0], [1.5, 0.5, 0.0, 0.0]];
    let read = |format, channels, bytes: &[u8], flags| {
        let a = filled([2, 1, 0], format, channels, 0, bytes);
        texture(&of_array(a), &described(POINT, CLAMP, flags))
    };
    let bytes = |v: &[u16]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let words = |v: &[u32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let integer = CU_TRSF_READ_AS_INTEGER;

    let narrow = [0u8, 255, 128, 51, 129, 1, 127, 254];
    for (format, fraction, number) in [
        (CU_AD_FORMAT_UNSIGNED_INT8, (|v| f64::from(v) / 255.0) as fn(u8) -> f64, i32::from as fn(u8) -> i32),
        (CU_AD_FORMAT_SIGNED_INT8, |v| (f64::from(v as i8) / 127.0).max(-1.0), |v| i32::from(v as i8)),
    ] {
        for (texel, v) in narrow.chunks(4).zip(run::<[f32; 4]>(&g, "sample_2d", read(format, 4, &narrow, 0), &at)) {
            (0..4).for_each(|k| close(v[k], fraction(texel[k]), "fraction of 8 bits"));
        }
        for (texel, v) in narrow.chunks(4).zip(run::<[i32; 4]>(&g, "integers", read(format, 4, &narrow, integer), &at))
        {
            assert_eq!(v.to_vec(), texel.iter().map(|&v| number(v)).collect::<Vec<_>>());
        }
    }
    let wide = [65535u16, 32769, 1, 32767];
    let t = read(CU_AD_FORMAT_UNSIGNED_INT16, 2, &bytes(&wide), 0);
    let got = run::<[f32; 4]>(&g, "sample_2d", t, &at);
    close(got[0][0], 1.0, "16 bits");
    close(got[1][1], 32767.0 / 65535.0, "16 bits");
    let t = read(CU_AD_FORMAT_SIGNED_INT16, 2, &bytes(&wide), 0);
    let got = run::<[f32; 4]>(&g, "sample_2d", t, &at);
    close(got[0][1], -1.0, "16 bits with sign");
    close(got[1][1], 1.0, "16 bits with sign");
    let t = read(CU_AD_FORMAT_SIGNED_INT16, 2, &bytes(&wide), integer);
    assert_eq!(run::<[i32; 4]>(&g, "integers", t, &at)[0][..2], [-1, -32767]);
    // 32 bits are integers whatever the flag.
    for format in [CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32] {
        let t = read(format, 1, &words(&[0xfedc_ba98, 7]), 0);
        let got = run::<[u32; 4]>(&g, "integers", t, &at);
        assert_eq!((got[0][0], got[1][0]), (0xfedc_ba98, 7));
    }
    let t = read(CU_AD_FORMAT_HALF, 4, &bytes(&[1.5, -2.0, 0.1, 65504.0, 0.0, 1.0, 2.0, 3.0].map(half)), 0);
    let got = run::<[f32; 4]>(&g, "sample_2d", t, &at);
    assert_eq!(got[0], [1.5, -2.0, f16_to(half(0.1)), 65504.0]);
    let packed = run::<[u16; 4]>(&g, "halves", t, &at);
    assert_eq!(packed[1], [0.0, 1.0, 2.0, 3.0].map(half));
}

#[test]
fn srgb_becomes_linear_light_but_for_alpha() {
    let g = gpu();
    let a = filled([1, 1, 0], CU_AD_FORMAT_UNSIGNED_INT8, 4, 0, &[0u8, 10, 188, 188]);
    let t = texture(&of_array(a), &described(POINT, CLAMP, CU_TRSF_SRGB));
    let v = run::<[f32; 4]>(&g, "sample_2d", t, &[[0.5, 0.5, 0.0, 0.0]])[0];
    for (v, want) in v.into_iter().zip([0.0, 10.0 / 255.0 / 12.92, 0.502_886, 188.0 / 255.0]) {
        assert!((f64::from(v) - want).abs() < 1e-5, "{v}, not {want}");
    }
}

#[test]
fn borders_have_the_colour_given() {
    let g = gpu();
    let far = [[-3.0, 0.5, 0.0, 0.0], [0.5, 9.0, 0.0, 0.0]];
    let mut d = described(POINT, BORDER, 0);
    d.borderColor = [0.25, 0.5, 0.75, 1.0];
    let t = texture(&of_array(filled([2, 2, 0], F32, 4, 0, &[9.0f32; 16])), &d);
    assert_eq!(run::<[f32; 4]>(&g, "sample_2d", t, &far), [d.borderColor; 2]);
    // The colours of integers are their bits.
    d.borderColor = [1u32, 2, 3, 0x8000_0004].map(f32::from_bits);
    d.flags = CU_TRSF_READ_AS_INTEGER;
    let t = texture(&of_array(filled([2, 2, 0], CU_AD_FORMAT_UNSIGNED_INT32, 4, 0, &[9u32; 16])), &d);
    assert_eq!(run::<[u32; 4]>(&g, "integers", t, &far), [[1, 2, 3, 0x8000_0004]; 2]);
}

#[test]
fn layers_are_chosen_by_number_and_clamped() {
    let g = gpu();
    let texels: Vec<f32> = (0..4 * 2 * 3).map(|i| i as f32).collect();
    let a = filled([4, 2, 3], F32, 1, CUDA_ARRAY3D_LAYERED, &texels);
    let t = texture(&of_array(a), &described(LINEAR, CLAMP, 0));
    let got = run::<[f32; 4]>(&g, "layers_2d", t, &[[1.5, 1.5, 0.0, 0.0], [1.0, 0.5, 0.0, 2.0], [3.5, 0.5, 0.0, 7.0]]);
    assert_eq!(got.iter().map(|v| v[0]).collect::<Vec<_>>(), [5.0, 16.5, 19.0]);
    let a = filled([8, 0, 3], F32, 1, CUDA_ARRAY3D_LAYERED, &texels);
    let t = texture(&of_array(a), &described(POINT, CLAMP, 0));
    let got = run::<[f32; 4]>(&g, "layers_1d", t, &[[2.5, 0.0, 0.0, 1.0], [7.5, 0.0, 0.0, 2.0]]);
    assert_eq!((got[0][0], got[1][0]), (10.0, 23.0));
}

#[test]
fn directions_meet_the_faces_of_cubes() {
    let g = gpu();
    let n = 4;
    let texels: Vec<f32> = (0..n * n * 12).map(|i| i as f32).collect();
    let flags = CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED;
    let one = filled([n, n, 6], F32, 1, CUDA_ARRAY3D_CUBEMAP, &texels[..n * n * 6]);
    let two = filled([n, n, 12], F32, 1, flags, &texels);
    // (s, t) = (0.25, -0.75) of every face, written as the table of the programming guide has them.
    let (s, t, m) = (0.5f32, -1.5f32, 2.0f32);
    let directions = [[m, -t, -s], [-m, -t, s], [s, m, t], [s, -m, -t], [s, -t, m], [-s, -t, -m]];
    let at: Vec<[f32; 4]> = directions.iter().map(|&[x, y, z]| [x, y, z, 1.0]).collect();
    let texel = |face: usize| (face * n * n + 2) as f32;
    let single = texture(&of_array(one), &described(POINT, CLAMP, NORMALISED));
    let layered = texture(&of_array(two), &described(POINT, CLAMP, NORMALISED));
    let got = run::<[f32; 4]>(&g, "cube", single, &at);
    assert_eq!(got.iter().map(|v| v[0]).collect::<Vec<_>>(), (0..6).map(texel).collect::<Vec<_>>());
    let got = run::<[f32; 4]>(&g, "cubes", layered, &at);
    assert_eq!(got.iter().map(|v| v[0]).collect::<Vec<_>>(), (6..12).map(texel).collect::<Vec<_>>());
    // Between centres: column 2, row 0.5 - 0.5 = 0.
    let smooth = texture(&of_array(one), &described(LINEAR, CLAMP, NORMALISED));
    assert_eq!(run::<[f32; 4]>(&g, "cube", smooth, &[[0.0, 1.5, 2.0, 0.0]])[0][0], 4.0 * 16.0 + 1.5);
}

fn mipmapped(side: usize, levels: u32) -> CUmipmappedArray {
    let mut m = null_mut();
    unsafe { ok(cuMipmappedArrayCreate(&mut m, &shape([side, side, 0], F32, 1, 0), levels)) };
    m
}

#[test]
fn levels_are_chosen_blended_and_limited() {
    let g = gpu();
    let m = mipmapped(16, 3);
    for level in 0..3 {
        let mut a = null_mut();
        unsafe { ok(cuMipmappedArrayGetLevel(&mut a, m, level)) };
        let side = 16 >> level;
        let mut d: CUDA_ARRAY3D_DESCRIPTOR = zeroed();
        unsafe { ok(cuArray3DGetDescriptor_v2(&mut d, a)) };
        assert_eq!((d.Width, d.Height, d.Depth), (side, side, 0));
        let mut fill = vec![10.0 * level as f32; side * side];
        copy(a, fill.as_mut_ptr().cast(), [4 * side, side, 1], true);
        assert_eq!(unsafe { cuArrayDestroy(a) }, CUDA_ERROR_INVALID_VALUE);
    }
    assert_ne!(unsafe { cuMipmappedArrayGetLevel(&mut null_mut(), m, 3) }, CUDA_SUCCESS);
    let mut resource: CUDA_RESOURCE_DESC = zeroed();
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = m;
    let mut d = described(POINT, CLAMP, NORMALISED);
    let at = |levels: &[f32]| levels.iter().map(|&l| [0.3, 0.3, l, 0.0]).collect::<Vec<_>>();
    let run = |kernel: &str, d: &CUDA_TEXTURE_DESC, at: &[[f32; 4]]| {
        run::<[f32; 4]>(&g, kernel, texture(&resource, d), at).iter().map(|v| v[0]).collect::<Vec<_>>()
    };
    assert_eq!(run("levels", &d, &at(&[0.0, 0.4, 0.6, 1.0, 1.6, 9.0, -3.0])), [0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 0.0]);
    d.mipmapFilterMode = LINEAR;
    assert_eq!(run("levels", &d, &at(&[0.0, 0.25, 1.5, 2.0, 9.0])), [0.0, 2.5, 15.0, 20.0, 20.0]);
    d.mipmapLevelBias = 0.5;
    assert_eq!(run("levels", &d, &at(&[0.25, 1.0])), [7.5, 15.0]);
    (d.mipmapLevelBias, d.minMipmapLevelClamp, d.maxMipmapLevelClamp) = (0.0, 0.5, 1.25);
    assert_eq!(run("levels", &d, &at(&[0.0, 2.0])), [5.0, 12.5]);
    // One step of a gradient over 2, 4 and 1/8 texels.
    (d.minMipmapLevelClamp, d.maxMipmapLevelClamp) = (0.0, 100.0);
    let steps = [[0.3, 0.3, 0.125, 0.0], [0.3, 0.3, 0.125, 0.25], [0.3, 0.3, 1.0 / 128.0, 0.0]];
    assert_eq!(run("gradients", &d, &steps), [10.0, 20.0, 0.0]);
    // Without a level there is the first.
    assert_eq!(run("sample_2d", &d, &steps[..1]), [0.0]);

    d.flags = 0;
    assert_eq!(refused(&resource, &d), CUDA_ERROR_INVALID_VALUE);
    // A view of the last two levels.
    let mut view: CUDA_RESOURCE_VIEW_DESC = zeroed();
    (view.width, view.height, view.firstMipmapLevel, view.lastMipmapLevel) = (16, 16, 1, 2);
    d.flags = NORMALISED;
    let mut t = 0;
    unsafe { ok(cuTexObjectCreate(&mut t, &resource, &d, &view)) };
    let got = self::run::<[f32; 4]>(&g, "levels", t, &at(&[0.0, 5.0]));
    assert_eq!((got[0][0], got[1][0]), (10.0, 20.0));
    unsafe { ok(cuMipmappedArrayDestroy(m)) };
}

#[test]
fn linear_and_pitched_memory_are_sampled_in_place() {
    let g = gpu();
    let texels: Vec<f32> = (0..512).map(|i| i as f32).collect();
    let memory = Buffer::new(&texels);
    let mut resource: CUDA_RESOURCE_DESC = zeroed();
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
        devPtr: memory.at,
        format: F32,
        numChannels: 4,
        sizeInBytes: 2048,
    };
    let t = texture(&resource, &described(POINT, CLAMP, 0));
    let got = run::<[f32; 4]>(&g, "fetches", t, &[0.0, 5.0, 127.0, 128.0, -1.0].map(|x| [x, 0.0, 0.0, 0.0]));
    let texel = |i: usize| [0, 1, 2, 3].map(|k| (4 * i + k) as f32);
    assert_eq!(got, [texel(0), texel(5), texel(127), [0.0; 4], [0.0; 4]]);

    let mut resource: CUDA_RESOURCE_DESC = zeroed();
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
        devPtr: memory.at,
        format: F32,
        numChannels: 1,
        width: 10,
        height: 8,
        pitchInBytes: 256,
    };
    let d = described(LINEAR, CLAMP, 0);
    let t = texture(&resource, &d);
    let got = run::<[f32; 4]>(&g, "sample_2d", t, &[[4.0, 3.5, 0.0, 0.0], [50.0, 2.0, 0.0, 0.0]]);
    assert_eq!((got[0][0], got[1][0]), (3.5 + 3.0 * 64.0, 9.0 + 1.5 * 64.0));
    for spoil in [
        (|p| p.devPtr += 4) as fn(&mut CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4),
        |p| p.pitchInBytes = 100,
        |p| p.pitchInBytes = 32,
        |p| p.height = 0,
        |p| p.height = 5000,
        |p| p.numChannels = 3,
    ] {
        let mut bad = resource;
        spoil(unsafe { &mut bad.res.pitch2D });
        assert_eq!(refused(&bad, &d), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn gathers_take_the_four_texels_of_a_filter() {
    let g = gpu();
    let texels: Vec<f32> = (0..4 * 4 * 4).map(|i| i as f32).collect();
    let a = filled([4, 4, 0], F32, 4, CUDA_ARRAY3D_TEXTURE_GATHER, &texels);
    let t = texture(&of_array(a), &described(LINEAR, CLAMP, 0));
    let (at, out) = (Buffer::new(&[[2.0f32, 1.0, 0.0, 0.0]]), Buffer::<[f32; 4]>::zeroed(4));
    ok(g.launch("gather", 1, 1, 0, &mut args![t, at.at, out.at]));
    let texel = |x: usize, y: usize, k: usize| (4 * (4 * y + x) + k) as f32;
    for (k, v) in out.read().into_iter().enumerate() {
        assert_eq!(v, [texel(1, 1, k), texel(2, 1, k), texel(2, 0, k), texel(1, 0, k)]);
    }
}

#[test]
fn texels_are_found_by_number() {
    let g = gpu();
    let texels: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let mut d = described(LINEAR, CLAMP, 0);
    let plane = of_array(filled([4, 3, 0], F32, 1, 0, &texels));
    let at = [[1.0, 2.0, 1.0, 1.5], [7.0, -1.0, 0.5, 0.5]];
    let got = run::<[f32; 4]>(&g, "numbers", texture(&plane, &d), &at);
    assert_eq!((got[0][..2].to_vec(), got[1][..2].to_vec()), (vec![9.0, 4.5], vec![3.0, 0.0]));
    (d.addressMode, d.borderColor[0]) = ([BORDER; 3], 77.0);
    let got = run::<[f32; 4]>(&g, "numbers", texture(&plane, &d), &at);
    assert_eq!((got[0][0], got[1][0]), (9.0, 77.0));
}

#[test]
fn lanes_may_have_textures_of_their_own() {
    let g = gpu();
    let textures: Vec<u64> = (0..8)
        .map(|i| texture(&of_array(filled([1, 1, 0], F32, 1, 0, &[i as f32])), &described(POINT, CLAMP, 0)))
        .collect();
    let handles: Vec<u64> = (0..40).map(|i| textures[i * 3 % 8]).collect();
    let (handles, at, out) = (Buffer::new(&handles), Buffer::<[f32; 4]>::zeroed(40), Buffer::<[f32; 4]>::zeroed(40));
    ok(g.launch("many", 1, 40, 0, &mut args![handles.at, at.at, out.at]));
    assert!(out.read().iter().enumerate().all(|(i, v)| v[0] == (i * 3 % 8) as f32));
}

#[test]
fn kernels_ask_what_objects_are() {
    let g = gpu();
    let a = array([8, 4, 6], CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST).unwrap();
    let (t, s) = (texture(&of_array(a), &described(LINEAR, WRAP, NORMALISED)), surface(a));
    let out = Buffer::<u32>::zeroed(8);
    ok(g.launch("ask_texture", 1, 1, 0, &mut args![t, out.at]));
    assert_eq!(out.read(), [8, 4, 1, 0x10dd, 0x10b2, 1, 6, 1]);
    ok(g.launch("ask_surface", 1, 1, 0, &mut args![s, out.at]));
    assert_eq!(out.read()[..6], [8, 4, 1, 0x10dd, 0x10b2, 6]);
}

const STORED: u32 = CUDA_ARRAY3D_SURFACE_LDST;

fn spots<const N: usize>(spots: [[i32; 4]; N]) -> Buffer<[i32; 4]> {
    Buffer::new(&spots)
}

fn contents<T: Copy + Default>(a: CUarray, extent: [usize; 3]) -> Vec<T> {
    let mut v = vec![T::default(); extent.iter().product()];
    copy(a, v.as_mut_ptr().cast(), [extent[0] * size_of::<T>(), extent[1], extent[2]], false);
    v
}

#[test]
fn surfaces_outside_give_zero_the_nearest_or_a_fault() {
    let g = gpu();
    let words: Vec<u32> = (0..12).map(|i| 100 + i).collect();
    let a = filled([4, 3, 0], CU_AD_FORMAT_UNSIGNED_INT32, 1, STORED, &words);
    let s = surface(a);
    let at = spots([[4, 1, 0, 0], [-4, 1, 0, 0], [16, 2, 0, 0], [8, 3, 0, 0], [0, -1, 0, 0]]);
    let out = Buffer::<u32>::zeroed(5);
    ok(g.launch("read_zero", 1, 5, 0, &mut args![s, at.at, out.at]));
    assert_eq!(out.read(), [105, 0, 0, 0, 0]);
    ok(g.launch("read_clamp", 1, 5, 0, &mut args![s, at.at, out.at]));
    assert_eq!(out.read(), [105, 104, 111, 110, 100]);
    let at = spots([[4, 0, 0, 1], [16, 0, 0, 2], [-4, 1, 0, 3]]);
    ok(g.launch("write_zero", 1, 3, 0, &mut args![s, at.at]));
    ok(g.sync());
    let mut want = words.clone();
    want[1] = 1;
    assert_eq!(contents::<u32>(a, [4, 3, 1]), want);
    ok(g.launch("write_clamp", 1, 3, 0, &mut args![s, at.at]));
    ok(g.sync());
    (want[3], want[4]) = (2, 3);
    assert_eq!(contents::<u32>(a, [4, 3, 1]), want);
}

#[test]
fn surface_traps_end_the_kernel() {
    for kernel in ["read_trap", "write_trap"] {
        let g = gpu();
        let a = filled([4, 3, 0], CU_AD_FORMAT_UNSIGNED_INT32, 1, STORED, &[0u32; 12]);
        let (s, out) = (surface(a), Buffer::<u32>::zeroed(1));
        ok(g.launch(kernel, 1, 1, 0, &mut args![s, spots([[12, 2, 0, 0]]).at, out.at]));
        ok(g.sync());
        ok(g.launch(kernel, 1, 1, 0, &mut args![s, spots([[16, 2, 0, 0]]).at, out.at]));
        assert_eq!(g.sync(), CUDA_ERROR_LAUNCH_FAILED);
    }
}

#[test]
fn surfaces_of_depth_and_layers_are_written() {
    let g = gpu();
    let pairs: Vec<[f32; 2]> = (0..24).map(|i| [i as f32, -i as f32]).collect();
    let from = filled([4, 3, 2], F32, 2, STORED, &pairs);
    let to = filled([4, 3, 2], F32, 2, STORED, &[[0.0f32; 2]; 24]);
    ok(g.launch("move_3d", 1, 2, 0, &mut args![surface(from), surface(to), spots([[8, 2, 1, 0], [24, 0, 0, 0]]).at]));
    ok(g.sync());
    let got = contents::<[f32; 2]>(to, [4, 3, 2]);
    for (i, v) in got.into_iter().enumerate() {
        assert_eq!(v, if i == 3 || i == 21 { pairs[i] } else { [0.0; 2] });
    }
    let shorts: Vec<[i16; 2]> = (0..24).map(|i| [i, -i]).collect();
    let flags = STORED | CUDA_ARRAY3D_LAYERED;
    let from = filled([4, 3, 2], CU_AD_FORMAT_SIGNED_INT16, 2, flags, &shorts);
    let to = filled([4, 3, 2], CU_AD_FORMAT_SIGNED_INT16, 2, flags, &[[0i16; 2]; 24]);
    let at = spots([[4, 1, 1, 0], [12, 2, 0, 0]]);
    ok(g.launch("move_layers", 1, 2, 0, &mut args![surface(from), surface(to), at.at]));
    ok(g.sync());
    for (i, v) in contents::<[i16; 2]>(to, [4, 3, 2]).into_iter().enumerate() {
        assert_eq!(v, if i == 17 || i == 11 { shorts[i] } else { [0; 2] });
    }
}

#[test]
fn surfaces_are_stored_to_by_byte_and_by_format() {
    let g = gpu();
    let a = filled([2, 1, 0], CU_AD_FORMAT_UNSIGNED_INT8, 4, STORED, &[0u8; 8]);
    ok(g.launch("write_bytes", 1, 1, 0, &mut args![surface(a), spots([[4, 0, 0, 7]]).at]));
    ok(g.sync());
    assert_eq!(contents::<u8>(a, [8, 1, 1]), [0, 0, 0, 0, 7, 8, 9, 10]);
    // A formatted store counts texels and converts.
    let (at, v) = (spots([[0, 0, 0, 0]]), Buffer::new(&[3u32, 255, 300, 0]));
    ok(g.launch("formatted", 1, 1, 0, &mut args![surface(a), at.at, v.at]));
    ok(g.sync());
    assert_eq!(contents::<u8>(a, [8, 1, 1]), [3, 255, 255, 0, 7, 8, 9, 10]);
    let a = filled([2, 1, 0], CU_AD_FORMAT_HALF, 2, STORED, &[0u16; 4]);
    let (at, v) = (spots([[1, 0, 0, 0]]), Buffer::new(&[0.5f32.to_bits(), (-2.0f32).to_bits(), 0, 0]));
    ok(g.launch("formatted", 1, 1, 0, &mut args![surface(a), at.at, v.at]));
    ok(g.sync());
    assert_eq!(contents::<u16>(a, [4, 1, 1]), [0, 0, 0x3800, 0xc000]);
}

#[test]
fn surfaces_are_reduced_atomically() {
    let g = gpu();
    let a = filled([4, 1, 0], CU_AD_FORMAT_UNSIGNED_INT32, 1, STORED, &[1u32, 0xffff_fff0, 0xff, 9]);
    let at = spots([[0, 0, 0, 5], [0, 0, 0, 6], [0, 0, 0, 7]]);
    ok(g.launch("reduce", 1, 3, 0, &mut args![surface(a), at.at]));
    ok(g.sync());
    assert_eq!(contents::<u32>(a, [4, 1, 1]), [19, 7, 5 & 6 & 7, 9]);
}

#[test]
fn objects_remember_what_they_were_made_of() {
    let _g = gpu();
    let a = array([8, 8, 0], F32, 1, STORED).unwrap();
    let mut d = described(LINEAR, MIRROR, NORMALISED);
    d.maxAnisotropy = 3;
    let (t, s) = (texture(&of_array(a), &d), surface(a));
    let (mut resource, mut got, mut view) = (zeroed::<CUDA_RESOURCE_DESC>(), zeroed::<CUDA_TEXTURE_DESC>(), zeroed());
    unsafe {
        ok(cuTexObjectGetResourceDesc(&mut resource, t));
        assert_eq!((resource.resType, resource.res.array.hArray), (CU_RESOURCE_TYPE_ARRAY, a));
        ok(cuTexObjectGetTextureDesc(&mut got, t));
        assert_eq!((got.filterMode, got.addressMode, got.maxAnisotropy), (LINEAR, [MIRROR; 3], 3));
        assert_eq!(cuTexObjectGetResourceViewDesc(&mut view, t), CUDA_ERROR_INVALID_VALUE);
        resource = zeroed();
        ok(cuSurfObjectGetResourceDesc(&mut resource, s));
        assert_eq!(resource.res.array.hArray, a);
        ok(cuTexObjectDestroy(t));
        assert_ne!(cuTexObjectDestroy(t), CUDA_SUCCESS);
        assert_ne!(cuTexObjectGetTextureDesc(&mut got, t), CUDA_SUCCESS);
        ok(cuSurfObjectDestroy(s));
        assert_ne!(cuSurfObjectDestroy(s), CUDA_SUCCESS);
    }
}

#[test]
fn an_array_is_there_for_the_copies_before_its_end() {
    let _g = gpu();
    let long = Buffer::<u8>::zeroed(128 << 20);
    let texels = Buffer::<f32>::new(&[1.0; 64]);
    let (mut stream, a) = (null_mut(), array([64, 0, 0], F32, 1, 0).unwrap());
    let mut c: CUDA_MEMCPY3D = zeroed();
    (c.srcMemoryType, c.dstMemoryType) = (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY);
    (c.srcDevice, c.dstArray, c.WidthInBytes, c.Height, c.Depth) = (texels.at, a, 256, 1, 1);
    unsafe {
        ok(cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        ok(cuMemsetD8Async(long.at, 1, 128 << 20, stream));
        ok(cuMemcpy3DAsync_v2(&c, stream));
        ok(cuArrayDestroy(a));
        ok(cuStreamSynchronize(stream));
        ok(cuStreamDestroy_v2(stream));
    }
}

/// FFmpeg's filters destroy their textures right behind the launch.
#[test]
fn objects_serve_the_work_that_was_there_when_they_were_destroyed() {
    let g = gpu();
    let texels: Vec<f32> = (0..12).map(|v| v as f32).collect();
    let (plane, stored) = (filled([4, 3, 0], F32, 1, 0, &texels), array([4, 0, 0], F32, 1, STORED).unwrap());
    let (t, s) = (texture(&of_array(plane), &described(POINT, CLAMP, 0)), surface(stored));
    let (at, out, gate) =
        (Buffer::new(&[[1.0f32, 2.0, 0.0, 0.0]]), Buffer::<[f32; 4]>::zeroed(1), Buffer::new(&[0u32]));
    let (mut stream, mut opener) = (null_mut(), null_mut());
    unsafe {
        ok(cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        ok(cuStreamCreate(&mut opener, CU_STREAM_NON_BLOCKING));
        ok(cuStreamWaitValue32_v2(stream, gate.at, 1, CU_STREAM_WAIT_VALUE_EQ));
        ok(g.launch_on(stream, "sample_2d", [1; 3], [1; 3], 0, &mut args![t, at.at, out.at]));
        ok(cuTexObjectDestroy(t));
        ok(cuSurfObjectDestroy(s));
        // To the program they are gone, and their numbers are not given again.
        assert_eq!(cuTexObjectDestroy(t), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuTexObjectGetTextureDesc(&mut zeroed(), t), CUDA_ERROR_INVALID_VALUE);
        assert_ne!(texture(&of_array(plane), &described(POINT, CLAMP, 0)), t);
        ok(cuMemsetD32Async(gate.at, 1, 1, opener));
        ok(cuStreamSynchronize(stream));
        assert_eq!(out.read()[0][0], 9.0);
        // Once that work has ended, nothing finds it.
        assert!(orion_soft::texture::texture(t).is_none() && orion_soft::texture::surface(s).is_none());
        ok(cuStreamDestroy_v2(stream));
        ok(cuStreamDestroy_v2(opener));
    }
}

#[test]
fn objects_end_with_their_context() {
    let g = gpu();
    let a = array([8, 8, 0], F32, 1, STORED).unwrap();
    let (t, s) = (texture(&of_array(a), &described(POINT, CLAMP, 0)), surface(a));
    drop(g);
    let _g = gpu();
    unsafe {
        assert_eq!(cuTexObjectDestroy(t), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuSurfObjectDestroy(s), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let _g = gpu();
    let (cube, layered) = (CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED);
    for (extent, flags) in [
        ([0, 0, 0], 0),
        ([4, 4, 5], cube),
        ([4, 8, 6], cube),
        ([4, 4, 12], cube),
        ([4, 4, 8], cube | layered),
        ([4, 4, 0], layered),
        ([4, 0, 3], 0),
        ([131_073, 0, 0], 0),
        ([4, 65537, 0], 0),
        ([32769, 1, 1], layered),
        ([4, 4, 4], CUDA_ARRAY3D_TEXTURE_GATHER),
    ] {
        assert_eq!(array(extent, F32, 1, flags), Err(CUDA_ERROR_INVALID_VALUE), "{extent:?} {flags}");
    }
    assert_eq!(array([4, 4, 0], F32, 3, 0), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(array([64, 64, 0], F32, 1, CUDA_ARRAY3D_SPARSE), Err(CUDA_ERROR_NOT_SUPPORTED));
    let plain = array([4, 4, 0], CU_AD_FORMAT_UNSIGNED_INT8, 4, 0).unwrap();
    assert_eq!(unsafe { cuSurfObjectCreate(&mut 0, &of_array(plain)) }, CUDA_ERROR_INVALID_VALUE);
    let words = array([4, 4, 0], CU_AD_FORMAT_UNSIGNED_INT32, 1, 0).unwrap();
    assert_eq!(refused(&of_array(words), &described(LINEAR, CLAMP, 0)), CUDA_ERROR_INVALID_VALUE);
    let seamless = described(LINEAR, CLAMP, NORMALISED | CU_TRSF_SEAMLESS_CUBEMAP);
    assert_eq!(refused(&of_array(plain), &seamless), CUDA_ERROR_NOT_SUPPORTED);
    // Views keep the size of a texel.
    let mut view: CUDA_RESOURCE_VIEW_DESC = zeroed();
    (view.width, view.height, view.format) = (4, 4, CU_RES_VIEW_FORMAT_UINT_1X32);
    let d = described(POINT, CLAMP, 0);
    unsafe {
        ok(cuTexObjectCreate(&mut 0, &of_array(plain), &d, &view));
        view.format = CU_RES_VIEW_FORMAT_UINT_2X32;
        assert_eq!(cuTexObjectCreate(&mut 0, &of_array(plain), &d, &view), CUDA_ERROR_INVALID_VALUE);
        view.format = CU_RES_VIEW_FORMAT_UNSIGNED_BC1;
        assert_eq!(cuTexObjectCreate(&mut 0, &of_array(plain), &d, &view), CUDA_ERROR_NOT_SUPPORTED);
    }
}

#[test]
fn forms_beyond_the_unified_mode_are_refused() {
    for form in [
        "tex.2d.v4.f32.f32 {f, f, f, f}, [reference, {f, f}];",
        "tex.2d.v4.f32.f32 {f, f, f, f}, [h, h, {f, f}];",
        "tex.2d.v4.f32.f32 {f, f, f, f}, [h, {f, f}], {r, r};",
        "tex.2dms.v4.f32.s32 {f, f, f, f}, [h, {r, r, r, r}];",
        "tex.2d.v4.f32.f32 {f, f}, [h, {f, f}];",
        "tex.2d.v4.f32.f32 {f, f, f, f}, [h, {f}];",
        "tex.grad.2d.v4.f32.f32 {f, f, f, f}, [h, {f, f}], {f}, {f};",
        "tld4.r.cube.v4.f32.f32 {f, f, f, f}, [h, {f, f, f, f}];",
        "txq.num_samples.b32 r, [h];",
        "suq.memory_layout.b32 r, [h];",
        "suld.b.2d.b32.trap {}, [h, {r, r}];",
        "suld.b.cube.b32.trap {r}, [h, {r, r, r, r}];",
        "sust.b.2d.v8.b32.trap [h, {r, r}], {r, r, r, r, r, r, r, r};",
        "sured.b.add.2d.b8.trap [h, {r, r}], r;",
        "sured.b.xor.2d.b32.trap [h, {r, r}], r;",
    ] {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.global .texref reference;\n.visible .entry k()\n{{\n\
             .reg .b32 r;\n.reg .f32 f;\n.reg .b64 h;\n{form}\nret;\n}}\n"
        );
        let text = CString::new(text).unwrap();
        let g = Gpu::with(text.as_ptr().cast());
        assert_eq!(g.launch("k", 1, 1, 0, &mut []), CUDA_ERROR_NOT_SUPPORTED, "{form}");
    }
}

#[test]
fn an_unknown_handle_ends_the_kernel() {
    for handle in [0, u64::MAX] {
        let g = Gpu::new();
        let out = Buffer::<f32>::zeroed(4);
        ok(g.launch("textured", 1, 1, 0, &mut args![handle, out.at]));
        assert_eq!(g.sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}
