//! Conversions from and to floating-point formats of eight bits and fewer, of which a register holds two.

use crate::ptx::decode::decoder::{Decoder, Mods, Result, unsupported};
use crate::ptx::isa::instruction::Op;
use crate::ptx::isa::narrow::{Format, Narrow};
use crate::ptx::isa::operand::{Round, Src, Ty};
use crate::ptx::syntax::Operand;

impl Format {
    fn of(modifier: &str) -> Option<Self> {
        Some(match modifier {
            "e4m3x2" => Self::E4m3,
            "e5m2x2" => Self::E5m2,
            "e2m3x2" => Self::E2m3,
            "e3m2x2" => Self::E3m2,
            "e2m1x2" => Self::E2m1,
            "ue8m0x2" => Self::Ue8m0,
            _ => return None,
        })
    }
}

/// Whether a type of a conversion is narrower than 16 bits, in any number.
fn is_narrow(modifier: &str) -> bool {
    ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0", "s2f6"].iter().any(|f| modifier.starts_with(f))
}

impl Decoder<'_> {
    /// Decodes a conversion from or to a narrow format; `false` if it is of others.
    pub(super) fn narrow(&mut self, mods: &Mods, ops: &[Operand]) -> Result<bool> {
        let Some(at) = mods.0.iter().position(|m| is_narrow(m)) else { return Ok(false) };
        let Some(format) = Format::of(mods.0[at]) else { return unsupported("this many values of a narrow format") };
        if mods.has("rs") || mods.0.iter().any(|m| m.starts_with("scaled")) {
            return unsupported("stochastic rounding or a scale");
        }
        let types = mods.types();
        let &[wide] = types.as_slice() else { return unsupported("conversion types") };
        let wide_at = mods.0.iter().position(|m| Ty::from_name(m) == Some(wide)).unwrap_or(0);
        let op = Narrow {
            format,
            wide,
            narrows: at < wide_at,
            round: mods.round().ok_or("no rounding")?,
            relu: mods.has("relu"),
            satfinite: mods.has("satfinite"),
        };
        op.check()?;
        let pair = op.narrows && wide == Ty::F32;
        if ops.len() != if pair { 3 } else { 2 } {
            return unsupported("number of operands");
        }
        let (d, a) = (self.dst(&ops[0])?, self.src(&ops[1], wide)?);
        let b = if pair { self.src(&ops[2], wide)? } else { Src::None };
        let i = self.emit(Op::Narrow(op));
        (i.d, i.a, i.b) = (d, a, b);
        Ok(true)
    }
}

impl Narrow {
    /// The combinations that PTX defines.
    fn check(&self) -> Result<()> {
        let exponent = self.format == Format::Ue8m0;
        let is_defined = match (self.narrows, self.wide) {
            (true, Ty::F32 | Ty::Bf16x2) if exponent => matches!(self.round, Round::Zero | Round::Up) && !self.relu,
            (true, Ty::F32 | Ty::F16x2 | Ty::Bf16x2) if !exponent => self.round == Round::Nearest && self.satfinite,
            (false, Ty::F16x2 | Ty::Bf16x2) => {
                self.round == Round::Nearest && !self.satfinite && !(exponent && (self.relu || self.wide == Ty::F16x2))
            }
            _ => false,
        };
        if is_defined { Ok(()) } else { unsupported("form of a conversion of a narrow format") }
    }
}
