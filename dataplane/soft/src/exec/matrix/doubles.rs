//! Sums of products of matrices of double precision.

// UNSAFETY: calls a function for processors with AVX2 and FMA, after asking whether this one has them.

use crate::exec::float;
use crate::ptx::isa::operand::Round;

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
