//! Exact sums, rounded to single or half precision as an H100's tensor cores do.

#![allow(clippy::needless_range_loop, reason = "lanes of several arrays go by one number, as in vector code")]

// UNSAFETY: converts floats to integers without the checks that the compiler cannot vectorise.

use crate::exec::matrix::layout::{PLACES, Tile};
use crate::exec::matrix::wide::Wide;
use crate::ptx::isa::operand::Ty;

pub const NAN32: u32 = 0x7fff_ffff;
pub const NAN16: u32 = 0x7fff;
/// Fraction bits of double precision that single precision lacks.
const LOST_BITS: u64 = 0x1fff_ffff;

/// A product by a power of two that single precision may not have. What is below its normal numbers is lost.
#[inline(always)]
fn times_power(v: f32, n: i32) -> f32 {
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    let half = n >> 1;
    v * power(half) * power(n - half)
}

/// Adds the old sums to those of products, which count from 2^(top - PLACES), and rounds.
#[inline(always)]
pub fn round(ty: Ty, sum: &[i32; 64], old: &[f32; 64], top: &[i32; 64], bits: &mut Tile) {
    let mut exact = [0.0; 64];
    for i in 0..64 {
        // SAFETY: the exponent of the old sum is at most `top`, so this is less than 2^26.
        let kept = unsafe { times_power(old[i], PLACES - top[i]).whole() };
        exact[i] = f64::from(sum[i]) + f64::from(kept);
    }
    if ty == Ty::F16 {
        for i in 0..64 {
            bits[i] = half_bits(times_power(to_odd(exact[i]), top[i] - PLACES));
        }
        return;
    }
    let mut is_tiny = 0;
    for i in 0..64 {
        let cut = f64::from_bits(exact[i].to_bits() & !LOST_BITS) as f32;
        let v = times_power(cut, top[i] - PLACES);
        is_tiny |= u32::from(v.abs() <= f32::MIN_POSITIVE) & u32::from(cut != 0.0);
        bits[i] = v.to_bits();
    }
    if is_tiny != 0 {
        for i in 0..64 {
            bits[i] = cut_subnormal(exact[i], top[i] - PLACES).unwrap_or(bits[i]);
        }
    }
}

/// Single precision of a number of at most double its bits, so that rounding to half precision goes as from the whole:
/// the last bit is set if anything is lost.
#[inline(always)]
pub fn to_odd(x: f64) -> f32 {
    let (bits, lost) = (x.to_bits() & !LOST_BITS, x.to_bits() & LOST_BITS);
    f64::from_bits(bits | if lost != 0 { LOST_BITS + 1 } else { 0 }) as f32
}

/// The bits of what is no normal number of single precision, cut off.
#[cold]
fn cut_subnormal(x: f64, n: i32) -> Option<u32> {
    let steps = (x.abs() * f64::power(n) * f64::power(149)).trunc();
    let sign = if x < 0.0 { 0x8000_0000 } else { 0 };
    (steps < f64::power(23)).then_some(sign | steps as u32)
}

#[inline(always)]
pub fn half_bits(x: f32) -> u32 {
    let magnitude = x.abs();
    // Greater exponents are all infinite.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).clamp(-14, 17);
    // A sum with this number has no bits below the last of the result: adding it rounds to that.
    let rounder = f32::from_bits(((exponent - 10 + 23 + 127) as u32) << 23);
    let rounded = (magnitude + rounder) - rounder;
    let normal = (rounded.to_bits() >> 13).wrapping_sub(112 << 10);
    // Steps of 2^-24, which lie at the end of the fraction when 2^-1 is added.
    let subnormal = (rounded + 0.5).to_bits() & 0x3ff;
    let code = if rounded < f32::from_bits((127 - 14) << 23) { subnormal } else { normal };
    let code = if magnitude >= 65520.0 { 0x7c00 } else { code };
    if x.is_nan() { NAN16 } else { code | x.to_bits() >> 16 & 0x8000 }
}
