//! Video instructions: arithmetic on words, halves and bytes that selectors pick from the operands, and a second
//! operation on the result.

use crate::ptx::decode::decoder::{Decoder, Mods, Result, unsupported};
use crate::ptx::isa::instruction::Op;
use crate::ptx::isa::operand::{Cmp, Src, Ty};
use crate::ptx::isa::video::{Arithmetic, Part, Second, Shift, Video};
use crate::ptx::syntax::Operand;

/// What a mnemonic names: arithmetic on one value, on two halves or on four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub arithmetic: Arithmetic,
    pub parts: usize,
}

impl Operation {
    pub fn of(mnemonic: &str) -> Option<Self> {
        let (name, parts) = match mnemonic.strip_suffix(['2', '4']) {
            Some(name) if mnemonic.ends_with('2') => (name, 2),
            Some(name) => (name, 4),
            None => (mnemonic, 1),
        };
        let arithmetic = match (name, parts) {
            ("vadd", _) => Arithmetic::Add,
            ("vsub", _) => Arithmetic::Sub,
            ("vabsdiff", _) => Arithmetic::AbsDiff,
            ("vmin", _) => Arithmetic::Min,
            ("vmax", _) => Arithmetic::Max,
            ("vset", _) => Arithmetic::Set,
            ("vavrg", 2 | 4) => Arithmetic::Average,
            ("vshl", 1) => Arithmetic::Shl,
            ("vshr", 1) => Arithmetic::Shr,
            ("vmad", 1) => Arithmetic::Mad,
            _ => return None,
        };
        Some(Self { arithmetic, parts })
    }
}

const WORD: Part = Part { shift: 0, bits: 32 };

impl Part {
    /// `b2`, `h1`.
    fn named(selector: &str) -> Option<Self> {
        let (kind, n) = (selector.get(..1)?, selector.get(1..)?.parse::<u32>().ok()?);
        match kind {
            "b" if n < 4 => Some(Self { shift: 8 * n, bits: 8 }),
            "h" if n < 2 => Some(Self { shift: 16 * n, bits: 16 }),
            _ => None,
        }
    }
}

impl Decoder<'_> {
    pub(super) fn video(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let operation = Operation::of(base).ok_or("an instruction that it does not know")?;
        let [d, a, b, rest @ ..] = ops else { return unsupported("too few operands") };
        let (d, to) = selected(d)?;
        let ((a, from_a), negated_a) = (selected(positive(a))?, is_negative(a));
        let ((b, from_b), negated_b) = (selected(positive(b))?, is_negative(b));
        let mut op = Video {
            arithmetic: operation.arithmetic,
            signed: signs(operation.arithmetic, mods)?,
            a: sources(operation.parts, from_a, 0)?,
            b: sources(operation.parts, from_b, 1)?,
            to: results(operation.parts, to)?,
            saturates: mods.has("sat"),
            second: second(mods),
            cmp: None,
            shift: None,
            negated: [negated_a != negated_b, rest.first().is_some_and(is_negative)],
            plus_one: mods.has("po"),
            scale: if mods.has("shr7") { 7 } else { 15 * u32::from(mods.has("shr15")) },
        };
        let mad = op.arithmetic == Arithmetic::Mad;
        if op.arithmetic == Arithmetic::Set {
            let cmp = mods.cmp(Ty::S32)?;
            if !matches!(cmp, Cmp::Eq | Cmp::Ne | Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge) {
                return unsupported("comparison");
            }
            op.cmp = Some(cmp);
        }
        if matches!(op.arithmetic, Arithmetic::Shl | Arithmetic::Shr) {
            op.shift = match (mods.has("clamp"), mods.has("wrap")) {
                (true, false) => Some(Shift::Clamp),
                (false, true) => Some(Shift::Wrap),
                _ => return unsupported("shift of neither clamp nor wrap"),
            };
        }
        let negates = negated_a || negated_b || op.negated[1];
        let beside = op.second != Second::Merge;
        let adds_only = operation.parts > 1 && beside && (op.second != Second::Add || op.saturates);
        let merges_and = operation.parts == 1 && to.is_some() && (beside || mad) || beside && mad;
        let is_scaled = op.plus_one || op.scale > 0;
        if (negates || is_scaled) && !mad || negates && op.plus_one || adds_only || merges_and {
            return unsupported("form of a video instruction");
        }
        if operation.parts == 1 {
            op.check_range()?;
        }
        let takes_c = mad || operation.parts > 1 || to.is_some() || beside;
        if rest.len() != usize::from(takes_c) {
            return unsupported("number of operands");
        }
        let d = self.dst(&d)?;
        let (a, b) = (self.src(&a, Ty::B32)?, self.src(&b, Ty::B32)?);
        let c = rest.first().map_or(Ok(Src::None), |c| self.src(positive(c), Ty::B32))?;
        let i = self.emit(Op::Video(Box::new(op)));
        (i.d, i.a, i.b, i.c) = (d, a, b, c);
        Ok(())
    }
}

impl Video {
    /// Whether a result's upper half is what goes into the upper half of the destination. PTX's description says that
    /// it is the lower one, as SIMD forms have it; of scalar forms every ptxas from 11.8 to 13.0 takes the upper one
    /// for compute capabilities 7.5 and 9.0 (`PRMT d, result, 0x3254, c`), and so does an H200.
    pub fn goes_up(&self) -> bool {
        matches!(self.to[..], [Some(Part { shift: 16, bits: 16 })])
    }

    /// Where a result does not fit its type, NVIDIA's assembler disagrees in places with PTX's description: it wraps or
    /// clamps to the other end. A form that may meet one of those places is refused.
    fn check_range(&self) -> Result<()> {
        let (a, b) = (range(self.a[0], self.signed[1]), range(self.b[0], self.signed[2]));
        let is_fine = if self.arithmetic == Arithmetic::Mad {
            let whole_unsigned = |part: Part, signed: bool| part.bits == 32 && !signed;
            let is_signed = self.signed[1] || self.signed[2] || self.negated[0] || self.negated[1];
            let is_plain = !self.saturates && self.scale == 0;
            let unsigned = whole_unsigned(self.a[0], self.signed[1]) || whole_unsigned(self.b[0], self.signed[2]);
            is_plain || is_signed && !unsigned
        } else {
            self.agrees(self.results(a, b))
        };
        if is_fine { Ok(()) } else { unsupported("a video instruction whose result may not fit") }
    }

    /// The least and the greatest result before it is clamped.
    fn results(&self, (a0, a1): (i128, i128), (b0, b1): (i128, i128)) -> (i128, i128) {
        match self.arithmetic {
            Arithmetic::Add | Arithmetic::Mad | Arithmetic::Average => (a0 + b0, a1 + b1),
            Arithmetic::Sub => (a0 - b1, a1 - b0),
            Arithmetic::AbsDiff => (0, (a1 - b0).max(b1 - a0)),
            Arithmetic::Min => (a0.min(b0), a1.min(b1)),
            Arithmetic::Max => (a0.max(b0), a1.max(b1)),
            Arithmetic::Shl => (a0 << 32, a1 << 32),
            Arithmetic::Shr => (a0, a1),
            Arithmetic::Set => (0, 1),
        }
    }

    fn agrees(&self, (low, high): (i128, i128)) -> bool {
        let signed = self.signed[0];
        let whole = self.to[0] == Some(WORD);
        let (mut low, mut high) = (low, high);
        if self.saturates {
            let overflows = if signed { low < -(1 << 33) || high >= 1 << 33 } else { high >= 1 << 32 };
            if overflows || low < 0 && !whole {
                return false;
            }
            let end = range(WORD, signed);
            (low, high) = (low.clamp(end.0, end.1), high.clamp(end.0, end.1));
        }
        // Compared with `c`, a result is taken for a signed one.
        let least = if signed { i128::from(i32::MIN) } else { 0 };
        !matches!(self.second, Second::Min | Second::Max) || low >= least && high <= i128::from(i32::MAX)
    }
}

/// The least and the greatest value of a part.
fn range(part: Part, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (part.bits - 1)), (1 << (part.bits - 1)) - 1) } else { (0, (1 << part.bits) - 1) }
}

fn is_negative(o: &Operand) -> bool {
    matches!(o, Operand::Negated(_))
}

fn positive(o: &Operand) -> &Operand {
    if let Operand::Negated(o) = o { o } else { o }
}

/// `%r1.h0` is a register and a selector of its parts.
fn selected(o: &Operand) -> Result<(Operand, Option<&str>)> {
    match o {
        Operand::Name(n) => Ok(match n.split_once('.') {
            Some((register, selector)) => (Operand::Name(register.into()), Some(selector)),
            None => (o.clone(), None),
        }),
        Operand::Int(_) => Ok((o.clone(), None)),
        _ => unsupported("operand form"),
    }
}

/// The types in the opcode are the result's, which a comparison has none of, and the operands'.
fn signs(arithmetic: Arithmetic, mods: &Mods) -> Result<[bool; 3]> {
    let types = mods.types();
    if !types.iter().all(|t| matches!(t, Ty::U32 | Ty::S32)) {
        return unsupported("types");
    }
    let types: Vec<bool> = types.iter().map(|t| t.is_signed()).collect();
    match (arithmetic, types.as_slice()) {
        (Arithmetic::Set, &[a, b]) => Ok([false, a, b]),
        (Arithmetic::Set, _) => unsupported("types"),
        (_, &[d, a, b]) => Ok([d, a, b]),
        _ => unsupported("types"),
    }
}

fn second(mods: &Mods) -> Second {
    let hit = mods.0.iter().find_map(|m| match *m {
        "add" => Some(Second::Add),
        "min" => Some(Second::Min),
        "max" => Some(Second::Max),
        _ => None,
    });
    hit.unwrap_or(Second::Merge)
}

/// The parts that a selector names, the lowest first: `b3210` and `h32` count on into the second operand.
fn sources(parts: usize, selector: Option<&str>, operand: usize) -> Result<Vec<Part>> {
    let bits = 32 / parts as u32;
    let Some(selector) = selector else {
        let first = 32 * operand as u32;
        return Ok((0..parts as u32).map(|k| Part { shift: first + bits * k, bits }).collect());
    };
    if parts == 1 {
        let mut part = Part::named(selector).ok_or("selector")?;
        part.shift += 32 * operand as u32;
        return Ok(vec![part]);
    }
    let digits = digits(parts, selector)?;
    if digits.len() != parts || digits.iter().any(|&n| n >= 2 * parts as u32) {
        return unsupported("selector");
    }
    Ok(digits.iter().rev().map(|&n| Part { shift: bits * n, bits }).collect())
}

/// Where results go: `h10` and `b310` are masks.
fn results(parts: usize, selector: Option<&str>) -> Result<Vec<Option<Part>>> {
    let bits = 32 / parts as u32;
    let whole = |k| Part { shift: bits * k, bits };
    match selector {
        None if parts == 1 => Ok(vec![Some(WORD)]),
        None => Ok((0..parts as u32).map(|k| Some(whole(k))).collect()),
        Some(selector) if parts == 1 => Ok(vec![Some(Part::named(selector).ok_or("selector")?)]),
        Some(mask) => {
            let on = digits(parts, mask)?;
            if on.iter().any(|&k| k >= parts as u32) {
                return unsupported("mask");
            }
            Ok((0..parts as u32).map(|k| on.contains(&k).then(|| whole(k))).collect())
        }
    }
}

/// The digits after the letter of a selector.
fn digits(parts: usize, selector: &str) -> Result<Vec<u32>> {
    let letter = if parts == 2 { 'h' } else { 'b' };
    let digits = selector.strip_prefix(letter).filter(|d| !d.is_empty()).ok_or("selector")?;
    digits.chars().map(|c| c.to_digit(10).ok_or_else(|| "selector".into())).collect()
}
