//! The instructions that kernels spend their time on, each as one function over the rows of its operands.
//!
//! When a program is decoded, every instruction that has such a function gets it, with its operands resolved to rows:
//! registers of the frame, or constants that fill a row. There is nothing left to decide at each step but the mask.
//! What has none, and whatever is unusual about one that has (lanes in different ranges, a stray address), is left to
//! [`Warp::data`], which computes the same bits: `fast_and_slow_agree` asks that of every function here.
//!
//! The functions need AVX2 and FMA. A processor without them takes the long way for everything.

// UNSAFETY: rows are reached by pointer, at places that the decoder counted for the function whose frame it is; kernels
// address host memory by number, and every pointer made from such a number was found in the range table first.

mod bind;
#[allow(clippy::needless_range_loop, reason = "lanes are counted, in several rows at once")]
mod memory;
#[allow(clippy::needless_range_loop, reason = "as in memory")]
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is not greater is less, the same, or no number")]
mod row;
#[cfg(test)]
mod tests;

use super::Env;
use super::lanes::Lanes;
use super::warp::{Frame, Warp};
use crate::ptx::isa::{Instr, Op, Program};

pub type Row32 = [u32; 32];
pub type Row64 = [u64; 32];

/// Runs for the lanes of a mask. False when it has done nothing, and the long way has to be taken.
type Run = unsafe fn(&Rows, &mut Warp, &mut Env, &Step, u32) -> bool;

/// The function for any mask, and the one for the whole warp.
type Runs = [Run; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data that a function of this module handles.
    Fast,
    /// Data for `Warp::data`.
    Data,
    Bra,
    /// As `Control`; of the whole warp a function of this module handles it, when it can.
    Together,
    /// May change which lanes go on.
    Control,
}

/// An instruction as the loop over a group's instructions reads it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    runs: Runs,
    pub kind: Kind,
    pub guard_negated: bool,
    /// Predicate register that must hold; `u32::MAX` for none.
    pub guard: u32,
    /// Instructions from this one on that functions of this module run for whichever lanes are there, one by one.
    pub straight: u32,
    /// Rows: of the frame's registers, or with the highest bit of the program's constants.
    pub d: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// Four rows more, of vectors.
    pub rows: [u32; 4],
    /// An offset, a shift, a table: whatever else the function takes. The target of a branch.
    pub extra: u64,
}

/// What a program has for this module.
#[derive(Debug, Default)]
pub struct Table {
    pub steps: Vec<Step>,
    constants32: Vec<Lanes<u32>>,
    constants64: Vec<Lanes<u64>>,
}

impl Table {
    pub fn new(code: &[Instr]) -> Table {
        let mut table = Table::default();
        let fast = is_available();
        for ins in code {
            let step = if fast { bind::step(&mut table, ins) } else { None };
            table.steps.push(step.unwrap_or_else(|| Step::plain(ins)));
        }
        let mut straight = 0;
        for step in table.steps.iter_mut().rev() {
            let goes_on = step.kind == Kind::Fast && step.guard == u32::MAX;
            straight = if goes_on { straight + 1 } else { 0 };
            step.straight = straight;
        }
        table
    }
}

/// Whether this processor has the instructions that the functions are compiled for.
pub fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

unsafe fn not_here(_: &Rows, _: &mut Warp, _: &mut Env, _: &Step, _: u32) -> bool {
    false
}

impl Step {
    /// # Safety
    ///
    /// The rows are those of the frame of the function that the instruction is of, and the kind is `Fast`.
    #[inline(always)]
    pub unsafe fn run(&self, rows: &Rows, warp: &mut Warp, env: &mut Env, mask: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.runs[usize::from(mask == u32::MAX)](rows, warp, env, self, mask) }
    }

    fn plain(ins: &Instr) -> Step {
        let (kind, extra) = match ins.op {
            Op::Bra(target) => (Kind::Bra, u64::from(target)),
            Op::BrxIdx(_)
            | Op::Warp(_)
            | Op::Bar(_)
            | Op::Call(_)
            | Op::Ret
            | Op::Exit
            | Op::Trap
            | Op::Nanosleep
            | Op::Matrix(_)
            | Op::MbarrierTest { .. } => (Kind::Control, 0),
            _ => (Kind::Data, 0),
        };
        Step {
            runs: [not_here; 2],
            kind,
            guard_negated: ins.guard_negated,
            guard: ins.guard,
            straight: 0,
            d: 0,
            a: 0,
            b: 0,
            c: 0,
            rows: [0; 4],
            extra,
        }
    }
}

/// Which of two places a row is in.
const CONSTANT: u32 = 1 << 31;

/// Where a group's rows are: until a call, the same.
pub struct Rows {
    rows32: [*mut Row32; 2],
    rows64: [*mut Row64; 2],
    preds: *mut u32,
}

impl Rows {
    pub fn new(warp: &mut Warp, frame: &Frame, program: &Program) -> Rows {
        let table = &program.fast;
        // Within what the warp has: the frame's registers begin there, or at its end if it has none.
        let at = |base: u32| base as usize;
        Rows {
            rows32: [warp.r32[at(frame.r32)..].as_mut_ptr().cast(), table.constants32.as_ptr().cast_mut().cast()],
            rows64: [warp.r64[at(frame.r64)..].as_mut_ptr().cast(), table.constants64.as_ptr().cast_mut().cast()],
            preds: warp.preds[at(frame.preds)..].as_mut_ptr(),
        }
    }
}
