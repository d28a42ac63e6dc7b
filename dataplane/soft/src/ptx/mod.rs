//! PTX: text to syntax (`lex`, `parse`, `vectors`), several texts to one (`link`), of a text what a kernel needs
//! (`part`), syntax to the register machine the executor runs (`decode`).

pub mod check;
mod constant;
pub mod decode;
pub mod isa;
pub mod lex;
pub mod link;
pub mod parse;
pub mod part;
pub mod syntax;
mod vectors;
