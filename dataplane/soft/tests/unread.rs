//! Of what a compiler wrote, a function is read when a program needs it.

mod common;

use std::ffi::CString;
use std::ptr::null_mut;

use common::image::{PTX, fat_binary};
use common::{Buffer, Gpu, context_has_failed, ok};
use orion_cuda::sys::{
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_PTX,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUfunction_attribute,
};
use orion_soft::calls::execution::{cuFuncGetAttribute, cuFuncGetParamInfo};
use orion_soft::calls::module::cuModuleLoadData;

const TEXT: &str = "\
.version 8.0
.target sm_75
.address_size 64
.global .u64 address = seven;
.func (.param .u32 r) seven() { .reg .u32 a; mov.u32 a, 7; st.param.u32 [r], a; ret; }
.func unused() { is no PTX }
.visible .entry by_name(.param .u64 o) .maxntid 64 {
    .reg .u64 o; .reg .u32 a; .param .u32 r; .shared .u32 first[4];
    ld.param.u64 o, [o]; call (r), seven; ld.param.u32 a, [r]; st.global.u32 [o], a; ret;
}
.visible .entry by_address(.param .u64 o) {
    .reg .u64 o, f; .reg .u32 a; .param .u32 r; .shared .u32 second[2];
    ld.param.u64 o, [o]; ld.global.u64 f, [address];
    prototype: .callprototype (.param .u32 r) _ ();
    call (r), f, (), prototype; ld.param.u32 a, [r]; st.global.u32 [o], a; ret;
}
.visible .entry broken(.param .u32 one, .param .u64 two) {
    add.u32 %r1 %r2;
}
";

fn image() -> Vec<u8> {
    fat_binary(&[(PTX, 75, TEXT.as_bytes())])
}

#[test]
fn a_kernel_runs_beside_one_that_is_no_ptx() {
    let g = Gpu::with(image().as_ptr().cast());
    for kernel in ["by_name", "by_address"] {
        let o = Buffer::<u32>::zeroed(1);
        ok(g.launch(kernel, 1, 1, 0, &mut args![o.at]));
        assert_eq!(o.read(), [7], "{kernel}");
    }
}

#[test]
fn what_is_no_ptx_is_refused_when_it_is_launched() {
    let g = Gpu::with(image().as_ptr().cast());
    let (f, mut offset, mut bytes) = (g.function("broken"), 0, 0);
    unsafe {
        ok(cuFuncGetParamInfo(f, 1, &mut offset, &mut bytes));
        assert_eq!((offset, bytes), (8, 8));
        assert_eq!(cuFuncGetParamInfo(f, 2, &mut offset, &mut bytes), CUDA_ERROR_INVALID_VALUE);
    }
    ok(g.sync());
    assert_eq!(g.launch("broken", 1, 1, 0, &mut args![0u32, 0u64]), CUDA_ERROR_NOT_SUPPORTED);
    context_has_failed();
}

#[test]
fn attributes_are_those_of_the_kernel() {
    let g = Gpu::with(image().as_ptr().cast());
    let attribute = |kernel: &str, which: CUfunction_attribute| {
        let mut value = 0;
        ok(unsafe { cuFuncGetAttribute(&mut value, which, g.function(kernel)) });
        value
    };
    assert_eq!(attribute("by_address", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 8);
    assert_eq!(attribute("by_name", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 16);
    assert_eq!(attribute("by_name", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 64);
    assert_eq!(attribute("broken", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
}

#[test]
fn text_that_a_program_hands_over_is_refused_when_it_is_loaded() {
    let (_g, mut m) = (Gpu::bare(), null_mut());
    let text = CString::new(TEXT).unwrap();
    assert_eq!(unsafe { cuModuleLoadData(&mut m, text.as_ptr().cast()) }, CUDA_ERROR_INVALID_PTX);
}

#[test]
fn a_function_without_an_end_is_refused_when_it_is_loaded() {
    let (_g, mut m) = (Gpu::bare(), null_mut());
    let text = TEXT.trim_end().trim_end_matches('}');
    let image = fat_binary(&[(PTX, 75, text.as_bytes())]);
    assert_eq!(unsafe { cuModuleLoadData(&mut m, image.as_ptr().cast()) }, CUDA_ERROR_INVALID_PTX);
    context_has_failed();
}
