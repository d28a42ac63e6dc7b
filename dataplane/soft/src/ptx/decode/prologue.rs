//! What every thread of a launch computes alike, from the kernel's parameters and nothing else: pointers, sizes,
//! strides, constants. It is moved to the front of the kernel, to be computed once for the launch.
//!
//! A register that one instruction writes, and no other, has the same value wherever that instruction is: a program
//! that reads it before has no value to expect. Its row is nobody else's, and blocks of a launch that run in the same
//! memory find it there.

use crate::ptx::decode::rows::{Operand, operands};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::{Reg, Space, Special, Src, WINDOW_MASK, WarpOp};
use crate::ptx::isa::program::Func;

/// Rows that are kept like this; more would crowd out what changes from the processor's nearest cache.
const KEPT_MAX: usize = 64;

/// Moves it there; the order of what remains stays.
pub fn gather(code: &mut Vec<Instr>, start: usize, func: &mut Func, param_bytes: u32) {
    let registers = |r: &Reg| match r {
        Reg::R32(i) => Some(*i as usize),
        Reg::R64(i) => Some((func.rows32 + i) as usize),
        _ => None,
    };
    let mut writes = vec![0u32; (func.rows32 + func.rows64) as usize];
    for ins in code.iter_mut() {
        operands(ins, &mut |o| {
            if let Operand::Write(r) = o
                && let Some(r) = registers(r)
            {
                writes[r] += 1;
            }
        });
        // What a lane left behind that has not come by, or is gone, is read too.
        if let (Op::Warp(WarpOp::Shfl(_)), Src::R32(r)) = (&ins.op, ins.a) {
            writes[r as usize] += 1;
        }
    }
    let mut known = vec![false; writes.len()];
    let mut is_kept = vec![false; code.len()];
    let mut kept = 0;
    for (ins, is_kept) in code.iter().zip(&mut is_kept) {
        let reads = [ins.a, ins.b, ins.c, ins.e];
        let alike = kept < KEPT_MAX
            && ins.guard == u32::MAX
            && ins.d2 == Reg::None
            && is_pure(ins, param_bytes)
            && reads.iter().all(|s| match s {
                Src::R32(i) => known[*i as usize],
                Src::R64(i) => known[(func.rows32 + i) as usize],
                Src::None | Src::Imm(_) | Src::Special(Special::Ntid(_) | Special::Nctaid(_)) => true,
                _ => false,
            });
        if alike && let Some(r) = registers(&ins.d).filter(|r| writes[*r] == 1) {
            (known[r], *is_kept) = (true, true);
            kept += 1;
        }
    }
    func.prologue = kept as u32;
    let (front, behind): (Vec<_>, Vec<_>) = code.drain(..).zip(&is_kept).partition(|(_, is_kept)| **is_kept);
    code.extend(front.into_iter().chain(behind).map(|(ins, _)| ins));
    lead_branches(code, start, &is_kept, kept);
}

/// Branches lead to the same instruction as before, or to the next that has stayed.
fn lead_branches(code: &mut [Instr], start: usize, is_kept: &[bool], kept: usize) {
    let mut place = kept;
    let mut places: Vec<usize> = Vec::with_capacity(is_kept.len() + 1);
    for is_kept in is_kept {
        places.push(place);
        place += usize::from(!is_kept);
    }
    places.push(place);
    let lead = |target: &mut u32| {
        if let Some(place) = (*target as usize).checked_sub(start).and_then(|at| places.get(at)) {
            *target = (start + place) as u32;
        }
    };
    for ins in code {
        match &mut ins.op {
            Op::Bra(target) => lead(target),
            Op::BrxIdx(targets) => targets.iter_mut().for_each(lead),
            _ => {}
        }
    }
}

/// Whether an instruction computes the same whenever it is run with the same operands, and does nothing else: so it
/// may be run where the program would not have come by.
fn is_pure(ins: &Instr, param_bytes: u32) -> bool {
    match &ins.op {
        Op::Ld { space: Space::Param, ty, offset } => {
            let Src::Imm(base) = ins.a else { return false };
            let (at, bytes) = (base.wrapping_add(*offset as u64) & !WINDOW_MASK, u64::from(ty.bytes()));
            at.is_multiple_of(bytes.max(1)) && at.checked_add(bytes).is_some_and(|end| end <= param_bytes.into())
        }
        Op::Mov
        | Op::Cvta { window: 0 }
        | Op::CvtaTo { .. }
        | Op::IntBin(..)
        | Op::IntUn(..)
        | Op::MulWide(_)
        | Op::MadLo(_)
        | Op::MadWide(_)
        | Op::Cvt { .. } => true,
        _ => false,
    }
}
