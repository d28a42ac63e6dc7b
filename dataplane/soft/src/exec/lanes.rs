//! What each lane of a warp has.

// UNSAFETY: vector instructions that every x86-64 has.

use std::arch::x86_64::{
    _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
};
use std::ops::{Deref, DerefMut};

use crate::ptx::isa::operand::ShflMode;

/// A register of a warp. It begins where a line of the processor's cache does, so that none of the vectors that it is
/// worked through in lies in two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Lanes<T>(pub [T; 32]);

impl<T: Copy + Default> Default for Lanes<T> {
    fn default() -> Self {
        Self([T::default(); 32])
    }
}

impl<T> Deref for Lanes<T> {
    type Target = [T; 32];
    #[inline(always)]
    fn deref(&self) -> &[T; 32] {
        &self.0
    }
}

impl<T> DerefMut for Lanes<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T; 32] {
        &mut self.0
    }
}

/// The set bits of a lane mask.
pub fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let l = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(l)
    })
}

/// The lanes that have the same as one of them.
#[inline(always)]
pub fn alike(row: &[u32; 32], lane: usize) -> u32 {
    // SAFETY: every x86-64 has these instructions; each reads four lanes of the row.
    unsafe {
        let first = _mm_set1_epi32(row[lane & 31] as i32);
        let four = |at: usize| _mm_cmpeq_epi32(_mm_loadu_si128(row.as_ptr().add(at).cast()), first);
        let eight = |at: usize| _mm_packs_epi32(four(at), four(at + 4));
        let half = |at: usize| _mm_movemask_epi8(_mm_packs_epi16(eight(at), eight(at + 8))) as u32;
        half(0) | half(16) << 16
    }
}

/// The lane that each lane reads in a shuffle, and which of them are in reach; those that are not read themselves.
#[inline(always)]
pub fn shuffled(mode: ShflMode, b: &[u32; 32], c: &[u32; 32]) -> ([u32; 32], u32) {
    #[inline(always)]
    fn each(b: &[u32; 32], c: &[u32; 32], of: impl Fn(i32, i32, i32, i32) -> (i32, bool)) -> ([u32; 32], u32) {
        let (mut from, mut in_range) = ([0; 32], 0);
        for l in 0..32 {
            let lane = l as i32;
            let seg = (c[l] >> 8) as i32 & 31;
            let clamp = c[l] as i32 & 31;
            let (j, ok) = of(lane, b[l] as i32 & 31, seg, (lane & seg) | (clamp & !seg & 31));
            from[l] = if ok { j as u32 } else { lane as u32 };
            in_range |= u32::from(ok) << l;
        }
        (from, in_range)
    }
    match mode {
        ShflMode::Up => each(b, c, |lane, delta, _, max| (lane - delta, lane - delta >= max)),
        ShflMode::Down => each(b, c, |lane, delta, _, max| (lane + delta, lane + delta <= max)),
        ShflMode::Bfly => each(b, c, |lane, delta, _, max| (lane ^ delta, (lane ^ delta) <= max)),
        ShflMode::Idx => each(b, c, |lane, delta, seg, max| {
            let j = (lane & seg) | (delta & !seg & 31);
            (j, j <= max)
        }),
    }
}
