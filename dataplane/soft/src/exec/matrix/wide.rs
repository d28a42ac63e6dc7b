//! The numbers that products are computed in.

// UNSAFETY: calls functions for processors with AVX2, which the caller has asked for, and converts floats to integers
// without the checks that the compiler cannot vectorise.

#[cfg(target_arch = "x86_64")]
use crate::exec::matrix::vector::{self, Product};

/// The number that a product is computed in. It holds products and their multiples by a power of two exactly.
pub trait Wide: Copy + Default + std::ops::Mul<Output = Self> {
    fn of(v: f32) -> Self;
    fn to64(self) -> f64;
    /// Two to the power of `n`, or less where only zero is multiplied by it.
    fn power(n: i32) -> Self;
    /// The integer part.
    ///
    /// # Safety
    /// It has to be one of 32 bits.
    unsafe fn whole(self) -> i32;
    /// As `floats::row`, for a processor with AVX2.
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
