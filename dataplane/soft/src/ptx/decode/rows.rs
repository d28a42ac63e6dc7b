//! Which row a register has. PTX has a name for every value, thousands in an unrolled loop; values that are never
//! needed at the same time share a row, so that what a warp works on stays in the processor's nearest cache.
//!
//! A lane writes only its own part of a row, so what a lane needs decides, wherever the other lanes of its warp are. A
//! write under a guard leaves what was there, and so needs it. A result never shares with an operand of its own
//! instruction, which may write one while it reads the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use Operand::{Read, Write};

use crate::ptx::isa::instruction::{Instr, Op, Target};
use crate::ptx::isa::matrix::{Fragment, MatrixOp, Multiply};
use crate::ptx::isa::operand::{Reg, Src, WarpOp};
use crate::ptx::isa::program::{Func, Program};
use crate::ptx::isa::texture::{Level, Place, Results, TextureOp};

/// Fewer are not worth the work: they fit.
const ENOUGH: u32 = 64;

pub enum Operand<'a> {
    Read(&'a mut Src),
    Write(&'a mut Reg),
}

/// Every register that an instruction names.
pub fn operands(ins: &mut Instr, f: &mut dyn FnMut(Operand)) {
    for s in [&mut ins.a, &mut ins.b, &mut ins.c, &mut ins.e] {
        f(Read(s));
    }
    for r in [&mut ins.d, &mut ins.d2] {
        f(Write(r));
    }
    match &mut ins.op {
        Op::Pack(_, parts) => parts.iter_mut().for_each(|s| f(Read(s))),
        Op::Unpack(_, regs) | Op::LdVec { regs, .. } => regs.iter_mut().for_each(|r| f(Write(r))),
        Op::StVec { regs, .. } => regs.iter_mut().for_each(|s| f(Read(s))),
        Op::ExchangePair { old, new, expected, .. } => {
            new.iter_mut().chain(expected.iter_mut().flatten()).for_each(|s| f(Read(s)));
            old.iter_mut().for_each(|r| f(Write(r)));
        }
        Op::Texture(op) => texture(op, f),
        Op::Matrix(op) => matrix(op, f),
        Op::Call(call) => {
            if let Target::Register(s) = &mut call.target {
                f(Read(s));
            }
        }
        // These name none beside the instruction's own. A new one that does belongs above.
        Op::Nop
        | Op::Mov
        | Op::Cvta { .. }
        | Op::CvtaTo { .. }
        | Op::IsSpace(_)
        | Op::IntBin(..)
        | Op::IntUn(..)
        | Op::MulWide(_)
        | Op::MadLo(_)
        | Op::MadHi(_)
        | Op::MadWide(_)
        | Op::Mad24(_)
        | Op::Sad(_)
        | Op::Carry { .. }
        | Op::MadCarry { .. }
        | Op::Bfe(_)
        | Op::Bfi(_)
        | Op::Bmsk
        | Op::Szext(_)
        | Op::Fns
        | Op::Shf { .. }
        | Op::Prmt(_)
        | Op::Lop3(_)
        | Op::Dp4a(..)
        | Op::Dp2a(..)
        | Op::FloatBin(..)
        | Op::FloatUn(..)
        | Op::Fma(..)
        | Op::Testp(..)
        | Op::Cvt { .. }
        | Op::CvtPair { .. }
        | Op::CvtPack { .. }
        | Op::Setp { .. }
        | Op::Set { .. }
        | Op::PredBin(_)
        | Op::PredNot
        | Op::PredMov
        | Op::Selp(_)
        | Op::Slct(..)
        | Op::Ld { .. }
        | Op::St { .. }
        | Op::Atom { .. }
        | Op::CpAsync { .. }
        | Op::Narrow(_)
        | Op::Video(_)
        | Op::BulkCopy { .. }
        | Op::Cluster(_)
        | Op::Mbarrier { .. }
        | Op::MbarrierTest { .. }
        | Op::Fence
        | Op::Nanosleep
        | Op::Activemask
        | Op::Warp(_)
        | Op::Bar(_)
        | Op::Bra(_)
        | Op::BrxIdx(_)
        | Op::Ret
        | Op::Exit
        | Op::Trap => {}
    }
}

fn texture(op: &mut TextureOp, f: &mut dyn FnMut(Operand)) {
    fn place(p: &mut Place, f: &mut dyn FnMut(Operand)) {
        f(Read(&mut p.layer));
        p.axes.iter_mut().for_each(|s| f(Read(s)));
    }
    fn results(to: &mut Results, f: &mut dyn FnMut(Operand)) {
        to.regs.iter_mut().for_each(|r| f(Write(r)));
        f(Write(&mut to.resident));
    }
    match op {
        TextureOp::Sample { place: at, level, to, .. } => {
            place(at, f);
            match level {
                Level::Base => {}
                Level::Explicit(s) => f(Read(s)),
                Level::Gradient(x, y) => x.iter_mut().chain(y).for_each(|s| f(Read(s))),
            }
            results(to, f);
        }
        TextureOp::Gather { place: at, to, .. } => {
            place(at, f);
            results(to, f);
        }
        TextureOp::QueryTexture { level, .. } => f(Read(level)),
        TextureOp::QuerySurface(_) => {}
        TextureOp::Load { place: at, regs, .. } => {
            place(at, f);
            regs.iter_mut().for_each(|r| f(Write(r)));
        }
        TextureOp::Store { place: at, values, .. } => {
            place(at, f);
            values.iter_mut().for_each(|s| f(Read(s)));
        }
        TextureOp::Reduce { place: at, .. } => place(at, f),
    }
}

fn matrix(op: &mut MatrixOp, f: &mut dyn FnMut(Operand)) {
    match op {
        MatrixOp::Load { regs, .. } => regs.iter_mut().for_each(|r| f(Write(r))),
        MatrixOp::Store { values, .. } => values.iter_mut().for_each(|s| f(Read(s))),
        MatrixOp::Transpose(d, a) => {
            f(Read(a));
            f(Write(d));
        }
        MatrixOp::Multiply(Multiply { a_regs, b_regs, c_regs, d_regs, sparse, .. }) => {
            a_regs.iter_mut().chain(b_regs).chain(c_regs).for_each(|s| f(Read(s)));
            if let Some(sparse) = sparse {
                f(Read(&mut sparse.metadata));
            }
            d_regs.iter_mut().for_each(|r| f(Write(r)));
        }
        MatrixOp::LoadFragment(Fragment { stride, .. }, regs) => {
            f(Read(stride));
            regs.iter_mut().for_each(|r| f(Write(r)));
        }
        MatrixOp::StoreFragment(Fragment { stride, .. }, values) => {
            f(Read(stride));
            values.iter_mut().for_each(|s| f(Read(s)));
        }
    }
}

/// The registers of a function: those of 32 bits, and behind them those of 64.
#[derive(Clone, Copy)]
struct Registers {
    rows32: u32,
    rows64: u32,
}

impl Registers {
    fn count(self) -> usize {
        (self.rows32 + self.rows64) as usize
    }

    fn of_src(self, s: &Src) -> Option<usize> {
        match s {
            Src::R32(i) => Some(*i as usize),
            Src::R64(i) => Some((self.rows32 + i) as usize),
            _ => None,
        }
    }

    fn of_reg(self, r: &Reg) -> Option<usize> {
        match r {
            Reg::R32(i) => Some(*i as usize),
            Reg::R64(i) => Some((self.rows32 + i) as usize),
            _ => None,
        }
    }
}

/// What an instruction reads and writes.
#[derive(Default)]
struct Access {
    reads: Vec<usize>,
    writes: Vec<usize>,
    /// What it writes is there for every lane that comes by.
    is_sure: bool,
}

/// A run of instructions with one way in and one way out, as positions in the function.
struct Run {
    first: usize,
    end: usize,
    next: Vec<usize>,
    live_in: Bits,
    live_out: Bits,
    reads: Bits,
    writes: Bits,
}

#[derive(Clone, PartialEq)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }
    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }
    fn put(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
    fn each(&self, mut f: impl FnMut(usize)) {
        for (k, word) in self.0.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                f(k * 64 + word.trailing_zeros() as usize);
                word &= word - 1;
            }
        }
    }
}

/// Gives the registers of a function, whose code begins at `start` in its program, as few rows as this can.
pub fn share(code: &mut [Instr], start: usize, func: &mut Func) {
    let registers = Registers { rows32: func.rows32, rows64: func.rows64 };
    if func.rows32 + func.rows64 <= ENOUGH {
        return;
    }
    let accesses: Vec<Access> = code.iter_mut().map(|ins| access(ins, registers)).collect();
    let Some(mut runs) = runs(code, start, &accesses, registers) else { return };
    flow(&mut runs);
    let spans = spans(&runs, &accesses, registers, func.prologue as usize);
    let (rows32, rows64) = spans.split_at(registers.rows32 as usize);
    let ((rows32, count32), (rows64, count64)) = (assign(rows32), assign(rows64));
    for ins in code {
        operands(ins, &mut |o| match o {
            Read(Src::R32(i)) | Write(Reg::R32(i)) => *i = rows32[*i as usize],
            Read(Src::R64(i)) | Write(Reg::R64(i)) => *i = rows64[*i as usize],
            _ => {}
        });
    }
    (func.rows32, func.rows64) = (count32, count64);
}

impl Program {
    /// The rows that a thread may read before it has written them: whoever begins in the rows of another thread has to
    /// clear them. A shuffle reads what a lane has that may have left.
    pub fn read_first(&self, func: u32) -> &(Vec<u32>, Vec<u32>) {
        let f = &self.funcs[func as usize];
        f.read_first.get_or_init(|| {
            let start = f.entry as usize;
            let ends = self.funcs.iter().map(|f| f.entry as usize).filter(|entry| *entry > start);
            let end = ends.min().unwrap_or(self.code.len());
            let mut code = self.code[start..end].to_vec();
            let registers = Registers { rows32: f.rows32, rows64: f.rows64 };
            let accesses: Vec<Access> = code.iter_mut().map(|ins| access(ins, registers)).collect();
            let mut rows = Bits::new(registers.count());
            match runs(&code, start, &accesses, registers) {
                Some(mut runs) if !runs.is_empty() => {
                    flow(&mut runs);
                    rows = runs.swap_remove(0).live_in;
                }
                _ => (0..registers.count()).for_each(|r| rows.put(r)),
            }
            for ins in code.iter().filter(|ins| matches!(ins.op, Op::Warp(WarpOp::Shfl(_)))) {
                registers.of_src(&ins.a).into_iter().for_each(|r| rows.put(r));
            }
            let mut all = (Vec::new(), Vec::new());
            rows.each(|r| match (r as u32).checked_sub(f.rows32) {
                None => all.0.push(r as u32),
                Some(r) => all.1.push(r),
            });
            all
        })
    }
}

fn access(ins: &mut Instr, registers: Registers) -> Access {
    let mut all = Access { is_sure: ins.guard == u32::MAX, ..Access::default() };
    operands(ins, &mut |o| match o {
        Read(s) => all.reads.extend(registers.of_src(s)),
        Write(r) => all.writes.extend(registers.of_reg(r)),
    });
    all
}

/// `None` if a branch leads out of the function, which the decoder does not make.
fn runs(code: &[Instr], start: usize, accesses: &[Access], registers: Registers) -> Option<Vec<Run>> {
    let place = |target: u32| (target as usize).checked_sub(start).filter(|at| *at <= code.len());
    let mut begins = vec![false; code.len() + 1];
    begins[0] = true;
    for (i, ins) in code.iter().enumerate() {
        match &ins.op {
            Op::Bra(t) => begins[place(*t)?] = true,
            Op::BrxIdx(targets) => {
                for t in targets {
                    begins[place(*t)?] = true;
                }
            }
            Op::Ret | Op::Exit | Op::Trap => {}
            _ => continue,
        }
        begins[i + 1] = true;
    }
    let firsts: Vec<usize> = (0..code.len()).filter(|i| begins[*i]).collect();
    let mut number = vec![usize::MAX; code.len() + 1];
    for (k, first) in firsts.iter().enumerate() {
        number[*first] = k;
    }
    let mut all = Vec::new();
    for (k, &first) in firsts.iter().enumerate() {
        let end = firsts.get(k + 1).copied().unwrap_or(code.len());
        let last = &code[end - 1];
        let mut next: Vec<usize> = match &last.op {
            Op::Bra(t) => vec![number[place(*t)?]],
            Op::BrxIdx(targets) => targets.iter().filter_map(|t| place(*t)).map(|at| number[at]).collect(),
            _ => Vec::new(),
        };
        let goes_on = !matches!(last.op, Op::Bra(_) | Op::BrxIdx(_) | Op::Ret | Op::Exit | Op::Trap);
        if goes_on || last.guard != u32::MAX {
            next.push(number[end]);
        }
        // Behind the last instruction is nothing.
        next.retain(|n| *n != usize::MAX);
        let empty = || Bits::new(registers.count());
        let mut run = Run { first, end, next, live_in: empty(), live_out: empty(), reads: empty(), writes: empty() };
        for a in &accesses[first..end] {
            let needs = a.reads.iter().chain(a.writes.iter().filter(|_| !a.is_sure));
            for r in needs {
                if !run.writes.has(*r) {
                    run.reads.put(*r);
                }
            }
            if a.is_sure {
                a.writes.iter().for_each(|w| run.writes.put(*w));
            }
        }
        all.push(run);
    }
    Some(all)
}

/// What is needed at both ends of each run, from what is needed behind it.
fn flow(runs: &mut [Run]) {
    for run in runs.iter_mut() {
        run.live_in = run.reads.clone();
    }
    loop {
        let mut changed = false;
        for k in (0..runs.len()).rev() {
            let mut out = std::mem::replace(&mut runs[k].live_out, Bits(Vec::new()));
            for n in runs[k].next.clone() {
                for (o, i) in out.0.iter_mut().zip(&runs[n].live_in.0) {
                    *o |= i;
                }
            }
            let run = &mut runs[k];
            for (i, into) in run.live_in.0.iter_mut().enumerate() {
                let needed = run.reads.0[i] | (out.0[i] & !run.writes.0[i]);
                changed |= needed != *into;
                *into = needed;
            }
            run.live_out = out;
        }
        if !changed {
            return;
        }
    }
}

/// From where to where a register is needed, in half steps: an instruction writes before it has read all.
#[derive(Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
}

/// What the prologue computes is kept to the end, and beyond it.
fn spans(runs: &[Run], accesses: &[Access], registers: Registers, prologue: usize) -> Vec<Span> {
    let mut all = vec![Span { from: usize::MAX, to: 0 }; registers.count()];
    let mut cover = |r: usize, at: usize| {
        let span: &mut Span = &mut all[r];
        (span.from, span.to) = (span.from.min(at), span.to.max(at));
    };
    for w in accesses[..prologue].iter().flat_map(|a| &a.writes) {
        cover(*w, 0);
        cover(*w, 2 * accesses.len());
    }
    for run in runs {
        run.live_in.each(|r| cover(r, 2 * run.first));
        run.live_out.each(|r| cover(r, 2 * run.end - 1));
        for (i, a) in (run.first..run.end).zip(&accesses[run.first..run.end]) {
            a.reads.iter().for_each(|r| cover(*r, 2 * i + 1));
            for w in &a.writes {
                cover(*w, 2 * i);
                cover(*w, 2 * i + 1);
            }
        }
    }
    all
}

/// A row for each span, and how many there are: the lowest that is free when it begins.
fn assign(spans: &[Span]) -> (Vec<u32>, u32) {
    let mut order: Vec<usize> = (0..spans.len()).filter(|i| spans[*i].from != usize::MAX).collect();
    order.sort_by_key(|i| spans[*i].from);
    let (mut rows, mut count) = (vec![0; spans.len()], 0);
    let mut taken: BinaryHeap<Reverse<(usize, u32)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    for i in order {
        while let Some(Reverse((to, row))) = taken.peek().copied()
            && to < spans[i].from
        {
            taken.pop();
            free.push(Reverse(row));
        }
        let row = free.pop().map_or_else(
            || {
                count += 1;
                count - 1
            },
            |Reverse(row)| row,
        );
        rows[i] = row;
        taken.push(Reverse((spans[i].to, row)));
    }
    (rows, count)
}
