//! Which function an instruction gets, and where its rows are.

// UNSAFETY: the function of an instruction that has none is as unsafe to call as the others.

use crate::exec::fast::memory::{self, GENERIC, GLOBAL, SHARED};
use crate::exec::fast::row;
use crate::exec::lanes::Lanes;
use crate::exec::state::{CONSTANT, Env, Kind, LineStep, Rows, Runs, Step, Table, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::{
    Cmp, FloatBin, FloatUn, Fp, IntBin, IntUn, Logic, Reg, Round, ShflMode, Space, Src, Ty, WarpOp,
};

impl Table {
    pub fn new(code: &[Instr]) -> Table {
        let mut table = Table::default();
        let fast = is_available();
        for ins in code {
            let step = if fast { step(&mut table, ins) } else { None };
            table.lines.push(LineStep::new(ins, step.is_some() && ins.guard == u32::MAX));
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

unsafe fn not_here(_: &[Rows], _: *mut Warp, _: &mut Env, _: &Step, _: u32) -> usize {
    0
}

impl Step {
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
            runs: [not_here; 3],
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

/// How wide an operand's row is, or what else it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    Row32,
    Row64,
    Pred,
    Nothing,
}

use Is::{Nothing, Pred, Row32, Row64};

/// A function for any mask, for a whole warp and for several.
macro_rules! each {
    ($($name:ident)::+$(, $choice:expr)*) => {
        [
            $($name)::+::<$($choice,)* { row::PART }>,
            $($name)::+::<$($choice,)* { row::WHOLE }>,
            $($name)::+::<$($choice,)* { row::MANY }>,
        ]
    };
}

/// A function to which a whole warp is nothing special.
macro_rules! any {
    ($($name:ident)::+$(, $choice:expr)*) => {
        [
            $($name)::+::<$($choice,)* { row::PART }>,
            $($name)::+::<$($choice,)* { row::PART }>,
            $($name)::+::<$($choice,)* { row::MANY }>,
        ]
    };
}

/// The function for a rounding that is not to the nearest.
macro_rules! by_round {
    ($fp:expr, $($name:ident)::+) => {
        match ($fp.round, $fp) {
            (_, Fp { sat: true, .. } | Fp { relu: true, .. }) => return None,
            (Round::Down, fp) => by_round!(fp.ftz, { row::DOWN }, $($name)::+),
            (Round::Up, fp) => by_round!(fp.ftz, { row::UP }, $($name)::+),
            (Round::Zero, fp) => by_round!(fp.ftz, { row::ZERO }, $($name)::+),
            _ => return None,
        }
    };
    ($ftz:expr, $round:block, $($name:ident)::+) => {
        by_flush($ftz, each!($($name)::+, false, $round), each!($($name)::+, true, $round))
    };
}

struct Choice {
    runs: Runs,
    d: Is,
    a: Is,
    b: Is,
    c: Is,
    /// The operands change places: `a > b` is `b < a`.
    swap: bool,
    extra: u64,
    rows: [u32; 4],
}

const fn choice(run: Runs, d: Is, a: Is, b: Is, c: Is) -> Choice {
    Choice { runs: run, d, a, b, c, swap: false, extra: 0, rows: [0; 4] }
}

pub fn step(table: &mut Table, ins: &Instr) -> Option<Step> {
    let mut x = Step { kind: Kind::Fast, ..Step::plain(ins) };
    match &ins.op {
        Op::Ld { .. } | Op::LdVec { .. } | Op::St { .. } | Op::StVec { .. } => access(table, ins, &mut x)?,
        Op::Mov if matches!(ins.a, Src::Special(_)) => {
            let (Src::Special(s), Reg::R32(d)) = (ins.a, ins.d) else { return None };
            (x.runs, x.a, x.d) = (each!(memory::position), memory::position_of(s)?, d);
        }
        Op::Warp(WarpOp::Shfl(mode)) => shuffle(table, ins, *mode, &mut x)?,
        _ => {
            let c = choose(table, ins)?;
            let (a, b) = if c.swap { (ins.b, ins.a) } else { (ins.a, ins.b) };
            x.runs = c.runs;
            x.d = result(ins.d, c.d)?;
            x.a = operand(table, a, c.a)?;
            x.b = operand(table, b, c.b)?;
            x.c = operand(table, ins.c, c.c)?;
            (x.extra, x.rows) = (c.extra, c.rows);
            match ins.op {
                Op::Selp(_) | Op::PredNot | Op::PredMov | Op::PredBin(_) => predicates(ins, &mut x)?,
                _ => {}
            }
        }
    }
    Some(x)
}

fn shuffle(table: &mut Table, ins: &Instr, mode: ShflMode, x: &mut Step) -> Option<()> {
    x.kind = Kind::Together;
    x.runs = match mode {
        ShflMode::Up => each!(memory::shuffle, { memory::UP }),
        ShflMode::Down => each!(memory::shuffle, { memory::DOWN }),
        ShflMode::Bfly => each!(memory::shuffle, { memory::ACROSS }),
        ShflMode::Idx => each!(memory::shuffle, { memory::BY_NUMBER }),
    };
    x.d = result(ins.d, Row32)?;
    x.a = operand(table, ins.a, Row32)?;
    x.b = operand(table, ins.b, Row32)?;
    x.c = operand(table, ins.c, Row32)?;
    // The form without member mask acts on the lanes that happen to be together, as if they were named alike.
    let members = if ins.e == Src::None { Src::Imm(0) } else { ins.e };
    x.rows = [result(ins.d2, Pred)?, operand(table, members, Row32)?, 0, 0];
    Some(())
}

fn result(d: Reg, is: Is) -> Option<u32> {
    match (d, is) {
        (Reg::R32(i), Row32) | (Reg::R64(i), Row64) | (Reg::P(i), Pred) => Some(i),
        (Reg::None, Pred) => Some(u32::MAX),
        _ => None,
    }
}

fn operand(table: &mut Table, s: Src, is: Is) -> Option<u32> {
    Some(match (s, is) {
        (_, Nothing | Pred) => 0,
        (Src::R32(i), Row32) | (Src::R64(i), Row64) => i,
        (Src::Imm(v), Row32) => constant(&mut table.constants32, Lanes([v as u32; 32]))?,
        (Src::Imm(v), Row64) => constant(&mut table.constants64, Lanes([v; 32]))?,
        _ => return None,
    })
}

/// Most programs have a few dozen; the last ones are the likeliest to come again.
fn constant<T: PartialEq>(rows: &mut Vec<T>, row: T) -> Option<u32> {
    const LOOKED_AT: usize = 64;
    let from = rows.len().saturating_sub(LOOKED_AT);
    let at = rows[from..].iter().position(|r| *r == row).map(|i| from + i).unwrap_or_else(|| {
        rows.push(row);
        rows.len() - 1
    });
    u32::try_from(at).ok().filter(|at| at & CONSTANT == 0).map(|at| at | CONSTANT)
}

/// A predicate that is read, and what to flip of it.
fn pred(s: Src) -> Option<(u32, u32)> {
    let Src::P(i, negated) = s else { return None };
    Some((i, if negated { u32::MAX } else { 0 }))
}

fn predicates(ins: &Instr, x: &mut Step) -> Option<()> {
    match ins.op {
        Op::Selp(_) => {
            let (p, flip) = pred(ins.c)?;
            (x.c, x.extra) = (p, flip.into());
        }
        Op::PredBin(logic) => {
            let ((a, flip_a), (b, flip_b)) = (pred(ins.a)?, pred(ins.b)?);
            (x.a, x.b, x.c) = (a, b, logic_number(logic));
            x.extra = u64::from(flip_a) | u64::from(flip_b) << 32;
        }
        _ => {
            let (a, flip) = pred(ins.a)?;
            let flip = if matches!(ins.op, Op::PredNot) { !flip } else { flip };
            (x.a, x.extra) = (a, flip.into());
        }
    }
    Some(())
}

fn logic_number(logic: Logic) -> u32 {
    match logic {
        Logic::And => row::AND,
        Logic::Or => row::OR,
        Logic::Xor => row::XOR,
    }
}

fn choose(_: &Table, ins: &Instr) -> Option<Choice> {
    let one32 = |run: Runs| choice(run, Row32, Row32, Nothing, Nothing);
    let one64 = |run: Runs| choice(run, Row64, Row64, Nothing, Nothing);
    let two32 = |run: Runs| choice(run, Row32, Row32, Row32, Nothing);
    let two64 = |run: Runs| choice(run, Row64, Row64, Row64, Nothing);
    let three32 = |run: Runs| choice(run, Row32, Row32, Row32, Row32);
    let three64 = |run: Runs| choice(run, Row64, Row64, Row64, Row64);
    Some(match &ins.op {
        Op::Mov | Op::Cvta { window: 0 } => match (ins.d, ins.a) {
            (Reg::R32(_), Src::R32(_) | Src::Imm(_)) => one32(each!(row::mov32)),
            (Reg::R64(_), Src::R64(_) | Src::Imm(_)) => one64(each!(row::mov64)),
            (Reg::R64(_), Src::R32(_)) => choice(each!(row::widen_u32), Row64, Row32, Nothing, Nothing),
            (Reg::R32(_), Src::R64(_)) => choice(each!(row::narrow), Row32, Row64, Nothing, Nothing),
            _ => return None,
        },
        Op::CvtaTo { .. } => one64(each!(row::plain_address)),
        Op::IntBin(op, ty) => int_bin(*op, *ty)?,
        Op::IntUn(op, ty) => match (op, ty.bytes()) {
            (IntUn::Not, 4) => one32(each!(row::not32)),
            (IntUn::Not, 8) => one64(each!(row::not64)),
            (IntUn::Neg, 4) => one32(each!(row::neg32)),
            (IntUn::Neg, 8) => one64(each!(row::neg64)),
            (IntUn::Popc, 4) => one32(each!(row::popc32)),
            (IntUn::Clz, 4) => one32(each!(row::clz32)),
            (IntUn::Brev, 4) => one32(each!(row::brev32)),
            _ => return None,
        },
        Op::MulWide(ty) => match ty {
            Ty::U32 => choice(each!(row::mul_wide_u32), Row64, Row32, Row32, Nothing),
            Ty::S32 => choice(each!(row::mul_wide_s32), Row64, Row32, Row32, Nothing),
            _ => return None,
        },
        Op::MadWide(ty) => match ty {
            Ty::U32 => choice(each!(row::mad_wide_u32), Row64, Row32, Row32, Row64),
            Ty::S32 => choice(each!(row::mad_wide_s32), Row64, Row32, Row32, Row64),
            _ => return None,
        },
        Op::MadLo(Ty::U32 | Ty::S32) => three32(each!(row::mad32)),
        Op::MadLo(Ty::U64 | Ty::S64) => three64(each!(row::mad64)),
        Op::Shf { left: true, wrap: true } => three32(each!(row::funnel_left_wrap)),
        Op::Shf { left: false, wrap: true } => three32(each!(row::funnel_right_wrap)),
        Op::Lop3(table) => Choice { extra: u64::from(*table), ..three32(each!(row::lop3)) },
        Op::FloatBin(op, ty, fp) => float_bin(*op, *ty, *fp)?,
        Op::Fma(Ty::F32, fp) if is_plain(*fp) => {
            three32(by_flush(fp.ftz, each!(row::fma_f32, false), each!(row::fma_f32, true)))
        }
        Op::Fma(Ty::F32, fp) => three32(by_round!(*fp, row::fma_f32_directed)),
        Op::Fma(Ty::F64, fp) if is_plain(*fp) => three64(each!(row::fma_f64)),
        Op::FloatUn(op, ty, fp) => float_un(*op, *ty, *fp)?,
        Op::Cvt { to, from, round, integer, fp } => convert(*to, *from, *round, *integer, *fp)?,
        Op::Setp { cmp, ty, logic, ftz } => setp(ins, *cmp, *ty, *logic, *ftz)?,
        Op::Selp(_) => match ins.d {
            Reg::R32(_) => two32(each!(row::select, false)),
            Reg::R64(_) => two64(each!(row::select, true)),
            _ => return None,
        },
        Op::PredBin(_) => choice(any!(row::predicates), Pred, Nothing, Nothing, Nothing),
        Op::PredNot | Op::PredMov => choice(any!(row::predicate), Pred, Nothing, Nothing, Nothing),
        _ => return None,
    })
}

/// Rounds to nearest, and changes nothing about the result.
fn is_plain(fp: Fp) -> bool {
    fp.round == Round::Nearest && !fp.sat && !fp.relu
}

fn by_flush(ftz: bool, keeps: Runs, flushes: Runs) -> Runs {
    if ftz { flushes } else { keeps }
}

fn int_bin(op: IntBin, ty: Ty) -> Option<Choice> {
    let signed = ty.is_signed();
    if ty.bytes() == 4 && !ty.is_float() {
        let run: Runs = match op {
            IntBin::Add => each!(row::add32),
            IntBin::Sub => each!(row::sub32),
            IntBin::MulLo => each!(row::mul32),
            IntBin::MulHi if signed => each!(row::mul_hi_s32),
            IntBin::MulHi => each!(row::mul_hi_u32),
            IntBin::Min if signed => each!(row::min_s32),
            IntBin::Min => each!(row::min_u32),
            IntBin::Max if signed => each!(row::max_s32),
            IntBin::Max => each!(row::max_u32),
            IntBin::And => each!(row::and32),
            IntBin::Or => each!(row::or32),
            IntBin::Xor => each!(row::xor32),
            IntBin::Shl => each!(row::shl32),
            IntBin::Shr if signed => each!(row::shr_s32),
            IntBin::Shr => each!(row::shr_u32),
            _ => return None,
        };
        return Some(choice(run, Row32, Row32, Row32, Nothing));
    }
    if ty.bytes() != 8 || ty.is_float() {
        return None;
    }
    let run: Runs = match op {
        IntBin::Add => each!(row::add64),
        IntBin::Sub => each!(row::sub64),
        IntBin::MulLo => each!(row::mul64),
        IntBin::Min if signed => each!(row::min_s64),
        IntBin::Min => each!(row::min_u64),
        IntBin::Max if signed => each!(row::max_s64),
        IntBin::Max => each!(row::max_u64),
        IntBin::And => each!(row::and64),
        IntBin::Or => each!(row::or64),
        IntBin::Xor => each!(row::xor64),
        IntBin::Shl => each!(row::shl64),
        IntBin::Shr if signed => each!(row::shr_s64),
        IntBin::Shr => each!(row::shr_u64),
        _ => return None,
    };
    let by = if matches!(op, IntBin::Shl | IntBin::Shr) { Row32 } else { Row64 };
    Some(choice(run, Row64, Row64, by, Nothing))
}

fn float_bin(op: FloatBin, ty: Ty, fp: Fp) -> Option<Choice> {
    if !is_plain(fp) {
        let runs: Runs = match (ty, op) {
            (Ty::F32, FloatBin::Add) => by_round!(fp, row::add_f32_directed),
            (Ty::F32, FloatBin::Mul) => by_round!(fp, row::mul_f32_directed),
            _ => return None,
        };
        return Some(choice(runs, Row32, Row32, Row32, Nothing));
    }
    let ftz = fp.ftz;
    let run: Runs = match (ty, op) {
        (Ty::F32, FloatBin::Add) => by_flush(ftz, each!(row::add_f32, false), each!(row::add_f32, true)),
        (Ty::F32, FloatBin::Sub) => by_flush(ftz, each!(row::sub_f32, false), each!(row::sub_f32, true)),
        (Ty::F32, FloatBin::Mul) => by_flush(ftz, each!(row::mul_f32, false), each!(row::mul_f32, true)),
        (Ty::F32, FloatBin::Div) => by_flush(ftz, each!(row::div_f32, false), each!(row::div_f32, true)),
        (Ty::F32, FloatBin::Min) => {
            by_flush(ftz, each!(row::min_max_f32, false, true), each!(row::min_max_f32, true, true))
        }
        (Ty::F32, FloatBin::Max) => {
            by_flush(ftz, each!(row::min_max_f32, false, false), each!(row::min_max_f32, true, false))
        }
        (Ty::F64, FloatBin::Add) => each!(row::add_f64),
        (Ty::F64, FloatBin::Sub) => each!(row::sub_f64),
        (Ty::F64, FloatBin::Mul) => each!(row::mul_f64),
        (Ty::F64, FloatBin::Div) => each!(row::div_f64),
        _ => return None,
    };
    let is = if ty == Ty::F32 { Row32 } else { Row64 };
    Some(choice(run, is, is, is, Nothing))
}

fn float_un(op: FloatUn, ty: Ty, fp: Fp) -> Option<Choice> {
    if !is_plain(fp) {
        return None;
    }
    let ftz = fp.ftz;
    let run: Runs = match (ty, op) {
        (Ty::F32, FloatUn::Neg) => by_flush(ftz, each!(row::neg_f32, false), each!(row::neg_f32, true)),
        (Ty::F32, FloatUn::Abs) => by_flush(ftz, each!(row::abs_f32, false), each!(row::abs_f32, true)),
        (Ty::F32, FloatUn::Sqrt) => by_flush(ftz, each!(row::sqrt_f32, false), each!(row::sqrt_f32, true)),
        (Ty::F32, FloatUn::Rcp) => by_flush(ftz, each!(row::rcp_f32, false), each!(row::rcp_f32, true)),
        (Ty::F32, FloatUn::Rsqrt) => by_flush(ftz, each!(row::rsqrt_f32, false), each!(row::rsqrt_f32, true)),
        (Ty::F32, FloatUn::Ex2) => by_flush(ftz, each!(row::exp2_f32, false), each!(row::exp2_f32, true)),
        (Ty::F64, FloatUn::Neg) => each!(row::neg_f64),
        (Ty::F64, FloatUn::Abs) => each!(row::abs_f64),
        _ => return None,
    };
    let is = if ty == Ty::F32 { Row32 } else { Row64 };
    Some(choice(run, is, is, Nothing, Nothing))
}

fn convert(to: Ty, from: Ty, round: Round, integer: bool, fp: Fp) -> Option<Choice> {
    if fp.sat && to == Ty::F32 && from == Ty::F32 && !integer && !fp.relu && round == Round::Nearest {
        let runs = by_flush(fp.ftz, each!(row::saturated_f32, false), each!(row::saturated_f32, true));
        return Some(choice(runs, Row32, Row32, Nothing, Nothing));
    }
    if fp.sat || fp.relu {
        return None;
    }
    if !to.is_float() && !from.is_float() {
        return resize(to, from);
    }
    if fp.ftz {
        return None;
    }
    let unary = |run: Runs, d: Is, a: Is| Some(choice(run, d, a, Nothing, Nothing));
    let nearest = round == Round::Nearest;
    match (to, from) {
        (Ty::F32, Ty::S32) if nearest => unary(each!(row::f32_of_s32), Row32, Row32),
        (Ty::F32, Ty::U32) if nearest => unary(each!(row::f32_of_u32), Row32, Row32),
        (Ty::F64, Ty::S32) => unary(each!(row::f64_of_s32), Row64, Row32),
        (Ty::F64, Ty::U32) => unary(each!(row::f64_of_u32), Row64, Row32),
        (Ty::F64, Ty::F32) if nearest && !integer => unary(each!(row::f64_of_f32), Row64, Row32),
        (Ty::F32, Ty::F64) if nearest && !integer => unary(each!(row::f32_of_f64), Row32, Row64),
        (Ty::F32, Ty::F32) if integer && nearest => unary(each!(row::f32_whole_nearest), Row32, Row32),
        (Ty::F32, Ty::F32) if integer && round == Round::Down => unary(each!(row::f32_whole_floor), Row32, Row32),
        (Ty::F32, Ty::F16) if !integer => unary(each!(row::f32_of_f16), Row32, Row32),
        (Ty::F32, Ty::Bf16) if !integer => unary(each!(row::f32_of_bf16), Row32, Row32),
        (Ty::S32, Ty::F32) if round == Round::Zero => unary(each!(row::s32_of_f32_down_to_zero), Row32, Row32),
        (Ty::U32, Ty::F32) if round == Round::Zero => unary(each!(row::u32_of_f32_down_to_zero), Row32, Row32),
        (Ty::S32, Ty::F32) if nearest => unary(each!(row::s32_of_f32_nearest), Row32, Row32),
        (Ty::S32, Ty::F32) if round == Round::Down => unary(each!(row::s32_of_f32_floor), Row32, Row32),
        _ => None,
    }
}

/// From an integer to another.
fn resize(to: Ty, from: Ty) -> Option<Choice> {
    match (to.bytes(), from.bytes()) {
        (8, 4) if from.is_signed() => Some(choice(each!(row::widen_s32), Row64, Row32, Nothing, Nothing)),
        (8, 4) => Some(choice(each!(row::widen_u32), Row64, Row32, Nothing, Nothing)),
        (8, 8) => Some(choice(each!(row::mov64), Row64, Row64, Nothing, Nothing)),
        (4, 8) => Some(choice(each!(row::narrow), Row32, Row64, Nothing, Nothing)),
        (..=4, ..=4) => {
            let free = |ty: Ty| (32 - 8 * ty.bytes()) as u8;
            let bytes = [free(from), from.is_signed().into(), free(to), to.is_signed().into(), 0, 0, 0, 0];
            let extra = u64::from_le_bytes(bytes);
            Some(Choice { extra, ..choice(each!(row::resize32), Row32, Row32, Nothing, Nothing) })
        }
        _ => None,
    }
}

fn setp(ins: &Instr, cmp: Cmp, ty: Ty, logic: Option<Logic>, ftz: bool) -> Option<Choice> {
    // What is greater is less the other way round.
    let (cmp, swap) = match cmp {
        Cmp::Gt => (Cmp::Lt, true),
        Cmp::Ge => (Cmp::Le, true),
        Cmp::Gtu => (Cmp::Ltu, true),
        Cmp::Geu => (Cmp::Leu, true),
        cmp => (cmp, false),
    };
    let signed = ty.is_signed();
    let run: Runs = match (ty, cmp) {
        (Ty::F32, Cmp::Eq) => by_flush(ftz, any!(row::eq_f32, false), any!(row::eq_f32, true)),
        (Ty::F32, Cmp::Ne) => by_flush(ftz, any!(row::ne_f32, false), any!(row::ne_f32, true)),
        (Ty::F32, Cmp::Lt) => by_flush(ftz, any!(row::lt_f32, false), any!(row::lt_f32, true)),
        (Ty::F32, Cmp::Le) => by_flush(ftz, any!(row::le_f32, false), any!(row::le_f32, true)),
        (Ty::F32, Cmp::Neu) => by_flush(ftz, any!(row::neu_f32, false), any!(row::neu_f32, true)),
        (Ty::F32, Cmp::Equ) => by_flush(ftz, any!(row::equ_f32, false), any!(row::equ_f32, true)),
        (Ty::F32, Cmp::Ltu) => by_flush(ftz, any!(row::ltu_f32, false), any!(row::ltu_f32, true)),
        (Ty::F32, Cmp::Leu) => by_flush(ftz, any!(row::leu_f32, false), any!(row::leu_f32, true)),
        (Ty::F32, Cmp::Num) => any!(row::num_f32, false),
        (Ty::F64, Cmp::Eq) => any!(row::eq_f64),
        (Ty::F64, Cmp::Lt) => any!(row::lt_f64),
        (Ty::F64, Cmp::Le) => any!(row::le_f64),
        (Ty::F64, Cmp::Neu) => any!(row::neu_f64),
        (Ty::F64, Cmp::Ltu) => any!(row::ltu_f64),
        (Ty::F64, Cmp::Leu) => any!(row::leu_f64),
        (Ty::U32 | Ty::S32 | Ty::B32, Cmp::Eq) => any!(row::eq32),
        (Ty::U32 | Ty::S32 | Ty::B32, Cmp::Ne) => any!(row::ne32),
        (Ty::U32 | Ty::S32 | Ty::B32, Cmp::Lt) => by_flush(signed, any!(row::lt_u32), any!(row::lt_s32)),
        (Ty::U32 | Ty::S32 | Ty::B32, Cmp::Le) => by_flush(signed, any!(row::le_u32), any!(row::le_s32)),
        (Ty::U64 | Ty::S64 | Ty::B64, Cmp::Eq) => any!(row::eq64),
        (Ty::U64 | Ty::S64 | Ty::B64, Cmp::Ne) => any!(row::ne64),
        (Ty::U64 | Ty::S64 | Ty::B64, Cmp::Lt) => by_flush(signed, any!(row::lt_u64), any!(row::lt_s64)),
        (Ty::U64 | Ty::S64 | Ty::B64, Cmp::Le) => by_flush(signed, any!(row::le_u64), any!(row::le_s64)),
        _ => return None,
    };
    let is = if ty.bytes() == 8 { Row64 } else { Row32 };
    let other = result(ins.d2, Pred)?;
    let (logic, (third, flip)) = match logic {
        None => (0, (0, 0)),
        Some(logic) => (logic_number(logic), pred(ins.c)?),
    };
    let rows = [other, logic, third, flip];
    Some(Choice { swap, rows, ..choice(run, Pred, is, is, Nothing) })
}

/// Whether an access's function can reach its space, and by which number.
fn reach(space: Space, writes: bool) -> Option<u32> {
    let number = match space {
        Space::Generic => GENERIC,
        Space::Global => GLOBAL,
        Space::Const if !writes => GLOBAL,
        Space::Shared => SHARED,
        _ => return None,
    };
    Some(number as u32)
}

/// Loads and stores: the address is `a`, its width is `b`.
fn access(table: &mut Table, ins: &Instr, x: &mut Step) -> Option<()> {
    let (space, offset) = match ins.op {
        Op::Ld { space, offset, .. }
        | Op::LdVec { space, offset, .. }
        | Op::St { space, offset, .. }
        | Op::StVec { space, offset, .. } => (space, offset),
        _ => return None,
    };
    if let (Op::Ld { space: Space::Param, ty, offset }, Src::Imm(at)) = (&ins.op, ins.a) {
        x.extra = at.wrapping_add(*offset as u64);
        x.c = ty.bytes() | u32::from(ty.is_signed()) << 8;
        (x.runs, x.d) = match ins.d {
            Reg::R32(d) if ty.bytes() <= 4 => (each!(memory::parameter, false), d),
            Reg::R64(d) if ty.bytes() <= 8 => (each!(memory::parameter, true), d),
            _ => return None,
        };
        return Some(());
    }
    x.extra = offset as u64;
    (x.a, x.b) = match ins.a {
        Src::R32(i) => (i, 0),
        // An address of 32 bits in a row of 64 would not wrap.
        Src::R64(i) => (i, 1),
        Src::Imm(v) => (constant(&mut table.constants64, Lanes([v; 32]))?, 1),
        _ => return None,
    };
    let shared = space == Space::Shared && x.b == 0;
    match &ins.op {
        Op::Ld { ty, .. } => {
            x.rows[0] = reach(space, false)?;
            (x.runs, x.d) = match (ins.d, ty.bytes(), ty.is_signed()) {
                (Reg::R32(d), 1, false) => (each!(memory::load_u8), d),
                (Reg::R32(d), 1, true) => (each!(memory::load_s8), d),
                (Reg::R32(d), 2, false) => (each!(memory::load_u16), d),
                (Reg::R32(d), 2, true) => (each!(memory::load_s16), d),
                (Reg::R32(d), 4, _) if shared => (each!(memory::load_32_shared), d),
                (Reg::R32(d), 4, _) => (each!(memory::load_32), d),
                (Reg::R64(d), 4, false) => (each!(memory::load_u32_wide), d),
                (Reg::R64(d), 4, true) => (each!(memory::load_s32_wide), d),
                (Reg::R64(d), 8, _) => (each!(memory::load_64), d),
                _ => return None,
            };
        }
        Op::St { ty, .. } => {
            x.rows[0] = reach(space, true)?;
            let (run, is) = match ty.bytes() {
                1 => (each!(memory::store_8), Row32),
                2 => (each!(memory::store_16), Row32),
                4 if shared => (each!(memory::store_32_shared), Row32),
                4 => (each!(memory::store_32), Row32),
                8 => (each!(memory::store_64), Row64),
                _ => return None,
            };
            x.runs = run;
            x.c = operand(table, ins.b, is)?;
        }
        Op::LdVec { ty, regs, .. } if ty.bytes() == 4 => {
            x.c = reach(space, false)?;
            x.runs = match regs.len() {
                2 => each!(memory::load_v2),
                4 if shared => each!(memory::load_v4_shared),
                4 => each!(memory::load_v4),
                _ => return None,
            };
            for (to, d) in x.rows.iter_mut().zip(regs.iter()) {
                *to = result(*d, Row32)?;
            }
        }
        Op::StVec { ty, regs, .. } if ty.bytes() == 4 => {
            x.c = reach(space, true)?;
            x.runs = match regs.len() {
                2 => each!(memory::store_v2),
                4 => each!(memory::store_v4),
                _ => return None,
            };
            for (from, s) in x.rows.iter_mut().zip(regs.iter()) {
                *from = operand(table, *s, Row32)?;
            }
        }
        _ => return None,
    }
    Some(())
}
