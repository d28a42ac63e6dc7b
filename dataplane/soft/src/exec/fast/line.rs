//! Registers that are a line over the lanes of the warps that run together: an index, an address, or what is the same
//! for all. Two numbers are computed instead of some hundred, one question is asked of an address instead of one for
//! each lane, and the rows are written when someone wants them.
//!
//! What is known of a register is exact: each lane has the start, plus the step times its number, and wraps as its
//! type does. Where a line would bend, which is where a sum of 32 bits is widened behind its wrap, it is no line.

// UNSAFETY: rows are reached by pointer, at places that `bind` resolved.

use crate::exec::fast::memory::{self, GENERIC, GLOBAL};
use crate::exec::fast::row::{Cell, put_bits};
use crate::exec::state::{CONSTANT, Env, Launch, Line, LineOp, LineStep, Lines, Order, Rows, Step, Table, Warp};
use crate::ptx::decode::rows::{Operand, operands};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::{Cmp, IntBin, Reg, Src, Ty, WINDOW_MASK};

/// Rows from this one on are never lines.
const ROWS_MAX: u32 = 64;

fn bit(row: u32) -> u64 {
    if row < ROWS_MAX { 1 << row } else { 0 }
}

impl LineStep {
    pub fn new(ins: &Instr, is_fast: bool) -> LineStep {
        let mut step = LineStep::default();
        operands(&mut ins.clone(), &mut |o| match o {
            Operand::Read(Src::R32(i)) => step.reads32 |= bit(*i),
            Operand::Read(Src::R64(i)) => step.reads64 |= bit(*i),
            Operand::Write(Reg::R32(i)) => step.writes32 |= bit(*i),
            Operand::Write(Reg::R64(i)) => step.writes64 |= bit(*i),
            _ => {}
        });
        if is_fast {
            step.op = line_op(ins);
        }
        step
    }
}

fn line_op(ins: &Instr) -> LineOp {
    let is_word = |ty: Ty| ty.bytes() == 4 && !ty.is_float();
    let is_double = |ty: Ty| ty.bytes() == 8 && !ty.is_float();
    match &ins.op {
        Op::Mov if matches!(ins.a, Src::Special(_)) => LineOp::Position,
        Op::Mov | Op::Cvta { window: 0 } => match (ins.d, ins.a) {
            (Reg::R32(_), Src::R32(_) | Src::Imm(_)) => LineOp::Mov32,
            (Reg::R64(_), Src::R64(_) | Src::Imm(_)) => LineOp::Mov64,
            (Reg::R64(_), Src::R32(_)) => LineOp::Widen(false),
            (Reg::R32(_), Src::R64(_)) => LineOp::Narrow,
            _ => LineOp::None,
        },
        Op::CvtaTo { .. } => LineOp::Plain,
        Op::IntBin(op, ty) if is_word(*ty) => match op {
            IntBin::Add => LineOp::Add32,
            IntBin::Sub => LineOp::Sub32,
            IntBin::MulLo => LineOp::Mul32,
            IntBin::Shl => LineOp::Shl32,
            _ => LineOp::None,
        },
        Op::IntBin(op, ty) if is_double(*ty) => match op {
            IntBin::Add => LineOp::Add64,
            IntBin::Sub => LineOp::Sub64,
            IntBin::MulLo => LineOp::Mul64,
            IntBin::Shl => LineOp::Shl64,
            _ => LineOp::None,
        },
        Op::MadLo(Ty::U32 | Ty::S32) => LineOp::Mad32,
        Op::MadLo(Ty::U64 | Ty::S64) => LineOp::Mad64,
        Op::MulWide(ty @ (Ty::U32 | Ty::S32)) => LineOp::MulWide(ty.is_signed()),
        Op::MadWide(ty @ (Ty::U32 | Ty::S32)) => LineOp::MadWide(ty.is_signed()),
        Op::Cvt { to, from, fp, .. } if !fp.sat && !fp.relu && !to.is_float() && !from.is_float() => {
            match (to.bytes(), from.bytes()) {
                (8, 4) => LineOp::Widen(from.is_signed()),
                (8, 8) => LineOp::Mov64,
                (4, 8) => LineOp::Narrow,
                (4, 4) => LineOp::Mov32,
                _ => LineOp::None,
            }
        }
        Op::Setp { cmp, ty, logic: None, .. } if is_word(*ty) => {
            let order = match cmp {
                Cmp::Eq => Order::Same,
                Cmp::Ne => Order::Other,
                Cmp::Lt | Cmp::Gt => Order::Less,
                Cmp::Le | Cmp::Ge => Order::LessOrSame,
                _ => return LineOp::None,
            };
            LineOp::Compare(order, ty.is_signed())
        }
        Op::Ld { ty, .. } => match (ins.d, ty.bytes()) {
            (Reg::R32(_), 4) => LineOp::Load32,
            (Reg::R64(_), 8) => LineOp::Load64,
            _ => LineOp::None,
        },
        Op::St { ty, .. } => match ty.bytes() {
            4 => LineOp::Store32,
            8 => LineOp::Store64,
            _ => LineOp::None,
        },
        Op::LdVec { ty, regs, .. } if ty.bytes() == 4 && regs.len() == 4 => LineOp::LoadVector,
        Op::StVec { ty, regs, .. } if ty.bytes() == 4 && regs.len() == 4 => LineOp::StoreVector,
        _ => LineOp::None,
    }
}

/// A number of lines.
pub trait Number: Copy + PartialEq + Default {
    fn plus(self, by: Self) -> Self;
    fn minus(self, by: Self) -> Self;
    fn times(self, by: Self) -> Self;
    fn shifted(self, by: u32) -> Self;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn plus(self, by: Self) -> Self { self.wrapping_add(by) }
            fn minus(self, by: Self) -> Self { self.wrapping_sub(by) }
            fn times(self, by: Self) -> Self { self.wrapping_mul(by) }
            fn shifted(self, by: u32) -> Self { if by < <$t>::BITS { self << by } else { 0 } }
        }
    )*};
}

number!(u32, u64);

impl<T: Number> Line<T> {
    fn level(start: T) -> Self {
        Line { start, step: T::default() }
    }

    fn is_level(self) -> bool {
        self.step == T::default()
    }

    fn plus(self, by: Self) -> Self {
        Line { start: self.start.plus(by.start), step: self.step.plus(by.step) }
    }

    fn minus(self, by: Self) -> Self {
        Line { start: self.start.minus(by.start), step: self.step.minus(by.step) }
    }

    /// The product of two lines is one if one of them is level.
    fn times(self, by: Self) -> Option<Self> {
        let (line, by) = if by.is_level() { (self, by.start) } else { (by, self.is_level().then_some(self.start)?) };
        Some(Line { start: line.start.times(by), step: line.step.times(by) })
    }

    fn shifted(self, by: Line<u32>) -> Option<Self> {
        by.is_level().then(|| Line { start: self.start.shifted(by.start), step: self.step.shifted(by.start) })
    }
}

impl Line<u32> {
    /// The numbers of the first and of the last of so many lanes, if none between them wraps.
    fn ends(self, signed: bool, last: i64) -> Option<(i64, i64)> {
        let range = if signed { i64::from(i32::MIN)..=i64::from(i32::MAX) } else { 0..=i64::from(u32::MAX) };
        let first = if signed { i64::from(self.start as i32) } else { i64::from(self.start) };
        let end = first + i64::from(self.step as i32) * last;
        range.contains(&end).then_some((first, end))
    }

    fn widened(self, signed: bool, last: i64) -> Option<Line<u64>> {
        let (first, _) = self.ends(signed, last)?;
        Some(Line { start: first as u64, step: i64::from(self.step as i32) as u64 })
    }
}

impl Lines {
    /// What is known when a kernel begins: what its launch has computed for all.
    pub fn begin(&mut self, l: &Launch, warps: usize) {
        self.last = 32 * warps as i64 - 1;
        (self.stale32, self.stale64) = (0, 0);
        (self.known32, self.known64) = (0, 0);
        for (row, v) in &l.start.level32 {
            self.known32 |= bit(*row);
            self.of32[*row as usize] = Line::level(*v);
        }
        for (row, v) in &l.start.level64 {
            self.known64 |= bit(*row);
            self.of64[*row as usize] = Line::level(*v);
        }
    }

    /// The rows that the launch has computed for all and that lines can stand for.
    pub fn levels<T: Copy>(rows: impl Iterator<Item = u32>, value: impl Fn(u32) -> T) -> Vec<(u32, T)> {
        rows.filter(|row| *row < ROWS_MAX).map(|row| (row, value(row))).collect()
    }

    /// Whether an instruction that lines are nothing to may find rows unwritten, or ends what is known of one.
    #[inline(always)]
    pub fn concern(&self, x: &LineStep) -> bool {
        x.reads32 & self.stale32 | x.writes32 & self.known32 | x.reads64 & self.stale64 | x.writes64 & self.known64 != 0
    }

    fn get32(&self, at: u32, table: &Table) -> Option<Line<u32>> {
        if at & CONSTANT != 0 {
            return Some(Line::level(table.constants32[(at & !CONSTANT) as usize][0]));
        }
        (bit(at) & self.known32 != 0).then(|| self.of32[at as usize])
    }

    fn get64(&self, at: u32, table: &Table) -> Option<Line<u64>> {
        if at & CONSTANT != 0 {
            return Some(Line::level(table.constants64[(at & !CONSTANT) as usize][0]));
        }
        (bit(at) & self.known64 != 0).then(|| self.of64[at as usize])
    }

    fn set32(&mut self, at: u32, v: Line<u32>) -> bool {
        if at < ROWS_MAX {
            self.of32[at as usize] = v;
            self.known32 |= bit(at);
            self.stale32 |= bit(at);
        }
        at < ROWS_MAX
    }

    fn set64(&mut self, at: u32, v: Line<u64>) -> bool {
        if at < ROWS_MAX {
            self.of64[at as usize] = v;
            self.known64 |= bit(at);
            self.stale64 |= bit(at);
        }
        at < ROWS_MAX
    }

    /// Writes the rows of the lines among these that have not been written.
    ///
    /// # Safety
    ///
    /// The rows are those of the warps that the lines are of.
    pub unsafe fn write(&mut self, all: &[Rows], rows32: u64, rows64: u64) {
        let (mut stale32, mut stale64) = (self.stale32 & rows32, self.stale64 & rows64);
        self.stale32 &= !stale32;
        self.stale64 &= !stale64;
        while stale32 != 0 {
            let row = stale32.trailing_zeros();
            stale32 &= stale32 - 1;
            let Line { start, step } = self.of32[row as usize];
            for (k, r) in all.iter().enumerate() {
                let start = start.wrapping_add(step.wrapping_mul(32 * k as u32));
                // SAFETY: the caller's promise.
                let to = unsafe { &mut *u32::row(r, row) };
                for (l, to) in to.iter_mut().enumerate() {
                    *to = start.wrapping_add(step.wrapping_mul(l as u32));
                }
            }
        }
        while stale64 != 0 {
            let row = stale64.trailing_zeros();
            stale64 &= stale64 - 1;
            let Line { start, step } = self.of64[row as usize];
            for (k, r) in all.iter().enumerate() {
                let mut at = start.wrapping_add(step.wrapping_mul(32 * k as u64));
                // SAFETY: as above.
                for to in unsafe { &mut *u64::row(r, row) } {
                    *to = at;
                    at = at.wrapping_add(step);
                }
            }
        }
    }

    /// Before the instruction's function is called: it finds in its rows what it reads, and what it writes is no line.
    ///
    /// # Safety
    ///
    /// As for `write`.
    pub unsafe fn settle(&mut self, all: &[Rows], x: &LineStep, is_part: bool) {
        let (kept32, kept64) = if is_part { (x.writes32, x.writes64) } else { (0, 0) };
        // SAFETY: the caller's promise.
        unsafe { self.write(all, x.reads32 | kept32, x.reads64 | kept64) };
        self.forget(x);
    }

    fn forget(&mut self, x: &LineStep) {
        self.known32 &= !x.writes32;
        self.stale32 &= !x.writes32;
        self.known64 &= !x.writes64;
        self.stale64 &= !x.writes64;
    }

    /// Does what the instruction says with lines. False when it has done nothing.
    ///
    /// # Safety
    ///
    /// The rows are those of the warps, which the lines are of, and the instruction's.
    #[inline(never)]
    pub unsafe fn run(&mut self, step: &Step, x: &LineStep, all: &[Rows], warps: &mut [Warp], env: &mut Env) -> bool {
        let launch = env.launch;
        // SAFETY: the caller's promise.
        unsafe { self.try_run(step, x, all, warps, env, &launch.table).is_some_and(|done| done) }
    }

    unsafe fn try_run(
        &mut self,
        step: &Step,
        x: &LineStep,
        all: &[Rows],
        warps: &mut [Warp],
        env: &mut Env,
        table: &Table,
    ) -> Option<bool> {
        let (d, last) = (step.d, self.last);
        let a32 = |lines: &Lines| lines.get32(step.a, table);
        let b32 = |lines: &Lines| lines.get32(step.b, table);
        let a64 = |lines: &Lines| lines.get64(step.a, table);
        let b64 = |lines: &Lines| lines.get64(step.b, table);
        Some(match x.op {
            LineOp::None => false,
            LineOp::Position => {
                let line = memory::position_line(step.a, warps, env)?;
                self.set32(d, line)
            }
            LineOp::Mov32 => self.set32(d, a32(self)?),
            LineOp::Add32 => self.set32(d, a32(self)?.plus(b32(self)?)),
            LineOp::Sub32 => self.set32(d, a32(self)?.minus(b32(self)?)),
            LineOp::Mul32 => self.set32(d, a32(self)?.times(b32(self)?)?),
            LineOp::Mad32 => self.set32(d, a32(self)?.times(b32(self)?)?.plus(self.get32(step.c, table)?)),
            LineOp::Shl32 => self.set32(d, a32(self)?.shifted(b32(self)?)?),
            LineOp::Mov64 => self.set64(d, a64(self)?),
            LineOp::Plain => {
                let a = a64(self)?;
                self.set64(d, Line::level(a.is_level().then_some(a.start & !WINDOW_MASK)?))
            }
            LineOp::Add64 => self.set64(d, a64(self)?.plus(b64(self)?)),
            LineOp::Sub64 => self.set64(d, a64(self)?.minus(b64(self)?)),
            LineOp::Mul64 => self.set64(d, a64(self)?.times(b64(self)?)?),
            LineOp::Mad64 => self.set64(d, a64(self)?.times(b64(self)?)?.plus(self.get64(step.c, table)?)),
            LineOp::Shl64 => self.set64(d, a64(self)?.shifted(b32(self)?)?),
            LineOp::Narrow => {
                let a = a64(self)?;
                self.set32(d, Line { start: a.start as u32, step: a.step as u32 })
            }
            LineOp::Widen(signed) => self.set64(d, a32(self)?.widened(signed, last)?),
            LineOp::MulWide(signed) => {
                let (a, b) = (a32(self)?.widened(signed, last)?, b32(self)?.widened(signed, last)?);
                self.set64(d, a.times(b)?)
            }
            LineOp::MadWide(signed) => {
                let (a, b) = (a32(self)?.widened(signed, last)?, b32(self)?.widened(signed, last)?);
                self.set64(d, a.times(b)?.plus(self.get64(step.c, table)?))
            }
            LineOp::Compare(order, signed) => {
                let (a, b) = (a32(self)?.ends(signed, last)?, b32(self)?.ends(signed, last)?);
                // The difference is a line too: what its ends are all are.
                let (first, end) = (a.0 - b.0, a.1 - b.1);
                let holds = match order {
                    Order::Less => ((first < 0) == (end < 0)).then_some(first < 0)?,
                    Order::LessOrSame => ((first <= 0) == (end <= 0)).then_some(first <= 0)?,
                    Order::Same => (first == end).then_some(first == 0)?,
                    Order::Other => (first == end).then_some(first != 0)?,
                };
                let bits = if holds { u32::MAX } else { 0 };
                for r in all {
                    // SAFETY: predicates of the frame.
                    unsafe {
                        put_bits(r, d, u32::MAX, bits);
                        put_bits(r, step.rows[0], u32::MAX, !bits);
                    }
                }
                true
            }
            LineOp::Load32 | LineOp::Load64 | LineOp::LoadVector => {
                let (bytes, space) = match x.op {
                    LineOp::Load32 => (4, step.rows[0]),
                    LineOp::Load64 => (8, step.rows[0]),
                    _ => (16, step.c),
                };
                let first = self.block::<false>(step, space, bytes, warps, table)?;
                self.forget(x);
                // SAFETY: all of it may be read; rows of the frame.
                unsafe {
                    match bytes {
                        4 => memory::load_block::<u32>(all, d, first),
                        8 => memory::load_block::<u64>(all, d, first),
                        _ => memory::load_vectors(all, step.rows, first),
                    }
                }
                true
            }
            LineOp::Store32 | LineOp::Store64 | LineOp::StoreVector => {
                let (bytes, space) = match x.op {
                    LineOp::Store32 => (4, step.rows[0]),
                    LineOp::Store64 => (8, step.rows[0]),
                    _ => (16, step.c),
                };
                let first = self.block::<true>(step, space, bytes, warps, table)?;
                // The address need not be written, unless it is what is stored.
                let address = bit(step.a) & if bytes == 8 && step.c == step.a { 0 } else { u64::MAX };
                // SAFETY: the caller's promise; all of it may be written; rows of the frame.
                unsafe {
                    self.write(all, x.reads32, x.reads64 & !address);
                    match bytes {
                        4 => memory::store_block::<u32>(all, step.c, first),
                        8 => memory::store_block::<u64>(all, step.c, first),
                        _ => memory::store_vectors(all, step.rows, first),
                    }
                }
                true
            }
        })
    }

    /// Where the accesses begin, if they are to global memory, one behind the other, and may be made.
    fn block<const WRITE: bool>(
        &self,
        step: &Step,
        space: u32,
        bytes: u64,
        warps: &mut [Warp],
        table: &Table,
    ) -> Option<u64> {
        if step.b == 0 || u64::from(space) != GLOBAL && u64::from(space) != GENERIC {
            return None;
        }
        let line = self.get64(step.a, table)?;
        let first = line.start.wrapping_add(step.extra);
        let is_block = line.step == bytes && first & (bytes - 1) == 0 && first & WINDOW_MASK == 0;
        (is_block && warps[0].cache.check(first, (self.last as u64 + 1) * bytes, WRITE)).then_some(first)
    }
}
