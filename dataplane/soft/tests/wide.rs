//! Less common PTX: packed halves, 128-bit arithmetic, narrow atomics, virtual calls, asynchronous copies.

mod common;

use std::ffi::CString;

use common::*;
use orion_soft::exec::float::{f16_from, f16_to};
use orion_soft::ptx::isa::operand::Round;

fn gpu() -> Gpu {
    let text = CString::new(include_str!("kernels/wide.ptx")).unwrap();
    Gpu::with(text.as_ptr().cast())
}

#[test]
fn coalesced_groups_number_their_lanes() {
    let g = gpu();
    let o = Buffer::<i32>::zeroed(64);
    ok(g.launch("coal", 1, 64, 0, &mut args![o.at]));
    for (i, v) in o.read().into_iter().enumerate() {
        let members: Vec<usize> = (i / 32 * 32..i / 32 * 32 + 32).filter(|k| k % 3 == 0).collect();
        let want = members
            .iter()
            .position(|&k| k == i)
            .map_or(0, |rank| rank + 100 * members.len() + members[members.len() - 1] + (rank + 1) * 10000);
        assert_eq!(v as usize, want, "thread {i}");
    }
}

#[test]
fn atomics_of_every_kind() {
    let g = gpu();
    let u = Buffer::new(&[0u32, 5, 0, 0, 0, 0, u32::MAX, 0, 0]);
    let (l, f, d) = (Buffer::<u64>::zeroed(3), Buffer::<f32>::zeroed(1), Buffer::<f64>::zeroed(1));
    let h = Buffer::<u16>::zeroed(2);
    let n = 256u32;
    ok(g.launch("atoms", 4, 64, 0, &mut args![u.at, l.at, f.at, d.at, h.at]));
    let v = u.read();
    assert_eq!(v[0], n % 41);
    let mut down = 5;
    (0..n).for_each(|_| down = if down == 0 || down > 17 { 17 } else { down - 1 });
    assert_eq!(v[1], down);
    assert_eq!((v[2], v[3] as i32), (63, -63));
    assert_eq!((v[4], v[5], v[6]), (0, u32::MAX, 0xffff_0000));
    assert!(v[7] < 64);
    assert_eq!(v[8], 2 * n);
    assert_eq!(l.read(), [(4 * (63 * 64 / 2)) << 33, 63 << 33, 7]);
    assert_eq!((f.read()[0], d.read()[0], h.read()[0]), (128.0, 64.0, n as u16));
}

#[test]
fn asynchronous_copies_arrive() {
    let g = gpu();
    let a: Vec<i32> = (0..256).collect();
    let (a, o) = (Buffer::new(&a), Buffer::<i32>::zeroed(256));
    ok(g.launch("pipe", 1, 64, 0, &mut args![a.at, o.at]));
    assert!(o.read().iter().enumerate().all(|(i, &v)| v == 255 - i as i32));
    let o = Buffer::<i32>::zeroed(64);
    ok(g.launch("cg_async", 1, 64, 0, &mut args![a.at, o.at]));
    assert!(o.read().iter().enumerate().all(|(i, &v)| v == 63 - i as i32));
}

#[test]
fn arithmetic_on_128_bits_carries() {
    let g = gpu();
    let (hi, lo, y) = (0x0123_4567_89ab_cdef_u64, 0xfedc_ba98_7654_3210_u64, 0xffff_ffff_0000_0001_u64);
    let (a, o) = (Buffer::new(&[hi, lo, y]), Buffer::<u64>::zeroed(5));
    ok(g.launch("i128", 1, 1, 0, &mut args![a.at, o.at]));
    let x = (u128::from(hi) << 64) | u128::from(lo);
    let y = u128::from(y);
    let (p, q) = (x.wrapping_mul(y).wrapping_add(x), x / y);
    assert_eq!(o.read(), [p as u64, (p >> 64) as u64, q as u64, (q >> 64) as u64, (x % y) as u64]);
}

#[test]
fn packed_halves_compare_and_combine() {
    let g = gpu();
    let half = |v: f64| f16_from(v, Round::Nearest);
    let a: Vec<u16> = (0..64).map(|i| half(f64::from(i % 7) * 0.5)).collect();
    let b: Vec<u16> = (0..64).map(|i| half(f64::from(i % 5))).collect();
    let (x, y, o, c) = (Buffer::new(&a), Buffer::new(&b), Buffer::<u16>::zeroed(64), Buffer::<i32>::zeroed(32));
    ok(g.launch("hcmp", 1, 32, 0, &mut args![x.at, y.at, o.at, c.at]));
    let (o, c) = (o.read(), c.read());
    for i in 0..64 {
        let (p, q) = (f16_to(a[i]), f16_to(b[i]));
        let sum = f16_to(half(f64::from(p.max(q)) + f64::from(f16_to(half(f64::from(p).exp2())))));
        let want = f16_to(half(f64::from(sum).sqrt()));
        assert!((f16_to(o[i]) - want).abs() <= want * 2e-3, "{} {want}", f16_to(o[i]));
    }
    for i in 0..32 {
        let v = |s: &[u16], k: usize| f16_to(s[2 * i + k]);
        let less = i32::from(v(&a, 0) < v(&b, 0));
        let greater = i32::from(v(&a, 0) > v(&b, 0) && v(&a, 1) > v(&b, 1));
        assert_eq!(c[i], less + 2 * greater + v(&a, 1).round_ties_even() as i32, "thread {i}");
    }
}

#[test]
fn virtual_calls_vectors_and_address_spaces() {
    let g = gpu();
    let o = Buffer::<i32>::zeroed(32);
    ok(g.launch("virt", 1, 32, 0, &mut args![o.at]));
    assert!(o.read().iter().enumerate().all(|(i, &v)| v as usize == if i & 1 == 1 { i } else { 3 * i }));
    let a: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let c: Vec<f64> = (0..8).map(f64::from).collect();
    let e: Vec<i8> = (0..16).map(|i| i - 8).collect();
    let (a, b) = (Buffer::new(&a), Buffer::<f32>::zeroed(16));
    let (c, d) = (Buffer::new(&c), Buffer::<f64>::zeroed(8));
    let (e, f) = (Buffer::new(&e), Buffer::<i16>::zeroed(8));
    ok(g.launch("vec", 1, 4, 0, &mut args![a.at, b.at, c.at, d.at, e.at, f.at]));
    let (b, d, f) = (b.read(), d.read(), f.read());
    for i in 0..4 {
        let x = 4.0 * i as f32;
        assert_eq!(b[4 * i..4 * i + 4], [x + x + 3.0, x + 1.0, x + 2.0, x + 3.0]);
        let y = 2.0 * i as f64;
        assert_eq!(d[2 * i..2 * i + 2], [y * (y + 1.0), y + 1.0]);
        let q = 4 * i as i16 - 8;
        assert_eq!(f[2 * i..2 * i + 2], [q * (q + 1), 2 * q + 5]);
    }
    let o = Buffer::<i64>::zeroed(6);
    ok(g.launch("clk", 1, 1, 0, &mut args![o.at]));
    let v = o.read();
    assert!(v[0] > 0);
    assert_eq!(v[1..5], [1, 1, 1, 2]);
}

#[test]
fn double_precision_library_functions() {
    let g = gpu();
    let x: Vec<f64> = (0..64).map(|i| 0.5 + f64::from(i) * 0.07).collect();
    let d = Buffer::new(&x);
    ok(g.launch("lb", 1, 64, 0, &mut args![d.at]));
    // tgamma and erf come from the C library, which the test process links anyway.
    unsafe extern "C" {
        safe fn tgamma(x: f64) -> f64;
        safe fn erf(x: f64) -> f64;
    }
    for (i, v) in d.read().into_iter().enumerate() {
        let want = (i ^ 5) as f64 % 32.0
            + if i >= 32 { 32.0 } else { 0.0 }
            + 1.0 / x[i].sqrt()
            + erf(x[i])
            + tgamma(x[i])
            + 5.0
            + x[i].powf(1.5);
        assert!((v - want).abs() < 1e-11 * want.abs(), "thread {i}: {v} {want}");
    }
}

#[test]
fn tensor_core_kernel_multiplies() {
    let g = gpu();
    let half = |v: usize| f16_from(v as f64 - 8.0, Round::Nearest);
    let a: Vec<u16> = (0..256).map(|i| half(i * 7 % 17)).collect();
    let b: Vec<u16> = (0..256).map(|i| half(i * 5 % 13)).collect();
    let (x, y, z) = (Buffer::new(&a), Buffer::new(&b), Buffer::<f32>::zeroed(256));
    ok(g.launch("wm", 1, 32, 0, &mut args![x.at, y.at, z.at]));
    for (i, v) in z.read().into_iter().enumerate() {
        let (row, column) = (i / 16, i % 16);
        let want: f32 = (0..16).map(|k| f16_to(a[16 * row + k]) * f16_to(b[16 * column + k])).sum();
        assert_eq!(v, want, "{row},{column}");
    }
}
