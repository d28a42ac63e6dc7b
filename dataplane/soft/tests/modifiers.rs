//! Modifiers that change a result, and those that nobody may pass over in silence.

mod common;

use std::ffi::CString;

use common::*;
use orion_cuda::sys::CUDA_ERROR_NOT_SUPPORTED;

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn satfinite_ends_at_the_greatest_number() {
    let bodies = [
        "cvt.rn.satfinite.f16.f32 %h0, %a; cvt.u32.u16 %d, %h0;",
        "cvt.rn.satfinite.bf16.f32 %h0, %a; cvt.u32.u16 %d, %h0;",
        "cvt.rn.satfinite.f16x2.f32 %d, %a, %b;",
        "cvt.rz.satfinite.bf16x2.f32 %d, %a, %b;",
        "cvt.rn.satfinite.tf32.f32 %d, %a;",
        "cvt.rna.satfinite.tf32.f32 %d, %a;",
        "cvt.rn.satfinite.relu.f16x2.f32 %d, %a, %b;",
    ];
    let gpu = Elementwise::<32>::new(&bodies.map(String::from));
    let mut a = [f32::INFINITY, f32::NEG_INFINITY, 65519.0, -65520.0, f32::MAX, f32::MIN, 1.5, f32::NAN].to_vec();
    a.resize(32, 0.0);
    let b = [1f32; 32];
    let got = |i| gpu.run(i, &bits(&a), &bits(&b), &bits(&b));
    let check = |i: usize, want: [u32; 8]| assert_eq!(got(i)[..8], want, "{}", bodies[i]);
    check(0, [0x7bff, 0xfbff, 0x7bff, 0xfbff, 0x7bff, 0xfbff, 0x3e00, 0x7fff]);
    check(1, [0x7f7f, 0xff7f, 0x4780, 0xc780, 0x7f7f, 0xff7f, 0x3fc0, 0x7fff]);
    let high = |halves: [u32; 8], low: u32| halves.map(|h| h << 16 | low);
    check(2, high([0x7bff, 0xfbff, 0x7bff, 0xfbff, 0x7bff, 0xfbff, 0x3e00, 0x7fff], 0x3c00));
    check(3, high([0x7f7f, 0xff7f, 0x477f, 0xc77f, 0x7f7f, 0xff7f, 0x3fc0, 0x7fff], 0x3f80));
    let tf32 = got(4);
    assert_eq!(tf32[..2], [0x7f7f_e000, 0xff7f_e000]);
    assert_eq!(tf32[4..7], [0x7f7f_e000, 0xff7f_e000, 0x3fc0_0000]);
    assert!(f32::from_bits(tf32[7]).is_nan());
    assert_eq!(got(5)[..2], [0x7f7f_e000, 0xff7f_e000]);
    check(6, high([0x7bff, 0, 0x7bff, 0, 0x7bff, 0, 0x3e00, 0x7fff], 0x3c00));
}

#[test]
fn relu_leaves_no_sign() {
    let bodies = ["fma.rn.relu.f16x2 %d, %a, %b, %c;", "cvt.rn.relu.bf16x2.f32 %d, %a, %b;"];
    let gpu = Elementwise::<32>::new(&bodies.map(String::from));
    let run = |i, a: u32, b: u32, c: u32| gpu.run(i, &[a; 32], &[b; 32], &[c; 32])[0];
    // Minus zero times one plus minus zero is minus zero.
    assert_eq!(run(0, 0x8000_3c00, 0x3c00_bc00, 0x8000_0000), 0);
    assert_eq!(run(1, 0x8000_0000, (-1f32).to_bits(), 0), 0);
    assert_eq!(run(1, f32::NAN.to_bits(), 2f32.to_bits(), 0), 0x7fff_4000);
}

#[test]
fn without_satfinite_conversions_overflow() {
    let bodies = ["cvt.rn.f16x2.f32 %d, %a, %b;", "cvt.rn.tf32.f32 %d, %a;", "cvt.rz.tf32.f32 %d, %a;"];
    let gpu = Elementwise::<32>::new(&bodies.map(String::from));
    let (a, b) = ([f32::MAX.to_bits(); 32], [65520f32.to_bits(); 32]);
    assert_eq!(gpu.run(0, &a, &b, &b)[0], 0x7c00_7c00);
    assert_eq!(gpu.run(1, &a, &b, &b)[0], 0x7f80_0000);
    assert_eq!(gpu.run(2, &a, &b, &b)[0], 0x7f7f_e000);
}

#[test]
fn what_is_just_beside_a_middle_is_rounded_once() {
    let bodies = [
        "fma.rn.bf16x2 %d, %a, %b, %c;",
        "mov.b64 %q0, {%a, %b}; cvt.rn.bf16.s64 %h0, %q0; cvt.u32.u16 %d, %h0;",
        "mov.b64 %q0, {%a, %b}; cvt.rn.bf16.u64 %h0, %q0; cvt.u32.u16 %d, %h0;",
    ];
    let gpu = Elementwise::<32>::new(&bodies.map(String::from));
    let run = |i, a: u32, b: u32, c: u32| gpu.run(i, &[a; 32], &[b; 32], &[c; 32])[0];
    // 1.0078125 times 1.5 is in the middle between 0x3fc1 and 0x3fc2; a tiny summand decides.
    assert_eq!(run(0, 0x3f81_3f81, 0x3fc0_3fc0, 0x8d80_0d80), 0x3fc1_3fc2);
    assert_eq!(run(0, 0xbf81_bf81, 0x3fc0_3fc0, 0x8d80_0d80), 0xbfc2_bfc1);
    assert_eq!(run(0, 0x3f81_7f80, 0x3fc0_ff80, 0x0000_7f80), 0x3fc2_7fff);
    // 2^62 + 2^54 is in the middle between 0x5e80 and 0x5e81.
    let halves = |v: i64| (v as u32, (v as u64 >> 32) as u32);
    let middle = (1 << 62) + (1 << 54);
    for (v, want) in [(middle - 1, 0x5e80), (middle, 0x5e80), (middle + 1, 0x5e81), (-middle - 1, 0xde81)] {
        let (low, high) = halves(v);
        assert_eq!(run(1, low, high, 0), want, "{v}");
    }
    assert_eq!(run(2, 1, 0x8080_0000, 0), 0x5f01);
}

#[test]
fn flushing_halves_makes_subnormals_zeroes() {
    // 0x0400 is the smallest normal half, 0x0200 half of it.
    let bodies = [
        "add.ftz.f16x2 %d, %a, %b;",
        "add.f16x2 %d, %a, %b;",
        "mul.ftz.f16x2 %d, %a, %b;",
        "fma.rn.ftz.f16x2 %d, %a, %b, %c;",
        "abs.ftz.f16x2 %d, %a;",
        "neg.ftz.f16x2 %d, %a;",
        "max.ftz.f16x2 %d, %a, %b;",
        "set.eq.ftz.u32.f16 %d, %h0, %h1;",
    ];
    let mut bodies = bodies.map(String::from);
    bodies[7] = format!("cvt.u16.u32 %h0, %a; cvt.u16.u32 %h1, %c; {}", bodies[7]);
    let gpu = Elementwise::<32>::new(&bodies);
    let run = |i, a: u32, b: u32, c: u32| gpu.run(i, &[a; 32], &[b; 32], &[c; 32])[0];
    assert_eq!(run(0, 0x0200_8200, 0x0200_3c00, 0), 0x0000_3c00);
    assert_eq!(run(1, 0x0200_8200, 0x0200_8200, 0), 0x0400_8400);
    // The product of two normal halves may be subnormal.
    assert_eq!(run(2, 0x0400_8400, 0x3800_3800, 0), 0x0000_8000);
    assert_eq!(run(3, 0x0400_0400, 0x3800_3c00, 0), 0x0000_0400);
    assert_eq!(run(4, 0x8200_8400, 0, 0), 0x0000_0400);
    assert_eq!(run(5, 0x0200_0400, 0, 0), 0x8000_8400);
    assert_eq!(run(6, 0x0200_8200, 0x8400_8400, 0), 0x0000_8000);
    assert_eq!(run(7, 0x0200, 0, 0), u32::MAX);
}

#[test]
fn comparing_pairs_of_halves_sets_a_predicate_for_each() {
    let select = "selp.b32 %t2, 1, 0, %p0; selp.b32 %t3, 2, 0, %p1; or.b32 %d, %t2, %t3;";
    let bodies = [
        format!("setp.eq.f16x2 %p0|%p1, %a, %b; {select}"),
        format!("setp.nan.f16x2 %p0|%p1, %a, %b; {select}"),
        format!("setp.lt.bf16x2 %p0|%p1, %a, %b; {select}"),
        format!("setp.ne.b32 %p2, %c, 0; setp.gt.and.f16x2 %p0|%p1, %a, %b, %p2; {select}"),
        format!("setp.ne.b32 %p2, %c, 0; setp.gt.or.f16x2 %p0|%p1, %a, %b, !%p2; {select}"),
    ];
    let gpu = Elementwise::<32>::new(&bodies);
    let run = |i, a: u32, b: u32, c: u32| gpu.run(i, &[a; 32], &[b; 32], &[c; 32])[0];
    // The lower half decides the first predicate; zeroes are equal whatever their signs.
    assert_eq!(run(0, 0x3c00_8000, 0x4000_0000, 0), 1);
    assert_eq!(run(0, 0x3c00_4000, 0x3c00_0000, 0), 2);
    assert_eq!(run(1, 0x7e00_3c00, 0x3c00_3c00, 0), 2);
    assert_eq!(run(2, 0xbf80_4000, 0x3f80_3f80, 0), 2);
    assert_eq!(run(3, 0x4000_4000, 0x3c00_4000, 1), 2);
    assert_eq!(run(3, 0x4000_4000, 0x3c00_4000, 0), 0);
    assert_eq!(run(4, 0x3c00_4000, 0x4000_3c00, 1), 1);
    assert_eq!(run(4, 0x3c00_4000, 0x4000_3c00, 0), 3);
}

#[test]
fn widths_of_fields_wrap_or_end_at_the_word() {
    let bodies = [
        "szext.clamp.u32 %d, %a, %b;",
        "szext.wrap.u32 %d, %a, %b;",
        "szext.wrap.s32 %d, %a, %b;",
        "bmsk.clamp.b32 %d, %a, %b;",
        "bmsk.wrap.b32 %d, %a, %b;",
    ];
    let gpu = Elementwise::<32>::new(&bodies.map(String::from));
    let run = |i, a: u32, b: u32| gpu.run(i, &[a; 32], &[b; 32], &[0; 32])[0];
    assert_eq!(run(0, 0xabcd_ef89, 40), 0xabcd_ef89);
    assert_eq!(run(1, 0xabcd_ef89, 40), 0x89);
    assert_eq!(run(2, 0xabcd_ef89, 40), 0xffff_ff89);
    assert_eq!(run(3, 4, 8), 0xff0);
    assert_eq!(run(3, 36, 40), 0);
    assert_eq!(run(4, 36, 40), 0xff0);
}

#[test]
fn a_subnormal_selector_is_flushed_where_that_is_said() {
    let bodies = ["slct.b32.f32 %d, %a, %b, %c;", "slct.ftz.b32.f32 %d, %a, %b, %c;"];
    let gpu = Elementwise::<32>::new(&bodies.map(String::from));
    let run = |i, c: u32| gpu.run(i, &[1; 32], &[2; 32], &[c; 32])[0];
    assert_eq!((run(0, 0x8000_0001), run(1, 0x8000_0001)), (2, 1));
    assert_eq!((run(0, 0xbf80_0000), run(1, 0xbf80_0000)), (2, 2));
    assert_eq!((run(0, 0x8000_0000), run(1, 0x7fc0_0000)), (1, 2));
}

#[test]
fn modifiers_that_are_not_known_are_refused() {
    let refused = [
        "cvt.rs.f16x2.f32 %d, %a, %b, %c;",
        "fma.rn.oob.f16x2 %d, %a, %b, %c;",
        "add.future.u32 %d, %a, %b;",
        "set.eq.and.f16x2.f16x2 %d, %a, %b, %p0;",
        "cvt.rn.satfinite.f16.f64 %h0, %q0;",
        "neg.sideways.f32 %d, %a;",
        "setp.eq.later.f32 %p0, %a, %b;",
        "mad.lo.sat.s32 %d, %a, %b, %c;",
    ];
    for body in refused {
        let text = CString::new(Elementwise::<32>::text(&[body.into()])).unwrap();
        let gpu = Gpu::with(text.as_ptr().cast());
        let v = Buffer::<u32>::zeroed(32);
        let status = gpu.launch("k0", 1, 32, 0, &mut args![v.at, v.at, v.at, v.at]);
        assert_eq!(status, CUDA_ERROR_NOT_SUPPORTED, "{body}");
    }
}
