//! What GCC's PTX has and that of NVIDIA's compilers has not: registers that are vectors, and several variables that
//! are declared by one name.

mod common;

use std::ffi::CString;

use common::*;
use orion_cuda::sys::CUDA_SUCCESS;
use orion_soft::calls::module::cuModuleLoadData;

fn run(body: &str) -> Vec<u32> {
    let text = format!(
        ".version 6.0\n.target sm_30\n.address_size 64\n\
         .func (.param .u32 %value_out) twice(.param .u32 %in_ar0, .param .u32 %in_ar1) {{\n\
         .reg .u32 %r<4>; ld.param.u32 %r0, [%in_ar0]; ld.param.u32 %r1, [%in_ar1];\n\
         mad.lo.u32 %r2, %r0, 2, %r1; st.param.u32 [%value_out], %r2; ret; }}\n\
         .visible .entry k(.param .u64 po) {{\n\
         .reg .u64 %o; .reg .u32 %t; ld.param.u64 %o, [po]; mov.u32 %t, %tid.x; mad.wide.u32 %o, %t, 16, %o;\n\
         {body}\nret; }}\n",
    );
    let text = CString::new(text).expect("no zeros");
    let g = Gpu::with(text.as_ptr().cast());
    let out = Buffer::<u32>::new(&[99; 4 * 32]);
    ok(g.launch("k", 1, 32, 0, &mut args![out.at]));
    out.read()
}

fn each(expected: impl Fn(u32) -> [u32; 4]) -> Vec<u32> {
    (0..32).flat_map(expected).collect()
}

#[test]
fn vectors_are_as_many_registers() {
    let found = run(".reg .v2 .u32 %a; .reg .v4 .b32 %b; mov.v2.u32 %a, { 7,-1 }; mov.u32 %a.x, %t;\n\
         mov.v4.b32 %b, {%a.x, %a.y, 5, %t}; add.u32 %b.b, %b.r, 100; st.global.v4.b32 [%o], %b;");
    assert_eq!(found, each(|t| [t, u32::MAX, t + 100, t]));
}

#[test]
fn vectors_are_loaded_stored_and_moved_as_a_whole() {
    let found =
        run(".reg .v2 .u32 %a; .reg .v2 .u32 %c; .reg .u32 %n; mov.v2.u32 %a, {%t, 3}; st.global.v2.u32 [%o], %a;\n\
         ld.global.v2.u32 %c, [%o]; add.u32 %c.x, %c.x, 1; mov.v2.u32 %a, %c; st.global.v2.u32 [%o+8], %a;");
    assert_eq!(found, each(|t| [t, 3, t + 1, 3]));
}

/// What is moved is what there was, whatever is written first.
#[test]
fn elements_of_a_vector_change_places() {
    let found = run(".reg .v4 .u32 %a; .reg .pred %p; setp.lt.u32 %p, %t, 5; mov.v4.u32 %a, {1, 2, 3, 4};\n\
         @%p mov.v4.u32 %a, {%a.w, %a.x, %a.y, %a.z}; st.global.v4.u32 [%o], %a;");
    assert_eq!(found, each(|t| if t < 5 { [4, 1, 2, 3] } else { [1, 2, 3, 4] }));
}

/// A register of an inner scope hides one of the same name.
#[test]
fn vectors_end_with_their_scope() {
    let found = run(".reg .v2 .u32 %a<3>; .reg .v2 .u32 %s; mov.v2.u32 %a2, {1, 2}; mov.v2.u32 %s, {8, 9};\n\
         { .reg .u32 %a2; .reg .v4 .u32 %s; mov.u32 %a2, 77; mov.v4.u32 %s, {%a2, 0, 0, 0};\n\
         st.global.v4.u32 [%o], %s; }\n\
         st.global.v2.u32 [%o+8], %a2; mov.u32 %a2.y, %s.y; st.global.u32 [%o+4], %a2.y;");
    assert_eq!(found, each(|_| [77, 9, 1, 2]));
}

#[test]
fn variables_of_one_name_have_numbers() {
    let found = run(".reg .u32 %r<2>; { .param .u32 %P<2>; .param .u32 %result;\n\
         st.param.u32 [%P0], %t; st.param.u32 [%P1], 5; call (%result), twice, (%P0, %P1);\n\
         ld.param.u32 %r0, [%result]; }\n\
         .local .align 8 .u32 %l<3>; st.local.u32 [%l2], %r0; st.local.u32 [%l1], 6; ld.local.u32 %r1, [%l2];\n\
         st.global.v4.u32 [%o], {%r0, %r1, 0, 0};");
    assert_eq!(found, each(|t| [2 * t + 5, 2 * t + 5, 0, 0]));
}

/// As many as no program has are refused, and not made.
#[test]
fn numbers_without_end_are_refused() {
    for many in [".param .u64 %P<4000000000>;", ".shared .u32 %s<65537>;"] {
        let text = format!(".version 6.0\n.target sm_30\n.address_size 64\n.visible .entry k() {{ {many} ret; }}\n");
        let text = CString::new(text).expect("no zeros");
        let mut gpu = Gpu::bare();
        // A body is read when it is needed.
        // SAFETY: a module of the context just made, from a text that ends with a zero.
        let loaded = unsafe { cuModuleLoadData(&mut gpu.module, text.as_ptr().cast()) };
        assert!(loaded != CUDA_SUCCESS || gpu.launch("k", 1, 1, 0, &mut []) != CUDA_SUCCESS, "{many}");
    }
}
