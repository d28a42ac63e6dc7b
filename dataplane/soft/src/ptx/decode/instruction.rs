//! Each instruction by its mnemonic.

use crate::ptx::decode::decoder::{Binding, Decoder, Mods, Result, unsupported};
use crate::ptx::decode::video;
use crate::ptx::isa::instruction::{Call, Op, Slot, Target};
use crate::ptx::isa::operand::*;
use crate::ptx::syntax::{Instruction, Operand};

impl<'a> Decoder<'a> {
    pub fn instruction(&mut self, i: &'a Instruction) -> Result<()> {
        let mut parts = i.opcode.split('.');
        let base = parts.next().unwrap_or_default();
        let mods = Mods(parts.collect());
        let ops = i.operands.as_slice();
        let need = |n: usize| if ops.len() < n { unsupported("too few operands") } else { Ok(()) };
        match base {
            "mov" => {
                need(2)?;
                self.mov(&mods, ops)
            }
            "ld" | "ldu" => {
                need(2)?;
                self.load(&mods, ops)
            }
            "st" => {
                need(2)?;
                self.store(&mods, ops)
            }
            "atom" | "red" => {
                need(2)?;
                self.atomic(base == "red", &mods, ops)
            }
            "add" | "sub" | "addc" | "subc" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl"
            | "shr" | "mul24" | "copysign" => {
                need(3)?;
                self.binary(base, &mods, ops)
            }
            "not" | "neg" | "abs" | "popc" | "clz" | "brev" | "bfind" | "cnot" | "sqrt" | "rsqrt" | "rcp" | "sin"
            | "cos" | "ex2" | "lg2" | "tanh" => {
                need(2)?;
                self.unary(base, &mods, ops)
            }
            "mad" | "madc" | "mad24" | "fma" | "sad" => {
                need(4)?;
                self.ternary(base, &mods, ops)
            }
            "setp" | "set" => {
                need(3)?;
                self.compare(base == "set", &mods, ops)
            }
            "cvt" => {
                need(2)?;
                self.convert(&mods, ops)
            }
            "call" => self.call(ops),
            "bra" | "brx" => {
                need(1)?;
                self.branch(base, ops)
            }
            "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => self.warp(base, &mods, ops),
            "bar" | "barrier" => self.barrier(&mods, ops),
            "multimem" => unsupported("memory of several devices at one address (multicast objects)"),
            _ if base.starts_with('v') && video::Operation::of(base).is_some() => self.video(base, &mods, ops),
            "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" => self.texture(base, &mods, ops),
            _ => self.matrix(base, &mods, ops).unwrap_or_else(|| self.other(base, &mods, ops)),
        }
    }

    fn mov(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let ty = mods.ty()?;
        if ty == Ty::B128 {
            return self.mov_pair(ops);
        }
        match (&ops[0], &ops[1]) {
            (Operand::Vec(ds), s) => {
                let a = self.src(s, ty)?;
                let regs = ds.iter().map(|d| self.dst(d)).collect::<Result<Vec<_>>>()?;
                let elem = part(ty, regs.len())?;
                self.emit(Op::Unpack(elem, regs.into())).a = a;
            }
            (d, Operand::Vec(ss)) => {
                let d = self.dst(d)?;
                let elem = part(ty, ss.len())?;
                let srcs = ss.iter().map(|s| self.src(s, elem)).collect::<Result<Vec<_>>>()?;
                self.emit(Op::Pack(elem, srcs.into())).d = d;
            }
            (d, s) => {
                let (d, a) = (self.dst(d)?, self.src(s, ty)?);
                let op = if ty == Ty::Pred { Op::PredMov } else { Op::Mov };
                let i = self.emit(op);
                i.d = d;
                i.a = a;
            }
        }
        Ok(())
    }

    fn mov_pair(&mut self, ops: &[Operand]) -> Result<()> {
        let to = match &ops[0] {
            Operand::Vec(v) => v.iter().map(|d| self.dst(d)).collect::<Result<Vec<_>>>()?,
            d => self.pair(d)?.map(Reg::R64).to_vec(),
        };
        let from = match &ops[1] {
            Operand::Vec(v) => v.iter().map(|s| self.src(s, Ty::B64)).collect::<Result<Vec<_>>>()?,
            s => self.pair(s)?.map(Src::R64).to_vec(),
        };
        if to.len() != 2 || from.len() != 2 {
            return unsupported("vector width");
        }
        for (d, a) in to.into_iter().zip(from) {
            let i = self.emit(Op::Mov);
            (i.d, i.a) = (d, a);
        }
        Ok(())
    }

    fn load(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let ty = mods.ty()?;
        let (a, offset, space) = self.access(mods, &ops[1])?;
        match &ops[0] {
            Operand::Vec(ds) => {
                let regs = ds.iter().map(|d| self.dst(d)).collect::<Result<Vec<_>>>()?;
                if !regs.len().is_power_of_two() || regs.len() as u32 * ty.bytes() > 32 {
                    return unsupported("vector width");
                }
                self.emit(Op::LdVec { space, ty, offset, regs: regs.into() }).a = a;
            }
            d if ty == Ty::B128 => {
                let regs = self.pair(d)?.map(Reg::R64).into();
                self.emit(Op::LdVec { space, ty: Ty::B64, offset, regs }).a = a;
            }
            d => {
                let d = self.dst(d)?;
                let i = self.emit(Op::Ld { space, ty, offset });
                i.d = d;
                i.a = a;
            }
        }
        Ok(())
    }

    pub fn store(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("async") || mods.has("bulk") {
            return self.store_async(mods, ops);
        }
        let ty = mods.ty()?;
        let (a, offset, space) = self.access(mods, &ops[0])?;
        match &ops[1] {
            Operand::Vec(ss) => {
                let regs = ss.iter().map(|s| self.src(s, ty)).collect::<Result<Vec<_>>>()?;
                if !regs.len().is_power_of_two() || regs.len() as u32 * ty.bytes() > 32 {
                    return unsupported("vector width");
                }
                self.emit(Op::StVec { space, ty, offset, regs: regs.into() }).a = a;
            }
            s if ty == Ty::B128 => {
                let regs = self.pair(s)?.map(Src::R64).into();
                self.emit(Op::StVec { space, ty: Ty::B64, offset, regs }).a = a;
            }
            s => {
                let b = self.src(s, ty)?;
                let i = self.emit(Op::St { space, ty, offset });
                i.a = a;
                i.b = b;
            }
        }
        Ok(())
    }

    pub fn atomic(&mut self, red: bool, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("async") {
            return self.reduce_async(mods, ops);
        }
        let ty = mods.ty()?;
        if mods.has("v2") || mods.has("v4") || mods.has("v8") {
            return unsupported("wide atomic");
        }
        if ty == Ty::B128 {
            return self.exchange_pair(mods, ops);
        }
        let op = mods
            .0
            .iter()
            .find_map(|m| {
                Some(match *m {
                    "add" => AtomOp::Add,
                    "and" => AtomOp::And,
                    "or" => AtomOp::Or,
                    "xor" => AtomOp::Xor,
                    "exch" => AtomOp::Exch,
                    "cas" => AtomOp::Cas,
                    "inc" => AtomOp::Inc,
                    "dec" => AtomOp::Dec,
                    "min" => AtomOp::Min,
                    "max" => AtomOp::Max,
                    _ => return None,
                })
            })
            .ok_or("unknown atomic operation")?;
        let (d, rest) = if red { (Reg::None, ops) } else { (self.dst(&ops[0])?, &ops[1..]) };
        if rest.len() < 2 {
            return unsupported("too few operands");
        }
        let (a, offset, space) = self.access(mods, &rest[0])?;
        let b = self.src(&rest[1], ty)?;
        let c = if op == AtomOp::Cas { self.src(rest.get(2).ok_or("too few operands")?, ty)? } else { Src::None };
        let i = self.emit(Op::Atom { space, op, ty, offset });
        i.d = d;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn exchange_pair(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let compares = mods.has("cas");
        if ops.len() < 3 + usize::from(compares) || !compares && !mods.has("exch") {
            return unsupported("wide atomic");
        }
        let old = self.pair(&ops[0])?.map(Reg::R64);
        let (a, offset, space) = self.access(mods, &ops[1])?;
        let last = |me: &Self, n: usize| me.pair(&ops[n]).map(|p| p.map(Src::R64));
        let (expected, new) = if compares { (Some(last(self, 2)?), last(self, 3)?) } else { (None, last(self, 2)?) };
        self.emit(Op::ExchangePair { space, offset, old, new, expected }).a = a;
        Ok(())
    }

    fn binary(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if self.packed(base, mods, ops)? {
            return Ok(());
        }
        mods.all_known()?;
        let ty = mods.ty()?;
        let d = self.dst(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let b = self.src(&ops[2], ty)?;
        let fp = mods.fp();
        let op = if ty == Ty::Pred {
            match base {
                "and" => Op::PredBin(Logic::And),
                "or" => Op::PredBin(Logic::Or),
                "xor" => Op::PredBin(Logic::Xor),
                _ => return unsupported("predicate arithmetic"),
            }
        } else if ty.is_float() {
            if ops.len() > 3 || mods.has("xorsign") {
                return unsupported("three-operand or xorsign form");
            }
            let nan = mods.has("NaN");
            let kind = match base {
                "add" => FloatBin::Add,
                "sub" => FloatBin::Sub,
                "mul" => FloatBin::Mul,
                "div" => FloatBin::Div,
                "min" if nan => FloatBin::MinNan,
                "max" if nan => FloatBin::MaxNan,
                "min" => FloatBin::Min,
                "max" => FloatBin::Max,
                "copysign" => FloatBin::CopySign,
                _ => return unsupported("float operation"),
            };
            if mods.types().len() > 1 {
                return unsupported("mixed precision");
            }
            Op::FloatBin(kind, ty, fp)
        } else {
            let carry = mods.has("cc");
            match base {
                "addc" => Op::Carry { ty, sub: false, cin: true, cout: carry },
                "subc" => Op::Carry { ty, sub: true, cin: true, cout: carry },
                "add" if carry => Op::Carry { ty, sub: false, cin: false, cout: true },
                "sub" if carry => Op::Carry { ty, sub: true, cin: false, cout: true },
                "add" if fp.sat => Op::IntBin(IntBin::AddSat, ty),
                "sub" if fp.sat => Op::IntBin(IntBin::SubSat, ty),
                "mul" if mods.has("wide") => Op::MulWide(ty),
                "mul" if mods.has("hi") => Op::IntBin(IntBin::MulHi, ty),
                "mul24" if mods.has("hi") => Op::IntBin(IntBin::Mul24Hi, ty),
                "mul24" => Op::IntBin(IntBin::Mul24Lo, ty),
                "min" | "max" if fp.relu || matches!(mods.0.last(), Some(&"u16x2" | &"s16x2")) => {
                    return unsupported("packed or relu form");
                }
                _ if fp.sat => return unsupported("saturation of this operation"),
                _ => Op::IntBin(
                    match base {
                        "add" => IntBin::Add,
                        "sub" => IntBin::Sub,
                        "mul" => IntBin::MulLo,
                        "div" => IntBin::Div,
                        "rem" => IntBin::Rem,
                        "min" => IntBin::Min,
                        "max" => IntBin::Max,
                        "and" => IntBin::And,
                        "or" => IntBin::Or,
                        "xor" => IntBin::Xor,
                        "shl" => IntBin::Shl,
                        "shr" => IntBin::Shr,
                        _ => return unsupported("integer operation"),
                    },
                    ty,
                ),
            }
        };
        let i = self.emit(op);
        i.d = d;
        i.a = a;
        i.b = b;
        Ok(())
    }

    fn unary(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        mods.all_known()?;
        let ty = mods.ty()?;
        let d = self.dst(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let fp = mods.fp();
        let op = match base {
            "not" if ty == Ty::Pred => Op::PredNot,
            "not" => Op::IntUn(IntUn::Not, ty),
            "popc" => Op::IntUn(IntUn::Popc, ty),
            "clz" => Op::IntUn(IntUn::Clz, ty),
            "brev" => Op::IntUn(IntUn::Brev, ty),
            "cnot" => Op::IntUn(IntUn::Cnot, ty),
            "bfind" if mods.has("shiftamt") => Op::IntUn(IntUn::BfindShift, ty),
            "bfind" => Op::IntUn(IntUn::Bfind, ty),
            "neg" if !ty.is_float() => Op::IntUn(IntUn::Neg, ty),
            "abs" if !ty.is_float() => Op::IntUn(IntUn::Abs, ty),
            "neg" => Op::FloatUn(FloatUn::Neg, ty, fp),
            "abs" => Op::FloatUn(FloatUn::Abs, ty, fp),
            "sqrt" => Op::FloatUn(FloatUn::Sqrt, ty, fp),
            "rsqrt" => Op::FloatUn(FloatUn::Rsqrt, ty, fp),
            "rcp" => Op::FloatUn(FloatUn::Rcp, ty, fp),
            "sin" => Op::FloatUn(FloatUn::Sin, ty, fp),
            "cos" => Op::FloatUn(FloatUn::Cos, ty, fp),
            "ex2" => Op::FloatUn(FloatUn::Ex2, ty, fp),
            "lg2" => Op::FloatUn(FloatUn::Lg2, ty, fp),
            _ => Op::FloatUn(FloatUn::Tanh, ty, fp),
        };
        let i = self.emit(op);
        i.d = d;
        i.a = a;
        Ok(())
    }

    fn ternary(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if self.packed(base, mods, ops)? {
            return Ok(());
        }
        mods.all_known()?;
        let ty = mods.ty()?;
        let d = self.dst(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let b = self.src(&ops[2], ty)?;
        let c = self.src(&ops[3], ty)?;
        let (cc, hi) = (mods.has("cc"), mods.has("hi"));
        let op = match base {
            "fma" if mods.types().len() > 1 => return unsupported("mixed precision"),
            "mad" | "fma" if ty.is_float() => Op::Fma(ty, mods.fp()),
            "sad" => Op::Sad(ty),
            "mad24" if !hi => Op::Mad24(ty),
            "mad24" => return unsupported("high half"),
            "madc" => Op::MadCarry { ty, hi, cin: true, cout: cc },
            _ if cc => Op::MadCarry { ty, hi, cin: false, cout: true },
            _ if mods.has("wide") => Op::MadWide(ty),
            _ if mods.has("sat") => return unsupported("saturating mad"),
            _ if hi => Op::MadHi(ty),
            _ => Op::MadLo(ty),
        };
        let i = self.emit(op);
        i.d = d;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn compare(&mut self, set: bool, mods: &Mods, ops: &[Operand]) -> Result<()> {
        mods.all_known()?;
        let ty = mods.ty()?;
        let cmp = mods.cmp(ty)?;
        let (d, d2) = self.dst_pair(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let b = self.src(&ops[2], ty)?;
        let logic = if ops.len() > 3 { mods.logic() } else { None };
        let c = if let Some(o) = ops.get(3) { self.src(o, Ty::Pred)? } else { Src::None };
        let ftz = mods.has("ftz");
        if set && logic.is_some() && matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
            return unsupported("packed values combined with a predicate");
        }
        let op = if set {
            let to = mods.types().first().copied().unwrap_or(Ty::U32);
            Op::Set { cmp, to, ty, logic, ftz }
        } else {
            Op::Setp { cmp, ty, logic, ftz }
        };
        let i = self.emit(op);
        i.d = d;
        i.d2 = d2;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn convert(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if self.narrow(mods, ops)? {
            return Ok(());
        }
        mods.all_known()?;
        let types = mods.types();
        let [to, from] = match types.as_slice() {
            [to, from] => [*to, *from],
            [to, from, _] => [*to, *from],
            _ => return unsupported("conversion types"),
        };
        let d = self.dst(&ops[0])?;
        let fp = mods.fp();
        if fp.finite && (from != Ty::F32 || !matches!(to, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 | Ty::Tf32)) {
            return unsupported("satfinite of these types");
        }
        if mods.has("pack") {
            let a = self.src(ops.get(1).ok_or("too few operands")?, from)?;
            let b = self.src(ops.get(2).ok_or("too few operands")?, from)?;
            let c = ops.get(3).map(|o| self.src(o, Ty::B32)).transpose()?;
            let i = self.emit(Op::CvtPack { to, from, merge: c.is_some() });
            i.d = d;
            i.a = a;
            i.b = b;
            i.c = c.unwrap_or(Src::None);
            return Ok(());
        }
        let a = self.src(&ops[1], from)?;
        if matches!(to, Ty::F16x2 | Ty::Bf16x2) {
            if from != Ty::F32 || ops.len() != 3 {
                return unsupported("packed conversion");
            }
            let b = self.src(&ops[2], from)?;
            let i = self.emit(Op::CvtPair { to, fp });
            i.d = d;
            i.a = a;
            i.b = b;
            return Ok(());
        }
        let integer = mods.0.iter().any(|m| matches!(*m, "rni" | "rzi" | "rmi" | "rpi"));
        let i = self.emit(Op::Cvt { to, from, round: fp.round, integer, fp });
        i.d = d;
        i.a = a;
        Ok(())
    }

    fn call(&mut self, ops: &[Operand]) -> Result<()> {
        let slots = |d: &Self, list: &[Operand]| -> Result<Vec<Slot>> {
            list.iter()
                .map(|o| match o {
                    Operand::Name(n) => match d.binding(n) {
                        Some(Binding::Local(offset, bytes)) => Ok(Slot { offset, bytes }),
                        _ => unsupported("call argument is not a .param variable"),
                    },
                    _ => unsupported("call argument is not a .param variable"),
                })
                .collect()
        };
        let (returns, rest) = match ops.first() {
            Some(Operand::Paren(list)) => (slots(self, list)?, &ops[1..]),
            _ => (Vec::new(), ops),
        };
        let Some(Operand::Name(callee)) = rest.first() else { return unsupported("call target") };
        let args = match rest.get(1) {
            Some(Operand::Paren(list)) => slots(self, list)?,
            _ => Vec::new(),
        };
        let target = if let Some(Binding::Reg(_)) = self.binding(callee) {
            Target::Register(self.name(callee)?)
        } else if let Some(&i) = self.names.get(callee.as_str()) {
            match builtin(callee) {
                Some(b) if !self.module.functions[i].has_body => Target::Builtin(b),
                _ => {
                    self.calls.push(i as u32);
                    Target::Function(i as u32)
                }
            }
        } else {
            return Err(format!("{callee} is not defined"));
        };
        self.emit(Op::Call(Box::new(Call { target, args, returns })));
        Ok(())
    }

    fn branch(&mut self, base: &str, ops: &[Operand]) -> Result<()> {
        let label = |o: &Operand| match o {
            Operand::Name(n) => Ok(n.clone()),
            _ => unsupported("branch target"),
        };
        let path = self.scope_path.clone();
        let at = self.code.len();
        if base == "bra" {
            let target = label(&ops[0])?;
            self.emit(Op::Bra(0));
            self.fixups.push((at, 0, target, path));
            return Ok(());
        }
        let a = self.src(&ops[0], Ty::U32)?;
        let list = label(ops.get(1).ok_or("too few operands")?)?;
        let targets = self.targets.get(&list).cloned().ok_or("branch table is not defined")?;
        self.emit(Op::BrxIdx(vec![0; targets.len()].into())).a = a;
        for (slot, t) in targets.into_iter().enumerate() {
            self.fixups.push((at, slot, t, path.clone()));
        }
        Ok(())
    }

    fn warp(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let sync = mods.has("sync");
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let (d, d2) = self.dst_pair(get(0)?)?;
        let (op, a, b, c, members) = match base {
            "activemask" => {
                self.emit(Op::Activemask).d = d;
                return Ok(());
            }
            "shfl" => {
                let mode = match mods.0.iter().find(|m| matches!(**m, "up" | "down" | "bfly" | "idx")) {
                    Some(&"up") => ShflMode::Up,
                    Some(&"down") => ShflMode::Down,
                    Some(&"bfly") => ShflMode::Bfly,
                    Some(_) => ShflMode::Idx,
                    None => return unsupported("shuffle mode"),
                };
                let m = if sync { self.src(get(4)?, Ty::B32)? } else { Src::None };
                let (a, b, c) = (self.src(get(1)?, Ty::B32)?, self.src(get(2)?, Ty::B32)?, self.src(get(3)?, Ty::B32)?);
                (WarpOp::Shfl(mode), a, b, c, m)
            }
            "vote" => {
                let mode = match mods.0.iter().find(|m| matches!(**m, "all" | "any" | "uni" | "ballot")) {
                    Some(&"all") => VoteMode::All,
                    Some(&"any") => VoteMode::Any,
                    Some(&"uni") => VoteMode::Uni,
                    Some(_) => VoteMode::Ballot,
                    None => return unsupported("vote mode"),
                };
                let m = if sync { self.src(get(2)?, Ty::B32)? } else { Src::None };
                (WarpOp::Vote(mode), self.src(get(1)?, Ty::Pred)?, Src::None, Src::None, m)
            }
            "match" => {
                let op = if mods.has("any") { WarpOp::MatchAny } else { WarpOp::MatchAll };
                (op, self.src(get(1)?, mods.ty()?)?, Src::None, Src::None, self.src(get(2)?, Ty::B32)?)
            }
            "redux" => {
                let ty = mods.ty()?;
                let op = match mods.0.iter().find(|m| matches!(**m, "add" | "min" | "max" | "and" | "or" | "xor")) {
                    Some(&"add") => AtomOp::Add,
                    Some(&"min") => AtomOp::Min,
                    Some(&"max") => AtomOp::Max,
                    Some(&"and") => AtomOp::And,
                    Some(&"or") => AtomOp::Or,
                    Some(_) => AtomOp::Xor,
                    None => return unsupported("reduction"),
                };
                let op = match (ty, op) {
                    (Ty::F32, AtomOp::Min | AtomOp::Max) => {
                        WarpOp::ReduxFloat { max: op == AtomOp::Max, abs: mods.has("abs"), nan: mods.has("NaN") }
                    }
                    _ if ty.is_float() => return unsupported("reduction of this type"),
                    _ => WarpOp::Redux(op, ty.is_signed()),
                };
                (op, self.src(get(1)?, ty)?, Src::None, Src::None, self.src(get(2)?, Ty::B32)?)
            }
            _ => (WarpOp::Elect, Src::None, Src::None, Src::None, self.src(get(1)?, Ty::B32)?),
        };
        let i = self.emit(Op::Warp(op));
        i.d = d;
        i.d2 = d2;
        i.a = a;
        i.b = b;
        i.c = c;
        i.e = members;
        Ok(())
    }

    fn barrier(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("warp") {
            let m = self.src(ops.first().ok_or("too few operands")?, Ty::B32)?;
            self.emit(Op::Warp(WarpOp::Sync)).e = m;
            return Ok(());
        }
        if mods.has("cluster") {
            self.emit(Op::Bar(if mods.has("wait") { BarOp::ClusterWait } else { BarOp::ClusterArrive }));
            return Ok(());
        }
        let red = mods.has("red");
        let kind = if mods.has("arrive") {
            BarOp::Arrive
        } else if !red {
            BarOp::Sync
        } else if mods.has("popc") {
            BarOp::RedPopc
        } else if mods.has("and") {
            BarOp::RedAnd
        } else {
            BarOp::RedOr
        };
        let (d, rest) =
            if red { (self.dst(ops.first().ok_or("too few operands")?)?, &ops[1..]) } else { (Reg::None, ops) };
        let (last, counts) = match (red, rest.split_last()) {
            (true, Some((last, counts))) => (Some(last), counts),
            _ => (None, rest),
        };
        let a = if let Some(o) = counts.first() { self.src(o, Ty::U32)? } else { Src::Imm(0) };
        let b = if let Some(o) = counts.get(1) { self.src(o, Ty::U32)? } else { Src::None };
        let c = if let Some(o) = last { self.src(o, Ty::Pred)? } else { Src::None };
        let i = self.emit(Op::Bar(kind));
        i.d = d;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn other(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        match base {
            "nanosleep" => {
                let a = self.src(get(0)?, Ty::U32)?;
                self.emit(Op::Nanosleep).a = a;
                Ok(())
            }
            "createpolicy" => {
                let d = self.dst(get(0)?)?;
                let i = self.emit(Op::Mov);
                i.d = d;
                i.a = Src::Imm(0);
                Ok(())
            }
            "mbarrier" => self.mbarrier(mods, ops),
            "slct" => {
                let types = mods.types();
                let (Some(&ty), Some(&by)) = (types.first(), types.get(1)) else { return unsupported("types") };
                let d = self.dst(get(0)?)?;
                let (a, b, c) = (self.src(get(1)?, ty)?, self.src(get(2)?, ty)?, self.src(get(3)?, by)?);
                let c = if mods.has("ftz") { self.flushed(c) } else { c };
                let i = self.emit(Op::Slct(ty, by == Ty::F32));
                (i.d, i.a, i.b, i.c) = (d, a, b, c);
                Ok(())
            }
            "bmsk" | "szext" if mods.has("wrap") => self.wrapped(base, mods, ops),
            "cp" if mods.has("async") && !mods.has("tensor") => {
                if mods.has("bulk") {
                    self.bulk_copy(mods, ops)
                } else if mods.has("mbarrier") {
                    self.arrive_after_copies(mods, ops)
                } else {
                    self.copy_async(mods, ops)
                }
            }
            _ => self.regular(base, mods, ops),
        }
    }

    /// An instruction of a result and up to four operands of one type.
    fn regular(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let (op, wants) = self.regular_op(base, mods, ops)?;
        let ty = mods.ty().unwrap_or(Ty::B32);
        let d = if wants > 1 { self.dst(get(0)?)? } else { Reg::None };
        let operand =
            |me: &Self, n: usize| -> Result<Src> { if wants > n { me.src(get(n)?, ty) } else { Ok(Src::None) } };
        let (a, b, c, e) = (operand(self, 1)?, operand(self, 2)?, operand(self, 3)?, operand(self, 4)?);
        let i = self.emit(op);
        (i.d, i.a, i.b, i.c, i.e) = (d, a, b, c, e);
        Ok(())
    }

    /// What such an instruction does, and how many operands it names.
    fn regular_op(&self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<(Op, usize)> {
        Ok(match base {
            "ret" => (Op::Ret, 0),
            "exit" => (Op::Exit, 0),
            "trap" | "brkpt" => (Op::Trap, 0),
            "membar" | "fence" => (Op::Fence, 0),
            "prefetch" | "prefetchu" | "pmevent" | "setmaxnreg" | "griddepcontrol" | "discard" | "applypriority" => {
                (Op::Nop, 0)
            }
            "mapa" => (Op::Cluster(ClusterOp::Mapa { generic: mods.space()? == Space::Generic }), 3),
            "getctarank" => (Op::Cluster(ClusterOp::CtaRank { generic: mods.space()? == Space::Generic }), 2),
            "cvta" => {
                let mut space = mods.space()?;
                if space == Space::Param && !self.f.is_entry {
                    space = Space::Local;
                }
                let w = window(space);
                (if mods.has("to") { Op::CvtaTo { window: w } } else { Op::Cvta { window: w } }, 2)
            }
            "isspacep" if mods.has("shared::cluster") => (Op::Cluster(ClusterOp::IsShared), 2),
            "isspacep" => (Op::IsSpace(mods.space()?), 2),
            "selp" => (Op::Selp(mods.ty()?), 4),
            "bfe" => (Op::Bfe(mods.ty()?), 4),
            "bfi" => (Op::Bfi(mods.ty()?), 5),
            "bmsk" if mods.has("clamp") => (Op::Bmsk, 3),
            "szext" => (Op::Szext(mods.ty()?.is_signed()), 3),
            "fns" => (Op::Fns, 4),
            "shf" => (Op::Shf { left: mods.has("l"), wrap: mods.has("wrap") }, 4),
            "prmt" => {
                let mode = match mods.0.last() {
                    Some(&"f4e") => 1,
                    Some(&"b4e") => 2,
                    Some(&"rc8") => 3,
                    Some(&"ecl") => 4,
                    Some(&"ecr") => 5,
                    Some(&"rc16") => 6,
                    _ => 0,
                };
                (Op::Prmt(mode), 4)
            }
            "lop3" => {
                if mods.has("or") || mods.has("and") {
                    return unsupported("predicate form");
                }
                let Operand::Int(table) = ops.get(4).ok_or("too few operands")? else {
                    return unsupported("table operand");
                };
                (Op::Lop3(*table as u8), 4)
            }
            "dp4a" | "dp2a" => {
                let t = mods.types();
                let (Some(at), Some(bt)) = (t.first(), t.get(1)) else { return unsupported("types") };
                let (x, y) = (at.is_signed(), bt.is_signed());
                (if base == "dp4a" { Op::Dp4a(x, y) } else { Op::Dp2a(x, y, mods.has("hi")) }, 4)
            }
            "testp" => {
                let kind = match mods.0.first() {
                    Some(&"finite") => 0,
                    Some(&"infinite") => 1,
                    Some(&"number") => 2,
                    Some(&"notanumber") => 3,
                    Some(&"normal") => 4,
                    _ => 5,
                };
                (Op::Testp(kind, mods.ty()?), 2)
            }
            _ => return unsupported("an instruction that it does not know"),
        })
    }

    fn copy_async(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("commit_group") || mods.has("wait_group") || mods.has("wait_all") {
            self.emit(Op::Nop);
            return Ok(());
        }
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let (a, to) = self.addr(get(0)?)?;
        let (b, from) = self.addr(get(1)?)?;
        let Operand::Int(bytes) = get(2)? else { return unsupported("copy size") };
        let hinted = mods.has("L2::cache_hint");
        let c = match ops.get(3) {
            Some(o) if !(hinted && ops.len() == 4) => self.src(o, Ty::U32)?,
            _ => Src::None,
        };
        if matches!(c, Src::P(..)) {
            return unsupported("ignore-src form");
        }
        let i = self.emit(Op::CpAsync { bytes: *bytes as u32, to, from });
        (i.a, i.b, i.c) = (a, b, c);
        Ok(())
    }
}

fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        _ => 0,
    }
}

fn part(ty: Ty, n: usize) -> Result<Ty> {
    Ok(match ty.bytes() as usize / n.max(1) {
        1 => Ty::B8,
        2 => Ty::B16,
        4 => Ty::B32,
        8 => Ty::B64,
        _ => return unsupported("vector move"),
    })
}

fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "vprintf" => Builtin::Vprintf,
        "__assertfail" => Builtin::AssertFail,
        "malloc" => Builtin::Malloc,
        "free" => Builtin::Free,
        "cudaGraphSetConditional" => Builtin::SetConditional,
        _ => return None,
    })
}
