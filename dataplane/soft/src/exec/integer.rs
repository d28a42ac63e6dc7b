//! Arithmetic of integers.

use crate::exec::fault::{Fault, out_of_place};
use crate::exec::registers::{Row, by_int, map1, map2, map3};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::*;

impl Warp {
    pub(super) fn integer_op(&mut self, ins: &Instr, m: u32, f: &Frame, env: &Env) -> Result<(), Fault> {
        match &ins.op {
            Op::IntBin(op, ty) => self.int_bin(*op, *ty, ins, m, f, env),
            Op::IntUn(op, ty) => self.int_un(*op, *ty, ins, m, f, env),
            Op::MulWide(ty) | Op::MadWide(ty) => self.multiply_wide(*ty, ins, m, f, env),
            Op::MadLo(ty) => by_int!(ty, T => {
                let (a, b, c) = self.three::<T>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, z| x.wrapping_mul(y).wrapping_add(z)), f);
            }),
            Op::MadHi(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let v = map3(&a, &b, &c, |x, y, z| mul_hi(*ty, x, y).wrapping_add(z));
                self.write(ins.d, m, &v, f);
            }
            Op::Mad24(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let v = map3(&a, &b, &c, |x, y, z| low24(*ty, x).wrapping_mul(low24(*ty, y)).wrapping_add(z));
                self.write(ins.d, m, &v, f);
            }
            Op::Sad(ty) => self.sum_of_difference(*ty, ins, m, f, env),
            Op::Carry { ty, sub, cin, cout } => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                self.carry_chain(*ty, &a, &b, *sub, *cin, *cout, ins.d, m, f);
            }
            Op::MadCarry { ty, hi, cin, cout } => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let p = map2(&a, &b, |x, y| if *hi { mul_hi(*ty, x, y) } else { x.wrapping_mul(y) });
                self.carry_chain(*ty, &p, &c, false, *cin, *cout, ins.d, m, f);
            }
            Op::Dp4a(s, t) => self.dot_of_bytes(*s, *t, ins, m, f, env),
            Op::Dp2a(s, t, hi) => self.dot_of_halves(*s, *t, *hi, ins, m, f, env),
            _ => return Err(out_of_place()),
        }
        Ok(())
    }

    fn multiply_wide(&mut self, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let a = self.read::<u64>(ins.a, f, env);
        let b = self.read::<u64>(ins.b, f, env);
        let w = map2(&a, &b, |x, y| extend(ty, x).wrapping_mul(extend(ty, y)));
        let w = if ins.c == Src::None { w } else { map2(&w, &self.read::<u64>(ins.c, f, env), u64::wrapping_add) };
        self.write(ins.d, m, &w, f);
    }

    fn sum_of_difference(&mut self, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b, c) = self.three::<u64>(ins, f, env);
        let v = map3(&a, &b, &c, |x, y, z| {
            let (x, y) = (extend(ty, x), extend(ty, y));
            z.wrapping_add(if ty.is_signed() { (x as i64).abs_diff(y as i64) } else { x.abs_diff(y) })
        });
        self.write(ins.d, m, &v, f);
    }

    fn dot_of_bytes(&mut self, s: bool, t: bool, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b, c) = self.three::<u32>(ins, f, env);
        let byte = |v: u32, k: u32, signed: bool| {
            let v = (v >> (8 * k)) as u8;
            if signed { i32::from(v as i8) } else { i32::from(v) }
        };
        let v = map3(&a, &b, &c, |x, y, z| {
            (0..4).fold(z, |sum, k| sum.wrapping_add((byte(x, k, s) * byte(y, k, t)) as u32))
        });
        self.write(ins.d, m, &v, f);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn dot_of_halves(&mut self, s: bool, t: bool, hi: bool, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b, c) = self.three::<u32>(ins, f, env);
        let base = if hi { 16 } else { 0 };
        let v = map3(&a, &b, &c, |x, y, z| {
            (0..2).fold(z, |sum, k| {
                let p = (x >> (16 * k)) as u16;
                let q = (y >> (base + 8 * k)) as u8;
                let p = if s { i32::from(p as i16) } else { i32::from(p) };
                let q = if t { i32::from(q as i8) } else { i32::from(q) };
                sum.wrapping_add(p.wrapping_mul(q) as u32)
            })
        });
        self.write(ins.d, m, &v, f);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn carry_chain(
        &mut self,
        ty: Ty,
        a: &Row<u64>,
        b: &Row<u64>,
        sub: bool,
        cin: bool,
        cout: bool,
        d: Reg,
        m: u32,
        f: &Frame,
    ) {
        let width = 8 * ty.bytes();
        let mask = (1u128 << width) - 1;
        let mut v = [0u64; 32];
        let mut carry = 0;
        for l in 0..32 {
            // Subtraction adds the complement, as the hardware does: nvcc's 128-bit division reads the carry of a
            // sub.cc with addc and finds one when nothing was borrowed.
            let c = if cin { u128::from(self.carry >> l & 1) } else { u128::from(sub) };
            let (x, y) = (u128::from(a[l]) & mask, u128::from(b[l]) & mask);
            let sum = x + if sub { !y & mask } else { y } + c;
            v[l] = (sum & mask) as u64;
            carry |= u32::from(sum & !mask != 0) << l;
        }
        if cout {
            self.carry = (self.carry & !m) | (carry & m);
        }
        self.write(d, m, &v, f);
    }

    fn int_bin(&mut self, op: IntBin, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match op {
            IntBin::Shl | IntBin::Shr => {
                let b = self.read::<u32>(ins.b, f, env);
                by_int!(ty, T => {
                    let a = self.read::<T>(ins.a, f, env);
                    let v = map2(&a, &b, |x, n| {
                        if op == IntBin::Shl {
                            x.checked_shl(n).unwrap_or(0)
                        } else {
                            // Arithmetic shifts past the width leave the sign, logical ones leave zero.
                            #[allow(
                                unused_comparisons,
                                clippy::absurd_extreme_comparisons,
                                reason = "the unsigned types share this code"
                            )]
                            x.checked_shr(n).unwrap_or(if x < 0 { !0 } else { 0 })
                        }
                    });
                    self.write(ins.d, m, &v, f);
                });
            }
            IntBin::MulHi => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                self.write(ins.d, m, &map2(&a, &b, |x, y| mul_hi(ty, x, y)), f);
            }
            IntBin::Mul24Lo | IntBin::Mul24Hi => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                let shift = if op == IntBin::Mul24Hi { 16 } else { 0 };
                let v = map2(&a, &b, |x, y| low24(ty, x).wrapping_mul(low24(ty, y)) >> shift);
                self.write(ins.d, m, &v, f);
            }
            _ => by_int!(ty, T => {
                let (a, b) = (self.read::<T>(ins.a, f, env), self.read::<T>(ins.b, f, env));
                let v: Row<T> = match op {
                    IntBin::Add => map2(&a, &b, T::wrapping_add),
                    IntBin::Sub => map2(&a, &b, T::wrapping_sub),
                    IntBin::MulLo => map2(&a, &b, T::wrapping_mul),
                    // Division by zero gives all ones on the hardware.
                    IntBin::Div => map2(&a, &b, |x, y| if y == 0 { !0 } else { x.wrapping_div(y) }),
                    IntBin::Rem => map2(&a, &b, |x, y| if y == 0 { x } else { x.wrapping_rem(y) }),
                    IntBin::Min => map2(&a, &b, T::min),
                    IntBin::Max => map2(&a, &b, T::max),
                    IntBin::And => map2(&a, &b, |x, y| x & y),
                    IntBin::Or => map2(&a, &b, |x, y| x | y),
                    IntBin::AddSat => map2(&a, &b, T::saturating_add),
                    IntBin::SubSat => map2(&a, &b, T::saturating_sub),
                    _ => map2(&a, &b, |x, y| x ^ y),
                };
                self.write(ins.d, m, &v, f);
            }),
        }
    }

    fn int_un(&mut self, op: IntUn, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let width = 8 * ty.bytes();
        let a = self.read::<u64>(ins.a, f, env);
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let v = map1(&a, |x| {
            let z = x & mask;
            match op {
                IntUn::Not => !x,
                IntUn::Neg => x.wrapping_neg(),
                IntUn::Abs => (extend_signed(ty, x)).unsigned_abs(),
                IntUn::Popc => u64::from(z.count_ones()),
                IntUn::Clz => u64::from(z.leading_zeros() - (64 - width)),
                IntUn::Brev => x.reverse_bits() >> (64 - width),
                IntUn::Cnot => u64::from(z == 0),
                IntUn::Bfind | IntUn::BfindShift => {
                    let y = if ty.is_signed() && extend_signed(ty, x) < 0 { !x & mask } else { z };
                    if y == 0 {
                        return u64::from(u32::MAX);
                    }
                    let top = 63 - y.leading_zeros();
                    u64::from(if op == IntUn::Bfind { top } else { width - 1 - top })
                }
            }
        });
        self.write(ins.d, m, &v, f);
    }
}

/// Sign- or zero-extends the value of a type to 64 bits.
#[inline(always)]
pub fn extend(ty: Ty, v: u64) -> u64 {
    match ty {
        Ty::S8 => i64::from(v as i8) as u64,
        Ty::S16 => i64::from(v as i16) as u64,
        Ty::S32 => i64::from(v as i32) as u64,
        Ty::U8 | Ty::B8 => v & 0xff,
        Ty::U16 | Ty::B16 | Ty::F16 | Ty::Bf16 => v & 0xffff,
        Ty::U32 | Ty::B32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 => v & 0xffff_ffff,
        _ => v,
    }
}

fn extend_signed(ty: Ty, v: u64) -> i64 {
    match ty.bytes() {
        1 => i64::from(v as i8),
        2 => i64::from(v as i16),
        4 => i64::from(v as i32),
        _ => v as i64,
    }
}

fn low24(ty: Ty, v: u64) -> u64 {
    if ty.is_signed() { (((v as i64) << 40) >> 40) as u64 } else { v & 0xff_ffff }
}

fn mul_hi(ty: Ty, a: u64, b: u64) -> u64 {
    let width = 8 * ty.bytes();
    if ty.is_signed() {
        ((i128::from(extend_signed(ty, a)) * i128::from(extend_signed(ty, b))) >> width) as u64
    } else {
        ((u128::from(extend(ty, a)) * u128::from(extend(ty, b))) >> width) as u64
    }
}

pub fn limits(ty: Ty) -> (i128, i128) {
    let width = 8 * ty.bytes();
    if ty.is_signed() { (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1) } else { (0, (1i128 << width) - 1) }
}

pub fn saturate(ty: Ty, v: i128) -> u64 {
    let (lo, hi) = limits(ty);
    v.clamp(lo, hi) as u64
}
