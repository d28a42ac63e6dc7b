//! Video instructions, of each lane in integers wide enough for every intermediate result.

use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::operand::Cmp;
use crate::ptx::isa::video::{Arithmetic, Part, Second, Shift, Video};

impl Warp {
    pub fn video(&mut self, op: &Video, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
        let c = self.read::<u32>(ins.c, f, env);
        let v = std::array::from_fn(|l| lane(op, a[l], b[l], c[l]));
        self.write::<u32>(ins.d, m, &v, f);
    }
}

fn lane(op: &Video, a: u32, b: u32, c: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    if op.arithmetic == Arithmetic::Mad {
        return multiply_add(op, take(both, op.a[0], op.signed[1]), take(both, op.b[0], op.signed[2]), c);
    }
    let [signed, ..] = op.signed;
    let whole = Part { shift: 0, bits: 32 };
    let mut d = if op.second == Second::Merge { c } else { 0 };
    let mut sum = take(u64::from(c), whole, signed);
    for ((&a, &b), &to) in op.a.iter().zip(&op.b).zip(&op.to) {
        let Some(to) = to else { continue };
        let v = result(op, take(both, a, op.signed[1]), take(both, b, op.signed[2]));
        let v = if op.saturates { clamp(v, to.bits, signed) } else { v };
        match op.second {
            Second::Merge => {
                let mask = (u32::MAX >> (32 - to.bits)) << to.shift;
                let v = if op.goes_up() { v as u32 } else { (v as u32) << to.shift };
                d = d & !mask | v & mask;
            }
            Second::Add => sum += v,
            Second::Min => sum = sum.min(v),
            Second::Max => sum = sum.max(v),
        }
    }
    if op.second == Second::Merge { d } else { sum as u32 }
}

/// A part of the operands as a number.
fn take(both: u64, part: Part, signed: bool) -> i128 {
    let v = both >> part.shift << (64 - part.bits);
    i128::from(if signed { v as i64 >> (64 - part.bits) } else { (v >> (64 - part.bits)) as i64 })
}

fn clamp(v: i128, bits: u32, signed: bool) -> i128 {
    if signed { v.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { v.clamp(0, (1 << bits) - 1) }
}

fn result(op: &Video, a: i128, b: i128) -> i128 {
    let by = if op.shift == Some(Shift::Wrap) { b & 31 } else { b.min(32) };
    match op.arithmetic {
        Arithmetic::Add | Arithmetic::Mad => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::AbsDiff => (a - b).abs(),
        Arithmetic::Min => a.min(b),
        Arithmetic::Max => a.max(b),
        // Halves are rounded away from zero.
        Arithmetic::Average => (a + b + i128::from(a + b >= 0)) >> 1,
        Arithmetic::Shl => a << by,
        Arithmetic::Shr => a >> by,
        Arithmetic::Set => i128::from(holds(op.cmp, a, b)),
    }
}

fn holds(cmp: Option<Cmp>, a: i128, b: i128) -> bool {
    match cmp {
        Some(Cmp::Eq) => a == b,
        Some(Cmp::Ne) => a != b,
        Some(Cmp::Lt) => a < b,
        Some(Cmp::Le) => a <= b,
        Some(Cmp::Gt) => a > b,
        _ => a >= b,
    }
}

fn multiply_add(op: &Video, a: i128, b: i128, c: u32) -> u32 {
    let [_, a_signed, b_signed] = op.signed;
    let [product, summand] = op.negated;
    let signed = a_signed || b_signed || product || summand;
    let c = take(u64::from(c), Part { shift: 0, bits: 32 }, signed);
    let ab = if product { -(a * b) } else { a * b };
    let v = (ab + if summand { -c } else { c } + i128::from(op.plus_one)) >> op.scale;
    (if op.saturates { clamp(v, 32, signed) } else { v }) as u32
}
