//! Sums of products of matrices.
//!
//! Floating-point sums are those of an H100's tensor cores, as published measurements describe them (Xie et al.,
//! "MMA-Sim", 2025; Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", 2025): the products of a step and
//! the old sum are exact, are cut off 25 binary places below the leading bit of the largest, and are added as integers.
//! The result is cut off to single precision, or rounded to half precision.

#![allow(clippy::needless_range_loop, reason = "lanes of several arrays go by one number, as in vector code")]

// UNSAFETY: calls functions for processors with AVX2 and FMA, after asking whether this one has them, and converts
// floats to integers without the checks that the compiler cannot vectorise.

use crate::exec::float;
use crate::exec::matrix::layout::{Lanes, PLACES, place};
#[cfg(target_arch = "x86_64")]
use crate::exec::matrix::vector::{self, Product};
use crate::ptx::isa::matrix::{Element, Multiply};
use crate::ptx::isa::operand::{Round, Ty};

/// The exponent of zero, which is less than that of any product.
const NOTHING: i32 = -4096;
const NAN32: u32 = 0x7fff_ffff;
const NAN16: u32 = 0x7fff;

/// Sums of eight rows and eight columns, of which the even ones come first: bits of a float or integer, or of half
/// precision in the lower half.
pub type Tile = [u32; 64];

/// The column of a place in a row of eight sums. Lanes have an even and the next odd column in two registers, and so
/// four places are those of four lanes.
#[inline(always)]
pub fn column_of(place: usize) -> usize {
    place % 4 * 2 + place / 4
}

/// For each row of a sparse factor and each of its elements, the row of the other factor that it multiplies.
pub type Picks = [[[u8; 64]; 8]; 2];

/// Registers of eight rows of the first factor, and of eight columns of the second. Element `e` of register `w` of
/// lane `4 * g + t` is that of row or column `g` and product `(4 * w + t) * elements + e`.
pub struct Factors<'a> {
    pub a: [[&'a Lanes; 2]; 4],
    pub b: [[&'a Lanes; 4]; 4],
    pub picks: Option<Picks>,
}

pub fn multiply(m: &Multiply, factors: &Factors, sums: &mut [Tile]) {
    let registers = m.a_regs.len() * 8 / m.shape.m;
    match (m.a, registers, factors.picks.is_some()) {
        (Element::F16, 1, false) => floats::<f32, 2, 1, 1>(m, factors, sums),
        (Element::F16, 1, true) => floats::<f32, 2, 1, 2>(m, factors, sums),
        (Element::F16, _, false) => floats::<f32, 2, 2, 2>(m, factors, sums),
        (Element::F16, _, true) => floats::<f32, 2, 2, 4>(m, factors, sums),
        (Element::Bf16, 1, false) => floats::<f64, 2, 1, 1>(m, factors, sums),
        (Element::Bf16, 1, true) => floats::<f64, 2, 1, 2>(m, factors, sums),
        (Element::Bf16, _, false) => floats::<f64, 2, 2, 2>(m, factors, sums),
        (Element::Bf16, _, true) => floats::<f64, 2, 2, 4>(m, factors, sums),
        (Element::Tf32, 1, false) => floats::<f64, 1, 1, 1>(m, factors, sums),
        (Element::Tf32, 1, true) => floats::<f64, 1, 1, 2>(m, factors, sums),
        (Element::Tf32, _, false) => floats::<f64, 1, 2, 2>(m, factors, sums),
        (Element::Tf32, _, true) => floats::<f64, 1, 2, 4>(m, factors, sums),
        (Element::E4m3 | Element::E5m2, 1, _) => eights::<1, 2, 1>(m, factors, sums),
        (Element::E4m3 | Element::E5m2, _, false) => eights::<2, 2, 2>(m, factors, sums),
        (Element::E4m3 | Element::E5m2, _, true) => eights::<2, 4, 4>(m, factors, sums),
        (Element::S8 | Element::U8, 1, false) => integers::<4, 1, 1>(m, factors, sums),
        (Element::S8 | Element::U8, 1, true) => integers::<4, 1, 2>(m, factors, sums),
        (Element::S8 | Element::U8, _, false) => integers::<4, 2, 2>(m, factors, sums),
        (Element::S8 | Element::U8, _, true) => integers::<4, 2, 4>(m, factors, sums),
        (Element::S4 | Element::U4, 1, false) => integers::<8, 1, 1>(m, factors, sums),
        (Element::S4 | Element::U4, 1, true) => integers::<8, 1, 2>(m, factors, sums),
        (Element::S4 | Element::U4, _, false) => integers::<8, 2, 2>(m, factors, sums),
        (Element::S4 | Element::U4, _, true) => integers::<8, 2, 4>(m, factors, sums),
        (Element::B1 | Element::F64, ..) => single_bits(m, factors, sums),
    }
}

/// Declares a function that runs its body as code for AVX2 and FMA where the processor has them.
macro_rules! by_processor {
    ($(#[$doc:meta])* fn $name:ident [$($generics:tt)*] [$($names:tt)*] calls $body:ident) => {
        $(#[$doc])*
        fn $name<$($generics)*>(m: &Multiply, factors: &Factors, sums: &mut [Tile]) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn wide<$($generics)*>(m: &Multiply, factors: &Factors, sums: &mut [Tile]) {
                    $body::<$($names)*, true>(m, factors, sums);
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has both.
                    return unsafe { wide::<$($names)*>(m, factors, sums) };
                }
            }
            $body::<$($names)*, false>(m, factors, sums);
        }
    };
}

by_processor! {
    /// Sums of products of `W` registers of `E` elements, and of `WB` registers of the second factor.
    fn floats [T: Wide, const E: usize, const W: usize, const WB: usize] [T, E, W, WB] calls floats_inline
}

by_processor! {
    fn eights [const W: usize, const EB: usize, const WB: usize] [W, EB, WB] calls eights_inline
}

by_processor! {
    fn integers [const E: usize, const W: usize, const WB: usize] [E, W, WB] calls integers_inline
}

/// The number that a product is computed in. It holds products and their multiples by a power of two exactly.
trait Wide: Copy + Default + std::ops::Mul<Output = Self> {
    fn of(v: f32) -> Self;
    fn to64(self) -> f64;
    /// Two to the power of `n`, or less where only zero is multiplied by it.
    fn power(n: i32) -> Self;
    /// The integer part.
    ///
    /// # Safety
    /// It has to be one of 32 bits.
    unsafe fn whole(self) -> i32;
    /// As [`row`], for a processor with AVX2.
    ///
    /// # Safety
    /// The processor has it.
    #[cfg(target_arch = "x86_64")]
    unsafe fn row_avx2<'a>(count: usize, product: impl Fn(usize) -> Product<'a, Self>, top: &mut [i32; 8]) -> [i32; 8]
    where
        Self: 'a;
}

macro_rules! wide {
    ($($t:ty, $row:ident, |$n:ident| $power:expr;)*) => {$(
        impl Wide for $t {
            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            unsafe fn row_avx2<'a>(
                count: usize,
                product: impl Fn(usize) -> Product<'a, Self>,
                top: &mut [i32; 8],
            ) -> [i32; 8] {
                // SAFETY: the caller's promise.
                unsafe { vector::$row(count, product, top) }
            }
            #[inline(always)]
            fn of(v: f32) -> Self {
                v.into()
            }
            #[inline(always)]
            fn to64(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn power($n: i32) -> Self {
                Self::from_bits($power)
            }
            #[inline(always)]
            unsafe fn whole(self) -> i32 {
                // SAFETY: the caller's promise.
                unsafe { self.to_int_unchecked() }
            }
        }
    )*};
}

wide! {
    // Products of half-precision numbers have 22 bits, and are between 2^-48 and 2^32.
    f32, row_f32, |n| ((n.min(127) + 127) as u32) << 23;
    f64, row_f64, |n| ((n + 1023) as u64) << 52;
}

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
struct Numbers<T, const E: usize, const W: usize> {
    value: [[[T; 32]; E]; W],
    exponent: [[[i32; 32]; E]; W],
    /// Infinities or NaNs are among them.
    is_special: bool,
}

/// The lanes' order for the second factor.
#[inline(always)]
fn by_column(register: &Lanes) -> Lanes {
    let mut turned = [0; 32];
    for t in 0..4 {
        for n in 0..8 {
            turned[8 * t + n] = register[4 * column_of(n) + t];
        }
    }
    turned
}

impl<T: Wide, const E: usize, const W: usize> Numbers<T, E, W> {
    fn zero() -> Self {
        Self { value: [[[T::default(); 32]; E]; W], exponent: [[[0; 32]; E]; W], is_special: false }
    }

    /// Takes registers of one of the factors, whose elements begin with number `first`.
    #[inline(always)]
    fn fill(&mut self, of: Element, registers: &[&Lanes], first: usize, is_right: bool) {
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

struct Sums {
    value: [f32; 64],
    exponent: [i32; 64],
    is_special: bool,
}

impl Sums {
    #[inline(always)]
    fn new(ty: Ty, tile: &Tile) -> Self {
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

#[inline(always)]
fn floats_inline<T: Wide, const E: usize, const W: usize, const WB: usize, const AVX2: bool>(
    m: &Multiply,
    factors: &Factors,
    sums: &mut [Tile],
) {
    let (mut a, mut b) = (Numbers::<T, E, W>::zero(), Numbers::<T, E, WB>::zero());
    let mut filled = usize::MAX;
    for (p, sums) in sums.iter_mut().enumerate() {
        let (block, tile) = place(m.shape.m, p);
        a.fill(m.a, &factors.a[block], 0, false);
        if tile != filled {
            b.fill(m.b, &factors.b[tile], 0, true);
            filled = tile;
        }
        let old = Sums::new(m.c, sums);
        match &factors.picks {
            None => rounded::<_, _, _, _, _, AVX2>(m.d, &a, &b, &old, |_, k| k, sums),
            Some(picks) => {
                let pick = |r: usize, k: usize| picks[block][r][k] as usize;
                rounded::<_, _, _, _, _, AVX2>(m.d, &a, &b, &old, pick, sums);
            }
        }
    }
}

/// Eight-bit floats. An H100 multiplies them as half precision, the lower halves of all registers and then the upper
/// ones, and then adds the old sums.
#[inline(always)]
fn eights_inline<const W: usize, const EB: usize, const WB: usize, const AVX2: bool>(
    m: &Multiply,
    factors: &Factors,
    sums: &mut [Tile],
) {
    let (mut a, mut b) = (Numbers::<f32, 2, W>::zero(), Numbers::<f32, EB, WB>::zero());
    for (p, sums) in sums.iter_mut().enumerate() {
        let (block, tile) = place(m.shape.m, p);
        let mut products = [0; 64];
        for half in 0..2 {
            a.fill(m.a, &factors.a[block], 2 * half, false);
            // A sparse factor's halves multiply any of the other's elements.
            b.fill(m.b, &factors.b[tile], if factors.picks.is_some() { 0 } else { 2 * half }, true);
            let earlier = Sums::new(m.d, &products);
            match &factors.picks {
                None => rounded::<_, _, _, _, _, AVX2>(m.d, &a, &b, &earlier, |_, k| k, &mut products),
                Some(picks) => {
                    let of_row = |k: usize| 4 * (k / 2) + 2 * half + k % 2;
                    let pick = |r: usize, k: usize| picks[block][r][of_row(k)] as usize;
                    rounded::<_, _, _, _, _, AVX2>(m.d, &a, &b, &earlier, pick, &mut products);
                }
            }
        }
        let (old, new) = (Sums::new(m.c, sums), Sums::new(m.d, &products));
        for (i, sum) in sums.iter_mut().enumerate() {
            let (x, y) = (old.value[i], new.value[i]);
            *sum = match m.d {
                Ty::F16 => half_bits(to_odd(f64::from(x) + f64::from(y))),
                _ if (x + y).is_nan() => NAN32,
                _ => (x + y).to_bits(),
            };
        }
    }
}

/// The sums of one step.
#[inline(always)]
fn rounded<T: Wide, const E: usize, const W: usize, const EB: usize, const WB: usize, const AVX2: bool>(
    ty: Ty,
    a: &Numbers<T, E, W>,
    b: &Numbers<T, EB, WB>,
    old: &Sums,
    pick: impl Fn(usize, usize) -> usize,
    to: &mut Tile,
) {
    if a.is_special || b.is_special || old.is_special {
        with_specials::<_, _, _, _, _, AVX2>(ty, a, b, old, pick, to);
    } else {
        of_finite::<_, _, _, _, _, AVX2>(ty, a, b, old, pick, to);
    }
}

/// Sums of whole multiples of 2^(top - PLACES), which is raised to the products' exponents.
fn row<'a, T: Wide + 'a>(
    count: usize,
    product: impl Fn(usize) -> (T, i32, &'a [T; 8], &'a [i32; 8]),
    top: &mut [i32; 8],
) -> [i32; 8] {
    for k in 0..count {
        let (_, own, _, others) = product(k);
        for n in 0..8 {
            top[n] = top[n].max(own + others[n]);
        }
    }
    let mut sum = [0i32; 8];
    for k in 0..count {
        let (own, _, others, _) = product(k);
        for n in 0..8 {
            // SAFETY: a product is less than four times the power of two of its exponents, which is at most that of
            // `top`, so this is less than 2^27.
            let part = unsafe { (own * others[n] * T::power(PLACES - top[n])).whole() };
            // Sixteen such fit: a factor has at most 11 bits, and (2 - 2^-10)^2 is that much below four.
            sum[n] = sum[n].wrapping_add(part);
        }
    }
    sum
}

/// The register, element and place in a group of four of row `k` of a second factor with `E` elements in a register.
#[inline(always)]
fn row_of<const E: usize, const W: usize>(k: usize) -> (usize, usize, usize) {
    (k / E / 4 % W, k % E, k / E % 4)
}

#[inline(always)]
fn of_finite<T: Wide, const E: usize, const W: usize, const EB: usize, const WB: usize, const AVX2: bool>(
    ty: Ty,
    a: &Numbers<T, E, W>,
    b: &Numbers<T, EB, WB>,
    old: &Sums,
    pick: impl Fn(usize, usize) -> usize,
    to: &mut Tile,
) {
    let (mut top, mut sum) = (old.exponent, [0i32; 64]);
    let (tops, _) = top.as_chunks_mut::<8>();
    for (r, top) in tops.iter_mut().enumerate() {
        let product = |k: usize| {
            let (wb, eb, t) = row_of::<EB, WB>(pick(r, k));
            let (values, exponents) = (b.value[wb][eb].as_chunks().0, b.exponent[wb][eb].as_chunks().0);
            let (w, e, l) = (k / E / 4, k % E, 4 * r + k / E % 4);
            (a.value[w][e][l], a.exponent[w][e][l], &values[t], &exponents[t])
        };
        #[cfg(target_arch = "x86_64")]
        if AVX2 {
            // SAFETY: the caller has asked for it.
            sum[8 * r..8 * r + 8].copy_from_slice(&unsafe { T::row_avx2(4 * W * E, product, top) });
            continue;
        }
        sum[8 * r..8 * r + 8].copy_from_slice(&row(4 * W * E, product, top));
    }
    round(ty, &sum, &old.value, &top, to);
}

/// A product by a power of two that single precision may not have. What is below its normal numbers is lost.
#[inline(always)]
fn times_power(v: f32, n: i32) -> f32 {
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    let half = n >> 1;
    v * power(half) * power(n - half)
}

/// Adds the old sums to those of products, which count from 2^(top - PLACES), and rounds.
#[inline(always)]
fn round(ty: Ty, sum: &[i32; 64], old: &[f32; 64], top: &[i32; 64], bits: &mut Tile) {
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

/// Fraction bits of double precision that single precision lacks.
const LOST_BITS: u64 = 0x1fff_ffff;

/// Single precision of a number of at most double its bits, so that rounding to half precision goes as from the whole:
/// the last bit is set if anything is lost.
#[inline(always)]
fn to_odd(x: f64) -> f32 {
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
fn half_bits(x: f32) -> u32 {
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

/// As [`rounded`], where infinities or NaNs decide some of the sums.
#[cold]
#[inline(never)]
fn with_specials<T: Wide, const E: usize, const W: usize, const EB: usize, const WB: usize, const AVX2: bool>(
    ty: Ty,
    a: &Numbers<T, E, W>,
    b: &Numbers<T, EB, WB>,
    old: &Sums,
    pick: impl Fn(usize, usize) -> usize,
    to: &mut Tile,
) {
    let mut sums = Sums { value: old.value, exponent: old.exponent, is_special: false };
    for (v, e) in sums.value.iter_mut().zip(&mut sums.exponent) {
        if !v.is_finite() {
            (*v, *e) = (0.0, -126);
        }
    }
    of_finite::<_, _, _, _, _, AVX2>(ty, &finite(a), &finite(b), &sums, &pick, to);
    for (i, to) in to.iter_mut().enumerate() {
        let (r, n) = (i / 8, i % 8);
        let mut sum = f64::from(old.value[i]);
        for k in 0..W * 4 * E {
            let own = a.value[k / (4 * E)][k % E][4 * r + k / E % 4];
            let (w, e, t) = row_of::<EB, WB>(pick(r, k));
            // In double precision no product and no sum of finite ones is infinite.
            sum += own.to64() * b.value[w][e][8 * t + n].to64();
        }
        if sum.is_nan() {
            *to = if ty == Ty::F16 { NAN16 } else { NAN32 };
        } else if sum.is_infinite() {
            *to = if ty == Ty::F16 { half_bits(sum as f32) } else { (sum as f32).to_bits() };
        }
    }
}

/// With zeros in place of infinities and NaNs.
fn finite<T: Wide, const E: usize, const W: usize>(numbers: &Numbers<T, E, W>) -> Numbers<T, E, W> {
    let mut n = numbers.clone();
    let values = n.value.as_flattened_mut().as_flattened_mut();
    for (v, e) in values.iter_mut().zip(n.exponent.as_flattened_mut().as_flattened_mut()) {
        if !v.to64().is_finite() {
            (*v, *e) = (T::default(), NOTHING);
        }
    }
    n
}

/// What the element of a register stands for.
#[inline(always)]
fn whole_number(of: Element, word: u32, e: usize) -> i32 {
    match of {
        Element::S8 => (word << (24 - 8 * e)) as i32 >> 24,
        Element::U8 => (word >> (8 * e) & 0xff) as i32,
        Element::S4 => (word << (28 - 4 * e)) as i32 >> 28,
        _ => (word >> (4 * e) & 0xf) as i32,
    }
}

/// Whole numbers in the places that [`Numbers`] has.
#[inline(always)]
fn fill_whole<const E: usize, const W: usize>(
    to: &mut [[[i32; 32]; E]; W],
    of: Element,
    registers: &[&Lanes],
    is_right: bool,
) {
    for w in 0..W {
        let words = if is_right { by_column(registers[w]) } else { *registers[w] };
        for e in 0..E {
            for l in 0..32 {
                to[w][e][l] = whole_number(of, words[l], e);
            }
        }
    }
}

#[inline(always)]
fn integers_inline<const E: usize, const W: usize, const WB: usize, const AVX2: bool>(
    m: &Multiply,
    factors: &Factors,
    sums: &mut [Tile],
) {
    let [signed, unsigned] = if E == 4 { [Element::S8, Element::U8] } else { [Element::S4, Element::U4] };
    let (mut a, mut b) = ([[[0; 32]; E]; W], [[[0; 32]; E]; WB]);
    for (p, sums) in sums.iter_mut().enumerate() {
        let (block, tile) = place(m.shape.m, p);
        let (left, right) = (&factors.a[block], &factors.b[tile]);
        // The compiler makes a loop for each format.
        if m.a == signed {
            fill_whole(&mut a, signed, left, false);
        } else {
            fill_whole(&mut a, unsigned, left, false);
        }
        if m.b == signed {
            fill_whole(&mut b, signed, right, true);
        } else {
            fill_whole(&mut b, unsigned, right, true);
        }
        for (r, sums) in sums.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let product = |k: usize| {
                let pick = factors.picks.as_ref().map_or(k, |picks| picks[block][r][k] as usize);
                let (wb, eb, t) = row_of::<E, WB>(pick);
                (a[k / E / 4][k % E][4 * r + k / E % 4], &b[wb][eb].as_chunks::<8>().0[t])
            };
            let sum = whole_row::<AVX2>(4 * W * E, product);
            for (to, sum) in sums.iter_mut().zip(sum) {
                let old = *to as i32;
                *to = if m.saturates { old.saturating_add(sum) } else { old.wrapping_add(sum) } as u32;
            }
        }
    }
}

/// Sums of a row of products of whole numbers, which fit.
#[inline(always)]
fn whole_row<'a, const AVX2: bool>(count: usize, product: impl Fn(usize) -> (i32, &'a [i32; 8])) -> [i32; 8] {
    #[cfg(target_arch = "x86_64")]
    if AVX2 {
        // SAFETY: the caller has asked for it.
        return unsafe { vector::row_i32(count, product) };
    }
    let mut sum = [0; 8];
    for k in 0..count {
        let (own, others) = product(k);
        for n in 0..8 {
            sum[n] += own * others[n];
        }
    }
    sum
}

fn single_bits(m: &Multiply, factors: &Factors, sums: &mut [Tile]) {
    let registers = m.a_regs.len() * 8 / m.shape.m;
    for (p, tile) in sums.iter_mut().enumerate() {
        let (block, column) = place(m.shape.m, p);
        for (i, to) in tile.iter_mut().enumerate() {
            for w in 0..registers {
                for t in 0..4 {
                    let (x, y) = (factors.a[block][w][i / 8 * 4 + t], factors.b[column][w][column_of(i % 8) * 4 + t]);
                    *to = to.wrapping_add(if m.is_and { x & y } else { x ^ y }.count_ones());
                }
            }
        }
    }
}

/// Products are added in the order of the second factor's rows, each rounded once with its sum.
pub fn multiply_doubles(round: Round, a: &[[f64; 16]; 8], b: &[[f64; 8]], sums: &mut [f64; 64]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn wide(a: &[[f64; 16]; 8], b: &[[f64; 8]], sums: &mut [f64; 64]) {
            doubles(a, b, sums, f64::mul_add);
        }
        if round == Round::Nearest && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has both.
            return unsafe { wide(a, b, sums) };
        }
    }
    doubles(a, b, sums, |x, y, z| float::fma64(x, y, z, round));
}

#[inline(always)]
fn doubles(a: &[[f64; 16]; 8], b: &[[f64; 8]], sums: &mut [f64; 64], fma: impl Fn(f64, f64, f64) -> f64) {
    for r in 0..8 {
        for (k, row) in b.iter().enumerate() {
            for n in 0..8 {
                sums[8 * r + n] = fma(a[r][k], row[n], sums[8 * r + n]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::isa::matrix::Shape;
    use crate::ptx::isa::operand::Src;

    /// Registers and sums of any bits but, in half of the runs, those of infinities and NaNs.
    fn any(seed: u64) -> ([Lanes; 6], [Tile; 2]) {
        let mut state = seed;
        let mut word = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as u32 & if seed & 1 == 1 { 0xbbbb_bbbb } else { u32::MAX }
        };
        let (mut registers, mut sums) = ([[0; 32]; 6], [[0; 64]; 2]);
        registers.as_flattened_mut().fill_with(&mut word);
        sums.as_flattened_mut().fill_with(&mut word);
        (registers, sums)
    }

    fn product(of: Element, k: usize) -> Multiply {
        let regs = vec![Src::None; 4].into_boxed_slice();
        Multiply {
            shape: Shape { m: 16, n: 8, k },
            a: of,
            b: of,
            c: Ty::F32,
            d: Ty::F32,
            a_regs: regs.clone(),
            b_regs: regs.clone(),
            c_regs: regs,
            d_regs: Box::default(),
            sparse: None,
            quads: None,
            saturates: false,
            is_and: false,
            round: Round::Nearest,
        }
    }

    #[test]
    fn processors_without_avx2_have_the_same_sums() {
        for seed in 1..200 {
            let ([a, b, c, d, e, f], sums) = any(seed);
            let factors = Factors { a: [[&a, &b], [&c, &d], [&a; 2], [&a; 2]], b: [[&e, &f, &e, &f]; 4], picks: None };
            let check = |of, k, plain: fn(&Multiply, &Factors, &mut [Tile])| {
                let (m, mut here, mut there) = (product(of, k), sums, sums);
                multiply(&m, &factors, &mut here);
                plain(&m, &factors, &mut there);
                assert!(here == there, "{of:?}, seed {seed}");
            };
            check(Element::F16, 16, floats_inline::<f32, 2, 2, 2, false>);
            check(Element::Bf16, 16, floats_inline::<f64, 2, 2, 2, false>);
            check(Element::Tf32, 8, floats_inline::<f64, 1, 2, 2, false>);
            check(Element::E4m3, 32, eights_inline::<2, 2, 2, false>);
            check(Element::S8, 32, integers_inline::<4, 2, 2, false>);
        }
    }
}
