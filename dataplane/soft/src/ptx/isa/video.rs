//! Video instructions.

use crate::ptx::isa::operand::Cmp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Sub,
    AbsDiff,
    Min,
    Max,
    Average,
    Shl,
    Shr,
    /// `a * b + c`.
    Mad,
    Set,
}

/// Part of a word: its lowest bit and its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub shift: u32,
    pub bits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// The third operand, if any, is what is left where the result does not go.
    Merge,
    Add,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    Clamp,
    Wrap,
}

#[derive(Clone, Debug)]
pub struct Video {
    pub arithmetic: Arithmetic,
    /// Whether results, first and second operands are signed.
    pub signed: [bool; 3],
    /// What of both operands each result is made from; parts of the second operand count from bit 32.
    pub a: Vec<Part>,
    pub b: Vec<Part>,
    /// Where each result goes, if anywhere.
    pub to: Vec<Option<Part>>,
    pub saturates: bool,
    pub second: Second,
    pub cmp: Option<Cmp>,
    pub shift: Option<Shift>,
    /// Of a multiplication: whether product and summand are negated, one is added, and bits that are dropped.
    pub negated: [bool; 2],
    pub plus_one: bool,
    pub scale: u32,
}
