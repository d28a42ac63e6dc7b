//! Fields of bits, and words put together and taken apart.

use crate::exec::fault::{Fault, out_of_place};
use crate::exec::integer::extend;
use crate::exec::registers::{map1, map2, map3};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::*;

impl Warp {
    pub(super) fn bits_op(&mut self, ins: &Instr, m: u32, f: &Frame, env: &Env) -> Result<(), Fault> {
        match &ins.op {
            Op::Pack(ty, parts) => self.pack(*ty, parts, ins, m, f, env),
            Op::Unpack(ty, regs) => self.unpack(*ty, regs, ins, m, f, env),
            Op::Bfe(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, p, n| bfe(*ty, x, p as u8, n as u8)), f);
            }
            Op::Bfi(ty) => self.insert_bits(*ty, ins, m, f, env)?,
            Op::Bmsk => self.bit_mask(ins, m, f, env),
            Op::Szext(signed) => self.extend_or_clamp(*signed, ins, m, f, env),
            Op::Fns => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, base, n| find_nth(x, base, n as i32)), f);
            }
            Op::Shf { left, wrap } => self.funnel(*left, *wrap, ins, m, f, env),
            Op::Prmt(mode) => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, s| prmt(*mode, x, y, s)), f);
            }
            Op::Lop3(table) => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, z| lop3(*table, x, y, z)), f);
            }
            _ => return Err(out_of_place()),
        }
        Ok(())
    }

    fn pack(&mut self, ty: Ty, parts: &[Src], ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let width = 8 * ty.bytes();
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let mut v = [0u64; 32];
        for (k, s) in parts.iter().enumerate() {
            let row = self.read::<u64>(*s, f, env);
            for l in 0..32 {
                v[l] |= (row[l] & mask) << ((k as u32 * width) & 63);
            }
        }
        self.write(ins.d, m, &v, f);
    }

    fn unpack(&mut self, ty: Ty, regs: &[Reg], ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let width = 8 * ty.bytes();
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let a = self.read::<u64>(ins.a, f, env);
        for (k, d) in regs.iter().enumerate() {
            self.write(*d, m, &map1(&a, |v| v >> ((k as u32 * width) & 63) & mask), f);
        }
    }

    fn insert_bits(&mut self, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) -> Result<(), Fault> {
        let (a, b, c) = self.three::<u64>(ins, f, env);
        let e = self.read::<u64>(ins.e, f, env);
        let width = 8 * ty.bytes();
        let v = std::array::from_fn(|l| {
            let (pos, len) = (c[l] as u8 as u32, e[l] as u8 as u32);
            if pos >= width || len == 0 {
                return b[l];
            }
            let mask = (if len >= 64 { u64::MAX } else { (1u64 << len) - 1 }) << pos;
            (b[l] & !mask) | ((a[l] << pos) & mask)
        });
        self.write::<u64>(ins.d, m, &v, f);
        Ok(())
    }

    fn bit_mask(&mut self, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
        let v = map2(&a, &b, |pos, len| {
            let ones = if len >= 32 { u64::from(u32::MAX) } else { (1u64 << len) - 1 };
            (ones << pos.min(32)) as u32
        });
        self.write(ins.d, m, &v, f);
    }

    fn extend_or_clamp(&mut self, signed: bool, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
        let v = map2(&a, &b, |x, n| match n {
            0 => 0,
            32.. => x,
            n if signed => ((x << (32 - n)) as i32 >> (32 - n)) as u32,
            n => x & ((1 << n) - 1),
        });
        self.write(ins.d, m, &v, f);
    }

    fn funnel(&mut self, left: bool, wrap: bool, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b, c) = self.three::<u32>(ins, f, env);
        let v = map3(&a, &b, &c, |lo, hi, n| {
            let n = if wrap { n & 31 } else { n.min(32) };
            let both = (u64::from(hi) << 32) | u64::from(lo);
            if left { ((both << n) >> 32) as u32 } else { (both >> n) as u32 }
        });
        self.write(ins.d, m, &v, f);
    }
}

fn bfe(ty: Ty, a: u64, pos: u8, len: u8) -> u64 {
    let width = 8 * ty.bytes();
    let (pos, len) = (u32::from(pos), u32::from(len));
    if len == 0 {
        return 0;
    }
    let a = extend(ty, a);
    let top = (pos + len - 1).min(width - 1);
    let sign = ty.is_signed() && a >> top & 1 != 0;
    let field = if pos >= width { 0 } else { (a & if width == 64 { u64::MAX } else { (1 << width) - 1 }) >> pos };
    let taken = len.min(width.saturating_sub(pos));
    let mask = if taken >= 64 { u64::MAX } else { (1u64 << taken) - 1 };
    (field & mask) | if sign { !mask } else { 0 }
}

fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == 0 {
        return if mask >> (base & 31) & 1 != 0 { base } else { u32::MAX };
    }
    let mut left = offset.unsigned_abs();
    let mut at = base as i32;
    while (0..32).contains(&at) {
        left -= mask >> at & 1;
        if left == 0 {
            return at as u32;
        }
        at += offset.signum();
    }
    u32::MAX
}

fn prmt(mode: u8, a: u32, b: u32, c: u32) -> u32 {
    let both = (u64::from(b) << 32) | u64::from(a);
    let s = c & 3;
    let selector = match mode {
        0 => c,
        1 => [0x3210, 0x4321, 0x5432, 0x6543][s as usize],
        2 => [0x5670, 0x6701, 0x7012, 0x0123][s as usize],
        3 => [0x0000, 0x1111, 0x2222, 0x3333][s as usize],
        4 => [0x3210, 0x3211, 0x3222, 0x3333][s as usize],
        5 => [0x0000, 0x1110, 0x2210, 0x3210][s as usize],
        _ => [0x1010, 0x3232, 0x1010, 0x3232][s as usize],
    };
    (0..4).fold(0, |d, k| {
        let n = selector >> (4 * k) & 0xf;
        let byte = (both >> (8 * (n & 7))) as u8;
        let byte = if n & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        d | u32::from(byte) << (8 * k)
    })
}

fn lop3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..8u32).filter(|k| table >> k & 1 != 0).fold(0, |d, k| {
        let pick = |v: u32, on: bool| if on { v } else { !v };
        d | (pick(a, k & 4 != 0) & pick(b, k & 2 != 0) & pick(c, k & 1 != 0))
    })
}
