//! The instructions that kernels spend their time on, each as one function over the rows of its operands.
//!
//! When a program is decoded, every instruction that has such a function gets it, with its operands resolved to rows:
//! registers of the frame, or constants that fill a row. There is nothing left to decide at each step but the mask.
//! What has none, and whatever is unusual about one that has (lanes in different ranges, a stray address), is left to
//! [`Warp::data`], which computes the same bits: `fast_and_slow_agree` asks that of every function here.
//!
//! Warps that run together ([`crate::exec::together`]) have one call for all of them, and `line` has the instructions
//! that need no rows at all.
//!
//! The functions need AVX2 and FMA. A processor without them takes the long way for everything.

pub mod bind;
pub mod line;
#[allow(clippy::needless_range_loop, reason = "lanes are counted, in several rows at once")]
mod memory;
#[allow(clippy::needless_range_loop, reason = "as in memory")]
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is not greater is less, the same, or no number")]
mod row;
#[cfg(test)]
mod tests;
