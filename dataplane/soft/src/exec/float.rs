//! Floating point beyond what the host has: half precision, directed rounding, flush-to-zero.

// UNSAFETY: calls a function for processors with AVX2 and FMA, after asking whether this one has them.

use crate::ptx::isa::operand::Round;

/// Rounds to a binary format with `mbits` fraction bits and `ebits` exponent bits, and encodes it.
fn encode(x: f64, ebits: u32, mbits: u32, round: Round) -> u16 {
    let negative = x.is_sign_negative();
    let sign = if negative { 1u32 << (ebits + mbits) } else { 0 };
    let inf = ((1u32 << ebits) - 1) << mbits;
    if x.is_nan() {
        return 0x7fff;
    }
    let a = x.abs();
    if a.is_infinite() {
        return (sign | inf) as u16;
    }
    if a == 0.0 {
        return sign as u16;
    }
    let bias = (1i32 << (ebits - 1)) - 1;
    let exponent = (((a.to_bits() >> 52) as i32) - 1023).max(1 - bias);
    let scaled = a * pow2(mbits as i32 - exponent);
    let whole = scaled.floor();
    let fraction = scaled - whole;
    let mut n = whole as u32;
    let up = match round {
        Round::Nearest => fraction > 0.5 || (fraction == 0.5 && n & 1 == 1),
        Round::Away => fraction >= 0.5,
        Round::Zero => false,
        Round::Down => negative && fraction > 0.0,
        Round::Up => !negative && fraction > 0.0,
    };
    n += u32::from(up);
    // A carry out of the fraction lands in the exponent, which is the right next value.
    let magnitude =
        if n < (1 << mbits) { n } else { (((exponent + bias) as u32) << mbits).wrapping_add(n - (1 << mbits)) };
    if magnitude >= inf {
        let saturates = match round {
            Round::Zero => true,
            Round::Down => !negative,
            Round::Up => negative,
            _ => false,
        };
        return (sign | if saturates { inf - 1 } else { inf }) as u16;
    }
    (sign | magnitude) as u16
}

fn pow2(n: i32) -> f64 {
    if (-1022..=1023).contains(&n) { f64::from_bits(((n + 1023) as u64) << 52) } else { 2f64.powi(n) }
}

pub fn f16_from(x: f64, round: Round) -> u16 {
    encode(x, 5, 10, round)
}

pub fn bf16_from(x: f64, round: Round) -> u16 {
    encode(x, 8, 7, round)
}

pub fn f16_to(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let exponent = u32::from(h >> 10) & 0x1f;
    let fraction = u32::from(h & 0x3ff);
    match exponent {
        0 => {
            let v = fraction as f32 * f32::from_bits(0x3380_0000);
            f32::from_bits(v.to_bits() | sign)
        }
        31 => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

pub fn bf16_to(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// The only NaN that a GPU computes in single precision, in place of any. By its bits: to the compiler all NaN are one,
/// and it may leave the processor's where this one is asked for.
#[inline(always)]
pub fn canonical(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

pub fn flush32(x: f32) -> f32 {
    if x.is_subnormal() { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x }
}

/// `nearest` is the rounded result and `error` the sign-carrying rest (exact minus nearest).
pub fn direct64(nearest: f64, error: f64, round: Round) -> f64 {
    if error == 0.0 || error.is_nan() || nearest.is_nan() {
        return nearest;
    }
    let up = error > 0.0;
    match round {
        Round::Nearest | Round::Away => nearest,
        Round::Up if up => nearest.next_up(),
        Round::Down if !up => nearest.next_down(),
        Round::Zero if nearest > 0.0 && !up => nearest.next_down(),
        Round::Zero if nearest < 0.0 && up => nearest.next_up(),
        _ => nearest,
    }
}

/// Rounds `x + tail` to single precision, `tail` being smaller than half an ulp of `x`.
pub fn direct32(x: f64, tail: f64, round: Round) -> f32 {
    let nearest = x as f32;
    if nearest.is_nan() {
        return nearest;
    }
    if nearest.is_infinite() {
        if x.is_infinite() {
            return nearest;
        }
        return match round {
            Round::Zero => f32::MAX.copysign(nearest),
            Round::Down if nearest > 0.0 => f32::MAX,
            Round::Up if nearest < 0.0 => f32::MIN,
            _ => nearest,
        };
    }
    let error = (x - f64::from(nearest)) + tail;
    if error == 0.0 {
        return nearest;
    }
    let up = error > 0.0;
    match round {
        Round::Nearest | Round::Away => nearest,
        Round::Up if up => nearest.next_up(),
        Round::Down if !up => nearest.next_down(),
        Round::Zero if (nearest > 0.0 || (nearest == 0.0 && x > 0.0)) && !up => nearest.next_down(),
        Round::Zero if (nearest < 0.0 || (nearest == 0.0 && x < 0.0)) && up => nearest.next_up(),
        _ => nearest,
    }
}

/// What is rounded once more to fewer bits: where a sum or a value is not exact, its last bit is set.
fn to_odd(nearest: f64, error: f64) -> f64 {
    if error == 0.0 || !error.is_finite() {
        return nearest;
    }
    let away = (error < 0.0) == (nearest > 0.0);
    // One nearer to zero, if rounding went away from it; of two neighbours one is odd.
    f64::from_bits((nearest.to_bits() - u64::from(away)) | 1)
}

/// `x + y`, for a format of fewer bits.
pub fn sum_to_odd(x: f64, y: f64) -> f64 {
    let s = x + y;
    to_odd(s, two_sum_error(x, y, s))
}

/// An integer of 64 bits, for a format of fewer bits.
pub fn integer_to_odd(v: i128) -> f64 {
    let nearest = v as f64;
    to_odd(nearest, (v - nearest as i128) as f64)
}

pub fn two_sum_error(a: f64, b: f64, s: f64) -> f64 {
    let bb = s - a;
    (a - (s - bb)) + (b - bb)
}

pub fn add64(a: f64, b: f64, round: Round) -> f64 {
    let s = a + b;
    if round == Round::Nearest {
        return s;
    }
    // An exact zero of opposite operands is negative when rounding down.
    if s == 0.0 && round == Round::Down && a != 0.0 {
        return -0.0;
    }
    direct64(s, two_sum_error(a, b, s), round)
}

pub fn mul64(a: f64, b: f64, round: Round) -> f64 {
    let p = a * b;
    if round == Round::Nearest { p } else { direct64(p, a.mul_add(b, -p), round) }
}

pub fn div64(a: f64, b: f64, round: Round) -> f64 {
    let q = a / b;
    if round == Round::Nearest || !q.is_finite() {
        return q;
    }
    let rest = (-q).mul_add(b, a);
    direct64(q, if b < 0.0 { -rest } else { rest }, round)
}

pub fn sqrt64(a: f64, round: Round) -> f64 {
    let r = a.sqrt();
    if round == Round::Nearest || !r.is_finite() { r } else { direct64(r, (-r).mul_add(r, a), round) }
}

pub fn fma64(a: f64, b: f64, c: f64, round: Round) -> f64 {
    let r = a.mul_add(b, c);
    if round == Round::Nearest || !r.is_finite() {
        return r;
    }
    // a*b = p + e exactly, so the rest of the sum is the two-sum error plus e.
    let p = a * b;
    let e = a.mul_add(b, -p);
    let s = p + c;
    let rest = (s - r) + (two_sum_error(p, c, s) + e);
    direct64(r, rest, round)
}

pub fn add32(a: f32, b: f32, round: Round) -> f32 {
    if round == Round::Nearest {
        return a + b;
    }
    let (x, y) = (f64::from(a), f64::from(b));
    let s = x + y;
    if s == 0.0 && round == Round::Down && a != 0.0 {
        return -0.0;
    }
    direct32(s, two_sum_error(x, y, s), round)
}

pub fn mul32(a: f32, b: f32, round: Round) -> f32 {
    if round == Round::Nearest { a * b } else { direct32(f64::from(a) * f64::from(b), 0.0, round) }
}

pub fn div32(a: f32, b: f32, round: Round) -> f32 {
    if round == Round::Nearest {
        return a / b;
    }
    let (x, y) = (f64::from(a), f64::from(b));
    let q = x / y;
    let rest = if q.is_finite() { (-q).mul_add(y, x) / y } else { 0.0 };
    direct32(q, rest, round)
}

pub fn sqrt32(a: f32, round: Round) -> f32 {
    if round == Round::Nearest {
        return a.sqrt();
    }
    let x = f64::from(a);
    let r = x.sqrt();
    let rest = if r > 0.0 && r.is_finite() { (-r).mul_add(r, x) / (2.0 * r) } else { 0.0 };
    direct32(r, rest, round)
}

/// `a * b + c` of every lane, rounded to nearest once. Without the processor's own instruction that is a call for each.
pub fn fma_row32(a: &[f32; 32], b: &[f32; 32], c: &[f32; 32]) -> [f32; 32] {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn wide(a: &[f32; 32], b: &[f32; 32], c: &[f32; 32]) -> [f32; 32] {
            std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has both.
            return unsafe { wide(a, b, c) };
        }
    }
    std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
}

pub fn fma32(a: f32, b: f32, c: f32, round: Round) -> f32 {
    if round == Round::Nearest {
        return a.mul_add(b, c);
    }
    let p = f64::from(a) * f64::from(b);
    let s = p + f64::from(c);
    direct32(s, two_sum_error(p, f64::from(c), s), round)
}

pub fn round_integer(x: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => x.round_ties_even(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
        Round::Away => x.round(),
    }
}
