//! Arithmetic of floats.

use crate::exec::fault::{Fault, out_of_place};
use crate::exec::float;
use crate::exec::registers::{map1, map2, map3};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::*;

impl Warp {
    pub(super) fn floating_op(&mut self, ins: &Instr, m: u32, f: &Frame, env: &Env) -> Result<(), Fault> {
        match &ins.op {
            Op::FloatBin(op, ty, fp) => self.float_bin(*op, *ty, *fp, ins, m, f, env),
            Op::FloatUn(op, ty, fp) => self.float_un(*op, *ty, *fp, ins, m, f, env),
            Op::Fma(ty, fp) => self.fma(*ty, *fp, ins, m, f, env),
            _ => return Err(out_of_place()),
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn float_bin(&mut self, op: FloatBin, ty: Ty, fp: Fp, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match ty {
            Ty::F32 => {
                let (mut a, mut b) = (self.read::<f32>(ins.a, f, env), self.read::<f32>(ins.b, f, env));
                if fp.ftz {
                    (a, b) = (map1(&a, float::flush32), map1(&b, float::flush32));
                }
                let r = fp.round;
                let v = match op {
                    FloatBin::Add if r == Round::Nearest => map2(&a, &b, |x, y| x + y),
                    FloatBin::Mul if r == Round::Nearest => map2(&a, &b, |x, y| x * y),
                    FloatBin::Add => map2(&a, &b, |x, y| float::add32(x, y, r)),
                    FloatBin::Sub => map2(&a, &b, |x, y| float::add32(x, -y, r)),
                    FloatBin::Mul => map2(&a, &b, |x, y| float::mul32(x, y, r)),
                    FloatBin::Div => map2(&a, &b, |x, y| float::div32(x, y, r)),
                    FloatBin::Min => map2(&a, &b, |x, y| min_max(x, y, true)),
                    FloatBin::Max => map2(&a, &b, |x, y| min_max(x, y, false)),
                    FloatBin::MinNan => map2(&a, &b, |x, y| nan_or(x, y, min_max(x, y, true))),
                    FloatBin::MaxNan => map2(&a, &b, |x, y| nan_or(x, y, min_max(x, y, false))),
                    // The sign comes from the first operand.
                    FloatBin::CopySign => map2(&a, &b, |x, y| y.copysign(x)),
                };
                self.write(ins.d, m, &map1(&v, |x| finish32(x, fp)), f);
            }
            Ty::F64 => {
                let (a, b) = (self.read::<f64>(ins.a, f, env), self.read::<f64>(ins.b, f, env));
                let r = fp.round;
                let v = match op {
                    FloatBin::Add => map2(&a, &b, |x, y| float::add64(x, y, r)),
                    FloatBin::Sub => map2(&a, &b, |x, y| float::add64(x, -y, r)),
                    FloatBin::Mul => map2(&a, &b, |x, y| float::mul64(x, y, r)),
                    FloatBin::Div => map2(&a, &b, |x, y| float::div64(x, y, r)),
                    FloatBin::Min | FloatBin::MinNan => map2(&a, &b, |x, y| min_max64(x, y, true)),
                    FloatBin::Max | FloatBin::MaxNan => map2(&a, &b, |x, y| min_max64(x, y, false)),
                    FloatBin::CopySign => map2(&a, &b, |x, y| y.copysign(x)),
                };
                self.write(ins.d, m, &v, f);
            }
            _ => {
                let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
                let v = map2(&a, &b, |x, y| {
                    halves(ty, [x, y, 0], fp, |[x, y, _]| match op {
                        FloatBin::Add => x + y,
                        FloatBin::Sub => x - y,
                        FloatBin::Mul => x * y,
                        FloatBin::Div => x / y,
                        FloatBin::Min => min_max(x as f32, y as f32, true).into(),
                        FloatBin::Max => min_max(x as f32, y as f32, false).into(),
                        FloatBin::MinNan => nan_or(x as f32, y as f32, min_max(x as f32, y as f32, true)).into(),
                        FloatBin::MaxNan => nan_or(x as f32, y as f32, min_max(x as f32, y as f32, false)).into(),
                        FloatBin::CopySign => y.copysign(x),
                    })
                });
                self.write(ins.d, m, &v, f);
            }
        }
    }

    fn fma(&mut self, ty: Ty, fp: Fp, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match ty {
            Ty::F32 => {
                let (mut a, mut b, mut c) = self.three::<f32>(ins, f, env);
                if fp.ftz {
                    (a, b, c) = (map1(&a, float::flush32), map1(&b, float::flush32), map1(&c, float::flush32));
                }
                let v = match fp.round {
                    Round::Nearest => float::fma_row32(&a, &b, &c),
                    round => map3(&a, &b, &c, |x, y, z| float::fma32(x, y, z, round)),
                };
                self.write(ins.d, m, &map1(&v, |x| finish32(x, fp)), f);
            }
            Ty::F64 => {
                let (a, b, c) = self.three::<f64>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, z| float::fma64(x, y, z, fp.round)), f);
            }
            _ => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                let v = map3(&a, &b, &c, |x, y, z| halves(ty, [x, y, z], fp, |[x, y, z]| float::sum_to_odd(x * y, z)));
                self.write(ins.d, m, &v, f);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn float_un(&mut self, op: FloatUn, ty: Ty, fp: Fp, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match ty {
            Ty::F32 => {
                let mut a = self.read::<f32>(ins.a, f, env);
                if fp.ftz {
                    a = map1(&a, float::flush32);
                }
                let v = match op {
                    FloatUn::Neg => map1(&a, |x: f32| -x),
                    FloatUn::Abs => map1(&a, f32::abs),
                    FloatUn::Sqrt => map1(&a, |x| float::sqrt32(x, fp.round)),
                    FloatUn::Rcp => map1(&a, |x| float::div32(1.0, x, fp.round)),
                    _ => map1(&a, |x| transcendental(op, f64::from(x)) as f32),
                };
                if matches!(op, FloatUn::Neg | FloatUn::Abs) {
                    self.write(ins.d, m, &v, f);
                } else {
                    self.write(ins.d, m, &map1(&v, |x| finish32(x, fp)), f);
                }
            }
            Ty::F64 => {
                let a = self.read::<f64>(ins.a, f, env);
                let v = map1(&a, |x| match op {
                    FloatUn::Neg => -x,
                    FloatUn::Abs => x.abs(),
                    FloatUn::Sqrt => float::sqrt64(x, fp.round),
                    FloatUn::Rcp => float::div64(1.0, x, fp.round),
                    _ => transcendental(op, x),
                });
                self.write(ins.d, m, &v, f);
            }
            _ => {
                let a = self.read::<u32>(ins.a, f, env);
                let a = if fp.ftz { map1(&a, |x| flush_halves(ty, x)) } else { a };
                let v = map1(&a, |x| match op {
                    FloatUn::Neg => x ^ if matches!(ty, Ty::F16 | Ty::Bf16) { 0x8000 } else { 0x8000_8000 },
                    FloatUn::Abs => x & 0x7fff_7fff,
                    _ => halves(ty, [x, 0, 0], fp, |[x, ..]| transcendental(op, x)),
                });
                self.write(ins.d, m, &v, f);
            }
        }
    }
}

fn min_max(a: f32, b: f32, min: bool) -> f32 {
    if a.is_nan() {
        return if b.is_nan() { f32::from_bits(0x7fff_ffff) } else { b };
    }
    if b.is_nan() {
        return a;
    }
    if a == b {
        // Minus zero is less than plus zero.
        return if a.is_sign_negative() == min { a } else { b };
    }
    if (a < b) == min { a } else { b }
}

/// As [`min_max`], but that a NaN is the host's.
fn min_max64(a: f64, b: f64, min: bool) -> f64 {
    if a == b {
        return if a.is_sign_negative() == min { a } else { b };
    }
    if min { a.min(b) } else { a.max(b) }
}

/// The smallest or greatest of a warp's floats; a NaN if all are, or with `nan` if one is.
pub fn extreme_of(values: impl Iterator<Item = f32>, max: bool, abs: bool, nan: bool) -> f32 {
    let values = values.map(|v| if abs { v.abs() } else { v });
    let both = |a, b| if nan { nan_or(a, b, min_max(a, b, !max)) } else { min_max(a, b, !max) };
    let v = values.reduce(both).unwrap_or(0.0);
    nan_or(v, v, v)
}

fn nan_or(a: f32, b: f32, v: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(0x7fff_ffff) } else { v }
}

#[inline(always)]
fn finish32(x: f32, fp: Fp) -> f32 {
    let mut x = float::canonical(x);
    if fp.ftz {
        x = float::flush32(x);
    }
    if fp.sat {
        x = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
    }
    x
}

/// Applies `op` to one or both halves of half-precision operands.
pub fn halves(ty: Ty, v: [u32; 3], fp: Fp, op: impl Fn([f64; 3]) -> f64) -> u32 {
    let brain = matches!(ty, Ty::Bf16 | Ty::Bf16x2);
    let one = |shift: u32| {
        let x = v.map(|v| {
            let h = if fp.ftz { flush_halves(ty, v >> shift) } else { v >> shift } as u16;
            f64::from(if brain { float::bf16_to(h) } else { float::f16_to(h) })
        });
        let mut r = op(x);
        if fp.sat {
            r = if r.is_nan() { 0.0 } else { r.clamp(0.0, 1.0) };
        }
        if fp.relu && r <= 0.0 {
            r = 0.0;
        }
        let h = u32::from(if brain { float::bf16_from(r, fp.round) } else { float::f16_from(r, fp.round) });
        if fp.ftz { flush_halves(ty, h) } else { h }
    };
    if matches!(ty, Ty::F16x2 | Ty::Bf16x2) { one(0) | one(16) << 16 } else { one(0) }
}

/// Zeroes for the subnormals among one or two halves.
pub fn flush_halves(ty: Ty, v: u32) -> u32 {
    let exponent = if matches!(ty, Ty::Bf16 | Ty::Bf16x2) { 0x7f80 } else { 0x7c00 };
    let kept = |shift: u32| if v >> shift & exponent == 0 { 0x8000 } else { 0xffff };
    v & (kept(0) | kept(16) << 16)
}

fn transcendental(op: FloatUn, x: f64) -> f64 {
    match op {
        FloatUn::Rsqrt => 1.0 / x.sqrt(),
        FloatUn::Sin => x.sin(),
        FloatUn::Cos => x.cos(),
        FloatUn::Ex2 => x.exp2(),
        FloatUn::Lg2 => x.log2(),
        FloatUn::Tanh => x.tanh(),
        FloatUn::Sqrt => x.sqrt(),
        FloatUn::Rcp => 1.0 / x,
        FloatUn::Neg => -x,
        FloatUn::Abs => x.abs(),
    }
}
