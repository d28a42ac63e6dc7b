//! Loads, stores and exchanges.

use crate::exec::fault::{Fault, FaultKind, out_of_place};
use crate::exec::integer::extend;
use crate::exec::lanes::lanes;
use crate::exec::registers::{Row, map1};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::*;

impl Warp {
    pub(super) fn accesses(&mut self, ins: &Instr, m: u32, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        match &ins.op {
            Op::Ld { space, ty, offset } => self.load_op(*space, *ty, *offset, ins, m, f, env)?,
            Op::LdVec { space, ty, offset, regs } => self.load_vectors(*space, *ty, *offset, regs, ins, m, f, env)?,
            Op::St { space, ty, offset } => self.store_op(*space, *ty, *offset, ins, m, f, env)?,
            Op::StVec { space, ty, offset, regs } => self.store_vectors(*space, *ty, *offset, regs, ins, m, f, env)?,
            Op::ExchangePair { space, offset, old, new, expected } => {
                self.exchange_pairs(*space, *offset, *old, *new, *expected, ins, m, f, env)?
            }
            Op::Atom { space, op, ty, offset } => {
                let at = self.addresses(ins, f, env, *offset);
                let b = self.read::<u64>(ins.b, f, env);
                let c = self.read::<u64>(ins.c, f, env);
                let mut old = [0u64; 32];
                for l in lanes(m) {
                    old[l] = self.atomic(env, l, *space, (*op, *ty), at[l], (b[l], c[l]))?;
                }
                self.write(ins.d, m, &old, f);
            }
            Op::CpAsync { bytes, to, from } => self.copy_async(*bytes, *to, *from, ins, m, f, env)?,
            _ => return Err(out_of_place()),
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn load_op(
        &mut self,
        space: Space,
        ty: Ty,
        offset: i64,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        // Kernel parameters are the same for every lane.
        if space == Space::Param
            && let Src::Imm(at) = ins.a
        {
            let v = self.load(env, 0, Space::Param, at.wrapping_add(offset as u64), ty.bytes())?;
            self.write(ins.d, m, &[extend(ty, v); 32], f);
            return Ok(());
        }
        let at = self.addresses(ins, f, env, offset);
        let v = match self.load_row(env, m, space, &at, ty.bytes()) {
            Some(v) => v,
            None => {
                let mut v = [0u64; 32];
                for l in lanes(m) {
                    v[l] = self.load(env, l, space, at[l], ty.bytes())?;
                }
                v
            }
        };
        self.write(ins.d, m, &sign_extended(ty, v), f);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn load_vectors(
        &mut self,
        space: Space,
        ty: Ty,
        offset: i64,
        regs: &[Reg],
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let at = self.addresses(ins, f, env, offset);
        let bytes = ty.bytes() * regs.len() as u32;
        self.check_vector(&at, m, u64::from(bytes))?;
        let mut vectors = [[0u64; 4]; 32];
        for l in lanes(m) {
            vectors[l] = self.load_vector(env, l, space, at[l], bytes)?;
        }
        for (k, r) in regs.iter().enumerate() {
            let (word, shift) = part_of_vector(ty, k);
            self.write::<u64>(*r, m, &map1(&vectors, |v| extend(ty, v[word] >> shift)), f);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn store_op(
        &mut self,
        space: Space,
        ty: Ty,
        offset: i64,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let at = self.addresses(ins, f, env, offset);
        let v = self.read::<u64>(ins.b, f, env);
        if self.store_row(env, m, space, &at, ty.bytes(), &v).is_some() {
            return Ok(());
        }
        for l in lanes(m) {
            self.store(env, l, space, at[l], ty.bytes(), v[l])?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn store_vectors(
        &mut self,
        space: Space,
        ty: Ty,
        offset: i64,
        regs: &[Src],
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let at = self.addresses(ins, f, env, offset);
        let bytes = ty.bytes() * regs.len() as u32;
        self.check_vector(&at, m, u64::from(bytes))?;
        let mut vectors = [[0u64; 4]; 32];
        for (k, r) in regs.iter().enumerate() {
            let v = self.read::<u64>(*r, f, env);
            let (word, shift) = part_of_vector(ty, k);
            let ones = u64::MAX >> (64 - 8 * ty.bytes());
            for l in 0..32 {
                vectors[l][word] |= (v[l] & ones) << shift;
            }
        }
        for l in lanes(m) {
            self.store_vector(env, l, space, at[l], bytes, vectors[l])?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn exchange_pairs(
        &mut self,
        space: Space,
        offset: i64,
        old: [Reg; 2],
        new: [Src; 2],
        expected: Option<[Src; 2]>,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let at = self.addresses(ins, f, env, offset);
        let read = |me: &Self, s: [Src; 2]| s.map(|s| me.read::<u64>(s, f, env));
        let [low, high] = read(self, new);
        let expected = expected.map(|e| read(self, e));
        let mut was = [[0u64; 32]; 2];
        for l in lanes(m) {
            let only_if = expected.map(|[low, high]| [low[l], high[l]]);
            let [a, b] = self.exchange_pair(env, l, space, at[l], only_if, [low[l], high[l]])?;
            (was[0][l], was[1][l]) = (a, b);
        }
        self.write(old[0], m, &was[0], f);
        self.write(old[1], m, &was[1], f);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn copy_async(
        &mut self,
        bytes: u32,
        to: i64,
        from: i64,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let to_at = self.addresses(ins, f, env, to);
        let from_at = self.read::<u64>(ins.b, f, env);
        let sizes = if ins.c == Src::None { [bytes; 32] } else { self.read::<u32>(ins.c, f, env) };
        for l in lanes(m) {
            let from = from_at[l].wrapping_add(from as u64);
            if !(from | to_at[l]).is_multiple_of(u64::from(bytes)) {
                let what = format!("copy of {bytes} bytes from {from:#x} to {:#x}", to_at[l]);
                return Err(Fault::new(FaultKind::Misaligned, &what));
            }
            // Bytes beyond the source's are zeroes, and are not read.
            let mut v = [0; 4];
            if sizes[l] >= bytes {
                v = self.load_vector(env, l, Space::Generic, from, bytes)?;
            } else {
                for k in 0..sizes[l] {
                    let byte = self.load(env, l, Space::Generic, from.wrapping_add(u64::from(k)), 1)?;
                    v[k as usize / 8] |= byte << (8 * (k % 8));
                }
            }
            self.store_vector(env, l, Space::Shared, to_at[l], bytes, v)?;
        }
        Ok(())
    }

    fn check_vector(&self, at: &Row<u64>, m: u32, bytes: u64) -> Result<(), Fault> {
        match lanes(m).find(|&l| !at[l].is_multiple_of(bytes)) {
            None => Ok(()),
            Some(l) => Err(Fault::new(
                FaultKind::Misaligned,
                &format!("misaligned vector access of {bytes} bytes at {:#x}", at[l]),
            )),
        }
    }
}

/// The 64-bit word of a vector that holds its element `k`, and the bits below it there.
fn part_of_vector(ty: Ty, k: usize) -> (usize, u32) {
    let bits = 8 * ty.bytes() * k as u32;
    (bits as usize / 64, bits % 64)
}

/// What was loaded, as its type is kept in a register.
#[inline(always)]
fn sign_extended(ty: Ty, v: Row<u64>) -> Row<u64> {
    match ty {
        Ty::S8 => map1(&v, |v| i64::from(v as i8) as u64),
        Ty::S16 => map1(&v, |v| i64::from(v as i16) as u64),
        Ty::S32 => map1(&v, |v| i64::from(v as i32) as u64),
        _ => v,
    }
}
