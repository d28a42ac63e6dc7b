//! Sums of products of whole numbers and of single bits.

#![allow(clippy::needless_range_loop, reason = "lanes of several arrays go by one number, as in vector code")]

// UNSAFETY: calls a function for processors with AVX2, which the caller has asked for.

use crate::exec::matrix::factor::by_column;
use crate::exec::matrix::layout::{Factors, Lanes, Tile, column_of, place, row_of};
#[cfg(target_arch = "x86_64")]
use crate::exec::matrix::vector;
use crate::ptx::isa::matrix::{Element, Multiply};

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

/// Whole numbers in the places that `factor::Numbers` has.
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
pub fn integers_inline<const E: usize, const W: usize, const WB: usize, const AVX2: bool>(
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

pub fn single_bits(m: &Multiply, factors: &Factors, sums: &mut [Tile]) {
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
