//! What a warp multiplies matrices by.

use crate::ptx::isa::operand::{Reg, Round, Space, Src, Ty};

/// What the factors of a product consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F16,
    Bf16,
    Tf32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
}

impl Element {
    pub fn bits(self) -> usize {
        match self {
            Self::F64 => 64,
            Self::Tf32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 8,
            Self::S4 | Self::U4 => 4,
            Self::B1 => 1,
        }
    }
    /// Two elements with the same of these may be multiplied.
    pub fn family(self) -> Self {
        match self {
            Self::E5m2 => Self::E4m3,
            Self::U8 => Self::S8,
            Self::U4 => Self::S4,
            other => other,
        }
    }
}

/// Rows of the first factor, columns of the second, and products in each sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// The words that say which elements of a sparse factor are there, and the threads of four that have them.
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    pub metadata: Src,
    pub selector: usize,
}

#[derive(Clone, Debug)]
pub struct Multiply {
    pub shape: Shape,
    pub a: Element,
    pub b: Element,
    pub c: Ty,
    pub d: Ty,
    pub a_regs: Box<[Src]>,
    pub b_regs: Box<[Src]>,
    pub c_regs: Box<[Src]>,
    pub d_regs: Box<[Reg]>,
    pub sparse: Option<Sparse>,
    /// Four products of 8x8x4, each by the threads of two groups of four; whether each factor is in row order.
    pub quads: Option<[bool; 2]>,
    pub saturates: bool,
    /// Single bits are combined by "and", not by "exclusive or".
    pub is_and: bool,
    pub round: Round,
}

/// Which matrix of a product a fragment is of, and so how it lies in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    A,
    B,
    Sum,
}

#[derive(Clone, Debug)]
pub struct Fragment {
    pub part: Part,
    pub shape: Shape,
    /// Bits of an element.
    pub bits: usize,
    pub is_row_major: bool,
    pub space: Space,
    pub offset: i64,
    /// Elements from one row or column to the next.
    pub stride: Src,
}

#[derive(Clone, Debug)]
pub enum MatrixOp {
    /// Matrices of 8x8 elements of 16 bits, of which each lane names a row by the instruction's `a`.
    Load {
        space: Space,
        offset: i64,
        is_transposed: bool,
        regs: Box<[Reg]>,
    },
    Store {
        space: Space,
        offset: i64,
        is_transposed: bool,
        values: Box<[Src]>,
    },
    Transpose(Reg, Src),
    Multiply(Multiply),
    LoadFragment(Fragment, Box<[Reg]>),
    StoreFragment(Fragment, Box<[Src]>),
}
