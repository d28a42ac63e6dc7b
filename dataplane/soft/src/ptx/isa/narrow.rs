//! Conversions of formats of eight bits and fewer.

use crate::ptx::isa::operand::{Round, Ty};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    E4m3,
    E5m2,
    E2m3,
    E3m2,
    E2m1,
    /// An exponent alone.
    Ue8m0,
}

/// A conversion of two values between a narrow format and a wider one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    pub format: Format,
    /// `F32`, whose values come in two registers, `F16x2` or `Bf16x2`.
    pub wide: Ty,
    pub narrows: bool,
    pub round: Round,
    pub relu: bool,
    pub satfinite: bool,
}
