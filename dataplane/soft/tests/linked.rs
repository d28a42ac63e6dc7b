//! Images that are linked when they are loaded: wrappers with a list of fat binaries, and `cuLink*`.

mod common;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use common::image::{CUBIN, PTX, fat_binary};
use common::{Buffer, Gpu, context_has_failed, ok};
use orion_cuda::sys::{CU_JIT_INPUT_PTX, CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUmodule, CUresult};
use orion_soft::calls::link::{cuLinkAddData_v2, cuLinkComplete, cuLinkCreate_v2, cuLinkDestroy};
use orion_soft::calls::module::cuModuleLoadData;

const KERNEL: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.global .u32 own = 1;\n\
    .extern .func (.param .u32 r) answer;\n.visible .entry kernel(.param .u64 o) {\n\
    .reg .u64 o; .reg .u32 a; .reg .u32 b; .param .u32 r;\n\
    ld.param.u64 o, [o]; call (r), answer; ld.param.u32 a, [r]; ld.global.u32 b, [own]; add.u32 a, a, b;\n\
    st.global.u32 [o], a; ret; }\n";
const ANSWER: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.global .u32 own = 41;\n\
    .visible .func (.param .u32 r) answer {\n.reg .u32 a; ld.global.u32 a, [own]; st.param.u32 [r], a; ret; }\n";

#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    list: *const *const u8,
}

fn load(data: &[u8], list: &[Vec<u8>], module: &mut CUmodule) -> CUresult {
    let mut list: Vec<*const u8> = list.iter().map(|part| part.as_ptr()).collect();
    list.push(null());
    let wrapper = Wrapper { magic: 0x4662_43b1, version: 2, data: data.as_ptr(), list: list.as_ptr() };
    unsafe { cuModuleLoadData(module, std::ptr::from_ref(&wrapper).cast()) }
}

#[track_caller]
fn answers(g: &Gpu) {
    let o = Buffer::<u32>::zeroed(1);
    ok(g.launch("kernel", 1, 1, 0, &mut args![o.at]));
    assert_eq!(o.read(), [42]);
}

fn parts() -> Vec<Vec<u8>> {
    let device_runtime = fat_binary(&[(CUBIN, 90, b"_Z16memcpy_3d_device"), (PTX, 121, b".version 9.0\n")]);
    vec![
        fat_binary(&[(PTX, 75, KERNEL.as_bytes())]),
        fat_binary(&[(CUBIN, 90, b"code"), (PTX, 75, ANSWER.as_bytes())]),
        fat_binary(&[]),
        device_runtime,
    ]
}

#[test]
fn the_list_of_a_wrapper_is_linked() {
    for data in [fat_binary(&[]), fat_binary(&[(CUBIN, 90, b"linked code")])] {
        let mut g = Gpu::bare();
        ok(load(&data, &parts(), &mut g.module));
        answers(&g);
    }
}

#[test]
fn ptx_of_the_wrapper_itself_goes_before_the_list() {
    let mut g = Gpu::bare();
    let whole = KERNEL.replacen("answer;", "answer { st.param.u32 [r], 41; ret; }", 1).replace(".extern", "");
    ok(load(&fat_binary(&[(PTX, 75, whole.as_bytes())]), &[fat_binary(&[(PTX, 75, b"no PTX")])], &mut g.module));
    answers(&g);
}

#[test]
fn a_part_with_machine_code_alone_is_refused() {
    let mut g = Gpu::bare();
    let mut parts = parts();
    parts.push(fat_binary(&[(CUBIN, 90, b"call memcpy")]));
    assert_eq!(load(&fat_binary(&[]), &parts, &mut g.module), CUDA_ERROR_NO_BINARY_FOR_GPU);
    context_has_failed();
    g = Gpu::bare();
    assert_eq!(load(&fat_binary(&[]), &[fat_binary(&[])], &mut g.module), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

fn load_alone(programs: &[(u16, u32, &[u8])]) -> (Gpu, CUresult) {
    let mut g = Gpu::bare();
    let result = unsafe { cuModuleLoadData(&mut g.module, fat_binary(programs).as_ptr().cast()) };
    (g, result)
}

/// The header of a file with machine code for a compute capability, as CUDA 13 writes it.
fn cubin(sm: u32) -> Vec<u8> {
    let mut file = vec![0u8; 128];
    file[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x41\x08");
    file[48..52].copy_from_slice(&(sm << 8 | 0x0600_0004).to_le_bytes());
    file
}

/// A GPU would have run it, so that who loads it counts on its kernels.
#[test]
fn machine_code_for_this_device_alone_ends_the_context() {
    let (_g, result) = load_alone(&[(CUBIN, 80, b"code"), (CUBIN, 90, b"code")]);
    assert_eq!(result, CUDA_ERROR_NO_BINARY_FOR_GPU);
    context_has_failed();
    let mut g = Gpu::bare();
    assert_eq!(unsafe { cuModuleLoadData(&mut g.module, cubin(90).as_ptr().cast()) }, CUDA_ERROR_NO_BINARY_FOR_GPU);
    context_has_failed();
}

/// As a GPU refuses them.
#[test]
fn images_for_other_devices_leave_the_context_well() {
    let (g, result) = load_alone(&[(CUBIN, 80, b"code"), (CUBIN, 100, b"code")]);
    assert_eq!(result, CUDA_ERROR_NO_BINARY_FOR_GPU);
    ok(g.sync());
    drop(g);
    let mut g = Gpu::bare();
    assert_eq!(unsafe { cuModuleLoadData(&mut g.module, cubin(80).as_ptr().cast()) }, CUDA_ERROR_NO_BINARY_FOR_GPU);
    ok(g.sync());
}

/// NVIDIA's libraries have machine code for every device, and PTX for the newest only. A GPU would refuse PTX for a
/// newer one; here its instructions decide.
#[test]
fn ptx_for_a_newer_device_runs() {
    let whole = KERNEL.replacen("answer;", "answer { st.param.u32 [r], 41; ret; }", 1).replace(".extern", "");
    let newer = whole.replace("sm_75", "sm_120");
    let oldest: (u16, u32, &[u8]) = (PTX, 120, newer.as_bytes());
    let images: [&[(u16, u32, &[u8])]; 3] =
        [&[(CUBIN, 90, b"code"), (PTX, 121, b"no PTX"), oldest], &[(CUBIN, 120, b"code"), oldest], &[oldest]];
    for image in images {
        let (g, result) = load_alone(image);
        ok(result);
        answers(&g);
    }
    let mut g = Gpu::bare();
    let text = std::ffi::CString::new(newer).unwrap();
    ok(unsafe { cuModuleLoadData(&mut g.module, text.as_ptr().cast()) });
    answers(&g);
}

#[test]
fn a_list_that_leads_to_no_fat_binary_is_refused() {
    let mut g = Gpu::bare();
    assert_eq!(load(&fat_binary(&[]), &[b"elsewhere".to_vec()], &mut g.module), CUDA_ERROR_INVALID_IMAGE);
}

#[test]
fn texts_are_linked_by_the_linker_too() {
    let mut g = Gpu::bare();
    unsafe {
        let mut state = null_mut();
        ok(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state));
        for text in [KERNEL, ANSWER] {
            let data = text.as_ptr().cast_mut().cast::<c_void>();
            let (none, no_values) = (null_mut(), null_mut());
            ok(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, data, text.len(), null(), 0, none, no_values));
        }
        let (mut image, mut bytes) = (null_mut(), 0);
        ok(cuLinkComplete(state, &mut image, &mut bytes));
        ok(cuModuleLoadData(&mut g.module, image));
        ok(cuLinkDestroy(state));
    }
    answers(&g);
}
