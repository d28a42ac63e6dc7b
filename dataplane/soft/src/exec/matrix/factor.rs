//! What the bits of factors and sums stand for.

#![allow(clippy::needless_range_loop, reason = "lanes of several arrays go by one number, as in vector code")]

use crate::exec::matrix::layout::{Lanes, Tile, column_of};
use crate::exec::matrix::rounding::NAN32;
use crate::exec::matrix::wide::Wide;
use crate::ptx::isa::matrix::Element;
use crate::ptx::isa::operand::Ty;

/// The exponent of zero, which is less than that of any product.
const NOTHING: i32 = -4096;

#[inline(always)]
fn half_value(code: u32) -> f32 {
    let magnitude = code & 0x7fff;
    // The exponent is 112 less than single precision's, which a product by a power of two puts right, subnormal or not.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = 0x7f80_0000 | magnitude << 13;
    f32::from_bits((code & 0x8000) << 16 | if magnitude >= 0x7c00 { special } else { finite })
}

/// As `narrow::e4m3_to`, without branches.
#[inline(always)]
fn eight_value(code: u32) -> f32 {
    let magnitude = code & 0x7f;
    let finite = (f32::from_bits(magnitude << 20) * f32::from_bits((127 + 120) << 23)).to_bits();
    f32::from_bits((code & 0x80) << 24 | if magnitude == 0x7f { NAN32 } else { finite })
}

/// What the element of a register stands for.
#[inline(always)]
fn value(of: Element, word: u32, e: usize) -> f32 {
    match of {
        Element::F16 => half_value(word >> (16 * e) & 0xffff),
        Element::Bf16 => f32::from_bits(word >> (16 * e) << 16),
        Element::E4m3 => eight_value(word >> (8 * e) & 0xff),
        Element::E5m2 => half_value(word >> (8 * e) << 8 & 0xff00),
        // Of single precision the 13 lowest bits are not looked at.
        _ => f32::from_bits(word & !0x1fff),
    }
}

/// The least exponent of a format, which its subnormal numbers are aligned by.
#[inline(always)]
fn least_exponent(of: Element) -> i32 {
    if matches!(of, Element::Bf16 | Element::Tf32) { -126 } else { -14 }
}

#[inline(always)]
fn exponent(v: f32, least: i32) -> i32 {
    let e = ((v.to_bits() >> 23 & 255) as i32 - 127).max(least);
    if v == 0.0 { NOTHING } else { e }
}

#[inline(always)]
fn is_special(v: f32) -> u32 {
    u32::from(v.to_bits() & 0x7f80_0000 == 0x7f80_0000)
}

/// Rows or columns of a factor, by register, element and place among 32: `4 * r + t` of the first factor, `8 * t + n`
/// of the second, so that eight columns lie side by side.
#[derive(Clone)]
pub struct Numbers<T, const E: usize, const W: usize> {
    pub value: [[[T; 32]; E]; W],
    pub exponent: [[[i32; 32]; E]; W],
    /// Infinities or NaNs are among them.
    pub is_special: bool,
}

/// The lanes' order for the second factor.
#[inline(always)]
pub fn by_column(register: &Lanes) -> Lanes {
    let mut turned = [0; 32];
    for t in 0..4 {
        for n in 0..8 {
            turned[8 * t + n] = register[4 * column_of(n) + t];
        }
    }
    turned
}

impl<T: Wide, const E: usize, const W: usize> Numbers<T, E, W> {
    pub fn zero() -> Self {
        Self { value: [[[T::default(); 32]; E]; W], exponent: [[[0; 32]; E]; W], is_special: false }
    }

    /// Takes registers of one of the factors, whose elements begin with number `first`.
    #[inline(always)]
    pub fn fill(&mut self, of: Element, registers: &[&Lanes], first: usize, is_right: bool) {
        // The compiler makes a loop for each format.
        match of {
            Element::F16 => self.fill_from(Element::F16, registers, first, is_right),
            Element::Bf16 => self.fill_from(Element::Bf16, registers, first, is_right),
            Element::E4m3 => self.fill_from(Element::E4m3, registers, first, is_right),
            Element::E5m2 => self.fill_from(Element::E5m2, registers, first, is_right),
            _ => self.fill_from(Element::Tf32, registers, first, is_right),
        }
    }

    #[inline(always)]
    fn fill_from(&mut self, of: Element, registers: &[&Lanes], first: usize, is_right: bool) {
        let mut special = 0;
        for w in 0..W {
            let words = if is_right { by_column(registers[w]) } else { *registers[w] };
            for e in 0..E {
                for l in 0..32 {
                    let v = value(of, words[l], first + e);
                    self.value[w][e][l] = T::of(v);
                    self.exponent[w][e][l] = exponent(v, least_exponent(of));
                    special |= is_special(v);
                }
            }
        }
        self.is_special = special != 0;
    }
}

/// With zeros in place of infinities and NaNs.
pub fn finite<T: Wide, const E: usize, const W: usize>(numbers: &Numbers<T, E, W>) -> Numbers<T, E, W> {
    let mut n = numbers.clone();
    let values = n.value.as_flattened_mut().as_flattened_mut();
    for (v, e) in values.iter_mut().zip(n.exponent.as_flattened_mut().as_flattened_mut()) {
        if !v.to64().is_finite() {
            (*v, *e) = (T::default(), NOTHING);
        }
    }
    n
}

pub struct Sums {
    pub value: [f32; 64],
    pub exponent: [i32; 64],
    pub is_special: bool,
}

impl Sums {
    #[inline(always)]
    pub fn new(ty: Ty, tile: &Tile) -> Self {
        let mut sums = Self { value: [0.0; 64], exponent: [0; 64], is_special: false };
        let least = if ty == Ty::F16 { -14 } else { -126 };
        let mut special = 0;
        for i in 0..64 {
            let v = if ty == Ty::F16 { half_value(tile[i]) } else { f32::from_bits(tile[i]) };
            sums.value[i] = v;
            // Nothing is kept below the least result, whatever the products are.
            sums.exponent[i] = exponent(v, least).max(-126);
            special |= is_special(v);
        }
        sums.is_special = special != 0;
        sums
    }
}
