//! Packed integers and floats, three operands, magnitudes, mixed precision, 128 bits and reductions of floats, against
//! the host's arithmetic on one value after the other.

mod common;

use std::ffi::CString;

use common::random::Random;
use common::*;
use orion_cuda::sys::CUDA_ERROR_NOT_SUPPORTED;

#[test]
fn packed_halfwords_add_and_compare() {
    type Pair = fn(u16, u16) -> u16;
    type Boxed = Box<dyn Fn(u16, u16) -> u16>;
    let signed = |f: fn(i16, i16) -> i16| move |a: u16, b: u16| f(a as i16, b as i16) as u16;
    let forms: [(&str, Boxed); 8] = [
        ("add.u16x2", Box::new(u16::wrapping_add as Pair)),
        ("add.s16x2", Box::new(u16::wrapping_add as Pair)),
        ("min.u16x2", Box::new(u16::min as Pair)),
        ("max.u16x2", Box::new(u16::max as Pair)),
        ("min.s16x2", Box::new(signed(i16::min))),
        ("max.s16x2", Box::new(signed(i16::max))),
        ("min.relu.s16x2", Box::new(signed(|a, b| a.min(b).max(0)))),
        ("max.relu.s16x2", Box::new(signed(|a, b| a.max(b).max(0)))),
    ];
    let mut bodies: Vec<String> = forms.iter().map(|(op, _)| format!("{op} %d, %a, %b;")).collect();
    bodies.push("min.relu.s32 %d, %a, %b;".into());
    bodies.push("max.relu.s32 %d, %a, %b;".into());
    // The type may come before.
    bodies.push("min.s16x2.relu %d, %a, %b;".into());
    let gpu = Elementwise::<32>::new(&bodies);
    let mut random = Random(1);
    const EDGES: [u32; 6] = [0, 0x7fff_8000, 0x8000_7fff, 0xffff_0001, 0x0001_ffff, u32::MAX];
    let mut words =
        || (0..2048).map(|i| if i % 3 == 0 { random.pick(&EDGES) } else { random.next() as u32 }).collect::<Vec<_>>();
    let (a, b) = (words(), words());
    for (i, (op, f)) in forms.iter().enumerate() {
        for (k, got) in gpu.run(i, &a, &b, &b).into_iter().enumerate() {
            let at = |shift: u32| u32::from(f((a[k] >> shift) as u16, (b[k] >> shift) as u16)) << shift;
            assert_eq!(got, at(0) | at(16), "{op} of {:#x} and {:#x}", a[k], b[k]);
        }
    }
    let words: [fn(i32, i32) -> i32; 2] = [|a, b| a.min(b).max(0), |a, b| a.max(b).max(0)];
    for (i, f) in words.iter().enumerate() {
        for (k, got) in gpu.run(forms.len() + i, &a, &b, &b).into_iter().enumerate() {
            assert_eq!(got, f(a[k] as i32, b[k] as i32) as u32, "{:#x} and {:#x}", a[k], b[k]);
        }
    }
    assert_eq!(gpu.run(10, &a, &b, &b), gpu.run(6, &a, &b, &b));
}

#[test]
fn absolute_differences_of_long_words_are_added() {
    let gpu = Elementwise::<64>::new(&["sad.u64 %d, %a, %b, %c;", "sad.s64 %d, %a, %b, %c;"].map(String::from));
    let run = |i, a: u64, b: u64| gpu.run(i, &[a; 32], &[b; 32], &[0; 32])[0];
    assert_eq!(run(0, u64::MAX, 1), u64::MAX - 1);
    assert_eq!(run(0, 1, u64::MAX), u64::MAX - 1);
    assert_eq!(run(1, -1i64 as u64, 1), 2);
}

/// Singles of all kinds: NaNs, infinities, zeroes, subnormals, and numbers with few bits, whose sums and products are
/// exact in double precision.
fn singles(random: &mut Random, n: usize) -> Vec<f32> {
    const EDGES: [u32; 12] = [
        0,
        1 << 31,
        1,
        0x807f_ffff,
        0x0080_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x7f7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffa0_0001,
    ];
    (0..n)
        .map(|_| {
            let v = random.next();
            if v.is_multiple_of(4) {
                return f32::from_bits(random.pick(&EDGES));
            }
            let exponent = 127 - 6 + (v >> 8) as u32 % 12;
            f32::from_bits((v as u32 & 0x807f_ff00) | exponent << 23)
        })
        .collect()
}

fn flushed(v: f32, ftz: bool) -> f32 {
    if ftz && v.is_subnormal() { 0f32.copysign(v) } else { v }
}

/// An exact value rounded to single precision as the modifier says.
fn rounded(exact: f64, round: &str) -> f32 {
    let v = exact as f32;
    let (above, below) = (f64::from(v) > exact, f64::from(v) < exact);
    match round {
        "rm" if above => v.next_down(),
        "rp" if below => v.next_up(),
        "rz" if above && exact > 0.0 => v.next_down(),
        "rz" if below && exact < 0.0 => v.next_up(),
        _ => v,
    }
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn pairs_of_floats_are_computed_in_parallel() {
    let mut forms = Vec::new();
    for op in ["add", "sub", "mul", "fma"] {
        for round in ["rn", "rz", "rm", "rp"] {
            for ftz in ["", ".ftz"] {
                forms.push((op, round, ftz));
            }
        }
    }
    let body = |(op, round, ftz): &(&str, &str, &str)| {
        let c = if *op == "fma" { ", %c" } else { "" };
        format!("{op}.{round}{ftz}.f32x2 %d, %a, %b{c};")
    };
    let gpu = Elementwise::<64>::new(&forms.iter().map(body).collect::<Vec<_>>());
    let mut random = Random(2);
    let [a, b, c] = [(); 3].map(|()| singles(&mut random, 2048));
    let pairs = |v: &[f32]| -> Vec<u64> {
        v.chunks(2).map(|p| u64::from(p[0].to_bits()) | u64::from(p[1].to_bits()) << 32).collect()
    };
    for (i, form) in forms.iter().enumerate() {
        let got = gpu.run(i, &pairs(&a), &pairs(&b), &pairs(&c));
        let got = got.iter().flat_map(|&v| [f32::from_bits(v as u32), f32::from_bits((v >> 32) as u32)]);
        let (op, round, ftz) = *form;
        for (k, got) in got.enumerate() {
            let [x, y, z] = [a[k], b[k], c[k]].map(|v| flushed(v, !ftz.is_empty()));
            let (wide_x, wide_y, wide_z) = (f64::from(x), f64::from(y), f64::from(z));
            // In double precision only sums and products of the numbers with few bits are exact.
            let few = |v: f32| v == 0.0 || (1e-3..1e3).contains(&v.abs()) || !v.is_finite();
            if !(few(x) && few(y) && few(z)) && round != "rn" {
                continue;
            }
            let want = match (op, round) {
                ("add", "rn") => x + y,
                ("sub", "rn") => x - y,
                ("mul", "rn") => x * y,
                ("fma", "rn") => x.mul_add(y, z),
                ("add", _) => rounded(wide_x + wide_y, round),
                ("sub", _) => rounded(wide_x - wide_y, round),
                ("mul", _) => rounded(wide_x * wide_y, round),
                _ => rounded(wide_x * wide_y + wide_z, round),
            };
            // The sign of a zero that numbers cancel to depends on the rounding; the plain forms' tests have that.
            let want = flushed(want, !ftz.is_empty());
            assert!(same(got, want) || got == 0.0 && want == 0.0, "{form:?} of {x:e}, {y:e}, {z:e}: {got:e}, {want:e}");
        }
    }
}

/// The smaller or greater number by PTX's rules, whose zeroes have an order.
fn extreme(max: bool, nan: bool, a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        return if nan || a.is_nan() && b.is_nan() {
            f32::NAN
        } else if a.is_nan() {
            b
        } else {
            a
        };
    }
    let first = a.total_cmp(&b) == if max { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less };
    if first { a } else { b }
}

#[test]
fn the_extreme_of_three_floats_and_of_magnitudes() {
    let mut forms = Vec::new();
    for op in ["min", "max"] {
        for ftz in ["", ".ftz"] {
            for nan in ["", ".NaN"] {
                for abs in ["", ".abs", ".xorsign.abs"] {
                    forms.push((op, ftz, nan, abs));
                }
            }
        }
    }
    let body = |(op, ftz, nan, abs): &(&str, &str, &str, &str)| {
        let c = if *abs == ".xorsign.abs" { "" } else { ", %c" };
        format!("{op}{ftz}{nan}{abs}.f32 %d, %a, %b{c};")
    };
    let gpu = Elementwise::<32>::new(&forms.iter().map(body).collect::<Vec<_>>());
    let mut random = Random(3);
    let [a, b, c] = [(); 3].map(|()| singles(&mut random, 4096));
    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for (i, form) in forms.iter().enumerate() {
        let (op, ftz, nan, abs) = *form;
        let both = |a, b| extreme(op == "max", !nan.is_empty(), a, b);
        for (k, got) in gpu.run(i, &bits(&a), &bits(&b), &bits(&c)).into_iter().enumerate() {
            let v = [a[k], b[k], c[k]].map(|v| flushed(v, !ftz.is_empty()));
            let [x, y, z] = if abs.is_empty() { v } else { v.map(f32::abs) };
            let want = if abs == ".xorsign.abs" {
                let sign = if v[0].is_sign_negative() == v[1].is_sign_negative() { 1f32 } else { -1.0 };
                both(x, y).copysign(sign)
            } else {
                both(both(x, y), z)
            };
            let want = if want.is_nan() { 0x7fff_ffff } else { want.to_bits() };
            assert_eq!(got, want, "{form:?} of {:e}, {:e}, {:e}", v[0], v[1], v[2]);
        }
    }
}

#[test]
fn zeroes_of_doubles_have_an_order() {
    let gpu = Elementwise::<64>::new(&["min.f64 %d, %a, %b;", "max.f64 %d, %a, %b;"].map(String::from));
    let (minus, plus, nan) = ((-0f64).to_bits(), 0, f64::NAN.to_bits());
    let run = |i, a: u64, b: u64| gpu.run(i, &[a; 32], &[b; 32], &[b; 32])[0];
    assert_eq!((run(0, minus, plus), run(0, plus, minus)), (minus, minus));
    assert_eq!((run(1, minus, plus), run(1, plus, minus)), (plus, plus));
    assert_eq!((run(0, nan, minus), run(1, minus, nan)), (minus, minus));
    assert!(f64::from_bits(run(0, nan, nan)).is_nan());
}

#[test]
fn half_magnitudes_take_the_product_of_the_signs() {
    let kinds = ["f16", "bf16", "f16x2", "bf16x2"];
    let mut bodies = Vec::new();
    for kind in kinds {
        bodies.push(if kind.ends_with("x2") {
            format!("min.NaN.xorsign.abs.{kind} %d, %a, %b;")
        } else {
            format!(
                "cvt.u16.u32 %h0, %a; cvt.u16.u32 %h1, %b; min.NaN.xorsign.abs.{kind} %h2, %h0, %h1; \
                 cvt.u32.u16 %d, %h2;"
            )
        });
    }
    let gpu = Elementwise::<32>::new(&bodies);
    let mut random = Random(4);
    const EDGES: [u32; 5] = [0x0000_8000, 0x7e00_fe01, 0x7c00_fc00, 0x3c00_bc00, 0x7fc0_ff80];
    let mut words =
        || (0..4096).map(|i| if i % 5 == 0 { random.pick(&EDGES) } else { random.next() as u32 }).collect::<Vec<_>>();
    let (a, b) = (words(), words());
    for (i, kind) in kinds.iter().enumerate() {
        let infinity = if kind.starts_with('f') { 0x7c00 } else { 0x7f80 };
        let one = |a: u16, b: u16| {
            let (x, y) = (a & 0x7fff, b & 0x7fff);
            // Magnitudes have the order of their bits.
            if x > infinity || y > infinity { 0x7fff } else { x.min(y) | (a ^ b) & 0x8000 }
        };
        for (k, got) in gpu.run(i, &a, &b, &b).into_iter().enumerate() {
            let low = u32::from(one(a[k] as u16, b[k] as u16));
            let high = u32::from(one((a[k] >> 16) as u16, (b[k] >> 16) as u16)) << 16;
            let want = if kind.ends_with("x2") { low | high } else { low };
            assert_eq!(got, want, "{kind} of {:#x} and {:#x}", a[k], b[k]);
        }
    }
}

#[test]
fn halves_are_added_to_singles_exactly() {
    let mut forms = Vec::new();
    for op in ["add", "sub", "fma"] {
        for half in ["f16", "bf16"] {
            for round in ["rn", "rz"] {
                forms.push((op, half, round));
            }
        }
    }
    let body = |(op, half, round): &(&str, &str, &str)| {
        if *op == "fma" {
            let halves = "cvt.u16.u32 %h0, %a; cvt.u16.u32 %h1, %b;";
            return format!("{halves} fma.{round}.f32.{half} %d, %h0, %h1, %c;");
        }
        format!("cvt.u16.u32 %h0, %a; {op}.{round}.f32.{half} %d, %h0, %c;")
    };
    let gpu = Elementwise::<32>::new(&forms.iter().map(body).collect::<Vec<_>>());
    // Small halves, so that double precision holds every sum.
    let mut random = Random(5);
    let mut halves = || (0..1024).map(|_| random.next() as u32 & 0x83ff | 0x3c00).collect::<Vec<u32>>();
    let (a, b) = (halves(), halves());
    let c = singles(&mut Random(6), 1024);
    let bits: Vec<u32> = c.iter().map(|v| v.to_bits()).collect();
    for (i, form) in forms.iter().enumerate() {
        let (op, half, round) = *form;
        let value = |h: u32| {
            let sign = if h >> 15 & 1 != 0 { -1.0 } else { 1.0 };
            // 1.xxx of ten bits in one format; in the other the exponent has three bits more.
            if half == "f16" {
                sign * (1.0 + f64::from(h & 0x3ff) / 1024.0)
            } else {
                sign * (1.0 + f64::from(h & 0x7f) / 128.0) * 2f64.powi((h >> 7 & 0xff) as i32 - 127)
            }
        };
        for (k, got) in gpu.run(i, &a, &b, &bits).into_iter().enumerate() {
            let (x, y, z) = (value(a[k]), value(b[k]), f64::from(c[k]));
            if c[k].is_subnormal() || c[k] == f32::MIN_POSITIVE || c[k] == f32::MAX {
                continue;
            }
            let want = rounded(
                match op {
                    "add" => x + z,
                    "sub" => x - z,
                    _ => x * y + z,
                },
                round,
            );
            let got = f32::from_bits(got);
            assert!(same(got, want) || got == 0.0 && want == 0.0, "{form:?} of {x}, {y}, {z}: {got}, not {want}");
        }
    }
}

#[test]
fn a_warp_finds_its_extreme_float() {
    let mut forms = Vec::new();
    for op in ["min", "max"] {
        for abs in ["", ".abs"] {
            for nan in ["", ".NaN"] {
                forms.push((op, abs, nan));
            }
        }
    }
    let body = |(op, abs, nan): &(&str, &str, &str)| format!("redux.sync.{op}{abs}{nan}.f32 %d, %a, -1;");
    let mut bodies: Vec<String> = forms.iter().map(body).collect();
    // Of the even lanes and of the odd ones.
    bodies.push("and.b32 %t2, %i, 1; shl.b32 %t3, 0x55555555, %t2; redux.sync.max.f32 %d, %a, %t3;".into());
    let gpu = Elementwise::<32>::new(&bodies);
    let mut random = Random(8);
    let mut v = singles(&mut random, 2048);
    v[..32].fill(f32::NAN);
    v[32..63].fill(-0.0);
    v[63] = 0.0;
    v[64..96].copy_from_slice(&[2.0; 32]);
    let bits: Vec<u32> = v.iter().map(|v| v.to_bits()).collect();
    for (i, form) in forms.iter().enumerate() {
        let (op, abs, nan) = *form;
        let got = gpu.run(i, &bits, &bits, &bits);
        for (warp, got) in v.chunks(32).zip(got.chunks(32)) {
            let values = warp.iter().map(|v| if abs.is_empty() { *v } else { v.abs() });
            let want = values.reduce(|a, b| extreme(op == "max", !nan.is_empty(), a, b)).unwrap();
            let want = if want.is_nan() { 0x7fff_ffff } else { want.to_bits() };
            assert!(got.iter().all(|&g| g == want), "{form:?}: {got:x?}, not {want:#x}");
        }
    }
    for (warp, got) in v.chunks(32).zip(gpu.run(forms.len(), &bits, &bits, &bits).chunks(32)) {
        for parity in 0..2 {
            let lanes = || (0..32).filter(|l| l % 2 == parity);
            let want = lanes().map(|l| warp[l]).reduce(|a, b| extreme(true, false, a, b)).unwrap();
            assert!(lanes().all(|l| same(f32::from_bits(got[l]), want)));
        }
    }
}

#[test]
fn registers_of_128_bits_move_load_store_and_exchange() {
    let text = ".version 8.8\n.target sm_100a\n.address_size 64\n\
        .visible .entry k(.param .u64 p)\n{\n.reg .b64 %p, %x, %y, %z, %w; .reg .b128 %q<6>; .reg .b32 %t;\n\
        ld.param.u64 %p, [p];\n\
        ld.global.b128 %q0, [%p];\n\
        mov.b128 {%x, %y}, %q0;\n\
        add.u64 %x, %x, 1;\n\
        mov.b128 %q1, {%y, %x};\n\
        st.global.b128 [%p+16], %q1;\n\
        mov.b128 %q2, %q1;\n\
        st.global.relaxed.gpu.b128 [%p+32], %q2;\n\
        atom.global.b128.exch %q3, [%p+48], %q0;\n\
        st.b128 [%p+64], %q3;\n\
        atom.cas.global.b128 %q4, [%p+48], %q0, %q1;\n\
        atom.cas.global.b128 %q5, [%p+48], %q0, %q2;\n\
        st.global.b128 [%p+80], %q4;\n\
        st.global.b128 [%p+96], %q5;\n\
        ret;\n}\n";
    let text = CString::new(text).unwrap();
    let g = Gpu::with(text.as_ptr().cast());
    let v = Buffer::new(&[1u64, 2, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0, 0, 0]);
    ok(g.launch("k", 1, 1, 0, &mut args![v.at]));
    assert_eq!(v.read(), [1, 2, 2, 2, 2, 2, 2, 2, 7, 8, 1, 2, 2, 2]);
}

#[test]
fn multicast_memory_is_refused_by_the_launch_that_needs_it() {
    let text = ".version 8.8\n.target sm_100a\n.address_size 64\n\
        .visible .entry reduces(.param .u64 p)\n{\n.reg .b64 %p; .reg .b32 %r<4>;\nld.param.u64 %p, [p];\n\
        multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%r0, %r1, %r2, %r3}, [%p];\n\
        multimem.st.relaxed.sys.global.u32 [%p], %r0;\nmultimem.red.relaxed.sys.global.add.u32 [%p], %r0;\nret;\n}\n\
        .visible .entry sets(.param .u64 p)\n{\n.reg .b64 %p;\nld.param.u64 %p, [p]; st.global.u32 [%p], 3; ret;\n}\n";
    let text = CString::new(text).unwrap();
    let g = Gpu::with(text.as_ptr().cast());
    let v = Buffer::<u32>::zeroed(4);
    ok(g.launch("sets", 1, 1, 0, &mut args![v.at]));
    assert_eq!(v.read()[0], 3);
    assert_eq!(g.launch("reduces", 1, 1, 0, &mut args![v.at]), CUDA_ERROR_NOT_SUPPORTED);
}
