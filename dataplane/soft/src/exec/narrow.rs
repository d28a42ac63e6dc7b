//! Formats of eight bits and fewer: what their codes stand for, and conversions. Every value is exact in single
//! precision.

use crate::exec::float;
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::narrow::{Format, Narrow};
use crate::ptx::isa::operand::{Round, Ty};

/// Four bits of exponent and three of fraction; no infinities, and one NaN of each sign.
pub fn e4m3_to(code: u8) -> f32 {
    let sign = u32::from(code & 0x80) << 24;
    let exponent = u32::from(code >> 3) & 15;
    let fraction = u32::from(code & 7);
    let magnitude = match (exponent, fraction) {
        (15, 7) => 0x7fff_ffff,
        // Steps of 2^-9.
        (0, _) => (fraction as f32 * f32::from_bits((127 - 9) << 23)).to_bits(),
        _ => ((exponent + 120) << 23) | (fraction << 20),
    };
    f32::from_bits(sign | magnitude)
}

/// Five bits of exponent and two of fraction: the upper half of half precision.
pub fn e5m2_to(code: u8) -> f32 {
    float::f16_to(u16::from(code) << 8)
}

/// The formats of a sign, `exponent` and `fraction` bits.
struct Layout {
    exponent: i32,
    fraction: i32,
    /// The code of the greatest value.
    top: u8,
    /// What a NaN becomes: a format without one has its greatest value there.
    nan: u8,
}

fn layout(format: Format) -> Layout {
    let (exponent, fraction, top, nan) = match format {
        Format::E4m3 => (4, 3, 0x7e, 0x7f),
        Format::E5m2 => (5, 2, 0x7b, 0x7f),
        Format::E2m3 => (2, 3, 0x1f, 0x1f),
        Format::E3m2 => (3, 2, 0x1f, 0x1f),
        Format::E2m1 => (2, 1, 0x07, 0x07),
        Format::Ue8m0 => (8, 0, 0xfe, 0xff),
    };
    Layout { exponent, fraction, top, nan }
}

/// What the code of a format stands for; of a code of fewer than eight bits the upper ones do not count.
pub fn value_of(format: Format, code: u8) -> f32 {
    match format {
        Format::E4m3 => e4m3_to(code),
        Format::E5m2 => e5m2_to(code),
        Format::Ue8m0 if code == 0xff => f32::NAN,
        Format::Ue8m0 => 2f32.powi(i32::from(code) - 127),
        _ => {
            let Layout { exponent: bits, fraction, .. } = layout(format);
            let magnitude = i32::from(code) & ((1 << (bits + fraction)) - 1);
            let (exponent, rest) = (magnitude >> fraction, magnitude & ((1 << fraction) - 1));
            let whole = if exponent == 0 { rest } else { rest | 1 << fraction };
            let bias = (1 << (bits - 1)) - 1;
            let v = whole as f32 * 2f32.powi(exponent.max(1) - bias - fraction);
            if i32::from(code) >> (bits + fraction) & 1 != 0 { -v } else { v }
        }
    }
}

/// The nearest code, of two as near the even one; beyond the greatest value that one's.
fn nearest(format: Format, x: f64) -> u8 {
    let Layout { exponent: bits, fraction, top, nan } = layout(format);
    if x.is_nan() {
        return nan;
    }
    let sign = u8::from(x.is_sign_negative()) << (bits + fraction);
    let bias = (1 << (bits - 1)) - 1;
    let a = x.abs().min(f64::from(value_of(format, top)));
    let exponent = ((a.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let steps = (a * 2f64.powi(fraction - exponent)).round_ties_even() as i32;
    // A carry out of the fraction lands in the exponent. Without the leading bit it is the exponent of subnormals.
    sign | (((exponent + bias - 1) << fraction) + steps) as u8
}

/// The exponent of a magnitude, or of the next power of two above it.
fn exponent_of(x: f64, up: bool, satfinite: bool) -> u8 {
    let Layout { top, nan, .. } = layout(Format::Ue8m0);
    if x.is_nan() {
        return nan;
    }
    let bits = x.abs().to_bits();
    let is_between = bits & ((1 << 52) - 1) != 0;
    match (bits >> 52) as i32 - 1023 + 127 + i32::from(up && is_between) {
        ..0 => 0,
        code if code > i32::from(top) => {
            if satfinite {
                top
            } else {
                nan
            }
        }
        code => code as u8,
    }
}

impl Narrow {
    fn code(&self, x: f64) -> u8 {
        let x = if self.relu && x <= 0.0 { 0.0 } else { x };
        match self.format {
            Format::Ue8m0 => exponent_of(x, self.round == Round::Up, self.satfinite),
            format => nearest(format, x),
        }
    }

    /// Two codes in a register: of four bits in one byte, of more in a byte each.
    fn packed(&self, high: f64, low: f64) -> u32 {
        let shift = if self.format == Format::E2m1 { 4 } else { 8 };
        u32::from(self.code(high)) << shift | u32::from(self.code(low))
    }

    fn half(&self, code: u8) -> u32 {
        let v = f64::from(value_of(self.format, code));
        let v = if self.relu && v <= 0.0 { 0.0 } else { v };
        let nearest = Round::Nearest;
        u32::from(if self.wide == Ty::F16x2 { float::f16_from(v, nearest) } else { float::bf16_from(v, nearest) })
    }

    fn unpacked(&self, codes: u32) -> u32 {
        let shift = if self.format == Format::E2m1 { 4 } else { 8 };
        self.half((codes >> shift) as u8) << 16 | self.half(codes as u8)
    }
}

impl Warp {
    pub fn narrow(&mut self, op: Narrow, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let a = self.read::<u32>(ins.a, f, env);
        let v: [u32; 32] = match (op.narrows, op.wide) {
            (true, Ty::F32) => {
                let b = self.read::<f32>(ins.b, f, env);
                std::array::from_fn(|l| op.packed(f64::from(f32::from_bits(a[l])), f64::from(b[l])))
            }
            (true, wide) => {
                let to = if wide == Ty::F16x2 { float::f16_to } else { float::bf16_to };
                let half = |v: u32| f64::from(to(v as u16));
                a.map(|v| op.packed(half(v >> 16), half(v)))
            }
            (false, _) => a.map(|v| op.unpacked(v)),
        };
        self.write(ins.d, m, &v, f);
    }
}
