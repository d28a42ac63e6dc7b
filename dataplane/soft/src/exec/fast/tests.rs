//! Every function of this module, against the long way.

// UNSAFETY: runs functions whose rows the test has made, and looks at its own range of memory.

#[path = "../../../tests/common/random.rs"]
mod random;

use std::collections::HashSet;
use std::sync::Arc;

use random::Random;

use super::bind::{self, is_available};
use crate::exec::float;
use crate::exec::lanes::Lanes;
use crate::exec::state::*;
use crate::exec::together::run_step;
use crate::ptx::isa::instruction::*;
use crate::ptx::isa::operand::*;
use crate::ptx::isa::program::{Func, Program};
use crate::vram;

const ROWS: u32 = 6;
const SHARED_BYTES: usize = 2048;
const GLOBAL_BYTES: u64 = 4096;
const TRIES: usize = 24;

impl Random {
    /// Bits that are ordinary, or where something changes: zeros, infinities, NaN, subnormals, the ends of integers,
    /// halves between whole numbers.
    fn word32(&mut self) -> u32 {
        const EDGES: [u32; 24] = [
            0,
            1,
            2,
            31,
            32,
            33,
            63,
            64,
            0x7f,
            0x80,
            0xff,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0x0000_0007,
            0x8060_0000,
            0x3f80_0000,
            0x7f7f_ffff,
        ];
        match self.below(4) {
            0 => self.pick(&EDGES),
            1 => ((self.below(4000) as f32 - 2000.0) / 16.0).to_bits(),
            2 => (self.below(256) as u32) << self.below(25),
            _ => self.next() as u32,
        }
    }

    fn word64(&mut self) -> u64 {
        match self.below(5) {
            0 => self.pick(&[
                0,
                1,
                u64::MAX,
                1 << 63,
                i64::MAX as u64,
                0x7ff0 << 48,
                0xfff0 << 48,
                0x7ff8 << 48,
                1 << 31,
            ]),
            1 => f64::from(f32::from_bits(self.word32())).to_bits(),
            2 => self.word32().into(),
            3 => ((self.below(4000) as f64 - 2000.0) / 16.0).to_bits(),
            _ => self.next(),
        }
    }
}

struct Place {
    warp: Warp,
    shared: Vec<u8>,
    base: u64,
}

impl Place {
    fn memory(&self) -> Vec<u8> {
        // SAFETY: the test's own range of the device's memory, which nobody else uses.
        unsafe { std::slice::from_raw_parts(self.base as *const u8, GLOBAL_BYTES as usize) }.to_vec()
    }

    fn set_memory(&self, bytes: &[u8]) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base as *mut u8, bytes.len()) };
    }
}

/// All that an instruction may change.
type Seen = (Vec<Lanes<u32>>, Vec<Lanes<u64>>, Vec<u32>, Vec<u8>, Vec<u8>);

struct Bench {
    launch: Launch,
    place: Place,
    random: Random,
    reached: HashSet<usize>,
    /// Functions that did it themselves at least once.
    done: HashSet<usize>,
    /// Those that did it for two warps at least once.
    together: HashSet<usize>,
}

impl Bench {
    fn new() -> Bench {
        let func = Func { rows32: ROWS, rows64: ROWS, preds: 4, ..Func::default() };
        let program = Program { funcs: vec![func], ..Program::default() };
        let launch = Launch {
            id: 1,
            program: Arc::new(program),
            table: Arc::default(),
            func: 0,
            grid: [7, 5, 3],
            block: [8, 4, 2],
            cluster: [1; 3],
            explicit_cluster: false,
            params: (0..64u32).map(|i| (i * 37 + 130) as u8).collect(),
            static_shared: 0,
            dynamic_shared: 0,
            dynamic_base: 0,
            cooperative: false,
            workspace: 0,
            device: 0,
            context: 0,
            start: Start {
                r32: vec![Lanes::default(); ROWS as usize],
                r64: vec![Lanes::default(); ROWS as usize],
                ..Start::default()
            },
        };
        let base = vram::allocate(GLOBAL_BYTES, vram::Kind::Internal, 0, 0).expect("memory").base;
        let warp = Warp::new(0, &launch);
        let place = Place { warp, shared: vec![0; SHARED_BYTES], base };
        Bench {
            launch,
            place,
            random: Random(0x9e37_79b9_7f4a_7c15),
            reached: HashSet::new(),
            done: HashSet::new(),
            together: HashSet::new(),
        }
    }

    /// Registers with anything in them, and addresses in some if there is to be an access.
    fn fill(&mut self, addresses: Option<(Space, u64)>) {
        let r = &mut self.random;
        for row in &mut self.place.warp.r32 {
            row.0 = std::array::from_fn(|_| r.word32());
        }
        for row in &mut self.place.warp.r64 {
            row.0 = std::array::from_fn(|_| r.word64());
        }
        for p in &mut self.place.warp.preds {
            *p = r.next() as u32;
        }
        let Some((space, bytes)) = addresses else { return };
        let (base, room) = match space {
            Space::Shared => (0, SHARED_BYTES as u64),
            Space::Generic if r.below(2) == 0 => (SHARED_WINDOW, SHARED_BYTES as u64),
            _ => (self.place.base, GLOBAL_BYTES),
        };
        let start = base + r.below((room - 32 * bytes) / bytes) * bytes;
        let pattern = r.below(5);
        let at: Row64 = std::array::from_fn(|l| match pattern {
            0 | 1 => start + l as u64 * bytes,
            2 => start,
            // Somewhere, and at times nowhere or not aligned.
            3 => base + r.below(room / bytes) * bytes,
            _ if r.below(40) == 0 => base + r.below(room + 64),
            _ => base + r.below(room / bytes) * bytes,
        });
        self.place.warp.r64[0].0 = at;
        self.place.warp.r32[0].0 = at.map(|a| a as u32);
        let bytes: Vec<u8> = (0..GLOBAL_BYTES).map(|_| r.next() as u8).collect();
        self.place.set_memory(&bytes);
        self.place.shared = bytes[..SHARED_BYTES].to_vec();
    }

    fn seen(&self) -> Seen {
        let (w, p) = (&self.place.warp, &self.place);
        (w.r32.clone(), w.r64.clone(), w.preds.clone(), p.shared.clone(), p.memory())
    }

    fn restore(&mut self, seen: &Seen) {
        let w = &mut self.place.warp;
        (w.r32, w.r64, w.preds) = (seen.0.clone(), seen.1.clone(), seen.2.clone());
        self.place.shared = seen.3.clone();
        self.place.set_memory(&seen.4);
    }

    /// What the step leaves in row 1, run by the whole warp.
    fn run(&mut self, step: &Step, table: &Table) -> Row32 {
        let ran = with_env(&self.launch, &mut self.place, |warp, env| {
            let rows = Rows::new(warp, &Frame::default(), table);
            // SAFETY: the rows of this frame, which has as many as the instruction names.
            unsafe { step.run(&rows, warp, env, u32::MAX) }
        });
        assert!(ran);
        self.place.warp.r32[1].0
    }

    /// Runs the instruction both ways from the same start.
    fn ask(&mut self, ins: &Instr, addresses: Option<(Space, u64)>) {
        self.ask_together(ins, addresses);
        let mut table = Table::default();
        let Some(step) = bind::step(&mut table, ins) else { return };
        self.reached.insert(step.runs[0] as usize);
        for _ in 0..TRIES {
            self.fill(addresses);
            let before = self.seen();
            let mask = match self.random.below(4) {
                0 | 1 => u32::MAX,
                2 => 1 << self.random.below(32),
                _ => (self.random.next() as u32).max(1),
            };
            let frame = Frame { func: 0, ..Frame::default() };
            let slow = with_env(&self.launch, &mut self.place, |warp, env| match ins.op {
                Op::Warp(op) => {
                    warp.finish_warp_op(ins, op, mask, mask, &frame, env);
                    Ok(())
                }
                _ => warp.data(ins, mask, &frame, env).map_err(|fault| fault.what),
            });
            let by_slow = self.seen();
            self.restore(&before);
            let ran = with_env(&self.launch, &mut self.place, |warp, env| {
                let rows = Rows::new(warp, &frame, &table);
                // SAFETY: the rows of this frame, which has as many as the instruction names.
                unsafe { step.run(&rows, warp, env, mask) }
            });
            if ran {
                self.done.insert(step.runs[0] as usize);
                assert_eq!(slow, Ok(()), "{ins:?} under {mask:#x} was to fail");
                let (mut by_fast, mut by_slow) = (self.seen(), by_slow);
                if is_double(&ins.op) {
                    // Which NaN it is, PTX leaves open, and the compiler too.
                    by_fast.1.iter_mut().chain(&mut by_slow.1).flat_map(|row| &mut row.0).for_each(one_nan);
                }
                let difference = || difference(&by_fast, &by_slow, &before);
                assert!(by_fast == by_slow, "{ins:?} under {mask:#x}: {}", difference());
            } else {
                assert!(self.seen() == before, "{ins:?} did something before it gave up");
            }
        }
    }
}

/// The registers of two warps.
type Pair = [(Vec<Lanes<u32>>, Vec<Lanes<u64>>, Vec<u32>); 2];

impl Bench {
    /// Two warps with anything in their registers.
    fn pair(&mut self, addresses: Option<(Space, u64)>) -> [Warp; 2] {
        [0, 1].map(|index| {
            self.fill(addresses);
            let (mut warp, w) = (Warp::new(index, &self.launch), &self.place.warp);
            (warp.r32, warp.r64, warp.preds) = (w.r32.clone(), w.r64.clone(), w.preds.clone());
            warp
        })
    }

    /// Lines in some of the registers, among them where one bends or an access is in order.
    fn lines(&mut self, addresses: Option<(Space, u64)>) -> Lines {
        let base = self.place.base;
        let r = &mut self.random;
        let mut lines = Lines { last: 63, ..Lines::default() };
        for row in 0..ROWS as usize {
            const STEPS: [u32; 8] = [0, 0, 0, 1, 4, 16, u32::MAX, 0x0400_0000];
            lines.of32[row] = Line { start: r.word32(), step: r.pick(&STEPS) };
            lines.of64[row] = Line { start: r.word64(), step: r.pick(&STEPS) as i32 as u64 };
        }
        let known = |r: &mut Random| (r.next() | r.next()) & ((1 << ROWS) - 1);
        (lines.known32, lines.known64) = (known(r), known(r));
        if let Some((_, bytes)) = addresses {
            // A row of addresses is where `fill` has put one, or a line in the test's memory.
            let room = (GLOBAL_BYTES - 64 * bytes) / bytes;
            lines.known32 &= !1;
            lines.of64[0] = Line { start: base + r.below(room) * bytes, step: r.pick(&[bytes, bytes, 0, 4]) };
        }
        (lines.stale32, lines.stale64) = (lines.known32, lines.known64);
        lines
    }

    /// Runs the instruction for two warps together, with lines in their registers, and for one after the other the
    /// long way.
    fn ask_together(&mut self, ins: &Instr, addresses: Option<(Space, u64)>) {
        let mut table = Table::default();
        let Some(step) = bind::step(&mut table, ins) else { return };
        let x = LineStep::new(ins, true);
        let table = Arc::new(table);
        for _ in 0..TRIES / 2 {
            self.launch.block = if self.random.below(2) == 0 { [64, 1, 1] } else { [8, 4, 2] };
            self.launch.table = table.clone();
            let mut warps = self.pair(addresses);
            let mut lines = self.lines(addresses);
            let memory = (self.place.shared.clone(), self.place.memory());
            let frame = Frame::default();
            let registers = |warps: &[Warp; 2]| -> Pair {
                [0, 1].map(|k| (warps[k].r32.clone(), warps[k].r64.clone(), warps[k].preds.clone()))
            };
            let rows_of = |warps: &mut [Warp; 2]| warps.each_mut().map(|w| Rows::new(w, &frame, &table));
            let before = registers(&warps);
            let written = (lines.known32, lines.known64);
            // SAFETY: the rows are the warps', which have as many as there are lines.
            unsafe { lines.write(&rows_of(&mut warps), written.0, written.1) };
            let slow = with_env(&self.launch, &mut self.place, |_, env| {
                warps.iter_mut().try_for_each(|warp| match ins.op {
                    Op::Warp(op) => {
                        warp.finish_warp_op(ins, op, u32::MAX, u32::MAX, &frame, env);
                        Ok(())
                    }
                    _ => warp.data(ins, u32::MAX, &frame, env).map_err(|fault| fault.what),
                })
            });
            let mut by_slow = (registers(&warps), self.place.shared.clone(), self.place.memory());
            for (warp, before) in warps.iter_mut().zip(before) {
                (warp.r32, warp.r64, warp.preds) = before;
            }
            self.place.shared = memory.0;
            self.place.set_memory(&memory.1);
            (lines.stale32, lines.stale64) = written;
            let done = with_env(&self.launch, &mut self.place, |_, env| {
                let rows = rows_of(&mut warps);
                // SAFETY: the rows are the warps', which have as many as the instruction names; so are the lines.
                unsafe {
                    let done = run_step(&step, &x, &rows, &mut lines, &mut warps, env);
                    lines.write(&rows, u64::MAX, u64::MAX);
                    done
                }
            });
            if done == 2 {
                self.together.insert(step.runs[0] as usize);
                assert_eq!(slow, Ok(()), "{ins:?} was to fail");
                let mut by_fast = (registers(&warps), self.place.shared.clone(), self.place.memory());
                if is_double(&ins.op) {
                    let rows = by_fast.0.iter_mut().chain(&mut by_slow.0).flat_map(|w| &mut w.1);
                    rows.flat_map(|row| &mut row.0).for_each(one_nan);
                }
                assert!(by_fast == by_slow, "{ins:?} of two warps, lines {lines:?}");
            }
        }
        self.launch.block = [8, 4, 2];
    }
}

fn with_env<T>(launch: &Launch, place: &mut Place, run: impl FnOnce(&mut Warp, &mut Env) -> T) -> T {
    let (mut bars, mut arrived, mut live) = ([Barrier::default(); BARRIERS], false, 64);
    let mut env = Env {
        launch,
        program: &launch.program,
        shared: &mut place.shared,
        ctaid: [4, 3, 2],
        block_index: 9,
        bars: &mut bars,
        bar_arrived: &mut arrived,
        live_threads: &mut live,
        peers: Peers::none(),
    };
    run(&mut place.warp, &mut env)
}

fn is_double(op: &Op) -> bool {
    matches!(op, Op::FloatBin(_, Ty::F64, _) | Op::FloatUn(_, Ty::F64, _) | Op::Fma(Ty::F64, _))
}

fn one_nan(word: &mut u64) {
    if f64::from_bits(*word).is_nan() {
        *word = 0x7ff8 << 48;
    }
}

fn difference(fast: &Seen, slow: &Seen, before: &Seen) -> String {
    for i in 0..ROWS as usize {
        for l in 0..32 {
            if fast.0[i][l] != slow.0[i][l] {
                return format!(
                    "r32[{i}] lane {l}: {:#x}, not {:#x}; before {:#x?}",
                    fast.0[i][l],
                    slow.0[i][l],
                    before.0.iter().map(|r| r[l]).collect::<Vec<_>>()
                );
            }
            if fast.1[i][l] != slow.1[i][l] {
                return format!("r64[{i}] lane {l}: {:#x}, not {:#x}", fast.1[i][l], slow.1[i][l]);
            }
        }
    }
    if fast.2 != slow.2 {
        return format!("predicates {:x?}, not {:x?}", fast.2, slow.2);
    }
    "memory".into()
}

const TYPES: [Ty; 14] = [
    Ty::B8,
    Ty::B16,
    Ty::B32,
    Ty::B64,
    Ty::U8,
    Ty::U16,
    Ty::U32,
    Ty::U64,
    Ty::S8,
    Ty::S16,
    Ty::S32,
    Ty::S64,
    Ty::F32,
    Ty::F64,
];

const ROUNDS: [Round; 5] = [Round::Nearest, Round::Zero, Round::Down, Round::Up, Round::Away];

fn modifiers() -> Vec<Fp> {
    let mut all = Vec::new();
    for round in ROUNDS {
        for bits in 0..16 {
            let on = |k: u32| bits >> k & 1 != 0;
            all.push(Fp { round, ftz: on(0), sat: on(1), relu: on(2), finite: on(3) });
        }
    }
    all
}

fn arithmetic() -> Vec<Op> {
    let mut all = vec![
        Op::Mov,
        Op::Cvta { window: 0 },
        Op::Cvta { window: SHARED_WINDOW },
        Op::CvtaTo { window: 0 },
        Op::PredNot,
        Op::PredMov,
        Op::PredBin(Logic::And),
        Op::PredBin(Logic::Or),
        Op::PredBin(Logic::Xor),
        Op::Selp(Ty::B32),
    ];
    for table in 0..=255 {
        all.push(Op::Lop3(table));
    }
    for left in [false, true] {
        for wrap in [false, true] {
            all.push(Op::Shf { left, wrap });
        }
    }
    use IntBin::*;
    for ty in TYPES {
        for op in [Add, Sub, MulLo, MulHi, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr, AddSat, SubSat] {
            all.push(Op::IntBin(op, ty));
        }
        for op in [IntUn::Not, IntUn::Neg, IntUn::Abs, IntUn::Popc, IntUn::Clz, IntUn::Brev, IntUn::Bfind] {
            all.push(Op::IntUn(op, ty));
        }
        all.extend([Op::MulWide(ty), Op::MadWide(ty), Op::MadLo(ty), Op::MadHi(ty)]);
    }
    for ty in [Ty::F32, Ty::F64] {
        for fp in modifiers() {
            use FloatBin::*;
            for op in [Add, Sub, Mul, Div, Min, Max, MinNan, MaxNan, CopySign] {
                all.push(Op::FloatBin(op, ty, fp));
            }
            use FloatUn::*;
            for op in [Neg, Abs, Sqrt, Rsqrt, Rcp, Ex2, Lg2] {
                all.push(Op::FloatUn(op, ty, fp));
            }
            all.push(Op::Fma(ty, fp));
        }
    }
    for to in TYPES.into_iter().chain([Ty::F16, Ty::Bf16]) {
        for from in TYPES.into_iter().chain([Ty::F16, Ty::Bf16]) {
            for fp in modifiers() {
                for integer in [false, true] {
                    all.push(Op::Cvt { to, from, round: fp.round, integer, fp });
                }
            }
        }
    }
    let comparisons = {
        use Cmp::*;
        [Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan]
    };
    for cmp in comparisons {
        for ty in TYPES {
            for logic in [None, Some(Logic::And), Some(Logic::Or), Some(Logic::Xor)] {
                for ftz in [false, true] {
                    all.push(Op::Setp { cmp, ty, logic, ftz });
                }
            }
        }
    }
    all
}

/// Registers for an instruction: of which widths, the bits say; the result is often an operand too.
fn form(op: Op, wide: u32, r: &mut Random) -> Instr {
    let mut source = |k: u32| {
        let at = r.below(ROWS.into()) as u32;
        match (wide >> k & 1, r.below(5)) {
            (0, 0) => Src::Imm(r.word32().into()),
            (0, _) => Src::R32(at),
            (_, 0) => Src::Imm(r.word64()),
            _ => Src::R64(at),
        }
    };
    let (mut a, mut b, mut c) = (source(0), source(1), source(2));
    let at = r.below(ROWS.into()) as u32;
    let (mut d, mut d2) = (if wide >> 3 == 0 { Reg::R32(at) } else { Reg::R64(at) }, Reg::None);
    let mut pred = || Src::P(r.below(4) as u32, r.below(2) == 0);
    if matches!(op, Op::PredNot | Op::PredMov | Op::PredBin(_)) {
        (a, b) = (pred(), pred());
    }
    if matches!(op, Op::MulWide(_)) {
        c = Src::None;
    }
    if matches!(op, Op::Selp(_) | Op::Setp { .. }) {
        c = pred();
    }
    if matches!(op, Op::Setp { .. } | Op::PredNot | Op::PredMov | Op::PredBin(_)) {
        d = Reg::P(r.below(4) as u32);
    }
    if matches!(op, Op::Setp { .. }) && r.below(2) == 0 {
        d2 = Reg::P(r.below(4) as u32);
    }
    plain(op, d, a, b, c, d2)
}

fn plain(op: Op, d: Reg, a: Src, b: Src, c: Src, d2: Reg) -> Instr {
    Instr { op, guard: u32::MAX, guard_negated: false, d, d2, a, b, c, e: Src::None, line: 0 }
}

#[test]
fn fast_and_slow_agree() {
    if !is_available() {
        eprintln!("this processor has no AVX2 and FMA: nothing to compare");
        return;
    }
    let mut bench = Bench::new();
    for wide in 0..16 {
        for op in arithmetic() {
            let ins = form(op, wide, &mut bench.random);
            bench.ask(&ins, None);
        }
    }
    let arithmetic = bench.done.len();
    accesses(&mut bench);
    positions(&mut bench);
    shuffles(&mut bench);
    assert_eq!(bench.reached, bench.done, "some function gave up every time");
    assert_eq!(bench.reached, bench.together, "some function never did it for two warps");
    assert!(arithmetic > 120 && bench.done.len() > arithmetic + 20, "{arithmetic} of {}", bench.done.len());
}

fn shuffles(bench: &mut Bench) {
    for mode in [ShflMode::Up, ShflMode::Down, ShflMode::Bfly, ShflMode::Idx] {
        for clamp in [0, 31, 0x1f00, 0x181f, 0x1c1f] {
            for by in [Src::R32(2), Src::Imm(1), Src::Imm(16)] {
                for d in [Reg::R32(1), Reg::R32(3)] {
                    let op = Op::Warp(WarpOp::Shfl(mode));
                    let ins = plain(op, d, Src::R32(1), by, Src::Imm(clamp), Reg::P(1));
                    bench.ask(&ins, None);
                    bench.ask(&Instr { e: Src::Imm(u32::MAX.into()), d2: Reg::None, ..ins }, None);
                }
            }
        }
    }
}

fn accesses(bench: &mut Bench) {
    let plain = |op, d, a, b| plain(op, d, a, b, Src::None, Reg::None);
    for space in [Space::Global, Space::Generic, Space::Const, Space::Shared, Space::Local] {
        for ty in TYPES {
            for offset in [0i64, 8, -16] {
                for a in [Src::R64(0), Src::R32(0)] {
                    let bytes = u64::from(ty.bytes());
                    for d in [Reg::R32(3), Reg::R64(3), Reg::R64(0)] {
                        bench.ask(&plain(Op::Ld { space, ty, offset }, d, a, Src::None), Some((space, bytes)));
                    }
                    for b in [Src::R32(3), Src::R64(3), Src::Imm(0x1234_5678_9abc)] {
                        bench.ask(&plain(Op::St { space, ty, offset }, Reg::None, a, b), Some((space, bytes)));
                    }
                    for n in [2usize, 4] {
                        let regs = (1..=n as u32).map(Reg::R32).collect();
                        let vector = Some((space, bytes * n as u64));
                        bench.ask(&plain(Op::LdVec { space, ty, offset, regs }, Reg::None, a, Src::None), vector);
                        let regs = (1..=n as u32).map(|i| if i == 2 { Src::Imm(7) } else { Src::R32(i) }).collect();
                        bench.ask(&plain(Op::StVec { space, ty, offset, regs }, Reg::None, a, Src::None), vector);
                    }
                }
            }
        }
    }
    for ty in TYPES {
        for at in [0u64, 8, 56, 60, 64] {
            for d in [Reg::R32(2), Reg::R64(2)] {
                let op = Op::Ld { space: Space::Param, ty, offset: 0 };
                bench.ask(&plain(op, d, Src::Imm(at), Src::None), None);
            }
        }
    }
}

fn positions(bench: &mut Bench) {
    use Special::*;
    for s in (0..3).flat_map(|axis| [Tid(axis), Ntid(axis), Ctaid(axis), Nctaid(axis)]).chain([LaneId, WarpId]) {
        let ins = plain(Op::Mov, Reg::R32(1), Src::Special(s), Src::None, Src::None, Reg::None);
        bench.ask(&ins, None);
    }
}

/// Bits of numbers, of which the next looks at one in so many. All of them take minutes: `ORION_SOFT_EXP2_STEP=1`.
const STEP: u32 = 1021;

#[test]
fn powers_of_two_are_the_librarys() {
    if !is_available() {
        return;
    }
    let step: u32 = std::env::var("ORION_SOFT_EXP2_STEP").map_or(STEP, |step| step.parse().expect("a number"));
    let mut bench = Bench::new();
    for ftz in [false, true] {
        let fp = Fp { round: Round::Nearest, ftz, sat: false, relu: false, finite: false };
        let ins =
            plain(Op::FloatUn(FloatUn::Ex2, Ty::F32, fp), Reg::R32(1), Src::R32(0), Src::None, Src::None, Reg::None);
        let mut table = Table::default();
        let found = bind::step(&mut table, &ins).expect("a function");
        let mut at = 0u64;
        while at <= u64::from(u32::MAX) {
            let row: Row32 = std::array::from_fn(|l| (at + l as u64 * u64::from(step)) as u32);
            at += 32 * u64::from(step);
            bench.place.warp.r32[0].0 = row;
            let got = bench.run(&found, &table);
            for (x, got) in row.into_iter().zip(got) {
                let wide = f64::from(if ftz { float::flush32(f32::from_bits(x)) } else { f32::from_bits(x) });
                let want = float::canonical(wide.exp2() as f32);
                let want = if ftz { float::flush32(want) } else { want };
                assert_eq!(got, want.to_bits(), "2 to the power of {wide} ({x:#x})");
            }
        }
    }
}
