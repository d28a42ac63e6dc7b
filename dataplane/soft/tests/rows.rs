//! Loads and stores of a warp, taken at once where all lanes touch one place and lane by lane elsewhere.

mod common;

use std::ffi::CString;

use common::*;
use orion_cuda::sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS};

/// Lane `l` copies element `l` of type `ty` from one of two buffers to global memory, by way of shared memory. Every
/// third lane takes the second buffer; lanes from `last` on do nothing.
fn kernel(ty: &str, bytes: u32, last: u32, register: &str) -> CString {
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.shared .align 8 .b8 room[256];\n\
         .visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 po) {{\n\
         .reg .pred %p<3>; .reg .u32 %t<3>; .reg .u64 %a<4>; .reg .u64 %o; .reg {register} %v<3>; .reg .u64 %s<3>;\n\
         ld.param.u64 %a1, [pa]; ld.param.u64 %a2, [pb]; ld.param.u64 %o, [po];\n\
         mov.u32 %t1, %tid.x; setp.ge.u32 %p1, %t1, {last}; @%p1 bra END;\n\
         rem.u32 %t2, %t1, 3; setp.eq.u32 %p2, %t2, 0; selp.u64 %a1, %a2, %a1, %p2;\n\
         mad.wide.u32 %a1, %t1, {bytes}, %a1; ld.global.{ty} %v1, [%a1];\n\
         mov.u64 %s1, room; mad.wide.u32 %s1, %t1, {bytes}, %s1; st.shared.{ty} [%s1], %v1;\n\
         ld.shared.{ty} %v2, [%s1]; mad.wide.u32 %o, %t1, 8, %o; cvt.s64.{wide} %s2, %v2;\n\
         st.global.u64 [%o], %s2;\nEND: ret; }}\n",
        wide = register.trim_start_matches('.'),
    );
    CString::new(text).unwrap()
}

fn copies<T: Copy + Default + Into<i64>>(ty: &str, register: &str, value: impl Fn(i64) -> T) {
    for last in [32, 20, 1] {
        let text = kernel(ty, size_of::<T>() as u32, last, register);
        let g = Gpu::with(text.as_ptr().cast());
        let a: Vec<T> = (0..32).map(|i| value(-3 * i)).collect();
        let b: Vec<T> = (0..32).map(|i| value(5 * i + 100)).collect();
        let (a, b, o) = (Buffer::new(&a), Buffer::new(&b), Buffer::<i64>::new(&[7; 32]));
        ok(g.launch("k", 1, 32, 0, &mut args![a.at, b.at, o.at]));
        let (a, b) = (a.read(), b.read());
        for (l, found) in o.read().into_iter().enumerate() {
            let from = if l % 3 == 0 { &b } else { &a };
            let expected = if l < last as usize { from[l].into() } else { 7 };
            assert_eq!(found, expected, "{ty}, lane {l} of {last}");
        }
    }
}

#[test]
fn lanes_of_two_buffers_get_their_own() {
    copies("s8", ".s32", |v| v as i8);
    copies("u8", ".s32", |v| v as u8);
    copies("s16", ".s32", |v| v as i16);
    copies("u16", ".s32", |v| v as u16);
    copies("s32", ".s32", |v| v as i32);
    copies("u32", ".u32", |v| v as u32);
    copies("s64", ".s64", |v| v << 33);
}

/// One lane of a warp at a place where it may not be.
#[test]
fn one_stray_lane_is_a_fault() {
    for (bytes_off, expected) in [(1u64 << 40, CUDA_ERROR_ILLEGAL_ADDRESS), (2, CUDA_ERROR_MISALIGNED_ADDRESS)] {
        for access in ["ld.global.u32 %v, [%a];", "st.global.u32 [%a], %t;"] {
            let text = CString::new(format!(
                ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 off) {{\n\
                 .reg .pred %p; .reg .u32 %t; .reg .u32 %v; .reg .u64 %a; .reg .u64 %b;\n\
                 ld.param.u64 %a, [p]; ld.param.u64 %b, [off]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a;\n\
                 setp.eq.u32 %p, %t, 9; @%p add.u64 %a, %a, %b; {access} ret; }}\n"
            ))
            .unwrap();
            let g = Gpu::with(text.as_ptr().cast());
            let p = Buffer::<u32>::zeroed(64);
            ok(g.launch("k", 1, 32, 0, &mut args![p.at, bytes_off]));
            assert_eq!(g.sync(), expected, "{access}");
        }
    }
}

/// `a[3]` is the address of an element, as a small compiler of somebody's writes it.
#[test]
fn an_element_of_an_array_is_its_address() {
    let body = |array: &str, element: &str| {
        let difference = "mov.u32 %first, a; sub.u32 %d, %d, %first;";
        format!("{{ .shared .align 8 {array}; .reg .u32 %first; mov.u32 %d, {element}; {difference} }}")
    };
    let bodies =
        [body(".b64 a[4]", "a[3]"), body(".v2 .f32 a[4]", "a[1]"), body(".b8 a[64]", "a[0]"), body(".b16 a[4]", "a+2")];
    let gpu = Elementwise::<32>::new(&bodies);
    let zero = [0u32; 32];
    let found: Vec<u32> = (0..bodies.len()).map(|i| gpu.run(i, &zero, &zero, &zero)[0]).collect();
    assert_eq!(found, [24, 8, 0, 2]);
}

/// A register numbers an element: `a[%r]`, of a variable that may be declared behind the kernel, in each space.
#[test]
fn a_register_numbers_an_element_of_an_array() {
    let text = CString::new(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .entry k(.param .u64 po, .param .u32 pp[4]) {\n\
         .local .align 4 .b32 own[8]; .shared .align 8 .b64 shares[8];\n\
         .reg .u32 %r<9>; .reg .u64 %o; .reg .u64 %d<4>;\n\
         ld.param.u64 %o, [po]; mov.u32 %r0, 2; mov.u64 %d0, 2; mov.u32 %r1, 7;\n\
         st.local.b32 own[%r0+1], %r1; ld.local.b32 %r2, own[3]; st.global.u32 [%o], %r2;\n\
         st.shared.b64 shares[%r0], 9; ld.shared.b64 %d1, shares[%d0]; st.global.u32 [%o+4], %d1;\n\
         { .reg .u32 %own; .local .b64 own[4]; st.local.b64 own[%r0-1], 5; ld.local.b32 %own, [own+8];\n\
         st.global.u32 [%o+8], %own; }\n\
         ld.param.u32 %r3, pp[%r0]; st.global.u32 [%o+12], %r3;\n\
         ld.global.u16 %r4, table[%r0]; st.global.u32 [%o+16], %r4;\n\
         atom.global.add.u32 %r5, words[%r0], 1; ld.global.u32 %r6, words[1+1]; st.global.u32 [%o+20], %r6;\n\
         ret; }\n\
         .visible .global .align 2 .u16 table[4] = {10, 20, 30, 40};\n\
         .visible .global .align 4 .u32 words[2*2] = {1, 2, 1<<4, ~0};\n",
    );
    let g = Gpu::with(text.unwrap().as_ptr().cast());
    let o = Buffer::<u32>::new(&[0; 6]);
    ok(g.launch("k", 1, 1, 0, &mut args![o.at, [50u32, 51, 52, 53]]));
    ok(g.sync());
    assert_eq!(o.read(), [7, 9, 5, 52, 30, 17]);
}

/// Dr.Jit aligns an address with `~0x2`.
#[test]
fn an_operand_may_be_an_expression_of_constants() {
    let operands = ["~0x2", "-(3-1)", "3|(1<<4)", "6/2*5", "!0"];
    let bodies = operands.map(|v| format!("and.b32 %d, %a, {v};"));
    let gpu = Elementwise::<32>::new(&bodies);
    let (ones, zero) = ([u32::MAX; 32], [0u32; 32]);
    let found: Vec<u32> = (0..bodies.len()).map(|i| gpu.run(i, &ones, &zero, &zero)[0]).collect();
    assert_eq!(found, [!2, 2u32.wrapping_neg(), 19, 15, 1]);
}

/// Compilers count down from the end: the sum of a register of 32 bits and a constant is one of 32 bits.
#[test]
fn an_offset_in_shared_or_local_memory_wraps_as_its_register_does() {
    let text = CString::new(
        ".version 8.0\n.target sm_75\n.address_size 64\n.shared .align 8 .b8 room[256];\n\
         .visible .entry k(.param .u64 po) {\n\
         .local .align 8 .b8 own[64]; .reg .u32 %r<4>; .reg .u64 %o;\n\
         ld.param.u64 %o, [po]; mov.u32 %r1, -8; mov.u32 %r2, 41;\n\
         st.shared.u32 [%r1+16], %r2; ld.shared.u32 %r3, [8]; st.global.u32 [%o], %r3;\n\
         st.local.u32 [%r1+16], %r2; ld.local.u32 %r3, [8]; st.global.u32 [%o+4], %r3;\n\
         atom.shared.add.u32 %r3, [%r1+16], 1; ld.shared.u32 %r3, [%r1+16]; st.global.u32 [%o+8], %r3;\n\
         ret; }\n",
    );
    let g = Gpu::with(text.unwrap().as_ptr().cast());
    let o = Buffer::<u32>::new(&[0; 3]);
    ok(g.launch("k", 1, 1, 0, &mut args![o.at]));
    ok(g.sync());
    assert_eq!(o.read(), [41, 41, 42]);
}
