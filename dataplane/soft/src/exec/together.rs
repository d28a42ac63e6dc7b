//! Whole warps of a block that are at the same instruction: each instruction is fetched, and its function called, once
//! for all of them.
//!
//! They go on together as long as functions of [`crate::exec::fast`] do what there is to do and no warp has to go
//! another way. Whatever else comes up, a stray address above all, each warp does for itself, in the order of their
//! numbers: nothing here fails.

// UNSAFETY: calls the functions of `fast` with the rows of the frame.

use crate::exec::lanes::alike;
use crate::exec::state::{Env, Frame, Kind, Launch, LineOp, LineStep, Lines, Rows, Step, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::{BarOp, Src};

/// Warps that run together at most.
const COUNT_MAX: usize = 8;

/// Registers of so many bytes stay in a cache of the processor's core from one instruction to the next. The nearest one
/// need not hold them all: a matrix product, whose eight warps have 110 KiB, takes an eighth longer where as many run
/// together as it holds.
const REGISTER_BYTES_MAX: usize = 128 << 10;

impl Launch {
    /// How many of a block's warps are to run together, if they can.
    pub fn warps_together(&self, warps: usize) -> usize {
        let f = &self.program.funcs[self.func as usize];
        // Most of 64 bits are addresses, whose rows nobody needs.
        let bytes = 128 * (f.rows32 + f.rows64) as usize;
        let most = (REGISTER_BYTES_MAX / bytes.max(1)).clamp(1, COUNT_MAX);
        warps.div_ceil(warps.div_ceil(most).max(1))
    }
}

impl Warp {
    /// The instruction that all lanes are at, if all of them run.
    fn whole_at(&self) -> Option<u32> {
        let is_whole = self.runnable == u32::MAX && !self.has_called && alike(&self.pc, 0) == u32::MAX;
        is_whole.then_some(self.pc[0])
    }
}

/// How many of these warps, the first and those behind it, can go on together.
pub fn count(warps: &[Warp]) -> usize {
    let Some(at) = warps.first().and_then(Warp::whole_at) else { return 0 };
    warps.iter().take_while(|w| w.whole_at() == Some(at)).count()
}

/// Runs the warps until they part or have used up the budget, which counts each instruction once.
pub fn run(warps: &mut [Warp], lines: &mut Lines, env: &mut Env, budget: &mut i64) {
    let launch = env.launch;
    let (table, code) = (&*launch.table, launch.program.code.as_slice());
    let frame = Frame { func: launch.func, ..Frame::default() };
    let last = warps.len() - 1;
    let rows: [Rows; COUNT_MAX] = std::array::from_fn(|k| Rows::new(&mut warps[k.min(last)], &frame, table));
    let rows = &rows[..warps.len()];
    let mut pc = warps[0].pc[0];
    lines.begin(launch, warps.len());
    while *budget > 0 {
        let step = &table.steps[pc as usize];
        if step.straight > 0 {
            let count = i64::from(step.straight).min(*budget) as usize;
            let behind = pc as usize + count;
            for (step, x) in table.steps[pc as usize..behind].iter().zip(&table.lines[pc as usize..behind]) {
                // SAFETY: the rows are those of the kernel's frame, in which the instruction is.
                let done = unsafe { run_step(step, x, rows, lines, warps, env) };
                if done < warps.len() {
                    return part(warps, lines, rows, done, pc);
                }
                pc += 1;
            }
            *budget -= count as i64;
            continue;
        }
        *budget -= 1;
        let x = &table.lines[pc as usize];
        if step.guard != u32::MAX {
            let holds = |w: &Warp| {
                let p = w.preds[step.guard as usize];
                if step.guard_negated { !p } else { p }
            };
            let (all, any) = warps.iter().map(holds).fold((u32::MAX, 0), |(all, any), p| (all & p, any | p));
            if any == 0 {
                pc += 1;
                continue;
            }
            if all != u32::MAX {
                if step.kind != Kind::Fast {
                    break;
                }
                // SAFETY: as above.
                unsafe { lines.settle(rows, x, true) };
                for k in 0..warps.len() {
                    let mask = holds(&warps[k]);
                    // SAFETY: as above.
                    if mask != 0 && !unsafe { step.run(&rows[k], &mut warps[k], env, mask) } {
                        return part(warps, lines, rows, k, pc);
                    }
                }
                pc += 1;
                continue;
            }
        }
        match step.kind {
            Kind::Fast | Kind::Together => {
                // SAFETY: as above.
                let done = unsafe { run_step(step, x, rows, lines, warps, env) };
                if done < warps.len() {
                    return part(warps, lines, rows, done, pc);
                }
                pc += 1;
            }
            Kind::Bra => pc = step.extra as u32,
            Kind::Data => break,
            Kind::Control => match &code[pc as usize].op {
                Op::Exit | Op::Ret => {
                    for w in warps.iter_mut() {
                        (w.live, w.runnable) = (0, 0);
                    }
                    *env.live_threads -= 32 * warps.len() as u32;
                    return;
                }
                _ => {
                    // SAFETY: as above.
                    unsafe { lines.settle(rows, x, false) };
                    if !control(warps, &code[pc as usize], &frame, env) {
                        break;
                    }
                    pc += 1;
                }
            },
        }
    }
    part(warps, lines, rows, 0, pc);
}

/// Runs an instruction for all lanes of the warps, and answers for how many.
///
/// # Safety
///
/// As for [`Step::run_all`]; the lines are those of the warps.
#[inline(always)]
pub unsafe fn run_step(
    step: &Step,
    x: &LineStep,
    rows: &[Rows],
    lines: &mut Lines,
    warps: &mut [Warp],
    env: &mut Env,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        if x.op != LineOp::None && lines.run(step, x, rows, warps, env) {
            return warps.len();
        }
        if lines.concern(x) {
            lines.settle(rows, x, false);
        }
        step.run_all(rows, warps, env)
    }
}

/// From here on each goes by itself: the first of them are behind the instruction.
fn part(warps: &mut [Warp], lines: &mut Lines, rows: &[Rows], done: usize, pc: u32) {
    // SAFETY: the rows are those of the warps.
    unsafe { lines.write(rows, u64::MAX, u64::MAX) };
    for (k, w) in warps.iter_mut().enumerate() {
        w.pc = [if k < done { pc + 1 } else { pc }; 32];
        w.fair = false;
    }
}

/// Runs an instruction at which warps might have to wait. False when it has done nothing.
fn control(warps: &mut [Warp], ins: &Instr, frame: &Frame, env: &mut Env) -> bool {
    match &ins.op {
        Op::Warp(op) => {
            let members = |w: &Warp| match ins.e {
                Src::None => Some(u32::MAX),
                e => {
                    let all = w.read::<u32>(e, frame, env);
                    (alike(&all, 0) == u32::MAX).then_some(all[0])
                }
            };
            if !warps.iter().all(|w| members(w).is_some()) {
                return false;
            }
            for w in warps.iter_mut() {
                let members = members(w).unwrap_or(u32::MAX);
                w.finish_warp_op(ins, *op, u32::MAX, members, frame, env);
            }
            true
        }
        // Whoever has not left is here, and nobody has come before.
        Op::Bar(BarOp::Sync) if ins.b == Src::None && *env.live_threads == 32 * warps.len() as u32 => {
            let Src::Imm(id) = ins.a else { return false };
            env.bars.get(id as usize).is_some_and(|bar| bar.arrived == 0)
        }
        _ => false,
    }
}
