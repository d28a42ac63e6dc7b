//! PTX: text to syntax (`lex`, `parse`), syntax to the register machine the executor runs (`decode`).

pub mod check;
pub mod decode;
pub mod isa;
pub mod lex;
pub mod parse;
