//! Sums of a row of products for processors with AVX2. Of the same in plain loops the compiler makes half vectors.

// UNSAFETY: loads vectors from arrays of their length.

use std::arch::x86_64::*;

use crate::exec::matrix::layout::PLACES;

/// An element of a row of the first factor with its exponent, and a row of eight of the second.
pub type Product<'a, T> = (T, i32, &'a [T; 8], &'a [i32; 8]);

#[target_feature(enable = "avx2")]
#[inline]
fn load(v: &[i32; 8]) -> __m256i {
    // SAFETY: eight integers are a vector, and no alignment is asked for.
    unsafe { _mm256_loadu_si256(v.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(v: __m256i) -> [i32; 8] {
    let mut to = [0; 8];
    // SAFETY: as in load.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) };
    to
}

/// The highest exponent of the products and of `top`.
#[target_feature(enable = "avx2")]
#[inline]
fn highest<'a, T: Copy + 'a>(count: usize, product: impl Fn(usize) -> Product<'a, T>, top: &[i32; 8]) -> __m256i {
    let mut high = load(top);
    for k in 0..count {
        let (_, own, _, others) = product(k);
        high = _mm256_max_epi32(high, _mm256_add_epi32(_mm256_set1_epi32(own), load(others)));
    }
    high
}

/// Sums of whole multiples of 2^(top - PLACES), which is raised to the products' exponents.
#[target_feature(enable = "avx2")]
#[inline]
pub fn row_f32<'a>(count: usize, product: impl Fn(usize) -> Product<'a, f32>, top: &mut [i32; 8]) -> [i32; 8] {
    let high = highest(count, &product, top);
    *top = store(high);
    // As `Wide::power` has it.
    let field = _mm256_sub_epi32(_mm256_set1_epi32(PLACES + 127), high);
    let field = _mm256_min_epi32(field, _mm256_set1_epi32(127 + 127));
    let scale = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(field));
    let mut sum = _mm256_setzero_si256();
    for k in 0..count {
        let (own, _, others, _) = product(k);
        // SAFETY: as in load.
        let others = unsafe { _mm256_loadu_ps(others.as_ptr()) };
        let part = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(own), others), scale);
        sum = _mm256_add_epi32(sum, _mm256_cvttps_epi32(part));
    }
    store(sum)
}

/// As [`row_f32`].
#[target_feature(enable = "avx2")]
#[inline]
pub fn row_f64<'a>(count: usize, product: impl Fn(usize) -> Product<'a, f64>, top: &mut [i32; 8]) -> [i32; 8] {
    let high = highest(count, &product, top);
    *top = store(high);
    let field = _mm256_sub_epi32(_mm256_set1_epi32(PLACES + 1023), high);
    let power = |half: __m128i| _mm256_castsi256_pd(_mm256_slli_epi64::<52>(_mm256_cvtepi32_epi64(half)));
    let scales = [power(_mm256_castsi256_si128(field)), power(_mm256_extracti128_si256::<1>(field))];
    let mut sums = [_mm_setzero_si128(); 2];
    for k in 0..count {
        let (own, _, others, _) = product(k);
        let own = _mm256_set1_pd(own);
        for half in 0..2 {
            // SAFETY: four of eight numbers are a vector, and no alignment is asked for.
            let others = unsafe { _mm256_loadu_pd(others[4 * half..4 * half + 4].as_ptr()) };
            let part = _mm256_mul_pd(_mm256_mul_pd(own, others), scales[half]);
            sums[half] = _mm_add_epi32(sums[half], _mm256_cvttpd_epi32(part));
        }
    }
    store(_mm256_set_m128i(sums[1], sums[0]))
}

/// Sums of products that fit.
#[target_feature(enable = "avx2")]
#[inline]
pub fn row_i32<'a>(count: usize, product: impl Fn(usize) -> (i32, &'a [i32; 8])) -> [i32; 8] {
    let mut sum = _mm256_setzero_si256();
    for k in 0..count {
        let (own, others) = product(k);
        sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(_mm256_set1_epi32(own), load(others)));
    }
    store(sum)
}
