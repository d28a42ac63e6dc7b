//! Sums of products of matrices.
//!
//! Floating-point sums are those of an H100's tensor cores, as published measurements describe them (Xie et al.,
//! "MMA-Sim", 2025; Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", 2025): the products of a step and
//! the old sum are exact, are cut off 25 binary places below the leading bit of the largest, and are added as integers.
//! The result is cut off to single precision, or rounded to half precision.

// UNSAFETY: calls functions for processors with AVX2 and FMA, after asking whether this one has them, and converts
// floats to integers without the checks that the compiler cannot vectorise.

use super::place;
use crate::exec::float;
use crate::exec::narrow;
use crate::ptx::decode::matrix::{Element, Multiply};
use crate::ptx::isa::{Round, Ty};

/// Binary places that sums keep below the leading bit of their largest part.
const PLACES: i32 = 25;
/// The exponent of zero, which is less than that of any product.
const NOTHING: i32 = -4096;
const NAN32: u32 = 0x7fff_ffff;
const NAN16: u32 = 0x7fff;

/// Sums of eight rows and eight columns: bits of a float or integer, or of half precision in the lower half.
pub type Tile = [u32; 64];
/// For each row of a sparse factor and each of its elements, the row of the other factor that it multiplies.
pub type Picks = [[[u8; 64]; 8]; 2];

/// Words of eight rows of the first factor, and of eight columns of the second.
pub struct Factors {
    pub a: [[[u32; 8]; 8]; 4],
    pub b: [[[u32; 16]; 8]; 4],
    pub picks: Option<Picks>,
}

pub fn multiply(m: &Multiply, factors: &Factors, sums: &mut [Tile; 4]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn wide(m: &Multiply, factors: &Factors, sums: &mut [Tile; 4]) {
            multiply_any(m, factors, sums);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has both.
            return unsafe { wide(m, factors, sums) };
        }
    }
    multiply_any(m, factors, sums);
}

#[inline(always)]
fn multiply_any(m: &Multiply, factors: &Factors, sums: &mut [Tile; 4]) {
    let is_sparse = factors.picks.is_some();
    match (m.a, m.shape.k, is_sparse) {
        (Element::F16, 4, _) => floats::<f32, 4, 4>(m, factors, sums),
        (Element::F16, 8, _) => floats::<f32, 8, 8>(m, factors, sums),
        (Element::F16, 16, true) => floats::<f32, 8, 16>(m, factors, sums),
        (Element::F16, _, false) => floats::<f32, 16, 16>(m, factors, sums),
        (Element::F16, ..) => floats::<f32, 16, 32>(m, factors, sums),
        (Element::E4m3 | Element::E5m2, 16, _) => eights::<8, 8>(m, factors, sums),
        (Element::E4m3 | Element::E5m2, _, false) => eights::<16, 16>(m, factors, sums),
        (Element::E4m3 | Element::E5m2, ..) => eights::<16, 64>(m, factors, sums),
        (Element::Tf32, 4, _) => floats::<f64, 4, 4>(m, factors, sums),
        (Element::Tf32, 8, true) => floats::<f64, 4, 8>(m, factors, sums),
        (Element::Bf16 | Element::Tf32, 8, _) => floats::<f64, 8, 8>(m, factors, sums),
        (Element::Bf16 | Element::Tf32, 16, true) => floats::<f64, 8, 16>(m, factors, sums),
        (Element::Bf16, _, true) => floats::<f64, 16, 32>(m, factors, sums),
        (Element::Bf16 | Element::Tf32, ..) => floats::<f64, 16, 16>(m, factors, sums),
        (Element::B1, ..) => single_bits(m, factors, sums),
        (_, 16, _) => integers::<16, 16>(m, factors, sums),
        (_, 32, true) => integers::<16, 32>(m, factors, sums),
        (_, 32, _) => integers::<32, 32>(m, factors, sums),
        (_, 64, true) => integers::<32, 64>(m, factors, sums),
        (_, 64, _) => integers::<64, 64>(m, factors, sums),
        _ => integers::<64, 128>(m, factors, sums),
    }
}

/// How many times 64 sums there are.
fn tiles(m: &Multiply) -> usize {
    m.shape.m * m.shape.n / 64
}

/// The number that a product is computed in. It holds products and their multiples by a power of two exactly.
trait Wide: Copy + Default + std::ops::Mul<Output = Self> {
    fn of(v: f32) -> Self;
    /// Two to the power of `n`, or less where only zero is multiplied by it.
    fn power(n: i32) -> Self;
    /// The integer part.
    ///
    /// # Safety
    /// It has to be one of 32 bits.
    unsafe fn whole(self) -> i32;
}

/// Products of half-precision numbers have 22 bits, and are between 2^-48 and 2^32.
impl Wide for f32 {
    #[inline(always)]
    fn of(v: f32) -> Self {
        v
    }
    #[inline(always)]
    fn power(n: i32) -> Self {
        Self::from_bits(((n.min(127) + 127) as u32) << 23)
    }
    #[inline(always)]
    unsafe fn whole(self) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { self.to_int_unchecked() }
    }
}

impl Wide for f64 {
    #[inline(always)]
    fn of(v: f32) -> Self {
        Self::from(v)
    }
    #[inline(always)]
    fn power(n: i32) -> Self {
        Self::from_bits(((n + 1023) as u64) << 52)
    }
    #[inline(always)]
    unsafe fn whole(self) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { self.to_int_unchecked() }
    }
}

/// Eight rows of a factor, with the exponents by which their products are aligned.
#[derive(Clone)]
struct Numbers<const K: usize> {
    value: [[f32; K]; 8],
    exponent: [[i32; K]; 8],
    /// Infinities or NaNs are among them.
    is_special: bool,
}

/// The least exponent of a format, which its subnormal numbers are aligned by.
fn least_exponent(of: Element) -> i32 {
    if matches!(of, Element::Bf16 | Element::Tf32) { -126 } else { -14 }
}

#[inline(always)]
fn exponent(v: f32, least: i32) -> i32 {
    let e = ((v.to_bits() >> 23 & 255) as i32 - 127).max(least);
    if v == 0.0 { NOTHING } else { e }
}

#[inline(always)]
fn half_value(code: u32) -> f32 {
    let magnitude = code & 0x7fff;
    // The exponent is 112 less than single precision's, which a product by a power of two puts right, subnormal or not.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = 0x7f80_0000 | magnitude << 13;
    f32::from_bits((code & 0x8000) << 16 | if magnitude >= 0x7c00 { special } else { finite })
}

/// What the codes of `BITS` bits in each row's words stand for, of which `at` names the number of each that is wanted.
#[inline(always)]
fn codes<T: Copy + Default, const K: usize, const W: usize, const BITS: usize>(
    words: &[[u32; W]; 8],
    at: impl Fn(usize) -> usize,
    value: impl Fn(u32) -> T,
) -> [[T; K]; 8] {
    let per_word = 32 / BITS;
    let mut values = [[T::default(); K]; 8];
    for r in 0..8 {
        for k in 0..K {
            // No fragment has more words than there are.
            let word = words[r][at(k) / per_word % W];
            values[r][k] = value(word >> (BITS * (at(k) % per_word)) & (u32::MAX >> (32 - BITS)));
        }
    }
    values
}

#[inline(always)]
fn numbers<const K: usize, const W: usize>(
    of: Element,
    words: &[[u32; W]; 8],
    at: impl Fn(usize) -> usize,
) -> Numbers<K> {
    let value = match of {
        Element::F16 => codes::<f32, K, W, 16>(words, at, half_value),
        Element::Bf16 => codes::<f32, K, W, 16>(words, at, |code| f32::from_bits(code << 16)),
        Element::E4m3 => codes::<f32, K, W, 8>(words, at, |code| narrow::e4m3_to(code as u8)),
        Element::E5m2 => codes::<f32, K, W, 8>(words, at, |code| narrow::e5m2_to(code as u8)),
        // Of single precision the 13 lowest bits are not looked at.
        _ => codes::<f32, K, W, 32>(words, at, |code| f32::from_bits(code & !0x1fff)),
    };
    let mut n = Numbers { value, exponent: [[0; K]; 8], is_special: false };
    let least = least_exponent(of);
    let mut specials = 0;
    for r in 0..8 {
        for k in 0..K {
            let v = n.value[r][k];
            n.exponent[r][k] = exponent(v, least);
            specials |= u32::from(!v.is_finite());
        }
    }
    n.is_special = specials != 0;
    n
}

#[inline(always)]
fn columns<T: Copy + Default, const K: usize>(rows: &[[T; K]; 8]) -> [[T; 8]; K] {
    let mut turned = [[T::default(); 8]; K];
    for n in 0..8 {
        for k in 0..K {
            turned[k][n] = rows[n][k];
        }
    }
    turned
}

/// `K` products for each sum, of the `KB` rows of the second factor.
#[inline(always)]
fn floats<T: Wide, const K: usize, const KB: usize>(m: &Multiply, factors: &Factors, sums: &mut [Tile; 4]) {
    for (p, sums) in sums.iter_mut().enumerate().take(tiles(m)) {
        let (block, tile) = place(m.shape.m, p);
        let a = numbers::<K, 8>(m.a, &factors.a[block], |k| k);
        let b = numbers::<KB, 16>(m.b, &factors.b[tile], |k| k);
        let old = old_sums(m.c, sums);
        let exact = match &factors.picks {
            None => exact::<T, K, KB>(&a, &b, &old, |_, k| k),
            Some(picks) => exact::<T, K, KB>(&a, &b, &old, |r, k| picks[block][r][k] as usize % KB),
        };
        round(m.d, &exact, sums);
    }
}

/// Eight-bit floats. An H100 multiplies them as half precision, the lower halves of all registers and then the upper
/// ones, and then adds the old sums.
#[inline(always)]
fn eights<const K: usize, const KB: usize>(m: &Multiply, factors: &Factors, sums: &mut [Tile; 4]) {
    for (p, sums) in sums.iter_mut().enumerate().take(tiles(m)) {
        let (block, tile) = place(m.shape.m, p);
        let mut products = [0; 64];
        for half in 0..2 {
            let at = |k: usize| 4 * (k / 2) + 2 * half + k % 2;
            let a = numbers::<K, 8>(m.a, &factors.a[block], at);
            let earlier = old_sums(m.d, &products);
            let exact = match &factors.picks {
                None => {
                    let b = numbers::<KB, 16>(m.b, &factors.b[tile], at);
                    exact::<f32, K, KB>(&a, &b, &earlier, |_, k| k)
                }
                Some(picks) => {
                    let b = numbers::<KB, 16>(m.b, &factors.b[tile], |k| k);
                    exact::<f32, K, KB>(&a, &b, &earlier, |r, k| picks[block][r][at(k)] as usize % KB)
                }
            };
            round(m.d, &exact, &mut products);
        }
        let (old, new) = (old_sums(m.c, sums), old_sums(m.d, &products));
        for (i, sum) in sums.iter_mut().enumerate() {
            let (x, y) = (old.value[i], new.value[i]);
            *sum = match m.d {
                Ty::F16 => half_bits(f64::from(x) + f64::from(y)),
                _ if (x + y).is_nan() => NAN32,
                _ => (x + y).to_bits(),
            };
        }
    }
}

/// The sums before they are rounded.
#[inline(always)]
fn exact<T: Wide, const K: usize, const KB: usize>(
    a: &Numbers<K>,
    b: &Numbers<KB>,
    old: &Sums,
    pick: impl Fn(usize, usize) -> usize,
) -> [f64; 64] {
    if a.is_special || b.is_special || old.is_special {
        with_specials::<T, K, KB>(a, b, old, pick)
    } else {
        aligned::<T, K, KB>(a, b, old, pick)
    }
}

struct Sums {
    value: [f32; 64],
    exponent: [i32; 64],
    is_special: bool,
}

#[inline(always)]
fn old_sums(ty: Ty, tile: &Tile) -> Sums {
    let mut s = Sums { value: [0.0; 64], exponent: [0; 64], is_special: false };
    let mut specials = 0;
    for (i, code) in tile.iter().enumerate() {
        let v = if ty == Ty::F16 { half_value(*code) } else { f32::from_bits(*code) };
        let e = exponent(v, if ty == Ty::F16 { -14 } else { -126 });
        // Nothing is kept below the least result, whatever the products are.
        s.exponent[i] = e.max(-126);
        s.value[i] = v;
        specials |= u32::from(!v.is_finite());
    }
    s.is_special = specials != 0;
    s
}

/// As [`exact`], of finite numbers.
#[inline(always)]
fn aligned<T: Wide, const K: usize, const KB: usize>(
    a: &Numbers<K>,
    b: &Numbers<KB>,
    old: &Sums,
    pick: impl Fn(usize, usize) -> usize,
) -> [f64; 64] {
    let (exponents, values) = (columns(&b.exponent), columns(&b.value.map(|row| row.map(T::of))));
    let mut exact = [0.0; 64];
    for r in 0..8 {
        let mut top = [0; 8];
        top.copy_from_slice(&old.exponent[8 * r..8 * r + 8]);
        for k in 0..K {
            let row = &exponents[pick(r, k)];
            for n in 0..8 {
                top[n] = top[n].max(a.exponent[r][k] + row[n]);
            }
        }
        let mut scale = [T::default(); 8];
        for n in 0..8 {
            scale[n] = T::power(PLACES - top[n]);
        }
        let mut sum = [0i32; 8];
        for k in 0..K {
            let (x, row) = (T::of(a.value[r][k]), &values[pick(r, k)]);
            for n in 0..8 {
                // SAFETY: a product is less than four times the power of two of its exponents, which is at most
                // that of `top`, so this is less than 2^27.
                let part = unsafe { (x * row[n] * scale[n]).whole() };
                // Sixteen such fit: a factor has at most 11 bits, and the square of 2 - 2^-10 is that much below four.
                sum[n] = sum[n].wrapping_add(part);
            }
        }
        for n in 0..8 {
            let i = 8 * r + n;
            let kept = (f64::from(old.value[i]) * f64::power(PLACES - top[n])).trunc();
            exact[i] = (f64::from(sum[n]) + kept) * f64::power(top[n] - PLACES);
        }
    }
    exact
}

/// As [`exact`], where infinities or NaNs decide some of the sums.
#[cold]
#[inline(never)]
fn with_specials<T: Wide, const K: usize, const KB: usize>(
    a: &Numbers<K>,
    b: &Numbers<KB>,
    old: &Sums,
    pick: impl Fn(usize, usize) -> usize,
) -> [f64; 64] {
    let mut finite_old = Sums { value: old.value, exponent: old.exponent, is_special: false };
    for (v, e) in finite_old.value.iter_mut().zip(&mut finite_old.exponent) {
        if !v.is_finite() {
            (*v, *e) = (0.0, -126);
        }
    }
    let mut exact = aligned::<T, K, KB>(&finite(a), &finite(b), &finite_old, &pick);
    for (i, exact) in exact.iter_mut().enumerate() {
        let (r, n) = (i / 8, i % 8);
        let mut sum = f64::from(old.value[i]);
        for k in 0..K {
            // In double precision no product and no sum of finite ones is infinite.
            sum += f64::from(a.value[r][k]) * f64::from(b.value[n][pick(r, k)]);
        }
        if !sum.is_finite() {
            *exact = sum;
        }
    }
    exact
}

fn finite<const K: usize>(numbers: &Numbers<K>) -> Numbers<K> {
    let mut n = numbers.clone();
    for (v, e) in n.value.iter_mut().flatten().zip(n.exponent.iter_mut().flatten()) {
        if !v.is_finite() {
            (*v, *e) = (0.0, NOTHING);
        }
    }
    n
}

#[inline(always)]
fn round(ty: Ty, exact: &[f64; 64], to: &mut Tile) {
    if ty == Ty::F16 {
        for i in 0..64 {
            to[i] = half_bits(exact[i]);
        }
    } else {
        for i in 0..64 {
            to[i] = single_bits_towards_zero(exact[i]);
        }
    }
}

#[inline(always)]
fn single_bits_towards_zero(x: f64) -> u32 {
    let cut = f64::from_bits(x.to_bits() & !0x1fff_ffff) as f32;
    // Of a subnormal result fewer bits are kept.
    let least = f64::from_bits((1023 - 149) << 52);
    let subnormal = ((x * f64::from_bits((1023 + 149) << 52)).trunc() * least) as f32;
    let y = if x.abs() < f64::from(f32::MIN_POSITIVE) { subnormal } else { cut };
    if x.is_nan() { NAN32 } else { y.to_bits() }
}

#[inline(always)]
fn half_bits(x: f64) -> u32 {
    let magnitude = x.abs();
    let exponent = ((magnitude.to_bits() >> 52) as i64 - 1023).max(-14);
    // Half of the bits that a sum with this number has are below the result's last: adding it rounds to that.
    let rounder = f64::from_bits(((exponent - 10 + 52 + 1023) as u64) << 52);
    let rounded = (magnitude + rounder) - rounder;
    let single = (rounded as f32).to_bits();
    let normal = (single >> 13).wrapping_sub(112 << 10);
    let subnormal = (rounded * f64::from_bits((1023 + 24) << 52)) as u32;
    let code = if rounded < f64::from_bits((1023 - 14) << 52) { subnormal } else { normal };
    let code = if rounded >= 65536.0 { 0x7c00 } else { code };
    if x.is_nan() { NAN16 } else { code | (x.to_bits() >> 48) as u32 & 0x8000 }
}

#[inline(always)]
fn whole_numbers<const K: usize, const W: usize>(of: Element, words: &[[u32; W]; 8]) -> [[i32; K]; 8] {
    match of {
        Element::S8 => codes::<i32, K, W, 8>(words, |k| k, |code| i32::from(code as i8)),
        Element::U8 => codes::<i32, K, W, 8>(words, |k| k, |code| code as i32),
        Element::S4 => codes::<i32, K, W, 4>(words, |k| k, |code| (code << 28) as i32 >> 28),
        _ => codes::<i32, K, W, 4>(words, |k| k, |code| code as i32),
    }
}

#[inline(always)]
fn integers<const K: usize, const KB: usize>(m: &Multiply, factors: &Factors, sums: &mut [Tile; 4]) {
    for (p, sums) in sums.iter_mut().enumerate().take(tiles(m)) {
        let (block, tile) = place(m.shape.m, p);
        let a = whole_numbers::<K, 8>(m.a, &factors.a[block]);
        let b = columns(&whole_numbers::<KB, 16>(m.b, &factors.b[tile]));
        for r in 0..8 {
            let mut sum = [0i32; 8];
            for k in 0..K {
                let row = match &factors.picks {
                    None => &b[k % KB],
                    Some(picks) => &b[picks[block][r][k] as usize % KB],
                };
                for n in 0..8 {
                    sum[n] += a[r][k] * row[n];
                }
            }
            for n in 0..8 {
                let to = &mut sums[8 * r + n];
                let old = *to as i32;
                *to = if m.saturates { old.saturating_add(sum[n]) } else { old.wrapping_add(sum[n]) } as u32;
            }
        }
    }
}

fn single_bits(m: &Multiply, factors: &Factors, sums: &mut [Tile; 4]) {
    let words = m.shape.k / 32;
    for (p, tile) in sums.iter_mut().enumerate().take(tiles(m)) {
        let (block, column) = place(m.shape.m, p);
        for (i, to) in tile.iter_mut().enumerate() {
            let (x, y) = (&factors.a[block][i / 8][..words], &factors.b[column][i % 8][..words]);
            let both = x.iter().zip(y).map(|(x, y)| if m.is_and { x & y } else { x ^ y });
            *to = to.wrapping_add(both.map(u32::count_ones).sum());
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
