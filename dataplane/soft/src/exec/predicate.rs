//! Comparisons, predicates and choices.

use crate::exec::fault::{Fault, out_of_place};
use crate::exec::float;
use crate::exec::floating::flush_halves;
use crate::exec::registers::{Row, bits, by_int, map1};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::*;

impl Warp {
    pub(super) fn predicate_op(&mut self, ins: &Instr, m: u32, f: &Frame, env: &Env) -> Result<(), Fault> {
        match &ins.op {
            Op::Setp { cmp, ty, logic, ftz } => self.set_predicate(*cmp, *ty, *logic, *ftz, ins, m, f, env),
            Op::Set { cmp, to, ty, logic, ftz } => self.set_register(*cmp, *to, *ty, *logic, *ftz, ins, m, f, env)?,
            Op::PredBin(logic) => {
                let v = combine_pred(*logic, self.read_pred(ins.a, f, env), self.read_pred(ins.b, f, env));
                self.write_pred(ins.d, m, v, f);
            }
            Op::PredNot => {
                let v = !self.read_pred(ins.a, f, env);
                self.write_pred(ins.d, m, v, f);
            }
            Op::PredMov => {
                let v = self.read_pred(ins.a, f, env);
                self.write_pred(ins.d, m, v, f);
            }
            Op::Selp(_) => {
                let p = self.read_pred(ins.c, f, env);
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                self.write::<u64>(ins.d, m, &std::array::from_fn(|l| if p >> l & 1 != 0 { a[l] } else { b[l] }), f);
            }
            Op::Slct(_, by_float) => self.choose(*by_float, ins, m, f, env),
            Op::Testp(kind, ty) => self.test(*kind, *ty, ins, m, f, env),
            _ => return Err(out_of_place()),
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn set_predicate(
        &mut self,
        cmp: Cmp,
        ty: Ty,
        logic: Option<Logic>,
        ftz: bool,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &Env,
    ) {
        let (mut p, mut q) = if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
            self.compare_pair(cmp, ty, ftz, ins, f, env)
        } else {
            let p = self.compare(cmp, ty, ftz, ins, f, env);
            (p, !p)
        };
        if let Some(logic) = logic {
            let c = self.read_pred(ins.c, f, env);
            p = combine_pred(logic, p, c);
            q = combine_pred(logic, q, c);
        }
        self.write_pred(ins.d, m, p, f);
        self.write_pred(ins.d2, m, q, f);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn set_register(
        &mut self,
        cmp: Cmp,
        to: Ty,
        ty: Ty,
        logic: Option<Logic>,
        ftz: bool,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &Env,
    ) -> Result<(), Fault> {
        if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
            return self.set_pair(cmp, to, (ty, ftz), ins, m, f, env);
        }
        let mut p = self.compare(cmp, ty, ftz, ins, f, env);
        if let Some(logic) = logic {
            p = combine_pred(logic, p, self.read_pred(ins.c, f, env));
        }
        let yes = match to {
            Ty::F32 => 0x3f80_0000,
            Ty::F16 => 0x3c00,
            Ty::Bf16 => 0x3f80,
            _ => u64::MAX,
        };
        self.write::<u64>(ins.d, m, &std::array::from_fn(|l| if p >> l & 1 != 0 { yes } else { 0 }), f);
        Ok(())
    }

    fn choose(&mut self, by_float: bool, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
        let c = self.read::<u32>(ins.c, f, env);
        let v = std::array::from_fn(|l| {
            let first = if by_float { f32::from_bits(c[l]) >= 0.0 } else { c[l] as i32 >= 0 };
            if first { a[l] } else { b[l] }
        });
        self.write::<u64>(ins.d, m, &v, f);
    }

    fn test(&mut self, kind: u8, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let a = self.read::<u64>(ins.a, f, env);
        let p = bits(&a, |v| {
            let (x, subnormal) = if ty == Ty::F64 {
                (f64::from_bits(v), f64::from_bits(v).is_subnormal())
            } else {
                (f64::from(f32::from_bits(v as u32)), f32::from_bits(v as u32).is_subnormal())
            };
            match kind {
                0 => x.is_finite(),
                1 => x.is_infinite(),
                2 => !x.is_nan(),
                3 => x.is_nan(),
                4 => x.is_finite() && x != 0.0 && !subnormal,
                _ => subnormal,
            }
        });
        self.write_pred(ins.d, m, p, f);
    }

    fn compare(&self, cmp: Cmp, ty: Ty, ftz: bool, ins: &Instr, f: &Frame, env: &Env) -> u32 {
        match ty {
            Ty::F32 => {
                let (mut a, mut b) = (self.read::<f32>(ins.a, f, env), self.read::<f32>(ins.b, f, env));
                if ftz {
                    (a, b) = (map1(&a, float::flush32), map1(&b, float::flush32));
                }
                compare_rows(&a, &b, cmp, |x| x.is_nan())
            }
            Ty::F64 => {
                let (a, b) = (self.read::<f64>(ins.a, f, env), self.read::<f64>(ins.b, f, env));
                compare_rows(&a, &b, cmp, |x| x.is_nan())
            }
            Ty::F16 | Ty::Bf16 => {
                let (a, b) = (self.read::<u16>(ins.a, f, env), self.read::<u16>(ins.b, f, env));
                compare_halves(&a, &b, cmp, ty, ftz)
            }
            _ => by_int!(ty, T => {
                let (a, b) = (self.read::<T>(ins.a, f, env), self.read::<T>(ins.b, f, env));
                compare_rows(&a, &b, cmp, |_| false)
            }),
        }
    }

    /// Comparisons of the lower and of the upper halves.
    fn compare_pair(&self, cmp: Cmp, ty: Ty, ftz: bool, ins: &Instr, f: &Frame, env: &Env) -> (u32, u32) {
        let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
        let half = |shift: u32| {
            let part = |v: &Row<u32>| map1(v, |v| (v >> shift) as u16);
            compare_halves(&part(&a), &part(&b), cmp, ty, ftz)
        };
        (half(0), half(16))
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn set_pair(
        &mut self,
        cmp: Cmp,
        to: Ty,
        (ty, ftz): (Ty, bool),
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &Env,
    ) -> Result<(), Fault> {
        let (lo, hi) = self.compare_pair(cmp, ty, ftz, ins, f, env);
        let yes = match to {
            Ty::F16x2 => 0x3c00,
            Ty::Bf16x2 => 0x3f80,
            _ => 0xffff,
        };
        let v = std::array::from_fn(|l| ((lo >> l & 1) * yes) | ((hi >> l & 1) * yes) << 16);
        self.write::<u32>(ins.d, m, &v, f);
        Ok(())
    }
}

#[inline(always)]
fn compare_rows<T: Copy + PartialOrd>(a: &Row<T>, b: &Row<T>, cmp: Cmp, nan: impl Fn(T) -> bool) -> u32 {
    let rows = |f: fn(T, T) -> bool| {
        let mut p = 0;
        for l in 0..32 {
            p |= u32::from(f(a[l], b[l])) << l;
        }
        p
    };
    let unordered = || bits(a, &nan) | bits(b, &nan);
    match cmp {
        Cmp::Eq => rows(|x, y| x == y),
        Cmp::Ne => rows(|x, y| x != y) & !unordered(),
        Cmp::Lt => rows(|x, y| x < y),
        Cmp::Le => rows(|x, y| x <= y),
        Cmp::Gt => rows(|x, y| x > y),
        Cmp::Ge => rows(|x, y| x >= y),
        Cmp::Equ => rows(|x, y| x == y) | unordered(),
        Cmp::Neu => rows(|x, y| x != y),
        Cmp::Ltu => rows(|x, y| x < y) | unordered(),
        Cmp::Leu => rows(|x, y| x <= y) | unordered(),
        Cmp::Gtu => rows(|x, y| x > y) | unordered(),
        Cmp::Geu => rows(|x, y| x >= y) | unordered(),
        Cmp::Num => !unordered(),
        Cmp::Nan => unordered(),
    }
}

fn combine_pred(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

fn compare_halves(a: &Row<u16>, b: &Row<u16>, cmp: Cmp, ty: Ty, ftz: bool) -> u32 {
    let to = if matches!(ty, Ty::F16 | Ty::F16x2) { float::f16_to } else { float::bf16_to };
    let wide = |h: u16| to(if ftz { flush_halves(ty, h.into()) as u16 } else { h });
    compare_rows(&map1(a, wide), &map1(b, wide), cmp, |x| x.is_nan())
}
