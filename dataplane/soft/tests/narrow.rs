//! Conversions from and to formats of eight bits and fewer, against tables that count up from zero.

mod common;

use common::random::Random;
use common::*;

/// A format as a table of its magnitudes, which a sign may precede.
struct Format {
    name: &'static str,
    /// Bits of a code, and those of its fraction.
    bits: u32,
    fraction: u32,
    smallest: f64,
    /// How many magnitudes are numbers.
    count: usize,
    nan: Option<u32>,
}

const FORMATS: [Format; 5] = [
    Format { name: "e4m3x2", bits: 8, fraction: 3, smallest: 1.0 / 512.0, count: 127, nan: Some(0x7f) },
    Format { name: "e5m2x2", bits: 8, fraction: 2, smallest: 1.0 / 65536.0, count: 124, nan: Some(0x7f) },
    Format { name: "e2m3x2", bits: 6, fraction: 3, smallest: 1.0 / 8.0, count: 32, nan: None },
    Format { name: "e3m2x2", bits: 6, fraction: 2, smallest: 1.0 / 16.0, count: 32, nan: None },
    Format { name: "e2m1x2", bits: 4, fraction: 1, smallest: 0.5, count: 8, nan: None },
];

impl Format {
    /// Steps double after every 2^fraction magnitudes, but for the first time, when the subnormals end.
    fn magnitudes(&self) -> Vec<f64> {
        let (mut all, mut step) = (vec![0.0], self.smallest);
        for code in 1..self.count {
            if code > 1 << (self.fraction + 1) && (code - 1) % (1 << self.fraction) == 0 {
                step *= 2.0;
            }
            all.push(all[code - 1] + step);
        }
        all
    }

    /// The nearest magnitude that there is, of two as near that with the even code.
    fn nearest(&self, magnitudes: &[f64], x: f64, relu: bool) -> u32 {
        if x.is_nan() {
            return self.nan.unwrap_or(self.count as u32 - 1);
        }
        if relu && x <= 0.0 {
            return 0;
        }
        // Differences to what is beyond the greatest magnitude would not be exact.
        let (mut best, near) = (0, x.abs().min(magnitudes[magnitudes.len() - 1]));
        for code in 1..magnitudes.len() {
            let (new, old) = ((magnitudes[code] - near).abs(), (magnitudes[best] - near).abs());
            if new < old || new == old && code % 2 == 0 {
                best = code;
            }
        }
        best as u32 | u32::from(x.is_sign_negative()) << (self.bits - 1)
    }

    /// Bits between the two codes of a register.
    fn pitch(&self) -> u32 {
        if self.bits == 4 { 4 } else { 8 }
    }

    /// Moves the result of a conversion to this format from a register of its size.
    fn narrows(&self, from: &str, operands: &str, relu: &str) -> String {
        if self.bits == 4 {
            let op = format!("{{ .reg .b8 %n; cvt.rn.satfinite{relu}.{}.{from} %n, {operands};", self.name);
            return format!("{op} cvt.u32.u8 %d, %n; }}");
        }
        format!("cvt.rn.satfinite{relu}.{}.{from} %h0, {operands}; cvt.u32.u16 %d, %h0;", self.name)
    }

    fn widens(&self, to: &str, relu: &str) -> String {
        if self.bits == 4 {
            return format!("{{ .reg .b8 %n; cvt.u8.u32 %n, %a; cvt.rn{relu}.{to}.{} %d, %n; }}", self.name);
        }
        format!("cvt.u16.u32 %h0, %a; cvt.rn{relu}.{to}.{} %d, %h0;", self.name)
    }
}

/// The value of a half by its parts.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let v = match exponent {
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        0 => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 != 0 { -v } else { v }
}

/// Singles around all values of a format and the middles between them, and many others.
fn singles(magnitudes: &[f64]) -> Vec<f32> {
    let mut all = vec![0.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX, f32::INFINITY, f32::NAN, -f32::NAN];
    for pair in magnitudes.windows(2) {
        for v in [pair[0], f64::midpoint(pair[0], pair[1]), pair[1]] {
            all.extend([v as f32, (v as f32).next_up(), (v as f32).next_down()]);
        }
    }
    let top = magnitudes[magnitudes.len() - 1] as f32;
    all.extend([top * 1.03, top * 1.0625, top * 1.07, top * 1.25, top * 2.0]);
    let negative: Vec<f32> = all.iter().map(|v| -v).collect();
    all.extend(negative);
    let mut random = Random(1);
    while all.len() < 1 << 15 {
        let bits = random.next() as u32;
        // Half of them where the format has values.
        let near = (bits & 0x807f_ffff) | (127 - 20 + bits % 40) << 23;
        all.push(f32::from_bits(if all.len() % 2 == 0 { bits } else { near }));
    }
    all
}

#[test]
fn every_code_widens_to_its_value() {
    let mut bodies = Vec::new();
    for f in &FORMATS {
        bodies.extend(["", ".relu"].map(|relu| f.widens("f16x2", relu)));
    }
    let gpu = Elementwise::<32>::new(&bodies);
    let zeroes = [0u32; 256];
    for (i, f) in FORMATS.iter().enumerate() {
        let magnitudes = f.magnitudes();
        // Each code in the lower place, another one in the upper.
        let codes: Vec<u32> = (0..256).map(|k| k % (1 << f.bits)).collect();
        let pairs: Vec<u32> = codes.iter().map(|k| k | (codes[255] - k) << f.pitch()).collect();
        for relu in [false, true] {
            let got = gpu.run(2 * i + usize::from(relu), &pairs, &zeroes, &zeroes);
            for (&pair, got) in pairs.iter().zip(got) {
                let mask = (1 << f.bits) - 1;
                for (code, got) in [(pair & mask, got as u16), (pair >> f.pitch() & mask, (got >> 16) as u16)] {
                    let (negative, magnitude) = (code >> (f.bits - 1) != 0, code & (mask >> 1));
                    let Some(&v) = magnitudes.get(magnitude as usize) else {
                        // What is beyond the numbers is an infinity, in the one format that has it, or a NaN.
                        let infinity = f.name == "e5m2x2" && magnitude == 0x7c;
                        let want = if !infinity {
                            0x7fff
                        } else if negative {
                            if relu { 0 } else { 0xfc00 }
                        } else {
                            0x7c00
                        };
                        assert_eq!(got, want, "{} {code:#x}", f.name);
                        continue;
                    };
                    let want = if !negative {
                        v
                    } else if relu {
                        0.0
                    } else {
                        -v
                    };
                    assert_eq!(half(got).to_bits(), want.to_bits(), "{} {code:#x}", f.name);
                }
            }
        }
    }
}

#[test]
fn singles_narrow_to_the_nearest_code() {
    let mut bodies = Vec::new();
    for f in &FORMATS {
        bodies.extend(["", ".relu"].map(|relu| f.narrows("f32", "%a, %b", relu)));
    }
    let gpu = Elementwise::<32>::new(&bodies);
    for (i, f) in FORMATS.iter().enumerate() {
        let magnitudes = f.magnitudes();
        let high = singles(&magnitudes);
        let low: Vec<f32> = high.iter().rev().copied().collect();
        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for relu in [false, true] {
            let got = gpu.run(2 * i + usize::from(relu), &bits(&high), &bits(&low), &bits(&low));
            for (k, got) in got.into_iter().enumerate() {
                let want = |v: f32| f.nearest(&magnitudes, v.into(), relu);
                let want = want(high[k]) << f.pitch() | want(low[k]);
                assert_eq!(got, want, "{} of {} and {}, relu {relu}", f.name, high[k], low[k]);
            }
        }
    }
}

#[test]
fn every_half_narrows_to_the_nearest_code() {
    let formats = &FORMATS;
    let mut bodies = Vec::new();
    for f in formats {
        bodies.extend(["f16x2", "bf16x2"].map(|from| f.narrows(from, "%a", "")));
    }
    let gpu = Elementwise::<32>::new(&bodies);
    let pairs: Vec<u32> = (0..1 << 16).map(|h: u32| h << 16 | (h ^ 0x1234)).collect();
    for (i, f) in formats.iter().enumerate() {
        let magnitudes = f.magnitudes();
        let all = |value: &dyn Fn(u16) -> f64| -> Vec<u32> {
            (0..=u16::MAX).map(|h| f.nearest(&magnitudes, value(h), false)).collect()
        };
        let brain = |h: u16| f64::from(f32::from_bits(u32::from(h) << 16));
        for (kernel, want) in [(2 * i, all(&half)), (2 * i + 1, all(&brain))] {
            let got = gpu.run(kernel, &pairs, &pairs, &pairs);
            for (&pair, got) in pairs.iter().zip(got) {
                let want = want[(pair >> 16) as usize] << f.pitch() | want[(pair & 0xffff) as usize];
                assert_eq!(got, want, "{} of {pair:#x}", f.name);
            }
        }
    }
}

#[test]
fn exponents_alone_are_powers_of_two() {
    let mut bodies = Vec::new();
    for round in ["rz", "rp"] {
        for sat in ["", ".satfinite"] {
            bodies.push(format!("cvt.{round}{sat}.ue8m0x2.f32 %h0, %a, %b; cvt.u32.u16 %d, %h0;"));
            bodies.push(format!("cvt.{round}{sat}.ue8m0x2.bf16x2 %h0, %a; cvt.u32.u16 %d, %h0;"));
        }
    }
    bodies.push("cvt.u16.u32 %h0, %a; cvt.rn.bf16x2.ue8m0x2 %d, %h0;".into());
    let gpu = Elementwise::<32>::new(&bodies);
    // Every power of two, what is next to it, and numbers between.
    let mut values: Vec<f32> = (-149..128).map(|e| 2f64.powi(e) as f32).collect();
    values = values.iter().flat_map(|v| [*v, v.next_up(), v.next_down(), 1.5 * v, -v]).collect();
    values.extend([0.0, -0.0, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    values.resize(values.len().next_multiple_of(32), 1.0);
    let code = |x: f32, up: bool, sat: bool| -> u32 {
        if x.is_nan() {
            return 255;
        }
        let x = f64::from(x.abs());
        let not_above = (0..=255).rev().find(|&c: &u32| 2f64.powi(c as i32 - 127) <= x);
        let not_below = (0..=255).find(|&c: &u32| 2f64.powi(c as i32 - 127) >= x);
        let code = if up { not_below.unwrap_or(255) } else { not_above.unwrap_or(0) };
        if sat { code.min(254) } else { code }
    };
    let mut kernel = 0;
    for up in [false, true] {
        for sat in [false, true] {
            let bits: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
            let back: Vec<u32> = bits.iter().rev().copied().collect();
            let got = gpu.run(kernel, &bits, &back, &bits);
            for (k, got) in got.into_iter().enumerate() {
                let (a, b) = (values[k], values[values.len() - 1 - k]);
                assert_eq!(got, code(a, up, sat) << 8 | code(b, up, sat), "{a} and {b}, up {up}, sat {sat}");
            }
            let halves: Vec<u32> = (0..1 << 15).map(|k: u32| k << 17 | k << 1 | 1).collect();
            let got = gpu.run(kernel + 1, &halves, &halves, &halves);
            for (&pair, got) in halves.iter().zip(got) {
                let of = |h: u32| code(f32::from_bits(h << 16), up, sat);
                assert_eq!(got, of(pair >> 16) << 8 | of(pair & 0xffff), "{pair:#x}, up {up}, sat {sat}");
            }
            kernel += 2;
        }
    }
    let codes: Vec<u32> = (0..256).map(|k| k | (255 - k) << 8).collect();
    for (k, got) in gpu.run(kernel, &codes, &codes, &codes).into_iter().enumerate() {
        let value = |h: u32| f32::from_bits(h << 16);
        let want = |k: usize| if k == 255 { f64::NAN } else { 2f64.powi(k as i32 - 127) };
        for (got, want) in [(value(got & 0xffff), want(k)), (value(got >> 16), want(255 - k))] {
            assert!(f64::from(got) == want || got.is_nan() && want.is_nan(), "{k}: {got}");
        }
    }
}
