//! Video instructions against PTX's own description of them, in integers that do not overflow.

mod common;

use common::random::Random;
use common::*;

/// A word's part by its selector, as a number.
fn part(word: u32, selector: &str, signed: bool) -> i128 {
    let bytes = word.to_le_bytes();
    let halves = [word as u16, (word >> 16) as u16];
    let n = selector.get(1..).map_or(0, |n| n.parse::<usize>().unwrap());
    match (selector.get(..1), signed) {
        (Some("b"), false) => bytes[n].into(),
        (Some("b"), true) => (bytes[n] as i8).into(),
        (Some("h"), false) => halves[n].into(),
        (Some("h"), true) => (halves[n] as i16).into(),
        (_, false) => word.into(),
        (_, true) => (word as i32).into(),
    }
}

fn bits_of(selector: &str) -> u32 {
    match selector.get(..1) {
        Some("b") => 8,
        Some("h") => 16,
        _ => 32,
    }
}

/// The word `c` with a value in its selected part.
fn merged(c: u32, selector: &str, v: i128) -> u32 {
    let n = selector.get(1..).map_or(0, |n| n.parse::<usize>().unwrap());
    let mut bytes = c.to_le_bytes();
    match bits_of(selector) {
        8 => bytes[n] = v as u8,
        16 => bytes[2 * n..2 * n + 2].copy_from_slice(&(v as u16).to_le_bytes()),
        _ => bytes = (v as u32).to_le_bytes(),
    }
    u32::from_le_bytes(bytes)
}

fn saturated(v: i128, bits: u32, signed: bool) -> i128 {
    if signed { v.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { v.clamp(0, (1 << bits) - 1) }
}

fn compare(cmp: &str, a: i128, b: i128) -> i128 {
    i128::from(match cmp {
        "eq" => a == b,
        "ne" => a != b,
        "lt" => a < b,
        "le" => a <= b,
        "gt" => a > b,
        _ => a >= b,
    })
}

fn operate(name: &str, mode: &str, a: i128, b: i128) -> i128 {
    match name {
        "vadd" => a + b,
        "vsub" => a - b,
        "vabsdiff" => (a - b).abs(),
        "vmin" => a.min(b),
        "vmax" => a.max(b),
        "vavrg" if a + b >= 0 => (a + b + 1).div_euclid(2),
        "vavrg" => (a + b).div_euclid(2),
        "vset" => compare(mode, a, b),
        _ => {
            let by = if mode == "wrap" { b % 32 } else { b.min(32) };
            if name == "vshl" { a * (1 << by) } else { a.div_euclid(1 << by) }
        }
    }
}

fn second(op: &str, v: i128, c: i128) -> i128 {
    match op {
        "add" => v + c,
        "min" => v.min(c),
        "max" => v.max(c),
        _ => v,
    }
}

const TYPES: [&str; 2] = ["u32", "s32"];
const PARTS: [&str; 8] = ["", "", "b0", "b1", "b2", "b3", "h0", "h1"];
const COMPARISONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

/// `.x`, or nothing.
fn dot(modifier: &str) -> String {
    if modifier.is_empty() { String::new() } else { format!(".{modifier}") }
}

/// Words with edges in all of their parts.
fn words(random: &mut Random, n: usize) -> Vec<u32> {
    const EDGES: [u32; 12] =
        [0, 1, 2, 31, 32, 33, 0x7f80_807f, 0x7fff_ffff, 0x8000_0000, 0x8000_8000, 0xffff_ffff, 0x0102_fefd];
    (0..n).map(|_| if random.next() & 1 == 0 { random.pick(&EDGES) } else { random.next() as u32 }).collect()
}

type Model = Box<dyn Fn(u32, u32, u32) -> u32>;

fn all_agree(forms: Vec<(String, Model)>) {
    let bodies: Vec<String> = forms.iter().map(|(body, _)| body.clone()).collect();
    let gpu = Elementwise::<32>::new(&bodies);
    let mut random = Random(7);
    for (i, (body, model)) in forms.iter().enumerate() {
        let (a, b, c) = (words(&mut random, 256), words(&mut random, 256), words(&mut random, 256));
        for (k, got) in gpu.run(i, &a, &b, &c).into_iter().enumerate() {
            let want = model(a[k], b[k], c[k]);
            assert_eq!(got, want, "{body} of {:#x}, {:#x}, {:#x}: {got:#x}, not {want:#x}", a[k], b[k], c[k]);
        }
    }
}

#[test]
fn scalar_forms_compute_what_ptx_says() {
    let mut random = Random(3);
    let mut forms: Vec<(String, Model)> = Vec::new();
    let names = ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"];
    for round in 0..400 {
        let name = names[round % names.len()];
        let shift = matches!(name, "vshl" | "vshr");
        let (mut dt, mut at) = (random.pick(&TYPES), random.pick(&TYPES));
        let mut bt = if shift { "u32" } else { random.pick(&TYPES) };
        let sat = if matches!(name, "vset" | "vshl") { "" } else { random.pick(&["", "sat"]) };
        let mode = match name {
            "vset" => random.pick(&COMPARISONS),
            _ if shift => random.pick(&["clamp", "wrap"]),
            _ => "",
        };
        let (mut asel, mut bsel) = (random.pick(&PARTS), random.pick(&PARTS));
        // One of: nothing, a second operation, a place for the result.
        let (op2, dsel) = match random.next() % 3 {
            0 => ("", ""),
            1 => (random.pick(&["add", "min", "max"]), ""),
            _ => ("", random.pick(&PARTS[2..])),
        };
        let compares = matches!(op2, "min" | "max");
        if compares && name == "vshl" {
            continue;
        }
        // The forms whose results fit: see below for those that are refused.
        if compares && name != "vset" || sat == "sat" && dt == "u32" {
            (asel, bsel) = (random.pick(&PARTS[2..]), random.pick(&PARTS[2..]));
        }
        if compares {
            dt = "s32";
        }
        if sat == "sat" && !dsel.is_empty() {
            if name == "vsub" {
                continue;
            }
            (at, bt) = ("u32", "u32");
        }
        let c = if op2.is_empty() && dsel.is_empty() { "" } else { ", %c" };
        let types = if name == "vset" { format!("{at}.{bt}") } else { format!("{dt}.{at}.{bt}") };
        let signed = name != "vset" && dt == "s32";
        let body = format!(
            "{name}.{types}{}{}{} %d{}, %a{}, %b{}{c};",
            dot(sat),
            dot(mode),
            dot(op2),
            dot(dsel),
            dot(asel),
            dot(bsel)
        );
        let model = move |a, b, c| {
            let mut v = operate(name, mode, part(a, asel, at == "s32"), part(b, bsel, bt == "s32"));
            if sat == "sat" {
                v = saturated(v, bits_of(dsel), signed);
            }
            // Where NVIDIA's assembler differs from PTX's description: the upper half goes into the upper half.
            if dsel == "h1" {
                v = i128::from(v as u32 >> 16);
            }
            if dsel.is_empty() { second(op2, v, part(c, "", signed)) as u32 } else { merged(c, dsel, v) }
        };
        forms.push((body, Box::new(model)));
    }
    all_agree(forms);
}

#[test]
fn products_are_negated_scaled_and_saturated() {
    let mut random = Random(5);
    let mut forms: Vec<(String, Model)> = Vec::new();
    for round in 0..400 {
        let (at, bt) = (random.pick(&TYPES), random.pick(&TYPES));
        let (sat, scale) = (random.pick(&["", "sat"]), random.pick(&["", "shr7", "shr15"]));
        let (mut asel, mut bsel) = (random.pick(&PARTS), random.pick(&PARTS));
        let (po, minus_b, minus_c) = [("", "", ""), ("", "-", ""), ("", "", "-"), ("po", "", "")][round % 4];
        let factors = at == "s32" || bt == "s32" || !minus_b.is_empty();
        let signed = factors || !minus_c.is_empty();
        let dt = if signed { "s32" } else { "u32" };
        if !(sat.is_empty() && scale.is_empty()) {
            if !signed {
                continue;
            }
            (asel, bsel) = (random.pick(&PARTS[2..]), random.pick(&PARTS[2..]));
        }
        let body = format!(
            "vmad.{dt}.{at}.{bt}{}{}{} %d, %a{}, {minus_b}%b{}, {minus_c}%c;",
            dot(po),
            dot(sat),
            dot(scale),
            dot(asel),
            dot(bsel)
        );
        let model = move |a, b, c| {
            let product = part(a, asel, at == "s32") * part(b, bsel, bt == "s32");
            let product = if minus_b.is_empty() { product } else { -product };
            let c = part(c, "", signed);
            let sum = product + if minus_c.is_empty() { c } else { -c } + i128::from(po == "po");
            let v = sum.div_euclid(match scale {
                "shr7" => 1 << 7,
                "shr15" => 1 << 15,
                _ => 1,
            });
            (if sat == "sat" { saturated(v, 32, signed) } else { v }) as u32
        };
        forms.push((body, Box::new(model)));
    }
    all_agree(forms);
}

#[test]
fn halves_and_bytes_are_computed_in_parallel() {
    let mut random = Random(9);
    let mut forms: Vec<(String, Model)> = Vec::new();
    let names = ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"];
    for round in 0..280 {
        let name = names[round % names.len()];
        let (parts, letter) = if random.next() & 1 == 0 { (2usize, "h") } else { (4, "b") };
        let (dt, at, bt) = (random.pick(&TYPES), random.pick(&TYPES), random.pick(&TYPES));
        let add = random.next().is_multiple_of(3);
        let sat = if !add && name != "vset" { random.pick(&["", "sat"]) } else { "" };
        let mode = if name == "vset" { random.pick(&COMPARISONS) } else { "" };
        // Selectors are written with the highest part first; `from` has the lowest first.
        let mut selection = |operand: usize| -> (String, Vec<usize>) {
            if random.next() & 1 == 0 {
                return (String::new(), (0..parts).map(|k| k + operand * parts).collect());
            }
            let from: Vec<usize> = (0..parts).map(|_| random.next() as usize % (2 * parts)).collect();
            (format!(".{letter}{}", from.iter().rev().map(ToString::to_string).collect::<String>()), from)
        };
        let ((asel, from_a), (bsel, from_b)) = (selection(0), selection(1));
        let mask =
            if random.next() & 1 == 0 { (1 << parts) - 1 } else { 1 + random.next() as usize % ((1 << parts) - 1) };
        let on: Vec<usize> = (0..parts).filter(|k| mask >> k & 1 != 0).collect();
        let written = format!(".{letter}{}", on.iter().rev().map(ToString::to_string).collect::<String>());
        let types = if name == "vset" { format!("{at}.{bt}") } else { format!("{dt}.{at}.{bt}") };
        let body = format!(
            "{name}{parts}.{types}{}{}{} %d{written}, %a{asel}, %b{bsel}, %c;",
            dot(sat),
            dot(mode),
            dot(if add { "add" } else { "" })
        );
        let signed = name != "vset" && dt == "s32";
        let model = move |a: u32, b: u32, c: u32| {
            // The parts of both operands, `a`'s first.
            let pick =
                |n: usize, signed| part(if n < parts { a } else { b }, &format!("{letter}{}", n % parts), signed);
            let mut d = if add { part(c, "", signed) } else { c.into() };
            for &k in &on {
                let mut v = operate(name, mode, pick(from_a[k], at == "s32"), pick(from_b[k], bt == "s32"));
                if sat == "sat" {
                    v = saturated(v, 32 / parts as u32, signed);
                }
                d = if add { d + v } else { merged(d as u32, &format!("{letter}{k}"), v).into() };
            }
            d as u32
        };
        forms.push((body, Box::new(model)));
    }
    all_agree(forms);
}

#[test]
fn known_values() {
    let bodies = [
        // What cuSPARSE has: a row's number from a packed word, and a sum.
        "vshr.u32.u32.u32.clamp.add %d, %a, %b, %c;",
        // What TensorFlow has.
        "vmax4.s32.s32.s32 %d, %a, %b, %c;",
        "vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;",
        "vavrg2.s32.s32.s32 %d, %a, %b, %c;",
        "vadd.s32.u32.s32.sat %d, %a.b0, %b.h0;",
        "vmad.s32.s32.s32.shr15 %d, %a.h0, %b.h0, %c;",
    ];
    let gpu = Elementwise::<32>::new(&bodies.map(String::from));
    let run = |i, a: u32, b: u32, c: u32| gpu.run(i, &[a; 32], &[b; 32], &[c; 32])[31];
    assert_eq!(run(0, 0x8000_0000, 31, 41), 42);
    assert_eq!(run(0, 0xffff_ffff, 32, 41), 41);
    assert_eq!(run(0, 0xffff_ffff, 1000, 41), 41);
    assert_eq!(run(1, 0x7f80_01ff, 0x80ff_0002, 0), 0x7fff_0102);
    assert_eq!(run(2, 0x00ff_1020, 0xff00_2010, 1000), 1000 + 255 + 255 + 16 + 16);
    assert_eq!(run(3, 0x0001_ffff, 0x0002_fffe, 0), 0x0002_fffe);
    assert_eq!(run(4, 0xff, 0x8000, 0), (255 - 32768i32) as u32);
    assert_eq!(run(5, 0x7fff, 0x8000, 0xffff_ffff), ((0x7fff * -0x8000 - 1) >> 15) as u32);
}

#[test]
fn forms_in_which_a_result_may_not_fit_are_refused() {
    let refused = [
        "vadd.u32.u32.u32.sat %d, %a, %b;",
        "vsub.u32.u32.s32.sat %d, %a, %b;",
        "vadd.u32.u32.u32.min %d, %a, %b, %c;",
        "vsub.u32.u32.u32.max %d, %a.b0, %b.b0, %c;",
        "vsub.u32.u32.u32.sat %d.h0, %a, %b, %c;",
        "vshl.u32.u32.u32.sat.clamp %d, %a, %b;",
        "vmad.u32.u32.u32.shr15 %d, %a.h0, %b.h0, %c;",
        "vmad.s32.u32.s32.sat %d, %a, %b, %c;",
        // Not in PTX.
        "vadd.s32.s32.s32.add %d.h0, %a, %b, %c;",
        "vmad.s32.s32.s32.po %d, %a, -%b, %c;",
        "vadd.s32.s32.s32 %d, %a, -%b;",
        "vadd2.s32.s32.s32.sat.add %d, %a, %b, %c;",
        "vset4.s32.s32.lt.max %d, %a, %b, %c;",
        "vadd.s32.s32.s32 %d, %a.b4, %b;",
        "vadd2.s32.s32.s32 %d, %a.h40, %b, %c;",
        "vset.s32.s32.ltu %d, %a, %b;",
    ];
    for body in refused {
        let text = std::ffi::CString::new(Elementwise::<32>::text(&[body.into()])).unwrap();
        let gpu = Gpu::with(text.as_ptr().cast());
        let v = Buffer::<u32>::zeroed(32);
        let status = gpu.launch("k0", 1, 32, 0, &mut args![v.at, v.at, v.at, v.at]);
        assert_eq!(status, orion_cuda::sys::CUDA_ERROR_NOT_SUPPORTED, "{body}");
    }
}
