//! Functions over rows: arithmetic, comparisons, conversions.
//!
//! A row is worked through in pieces as wide as a vector, each read before it is written, so that a result may take the
//! place of an operand. Loops of constant length over plain arrays are what the compiler turns into vector code.

// UNSAFETY: rows are reached by pointer, at places that `bind` resolved; vector instructions where there are any.

use std::arch::x86_64::{__m256i, _mm256_castsi256_pd, _mm256_castsi256_ps, _mm256_movemask_pd, _mm256_movemask_ps};

use crate::exec::float;
use crate::exec::state::{CONSTANT, Env, Row32, Row64, Rows, Step, Warp};

const PIECE: usize = 8;

/// A function is for some lanes of a warp, for a whole one, or for several whole ones.
pub const PART: u8 = 0;
pub const WHOLE: u8 = 1;
pub const MANY: u8 = 2;

/// # Safety
///
/// There is one warp at least.
#[inline(always)]
pub unsafe fn rows_of<const HOW: u8>(all: &[Rows]) -> &[Rows] {
    // SAFETY: the caller's promise.
    if HOW == MANY { all } else { unsafe { all.get_unchecked(..1) } }
}

/// A value of a lane, in a row of 32 or of 64 bits.
pub trait Cell: Copy + Default {
    type Stored: Copy + Default;
    const WIDE: bool;
    fn load(v: Self::Stored) -> Self;
    fn store(self) -> Self::Stored;
    /// # Safety
    ///
    /// The row is one of the frame's or of the program's.
    unsafe fn row(rows: &Rows, at: u32) -> *mut [Self::Stored; 32];
}

macro_rules! cell {
    ($($t:ty, $stored:ty, $wide:expr, $field:ident, |$v:ident| $load:expr, |$x:ident| $store:expr;)*) => {$(
        impl Cell for $t {
            type Stored = $stored;
            const WIDE: bool = $wide;
            #[inline(always)]
            fn load($v: $stored) -> $t { $load }
            #[inline(always)]
            fn store(self) -> $stored { let $x = self; $store }
            #[inline(always)]
            unsafe fn row(rows: &Rows, at: u32) -> *mut [$stored; 32] {
                // SAFETY: the caller's promise; the highest bit chooses between two places.
                unsafe { rows.$field[(at >> 31) as usize].add((at & !CONSTANT) as usize) }
            }
        }
    )*};
}

cell! {
    u32, u32, false, rows32, |v| v, |x| x;
    i32, u32, false, rows32, |v| v as i32, |x| x as u32;
    f32, u32, false, rows32, |v| f32::from_bits(v), |x| x.to_bits();
    u64, u64, true, rows64, |v| v, |x| x;
    i64, u64, true, rows64, |v| v as i64, |x| x as u64;
    f64, u64, true, rows64, |v| f64::from_bits(v), |x| x.to_bits();
}

/// # Safety
///
/// The row is one of the frame's or of the program's.
#[inline(always)]
unsafe fn piece<T: Cell>(row: *mut [T::Stored; 32], at: usize) -> [T; PIECE] {
    // SAFETY: a row has 32 lanes, of which these are some.
    let stored = unsafe { *row.cast::<T::Stored>().add(at).cast::<[T::Stored; PIECE]>() };
    let mut out = [T::default(); PIECE];
    for l in 0..PIECE {
        out[l] = T::load(stored[l]);
    }
    out
}

/// # Safety
///
/// The row is one of the frame's, and nobody else's.
#[inline(always)]
unsafe fn put<const HOW: u8, T: Cell>(row: *mut [T::Stored; 32], at: usize, m: u32, v: [T; PIECE]) {
    // SAFETY: a row has 32 lanes, of which these are some.
    let to = unsafe { &mut *row.cast::<T::Stored>().add(at).cast::<[T::Stored; PIECE]>() };
    let mut stored = *to;
    for l in 0..PIECE {
        stored[l] = if HOW != PART || m >> (at + l) & 1 != 0 { v[l].store() } else { stored[l] };
    }
    *to = stored;
}

/// Functions of as many rows: from operands to the result, piece by piece.
macro_rules! maps {
    ($($name:ident: $($t:ident $v:ident),+;)*) => {$(
        #[inline(always)]
        unsafe fn $name<const HOW: u8, $($t: Cell,)+ D: Cell>(
            r: &Rows,
            x: &Step,
            m: u32,
            f: impl Fn($($t),+) -> D,
        ) {
            // SAFETY: rows of the frame or constants, as `bind` resolved them.
            unsafe {
                let ($($v,)+ d) = ($($t::row(r, x.$v),)+ D::row(r, x.d));
                for at in (0..32).step_by(PIECE) {
                    $(let $v = piece::<$t>($v, at);)+
                    let mut v = [D::default(); PIECE];
                    for l in 0..PIECE {
                        v[l] = f($($v[l]),+);
                    }
                    put::<HOW, D>(d, at, m, v);
                }
            }
        }
    )*};
}

maps! {
    map1: A a;
    map2: A a, B b;
    map3: A a, B b, C c;
}

/// One bit for each lane in which `f` holds.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn bits2<A: Cell>(r: &Rows, x: &Step, f: impl Fn(A, A) -> bool) -> u32 {
    let mut bits = 0;
    // SAFETY: as in `maps`; the arrays are as large as the vectors.
    unsafe {
        let (a, b) = (A::row(r, x.a), A::row(r, x.b));
        for at in (0..32).step_by(PIECE) {
            let (a, b) = (piece::<A>(a, at), piece::<A>(b, at));
            if A::WIDE {
                let mut v = [0u64; PIECE];
                for l in 0..PIECE {
                    v[l] = if f(a[l], b[l]) { u64::MAX } else { 0 };
                }
                let [low, high]: [_; 2] = std::mem::transmute(v);
                let low = _mm256_movemask_pd(_mm256_castsi256_pd(low)) as u32;
                let high = _mm256_movemask_pd(_mm256_castsi256_pd(high)) as u32;
                bits |= (low | high << 4) << at;
            } else {
                let mut v = [0u32; PIECE];
                for l in 0..PIECE {
                    v[l] = if f(a[l], b[l]) { u32::MAX } else { 0 };
                }
                bits |=
                    (_mm256_movemask_ps(_mm256_castsi256_ps(std::mem::transmute::<[u32; 8], __m256i>(v))) as u32) << at;
            }
        }
    }
    bits
}

/// Writes the lanes' bits to a predicate.
#[inline(always)]
pub unsafe fn put_bits(r: &Rows, pred: u32, m: u32, v: u32) {
    if pred != u32::MAX {
        // SAFETY: a predicate of the frame, as `bind` resolved it.
        unsafe {
            let p = r.preds.add(pred as usize);
            *p = (*p & !m) | (v & m);
        }
    }
}

/// Subnormal numbers become zeros of their sign, if they are to.
#[inline(always)]
fn flushed<const FTZ: bool>(v: f32) -> f32 {
    let bits = v.to_bits();
    if FTZ && bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { v }
}

#[inline(always)]
fn finished<const FTZ: bool>(v: f32) -> f32 {
    flushed::<FTZ>(float::canonical(v))
}

pub const DOWN: u8 = 0;
pub const UP: u8 = 1;
pub const ZERO: u8 = 2;

/// `x + tail` in single precision, rounded in a direction: [`float::direct32`] without a branch.
#[inline(always)]
fn directed<const ROUND: u8>(x: f64, tail: f64) -> f32 {
    let nearest = x as f32;
    let error = (x - f64::from(nearest)) + tail;
    let (lower, higher) = match ROUND {
        DOWN => (error < 0.0, false),
        UP => (false, error > 0.0),
        // A result of zero has the sign of what was rounded.
        _ => (error < 0.0 && (nearest > 0.0 || x > 0.0), error > 0.0 && (nearest < 0.0 || x < 0.0)),
    };
    let bits = nearest.to_bits();
    let away = if nearest.is_sign_negative() { lower } else { higher };
    let stepped = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    // From zero the next number is the smallest of its sign.
    let stepped = if nearest == 0.0 { 1 | u32::from(lower) << 31 } else { stepped };
    f32::from_bits(if lower | higher { stepped } else { bits })
}

#[inline(always)]
fn lesser<const MIN: bool>(a: f32, b: f32) -> f32 {
    let by_order = if (a < b) == MIN { a } else { b };
    // Minus zero is less than plus zero.
    let by_sign = if a.is_sign_negative() == MIN { a } else { b };
    let v = if a == b { by_sign } else { by_order };
    let v = if b.is_nan() { a } else { v };
    if a.is_nan() { b } else { v }
}

macro_rules! functions {
    ($($name:ident$(<$(const $g:ident: $gt:ty),+>)?($map:ident) |$($v:ident: $t:ty),+| -> $d:ty $body:block)*) => {$(
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        pub unsafe fn $name<$($(const $g: $gt,)+)? const HOW: u8>(
            all: &[Rows],
            _: *mut Warp,
            _: &mut Env,
            x: &Step,
            m: u32,
        ) -> usize {
            // SAFETY: there is one warp at least.
            for r in unsafe { rows_of::<HOW>(all) } {
                // SAFETY: the caller's rows; `bind` chose the function for operands of these widths.
                unsafe { $map::<HOW, $($t,)+ $d>(r, x, m, |$($v),+| $body) };
            }
            all.len()
        }
    )*};
}

functions! {
    mov32(map1) |a: u32| -> u32 { a }
    mov64(map1) |a: u64| -> u64 { a }
    widen_u32(map1) |a: u32| -> u64 { u64::from(a) }
    widen_s32(map1) |a: i32| -> i64 { i64::from(a) }
    narrow(map1) |a: u64| -> u32 { a as u32 }
    not32(map1) |a: u32| -> u32 { !a }
    not64(map1) |a: u64| -> u64 { !a }
    neg32(map1) |a: u32| -> u32 { a.wrapping_neg() }
    neg64(map1) |a: u64| -> u64 { a.wrapping_neg() }
    popc32(map1) |a: u32| -> u32 { a.count_ones() }
    clz32(map1) |a: u32| -> u32 { a.leading_zeros() }
    brev32(map1) |a: u32| -> u32 { a.reverse_bits() }
    plain_address(map1) |a: u64| -> u64 {
        if a & crate::ptx::isa::operand::WINDOW_MASK == 0 { a } else { a & !crate::ptx::isa::operand::WINDOW_MASK }
    }

    add32(map2) |a: u32, b: u32| -> u32 { a.wrapping_add(b) }
    sub32(map2) |a: u32, b: u32| -> u32 { a.wrapping_sub(b) }
    mul32(map2) |a: u32, b: u32| -> u32 { a.wrapping_mul(b) }
    and32(map2) |a: u32, b: u32| -> u32 { a & b }
    or32(map2) |a: u32, b: u32| -> u32 { a | b }
    xor32(map2) |a: u32, b: u32| -> u32 { a ^ b }
    min_u32(map2) |a: u32, b: u32| -> u32 { a.min(b) }
    max_u32(map2) |a: u32, b: u32| -> u32 { a.max(b) }
    min_s32(map2) |a: i32, b: i32| -> i32 { a.min(b) }
    max_s32(map2) |a: i32, b: i32| -> i32 { a.max(b) }
    shl32(map2) |a: u32, b: u32| -> u32 { if b < 32 { a << (b & 31) } else { 0 } }
    shr_u32(map2) |a: u32, b: u32| -> u32 { if b < 32 { a >> (b & 31) } else { 0 } }
    shr_s32(map2) |a: i32, b: u32| -> i32 { a >> b.min(31) }
    mul_hi_u32(map2) |a: u32, b: u32| -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 }
    mul_hi_s32(map2) |a: i32, b: i32| -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }
    add64(map2) |a: u64, b: u64| -> u64 { a.wrapping_add(b) }
    sub64(map2) |a: u64, b: u64| -> u64 { a.wrapping_sub(b) }
    mul64(map2) |a: u64, b: u64| -> u64 { a.wrapping_mul(b) }
    and64(map2) |a: u64, b: u64| -> u64 { a & b }
    or64(map2) |a: u64, b: u64| -> u64 { a | b }
    xor64(map2) |a: u64, b: u64| -> u64 { a ^ b }
    min_u64(map2) |a: u64, b: u64| -> u64 { a.min(b) }
    max_u64(map2) |a: u64, b: u64| -> u64 { a.max(b) }
    min_s64(map2) |a: i64, b: i64| -> i64 { a.min(b) }
    max_s64(map2) |a: i64, b: i64| -> i64 { a.max(b) }
    shl64(map2) |a: u64, b: u32| -> u64 { if b < 64 { a << (b & 63) } else { 0 } }
    shr_u64(map2) |a: u64, b: u32| -> u64 { if b < 64 { a >> (b & 63) } else { 0 } }
    shr_s64(map2) |a: i64, b: u32| -> i64 { a >> b.min(63) }
    mul_wide_u32(map2) |a: u32, b: u32| -> u64 { u64::from(a) * u64::from(b) }
    mul_wide_s32(map2) |a: i32, b: i32| -> i64 { i64::from(a) * i64::from(b) }

    mad32(map3) |a: u32, b: u32, c: u32| -> u32 { a.wrapping_mul(b).wrapping_add(c) }
    mad64(map3) |a: u64, b: u64, c: u64| -> u64 { a.wrapping_mul(b).wrapping_add(c) }
    mad_wide_u32(map3) |a: u32, b: u32, c: u64| -> u64 { (u64::from(a) * u64::from(b)).wrapping_add(c) }
    mad_wide_s32(map3) |a: i32, b: i32, c: i64| -> i64 { (i64::from(a) * i64::from(b)).wrapping_add(c) }
    funnel_left_wrap(map3) |low: u32, high: u32, n: u32| -> u32 {
        ((((u64::from(high) << 32) | u64::from(low)) << (n & 31)) >> 32) as u32
    }
    funnel_right_wrap(map3) |low: u32, high: u32, n: u32| -> u32 {
        (((u64::from(high) << 32) | u64::from(low)) >> (n & 31)) as u32
    }

    add_f32<const FTZ: bool>(map2) |a: f32, b: f32| -> f32 {
        finished::<FTZ>(flushed::<FTZ>(a) + flushed::<FTZ>(b))
    }
    sub_f32<const FTZ: bool>(map2) |a: f32, b: f32| -> f32 {
        finished::<FTZ>(flushed::<FTZ>(a) + -flushed::<FTZ>(b))
    }
    mul_f32<const FTZ: bool>(map2) |a: f32, b: f32| -> f32 {
        finished::<FTZ>(flushed::<FTZ>(a) * flushed::<FTZ>(b))
    }
    div_f32<const FTZ: bool>(map2) |a: f32, b: f32| -> f32 {
        finished::<FTZ>(flushed::<FTZ>(a) / flushed::<FTZ>(b))
    }
    fma_f32<const FTZ: bool>(map3) |a: f32, b: f32, c: f32| -> f32 {
        finished::<FTZ>(flushed::<FTZ>(a).mul_add(flushed::<FTZ>(b), flushed::<FTZ>(c)))
    }
    add_f32_directed<const FTZ: bool, const ROUND: u8>(map2) |a: f32, b: f32| -> f32 {
        let (x, y) = (f64::from(flushed::<FTZ>(a)), f64::from(flushed::<FTZ>(b)));
        let s = x + y;
        let v = directed::<ROUND>(s, float::two_sum_error(x, y, s));
        // An exact zero of opposite operands is negative when rounding down.
        finished::<FTZ>(if ROUND == DOWN && s == 0.0 && x != 0.0 { -0.0 } else { v })
    }
    mul_f32_directed<const FTZ: bool, const ROUND: u8>(map2) |a: f32, b: f32| -> f32 {
        finished::<FTZ>(directed::<ROUND>(f64::from(flushed::<FTZ>(a)) * f64::from(flushed::<FTZ>(b)), 0.0))
    }
    fma_f32_directed<const FTZ: bool, const ROUND: u8>(map3) |a: f32, b: f32, c: f32| -> f32 {
        let p = f64::from(flushed::<FTZ>(a)) * f64::from(flushed::<FTZ>(b));
        let c = f64::from(flushed::<FTZ>(c));
        let s = p + c;
        finished::<FTZ>(directed::<ROUND>(s, float::two_sum_error(p, c, s)))
    }
    saturated_f32<const FTZ: bool>(map1) |a: f32| -> f32 {
        let a = flushed::<FTZ>(a);
        let v = if a < 0.0 { 0.0 } else { a };
        let v = if v > 1.0 { 1.0 } else { v };
        if a.is_nan() { 0.0 } else { v }
    }
    min_max_f32<const FTZ: bool, const MIN: bool>(map2) |a: f32, b: f32| -> f32 {
        finished::<FTZ>(lesser::<MIN>(flushed::<FTZ>(a), flushed::<FTZ>(b)))
    }
    neg_f32<const FTZ: bool>(map1) |a: f32| -> f32 { -flushed::<FTZ>(a) }
    abs_f32<const FTZ: bool>(map1) |a: f32| -> f32 { flushed::<FTZ>(a).abs() }
    sqrt_f32<const FTZ: bool>(map1) |a: f32| -> f32 { finished::<FTZ>(flushed::<FTZ>(a).sqrt()) }
    rcp_f32<const FTZ: bool>(map1) |a: f32| -> f32 { finished::<FTZ>(1.0 / flushed::<FTZ>(a)) }
    rsqrt_f32<const FTZ: bool>(map1) |a: f32| -> f32 {
        finished::<FTZ>((1.0 / f64::from(flushed::<FTZ>(a)).sqrt()) as f32)
    }
    add_f64(map2) |a: f64, b: f64| -> f64 { a + b }
    sub_f64(map2) |a: f64, b: f64| -> f64 { a + -b }
    mul_f64(map2) |a: f64, b: f64| -> f64 { a * b }
    div_f64(map2) |a: f64, b: f64| -> f64 { a / b }
    fma_f64(map3) |a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) }
    neg_f64(map1) |a: f64| -> f64 { -a }
    abs_f64(map1) |a: f64| -> f64 { a.abs() }

    f32_of_s32(map1) |a: i32| -> f32 { a as f32 }
    f32_of_u32(map1) |a: u32| -> f32 { a as f32 }
    f64_of_f32(map1) |a: f32| -> f64 { f64::from(a) }
    f32_of_f64(map1) |a: f64| -> f32 { a as f32 }
    f64_of_s32(map1) |a: i32| -> f64 { f64::from(a) }
    f64_of_u32(map1) |a: u32| -> f64 { f64::from(a) }
    s32_of_f32_down_to_zero(map1) |a: f32| -> i32 { a as i32 }
    u32_of_f32_down_to_zero(map1) |a: f32| -> u32 { a as u32 }
    s32_of_f32_nearest(map1) |a: f32| -> i32 { a.round_ties_even() as i32 }
    s32_of_f32_floor(map1) |a: f32| -> i32 { a.floor() as i32 }
    f32_whole_floor(map1) |a: f32| -> f32 { float::canonical(a.floor()) }
    f32_whole_nearest(map1) |a: f32| -> f32 { float::canonical(a.round_ties_even()) }
    f32_of_f16(map1) |a: u32| -> f32 { float::canonical(float::f16_to(a as u16)) }
    f32_of_bf16(map1) |a: u32| -> f32 { float::canonical(float::bf16_to(a as u16)) }
}

/// The power of two in double precision, within a thousand units of its last place, for what is not far from one.
#[inline(always)]
fn power_of_two(x: f64) -> f64 {
    // ln(2)^k / k!
    const C: [f64; 11] = [
        1.0,
        std::f64::consts::LN_2,
        0.240_226_506_959_100_7,
        0.055_504_108_664_821_58,
        0.009_618_129_107_628_477,
        0.001_333_355_814_642_844_3,
        0.000_154_035_303_933_816_1,
        1.525_273_380_405_984e-5,
        1.321_548_679_014_431e-6,
        1.017_808_600_923_969_7e-7,
        7.054_911_620_801_123e-9,
    ];
    // The whole number nearest to `x` in the last bits: sums of such a size have no others.
    const LAST_BITS: f64 = (3u64 << 51) as f64;
    let shifted = x + LAST_BITS;
    let whole = shifted - LAST_BITS;
    let part = x - whole;
    // Even and odd powers by themselves: two chains are shorter than one.
    let square = part * part;
    let (mut even, mut odd) = (C[10], C[9]);
    for k in (0..9).rev().step_by(2) {
        even = even.mul_add(square, C[k]);
    }
    for k in (0..8).rev().step_by(2) {
        odd = odd.mul_add(square, C[k]);
    }
    let v = odd.mul_add(part, even);
    f64::from_bits(v.to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// `ex2.approx`: the power rounded to single precision, as [`f64::exp2`] has it. Where that is too close to call, or
/// out of the ordinary, it is asked.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn exp2_f32<const FTZ: bool, const HOW: u8>(
    all: &[Rows],
    _: *mut Warp,
    _: &mut Env,
    x: &Step,
    m: u32,
) -> usize {
    // SAFETY: there is one warp at least.
    for r in unsafe { rows_of::<HOW>(all) } {
        // SAFETY: the caller's rows.
        unsafe {
            let (a, d) = (f32::row(r, x.a), f32::row(r, x.d));
            let (mut all, mut unsure) = ([[0f32; PIECE]; 32 / PIECE], [0u32; PIECE]);
            for (v, at) in all.iter_mut().zip((0..32).step_by(PIECE)) {
                let a = piece::<f32>(a, at);
                for l in 0..PIECE {
                    let y = power_of_two(f64::from(a[l]));
                    // The bits that single precision drops, seen from the middle between two numbers.
                    let off = (y.to_bits() as u32 & 0x1fff_ffff).wrapping_sub(0x1000_0000);
                    let is_ordinary = a[l].abs() < 126.0;
                    unsure[l] |= u32::from(!is_ordinary | (off.wrapping_add(2048) <= 4096));
                    v[l] = y as f32;
                }
            }
            if unsure != [0; PIECE] {
                exp2_again::<FTZ>(&*a, &mut all);
            }
            for (v, at) in all.into_iter().zip((0..32).step_by(PIECE)) {
                put::<HOW, f32>(d, at, m, v);
            }
        }
    }
    all.len()
}

#[cold]
fn exp2_again<const FTZ: bool>(a: &[u32; 32], all: &mut [[f32; PIECE]; 32 / PIECE]) {
    for (v, a) in all.as_flattened_mut().iter_mut().zip(a) {
        *v = finished::<FTZ>(f64::from(flushed::<FTZ>(f32::from_bits(*a))).exp2() as f32);
    }
}

/// A narrower integer in a row of 32 bits, from one: `extra` has how far both are from the top, and whether signed.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn resize32<const HOW: u8>(all: &[Rows], _: *mut Warp, _: &mut Env, x: &Step, m: u32) -> usize {
    // SAFETY: there is one warp at least.
    for r in unsafe { rows_of::<HOW>(all) } {
        let [from, from_signed, to, to_signed, ..] = x.extra.to_le_bytes();
        // SAFETY: as above.
        unsafe {
            map1::<HOW, u32, u32>(r, x, m, |v| {
                let up = v << from;
                let v = if from_signed != 0 { ((up as i32) >> from) as u32 } else { up >> from };
                let up = v << to;
                if to_signed != 0 { ((up as i32) >> to) as u32 } else { up >> to }
            });
        }
    }
    all.len()
}

/// Any function of three bits: its table is in `extra`.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn lop3<const HOW: u8>(all: &[Rows], _: *mut Warp, _: &mut Env, x: &Step, m: u32) -> usize {
    // SAFETY: there is one warp at least.
    for r in unsafe { rows_of::<HOW>(all) } {
        let table = x.extra as u32;
        let on = |k: u32| 0u32.wrapping_sub(table >> k & 1);
        let (t0, t1, t2, t3, t4, t5, t6, t7) = (on(0), on(1), on(2), on(3), on(4), on(5), on(6), on(7));
        // SAFETY: as above.
        unsafe {
            map3::<HOW, u32, u32, u32, u32>(r, x, m, |a, b, c| {
                let choose = |s: u32, yes: u32, no: u32| (s & yes) | (!s & no);
                let low = choose(b, choose(c, t3, t2), choose(c, t1, t0));
                let high = choose(b, choose(c, t7, t6), choose(c, t5, t4));
                choose(a, high, low)
            });
        }
    }
    all.len()
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn select<const WIDE: bool, const HOW: u8>(
    all: &[Rows],
    _: *mut Warp,
    _: &mut Env,
    x: &Step,
    m: u32,
) -> usize {
    // SAFETY: there is one warp at least.
    for r in unsafe { rows_of::<HOW>(all) } {
        // SAFETY: a predicate of the frame, and rows as above.
        unsafe {
            let p = *r.preds.add(x.c as usize) ^ x.extra as u32;
            if WIDE { choose::<HOW, u64>(r, x, m, p) } else { choose::<HOW, u32>(r, x, m, p) }
        }
    }
    all.len()
}

#[inline(always)]
unsafe fn choose<const HOW: u8, T: Cell>(r: &Rows, x: &Step, m: u32, p: u32) {
    // SAFETY: as in `maps`.
    unsafe {
        let (a, b, d) = (T::row(r, x.a), T::row(r, x.b), T::row(r, x.d));
        for at in (0..32).step_by(PIECE) {
            let (a, b, mut v) = (piece::<T>(a, at), piece::<T>(b, at), [T::default(); PIECE]);
            for l in 0..PIECE {
                v[l] = if p >> (at + l) & 1 != 0 { a[l] } else { b[l] };
            }
            put::<HOW, T>(d, at, m, v);
        }
    }
}

/// `p = not q`, `p = q`: the bits to flip are in `extra`.
pub unsafe fn predicate<const HOW: u8>(all: &[Rows], _: *mut Warp, _: &mut Env, x: &Step, m: u32) -> usize {
    // SAFETY: there is one warp at least.
    for r in unsafe { rows_of::<HOW>(all) } {
        // SAFETY: predicates of the frame.
        unsafe { put_bits(r, x.d, m, *r.preds.add(x.a as usize) ^ x.extra as u32) };
    }
    all.len()
}

/// And, or, exclusive or of two predicates, by `c`; what is flipped of each is in `extra`.
pub unsafe fn predicates<const HOW: u8>(all: &[Rows], _: *mut Warp, _: &mut Env, x: &Step, m: u32) -> usize {
    // SAFETY: there is one warp at least.
    for r in unsafe { rows_of::<HOW>(all) } {
        // SAFETY: predicates of the frame.
        unsafe {
            let a = *r.preds.add(x.a as usize) ^ x.extra as u32;
            let b = *r.preds.add(x.b as usize) ^ (x.extra >> 32) as u32;
            put_bits(r, x.d, m, combined(x.c, a, b));
        }
    }
    all.len()
}

pub const AND: u32 = 1;
pub const OR: u32 = 2;
pub const XOR: u32 = 3;

#[inline(always)]
fn combined(logic: u32, a: u32, b: u32) -> u32 {
    match logic {
        AND => a & b,
        OR => a | b,
        XOR => a ^ b,
        _ => a,
    }
}

/// Comparisons. `rows` has the second predicate, how to combine with a third, which, and what to flip of that.
macro_rules! comparisons {
    ($($name:ident$(<const $g:ident: $gt:ty>)?($t:ty) |$a:ident, $b:ident| $body:expr;)*) => {$(
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        pub unsafe fn $name<$(const $g: $gt,)? const HOW: u8>(
            all: &[Rows],
            _: *mut Warp,
            _: &mut Env,
            x: &Step,
            m: u32,
        ) -> usize {
            // SAFETY: there is one warp at least.
            for r in unsafe { rows_of::<HOW>(all) } {
                // SAFETY: the caller's rows, of this width, and predicates of the frame.
                unsafe {
                    let p = bits2::<$t>(r, x, |$a, $b| $body);
                    let [other, logic, third, flip] = x.rows;
                    if logic == 0 {
                        put_bits(r, x.d, m, p);
                        put_bits(r, other, m, !p);
                    } else {
                        let q = *r.preds.add(third as usize) ^ flip;
                        put_bits(r, x.d, m, combined(logic, p, q));
                        put_bits(r, other, m, combined(logic, !p, q));
                    }
                }
            }
            all.len()
        }
    )*};
}

#[inline(always)]
fn is_apart<const FTZ: bool>(a: f32, b: f32) -> bool {
    let (a, b) = (flushed::<FTZ>(a), flushed::<FTZ>(b));
    (a < b) | (a > b)
}

comparisons! {
    eq32(u32) |a, b| a == b;
    ne32(u32) |a, b| a != b;
    lt_u32(u32) |a, b| a < b;
    le_u32(u32) |a, b| a <= b;
    lt_s32(i32) |a, b| a < b;
    le_s32(i32) |a, b| a <= b;
    eq64(u64) |a, b| a == b;
    ne64(u64) |a, b| a != b;
    lt_u64(u64) |a, b| a < b;
    le_u64(u64) |a, b| a <= b;
    lt_s64(i64) |a, b| a < b;
    le_s64(i64) |a, b| a <= b;
    eq_f32<const FTZ: bool>(f32) |a, b| flushed::<FTZ>(a) == flushed::<FTZ>(b);
    ne_f32<const FTZ: bool>(f32) |a, b| is_apart::<FTZ>(a, b);
    lt_f32<const FTZ: bool>(f32) |a, b| flushed::<FTZ>(a) < flushed::<FTZ>(b);
    le_f32<const FTZ: bool>(f32) |a, b| flushed::<FTZ>(a) <= flushed::<FTZ>(b);
    neu_f32<const FTZ: bool>(f32) |a, b| flushed::<FTZ>(a) != flushed::<FTZ>(b);
    equ_f32<const FTZ: bool>(f32) |a, b| !is_apart::<FTZ>(a, b);
    ltu_f32<const FTZ: bool>(f32) |a, b| !(flushed::<FTZ>(a) >= flushed::<FTZ>(b));
    leu_f32<const FTZ: bool>(f32) |a, b| !(flushed::<FTZ>(a) > flushed::<FTZ>(b));
    num_f32<const FTZ: bool>(f32) |a, b| !a.is_nan() && !b.is_nan();
    eq_f64(f64) |a, b| a == b;
    lt_f64(f64) |a, b| a < b;
    le_f64(f64) |a, b| a <= b;
    neu_f64(f64) |a, b| a != b;
    leu_f64(f64) |a, b| !(a > b);
    ltu_f64(f64) |a, b| !(a >= b);
}

const _: () = assert!(size_of::<Row32>() == 128 && size_of::<Row64>() == 256);
