//! Conversions.

use crate::exec::fault::{Fault, out_of_place};
use crate::exec::float;
use crate::exec::integer::{extend, limits, saturate};
use crate::exec::registers::{map1, map2};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::*;

impl Warp {
    pub(super) fn convert_op(&mut self, ins: &Instr, m: u32, f: &Frame, env: &Env) -> Result<(), Fault> {
        match &ins.op {
            Op::Cvt { to, from, round, integer, fp } => {
                self.convert((*to, *from), *round, *integer, *fp, ins, m, f, env);
            }
            Op::CvtPair { to, fp } => self.convert_pair(*to, *fp, ins, m, f, env),
            Op::CvtPack { to, from, merge } => self.convert_pack(*to, *from, *merge, ins, m, f, env),
            _ => return Err(out_of_place()),
        }
        Ok(())
    }

    fn convert_pair(&mut self, to: Ty, fp: Fp, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b) = (self.read::<f32>(ins.a, f, env), self.read::<f32>(ins.b, f, env));
        let one = |v: f32| {
            let v = if fp.relu && v <= 0.0 { 0.0 } else { f64::from(v) };
            let bits = if to == Ty::F16x2 { float::f16_from(v, fp.round) } else { float::bf16_from(v, fp.round) };
            if fp.finite { finite(to, bits.into()) } else { u32::from(bits) }
        };
        self.write(ins.d, m, &map2(&a, &b, |hi, lo| (one(hi) << 16) | one(lo)), f);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn convert_pack(&mut self, to: Ty, from: Ty, merge: bool, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
        let c = self.read::<u32>(ins.c, f, env);
        let width = 8 * to.bytes();
        let clamp = |v: u64| (saturate(to, i128::from(extend(from, v) as i64)) & ((1 << width) - 1)) as u32;
        let v = std::array::from_fn(|l| {
            let both = (clamp(a[l]) << width) | clamp(b[l]);
            if merge { both | c[l].checked_shl(2 * width).unwrap_or(0) } else { both }
        });
        self.write::<u32>(ins.d, m, &v, f);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn convert(
        &mut self,
        (to, from): (Ty, Ty),
        round: Round,
        integer: bool,
        fp: Fp,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &Env,
    ) {
        if !to.is_float() && !from.is_float() {
            let a = self.read::<u64>(ins.a, f, env);
            let v = map1(&a, |x| {
                let x = extend(from, x);
                if fp.sat {
                    let wide = if from.is_signed() { i128::from(x as i64) } else { i128::from(x) };
                    saturate(to, wide)
                } else {
                    extend(to, x)
                }
            });
            self.write(ins.d, m, &v, f);
            return;
        }
        let plain = !fp.sat && !fp.ftz && round == Round::Nearest;
        match (to, from) {
            (Ty::F32, Ty::S32) if plain => {
                let v = map1(&self.read::<i32>(ins.a, f, env), |x| x as f32);
                self.write(ins.d, m, &v, f);
            }
            (Ty::F32, Ty::U32) if plain => {
                let v = map1(&self.read::<u32>(ins.a, f, env), |x| x as f32);
                self.write(ins.d, m, &v, f);
            }
            (Ty::F64, Ty::F32) if plain && !integer => {
                let v = map1(&self.read::<f32>(ins.a, f, env), f64::from);
                self.write(ins.d, m, &v, f);
            }
            (Ty::F32, Ty::F64) if plain && !integer => {
                let v = map1(&self.read::<f64>(ins.a, f, env), |x| x as f32);
                self.write(ins.d, m, &v, f);
            }
            _ => {
                let a = self.read::<u64>(ins.a, f, env);
                self.write(ins.d, m, &map1(&a, |x| convert_lane(x, to, from, round, integer, fp)), f);
            }
        }
    }
}

/// The greatest number instead of an infinity of `ty`.
fn finite(ty: Ty, bits: u32) -> u32 {
    let (magnitude, infinity, step) = match ty {
        Ty::F16 | Ty::F16x2 => (0x7fff, 0x7c00, 1),
        Ty::Bf16 | Ty::Bf16x2 => (0x7fff, 0x7f80, 1),
        // Single precision without the lower 13 bits.
        _ => (0x7fff_ffff, 0x7f80_0000, 0x2000),
    };
    if bits & magnitude == infinity { bits - step } else { bits }
}

fn convert_lane(v: u64, to: Ty, from: Ty, round: Round, integer: bool, fp: Fp) -> u64 {
    if !from.is_float() {
        let x = extend(from, v);
        let wide = if from.is_signed() { i128::from(x as i64) } else { i128::from(x) };
        return float_from_int(wide, to, round, fp);
    }
    let x = match from {
        Ty::F64 => f64::from_bits(v),
        Ty::F16 => f64::from(float::f16_to(v as u16)),
        Ty::Bf16 => f64::from(float::bf16_to(v as u16)),
        _ => {
            let x = f32::from_bits(v as u32);
            f64::from(if fp.ftz { float::flush32(x) } else { x })
        }
    };
    if !to.is_float() {
        if x.is_nan() {
            return if to.bytes() == 8 { 1 << 63 } else { 0 };
        }
        let r = float::round_integer(x, round);
        let (lo, hi) = limits(to);
        // The casts saturate, so values beyond 128 bits end at a limit as well.
        return (r as i128).clamp(lo, hi) as u64;
    }
    let mut x = if integer { float::round_integer(x, round) } else { x };
    if fp.sat {
        x = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
    }
    if fp.relu && x <= 0.0 {
        x = 0.0;
    }
    match to {
        Ty::F64 => x.to_bits(),
        Ty::F16 | Ty::Bf16 => {
            let h = if to == Ty::F16 { float::f16_from(x, round) } else { float::bf16_from(x, round) };
            u64::from(if fp.finite { finite(to, h.into()) } else { h.into() })
        }
        Ty::Tf32 => {
            // 10 fraction bits are kept; the nearest step of the dropped 13 decides.
            let b = (x as f32).to_bits();
            let half = match round {
                Round::Away => 1 << 12,
                Round::Zero => 0,
                _ => (1 << 12) - 1 + (b >> 13 & 1),
            };
            let b = if x.is_finite() { b.wrapping_add(half) & !0x1fff } else { b };
            u64::from(if fp.finite { finite(to, b) } else { b })
        }
        _ => {
            let y = float::direct32(x, 0.0, round);
            u64::from(if y.is_nan() {
                0x7fff_ffff
            } else if fp.ftz {
                float::flush32(y).to_bits()
            } else {
                y.to_bits()
            })
        }
    }
}

fn float_from_int(v: i128, to: Ty, round: Round, fp: Fp) -> u64 {
    let sat = |x: f64| if fp.sat { x.clamp(0.0, 1.0) } else { x };
    match to {
        Ty::F64 => {
            let y = v as f64;
            let rest = v - y as i128;
            sat(float::direct64(y, rest as f64, round)).to_bits()
        }
        Ty::F16 => u64::from(float::f16_from(sat(float::integer_to_odd(v)), round)),
        Ty::Bf16 => u64::from(float::bf16_from(sat(float::integer_to_odd(v)), round)),
        _ => {
            let y = v as f32;
            let rest = v - y as i128;
            let y = if rest == 0 {
                y
            } else {
                match round {
                    Round::Up if rest > 0 => y.next_up(),
                    Round::Down if rest < 0 => y.next_down(),
                    Round::Zero if v > 0 && rest < 0 => y.next_down(),
                    Round::Zero if v < 0 && rest > 0 => y.next_up(),
                    _ => y,
                }
            };
            u64::from((sat(f64::from(y)) as f32).to_bits())
        }
    }
}
