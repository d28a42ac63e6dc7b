//! Sums of products of matrices, by the formats and numbers of registers that instructions have.

// UNSAFETY: calls functions for processors with AVX2 and FMA, after asking whether this one has them.

use crate::exec::matrix::floats::{eights_inline, floats_inline};
use crate::exec::matrix::layout::{Factors, Tile};
use crate::exec::matrix::whole::{integers_inline, single_bits};
use crate::exec::matrix::wide::Wide;
use crate::ptx::isa::matrix::{Element, Multiply};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::matrix::layout::Lanes;
    use crate::ptx::isa::matrix::Shape;
    use crate::ptx::isa::operand::Src;
    use crate::ptx::isa::operand::{Round, Ty};

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
