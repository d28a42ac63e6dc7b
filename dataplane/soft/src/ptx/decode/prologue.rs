//! What every thread of a launch computes alike at its beginning, from the kernel's parameters and nothing else:
//! pointers, sizes, strides. It is moved to the front of the kernel, to be computed once for the launch.

use super::rows::{Operand, operands};
use crate::ptx::isa::*;

/// Moves it there; the order of what remains stays.
pub fn gather(code: &mut Vec<Instr>, start: usize, func: &mut Func) {
    let end = first_run(code, start);
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
    }
    let mut known = vec![false; writes.len()];
    let mut is_alike: Vec<bool> = Vec::with_capacity(end);
    for ins in &code[..end] {
        let result = registers(&ins.d).filter(|r| writes[*r] == 1);
        let reads = [ins.a, ins.b, ins.c, ins.e];
        let alike = ins.guard == u32::MAX
            && ins.d2 == Reg::None
            && is_pure(ins)
            && reads.iter().all(|s| match s {
                Src::R32(i) => known[*i as usize],
                Src::R64(i) => known[(func.rows32 + i) as usize],
                Src::None | Src::Imm(_) | Src::Special(Special::Ntid(_) | Special::Nctaid(_)) => true,
                _ => false,
            });
        match result {
            Some(r) if alike => known[r] = true,
            _ => {
                is_alike.push(false);
                continue;
            }
        }
        is_alike.push(true);
    }
    func.prologue = is_alike.iter().filter(|a| **a).count() as u32;
    let rest = code.split_off(end);
    let (front, behind): (Vec<_>, Vec<_>) = code.drain(..).zip(is_alike).partition(|(_, alike)| *alike);
    code.extend(front.into_iter().chain(behind).map(|(ins, _)| ins));
    code.extend(rest);
}

/// Up to where every thread comes once, and by no other way.
fn first_run(code: &[Instr], start: usize) -> usize {
    let mut end = code.len();
    for (i, ins) in code.iter().enumerate() {
        let mut reach = |target: u32| end = end.min((target as usize).saturating_sub(start));
        match &ins.op {
            Op::Bra(t) => reach(*t),
            Op::BrxIdx(targets) => targets.iter().for_each(|t| reach(*t)),
            Op::Warp(_) | Op::Matrix(_) | Op::Bar(_) | Op::Call(_) | Op::Ret | Op::Exit | Op::Trap | Op::Nanosleep => {}
            Op::MbarrierTest { .. } => {}
            _ => continue,
        }
        end = end.min(i);
    }
    end
}

/// Whether an instruction computes the same whenever it is run with the same operands, and does nothing else.
fn is_pure(ins: &Instr) -> bool {
    match &ins.op {
        Op::Ld { space: Space::Param, .. } => matches!(ins.a, Src::Imm(_)),
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
