//! Sums of products of floating-point numbers.
//!
//! They are those of an H100's tensor cores, as published measurements describe them (Xie et al., "MMA-Sim", 2025;
//! Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", 2025): the products of a step and the old sum are
//! exact, are cut off 25 binary places below the leading bit of the largest, and are added as integers. The result is
//! cut off to single precision, or rounded to half precision.

#![allow(clippy::needless_range_loop, reason = "lanes of several arrays go by one number, as in vector code")]

// UNSAFETY: calls functions for processors with AVX2, which the caller has asked for, and converts floats to integers
// without the checks that the compiler cannot vectorise.

use crate::exec::matrix::factor::{Numbers, Sums, finite};
use crate::exec::matrix::layout::{Factors, PLACES, Tile, place, row_of};
use crate::exec::matrix::rounding::{NAN16, NAN32, half_bits, round, to_odd};
use crate::exec::matrix::wide::Wide;
use crate::ptx::isa::matrix::Multiply;
use crate::ptx::isa::operand::Ty;

#[inline(always)]
pub fn floats_inline<T: Wide, const E: usize, const W: usize, const WB: usize, const AVX2: bool>(
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
pub fn eights_inline<const W: usize, const EB: usize, const WB: usize, const AVX2: bool>(
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
