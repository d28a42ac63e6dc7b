//! Forms that compute what several plain instructions do, and are decoded to those: packed integers and floats, three
//! operands, magnitudes, operands of mixed precision.

use crate::ptx::decode::decoder::{Decoder, Mods, Result, unsupported};
use crate::ptx::isa::instruction::Op;
use crate::ptx::isa::operand::{Cmp, FloatBin, FloatUn, Fp, IntBin, Reg, Round, Src, Ty};
use crate::ptx::syntax::Operand;

/// Which part of an instruction's operands one plain instruction works on.
#[derive(Clone, Copy)]
enum Form {
    /// Two floats in 64 bits.
    Floats,
    /// Two integers of this type in 32 bits.
    Integers(Ty),
    /// The integer's smaller or greater, and zero at least.
    Relu(Ty),
    /// The smallest or greatest of floats, of three or by magnitude.
    Extreme(Ty),
    /// Sums of single precision whose factors or first summand are halves of this type.
    Mixed(Ty),
}

impl Form {
    fn of(base: &str, mods: &Mods, operands: usize) -> Option<Self> {
        Some(match base {
            "add" | "sub" | "mul" | "fma" if mods.has("f32x2") => Self::Floats,
            "add" | "min" | "max" if mods.has("u16x2") => Self::Integers(Ty::U16),
            "add" | "min" | "max" if mods.has("s16x2") => Self::Integers(Ty::S16),
            "min" | "max" if mods.has("relu") && mods.has("s32") => Self::Relu(Ty::S32),
            "min" | "max" if operands > 3 || mods.has("xorsign") => {
                Self::Extreme(mods.types().last().copied().filter(|t| t.is_float())?)
            }
            "add" | "sub" | "fma" if mods.has("f32") && mods.has("f16") => Self::Mixed(Ty::F16),
            "add" | "sub" | "fma" if mods.has("f32") && mods.has("bf16") => Self::Mixed(Ty::Bf16),
            _ => return None,
        })
    }
}

impl Decoder<'_> {
    /// Decodes an instruction of one of these forms; `false` if it is of another.
    pub(super) fn packed(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<bool> {
        let Some(form) = Form::of(base, mods, ops.len()) else { return Ok(false) };
        self.scratch_used = 0;
        let d = self.dst(&ops[0])?;
        let fp = mods.fp();
        match form {
            Form::Floats => {
                if fp.sat || fp.relu {
                    return unsupported("saturation of packed floats");
                }
                let sources = self.sources(&ops[1..], Ty::B64)?;
                self.by_parts(d, &sources, Ty::B32, |me, part, to| {
                    me.plain(to, float_op(base, Ty::F32, fp)?, part);
                    Ok(())
                })?;
            }
            Form::Integers(ty) => {
                if fp.relu && (ty == Ty::U16 || base == "add") || fp.sat {
                    return unsupported("relu or saturation of this type");
                }
                let sources = self.sources(&ops[1..], Ty::B32)?;
                self.by_parts(d, &sources, Ty::B16, |me, part, to| {
                    me.integer(base, ty, fp.relu, part, to);
                    Ok(())
                })?;
            }
            Form::Relu(ty) => {
                let sources = self.sources(&ops[1..], ty)?;
                self.integer(base, ty, true, &sources, d);
            }
            Form::Extreme(ty) => {
                let sources = self.sources(&ops[1..], ty)?;
                let xorsign = mods.has("xorsign");
                let is_of_three = sources.len() == 3 && ty == Ty::F32 && !xorsign;
                let has_sign = sources.len() == 2 && ty != Ty::F64 && xorsign && mods.has("abs");
                if !is_of_three && !has_sign {
                    return unsupported("three operands or a sign of this type");
                }
                let op = extreme(base, mods.has("NaN"));
                let abs = mods.has("abs");
                let scalar = match ty {
                    Ty::F16x2 => Ty::F16,
                    Ty::Bf16x2 => Ty::Bf16,
                    ty => ty,
                };
                let each = |me: &mut Self, part: &[Src], to: Reg| {
                    if xorsign {
                        me.with_signs_product(op, scalar, fp, part, to);
                    } else {
                        me.extreme_of_three(op, scalar, fp, abs, part, to);
                    }
                    Ok(())
                };
                if scalar == ty { each(self, &sources, d)? } else { self.by_parts(d, &sources, Ty::B16, each)? }
            }
            Form::Mixed(half) => {
                let halves = if base == "fma" { 2 } else { 1 };
                let mut sources = Vec::new();
                for (i, o) in ops[1..].iter().enumerate() {
                    let is_half = i < halves;
                    let a = self.src(o, if is_half { half } else { Ty::F32 })?;
                    sources.push(if is_half { self.widened(half, a) } else { a });
                }
                self.plain(d, float_op(base, Ty::F32, fp)?, &sources);
            }
        }
        Ok(true)
    }

    fn sources(&self, operands: &[Operand], ty: Ty) -> Result<Vec<Src>> {
        operands.iter().map(|o| self.src(o, ty)).collect()
    }

    /// A register for what is between this instruction's parts. Those of one instruction are the next one's too.
    fn scratch(&mut self) -> u32 {
        let used = self.scratch_used;
        self.scratch_used += 1;
        if used == self.scratch.len() {
            let row = self.new_reg(Ty::B32, 1);
            self.scratch.push(row);
        }
        self.scratch[used]
    }

    fn plain(&mut self, d: Reg, op: Op, sources: &[Src]) {
        let source = |n: usize| sources.get(n).copied().unwrap_or(Src::None);
        let i = self.emit(op);
        (i.d, i.a, i.b, i.c) = (d, source(0), source(1), source(2));
    }

    /// The result of a plain instruction in a register of its own.
    fn between(&mut self, op: Op, sources: &[Src]) -> Src {
        let row = self.scratch();
        self.plain(Reg::R32(row), op, sources);
        Src::R32(row)
    }

    /// Runs `each` on the two parts of the sources and packs what comes of them.
    fn by_parts(
        &mut self,
        d: Reg,
        sources: &[Src],
        part: Ty,
        each: impl Fn(&mut Self, &[Src], Reg) -> Result<()>,
    ) -> Result<()> {
        let mut parts = [Vec::new(), Vec::new()];
        for &source in sources {
            let rows = [self.scratch(), self.scratch()];
            self.plain(Reg::None, Op::Unpack(part, rows.map(Reg::R32).into()), &[source]);
            for (part, row) in parts.iter_mut().zip(rows) {
                part.push(Src::R32(row));
            }
        }
        let rows = [self.scratch(), self.scratch()];
        for (sources, row) in parts.iter().zip(rows) {
            each(self, sources, Reg::R32(row))?;
        }
        self.plain(d, Op::Pack(part, rows.map(Src::R32).into()), &[]);
        Ok(())
    }

    fn integer(&mut self, base: &str, ty: Ty, relu: bool, sources: &[Src], to: Reg) {
        let op = match base {
            "add" => IntBin::Add,
            "min" => IntBin::Min,
            _ => IntBin::Max,
        };
        if !relu {
            return self.plain(to, Op::IntBin(op, ty), sources);
        }
        let v = self.between(Op::IntBin(op, ty), sources);
        self.plain(to, Op::IntBin(IntBin::Max, ty), &[v, Src::Imm(0)]);
    }

    fn widened(&mut self, half: Ty, a: Src) -> Src {
        self.single(half, false, a)
    }

    /// A single without what makes it subnormal.
    pub(super) fn flushed(&mut self, a: Src) -> Src {
        self.scratch_used = 0;
        self.single(Ty::F32, true, a)
    }

    fn single(&mut self, from: Ty, ftz: bool, a: Src) -> Src {
        let fp = Fp { round: Round::Nearest, ftz, sat: false, relu: false, finite: false };
        self.between(Op::Cvt { to: Ty::F32, from, round: Round::Nearest, integer: false, fp }, &[a])
    }

    /// `bmsk` and `szext` with positions and widths modulo 32.
    pub(super) fn wrapped(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let [d, a, b] = ops else { return unsupported("number of operands") };
        self.scratch_used = 0;
        let (d, a, b) = (self.dst(d)?, self.src(a, Ty::B32)?, self.src(b, Ty::B32)?);
        let mut modulo = |s: Src| self.between(Op::IntBin(IntBin::And, Ty::B32), &[s, Src::Imm(31)]);
        let (a, op) = if base == "bmsk" { (modulo(a), Op::Bmsk) } else { (a, Op::Szext(mods.ty()?.is_signed())) };
        let b = modulo(b);
        self.plain(d, op, &[a, b]);
        Ok(())
    }

    fn extreme_of_three(&mut self, op: FloatBin, ty: Ty, fp: Fp, abs: bool, sources: &[Src], to: Reg) {
        let mut v = sources.to_vec();
        if abs {
            v = v.into_iter().map(|s| self.between(Op::FloatUn(FloatUn::Abs, ty, fp), &[s])).collect();
        }
        let first = self.between(Op::FloatBin(op, ty, fp), &v[..2]);
        self.plain(to, Op::FloatBin(op, ty, fp), &[first, v[2]]);
    }

    /// The smaller or greater magnitude, with the product of both signs unless it is a NaN.
    fn with_signs_product(&mut self, op: FloatBin, ty: Ty, fp: Fp, sources: &[Src], to: Reg) {
        let signs = self.between(Op::IntBin(IntBin::Xor, Ty::B32), sources);
        let plus = [sources[0], sources[1]].map(|s| self.between(Op::FloatUn(FloatUn::Abs, ty, fp), &[s]));
        let magnitude = self.between(Op::FloatBin(op, ty, fp), &plus);
        let signed = self.between(Op::FloatBin(FloatBin::CopySign, ty, fp), &[signs, magnitude]);
        let is_number =
            self.between(Op::Set { cmp: Cmp::Num, to: Ty::U32, ty, logic: None, ftz: false }, &[magnitude, magnitude]);
        self.plain(to, Op::Slct(Ty::B32, false), &[magnitude, signed, is_number]);
    }
}

fn extreme(base: &str, nan: bool) -> FloatBin {
    match (base, nan) {
        ("min", false) => FloatBin::Min,
        ("min", true) => FloatBin::MinNan,
        (_, false) => FloatBin::Max,
        (_, true) => FloatBin::MaxNan,
    }
}

fn float_op(base: &str, ty: Ty, fp: Fp) -> Result<Op> {
    Ok(match base {
        "add" => Op::FloatBin(FloatBin::Add, ty, fp),
        "sub" => Op::FloatBin(FloatBin::Sub, ty, fp),
        "mul" => Op::FloatBin(FloatBin::Mul, ty, fp),
        "fma" => Op::Fma(ty, fp),
        _ => return unsupported("operation on packed floats"),
    })
}
