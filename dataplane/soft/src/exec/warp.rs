//! One warp: which lanes run, at which instruction, and when they meet again.
//!
//! Lanes are grouped by equal position (instruction and frame). The group deepest in calls and lowest in the code runs
//! first, which makes the sides of a branch meet where they join. A group that runs long while others wait gives way to
//! the one that has waited longest, so a lane spinning on a lock never starves the lane that holds it.

// UNSAFETY: calls the functions of `fast` with the rows of the frame.

use crate::exec::fault::{Fault, FaultKind, incomplete};
use crate::exec::floating::extreme_of;
use crate::exec::lanes::{Lanes, alike, lanes, shuffled};
use crate::exec::memory::combine;
use crate::exec::range_cache::RangeCache;
use crate::exec::state::{Env, Frame, Kind, Launch, Return, Rows, Warp};
use crate::ptx::isa::instruction::{Call, Instr, Op, Target};
use crate::ptx::isa::operand::{BarOp, Src, Ty, VoteMode, WarpOp};
use crate::ptx::isa::program::{Program, function_index};

/// Hardware stops at 512 KiB of local memory per thread.
const LOCAL_BYTES_MAX: usize = 512 << 10;

const CALL_DEPTH_MAX: usize = 16 << 10;

/// Instructions a group may run while another group of its warp waits.
const FAIR_SLICE: u32 = 512;

impl Warp {
    pub fn new(index: u32, l: &Launch) -> Self {
        let mut warp = Self {
            index,
            live: 0,
            runnable: 0,
            waiting: 0,
            barred: 0,
            cluster_arrived: 0,
            pc: [0; 32],
            frame: [Frame::default(); 32],
            members: [0; 32],
            bar: [0; 32],
            stack: vec![Vec::new(); 32],
            r32: l.start.r32.clone(),
            r64: l.start.r64.clone(),
            preds: Vec::new(),
            carry: 0,
            local: vec![Vec::new(); 32],
            tid: thread_indices(index, l.block),
            cache: RangeCache::default(),
            stamp: [0; 32],
            together: 0,
            clock: 0,
            fair: false,
            has_called: true,
        };
        warp.begin(l);
        warp
    }

    /// At the start of the kernel, whatever the warp ran before in a block of the same launch. What it knows of memory
    /// stays.
    pub fn begin(&mut self, l: &Launch) {
        let f = &l.program.funcs[l.func as usize];
        let lanes = (l.threads() - self.index * 32).min(32);
        self.live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
        self.runnable = self.live;
        (self.waiting, self.barred, self.cluster_arrived, self.carry) = (0, 0, 0, 0);
        self.pc = [l.start.pc; 32];
        self.fair = false;
        for row in &l.start.cleared32 {
            self.r32[*row as usize] = Lanes::default();
        }
        for row in &l.start.cleared64 {
            self.r64[*row as usize] = Lanes::default();
        }
        begin_rows(&mut self.preds, f.preds, 0);
        let has_called = std::mem::take(&mut self.has_called);
        if has_called {
            self.r32.truncate(l.start.r32.len());
            self.r64.truncate(l.start.r64.len());
            self.frame = [Frame { func: l.func, ..Frame::default() }; 32];
        }
        if has_called || f.frame_bytes > 0 {
            for (stack, local) in self.stack.iter_mut().zip(&mut self.local) {
                stack.clear();
                begin_rows(local, f.frame_bytes, 0);
            }
        }
    }

    /// Runs until nothing is runnable or the budget of instructions is used up.
    pub fn run(&mut self, env: &mut Env, budget: &mut i64) -> Result<(), Fault> {
        while self.runnable != 0 && *budget > 0 {
            let (mask, stop) = self.select();
            let lane = mask.trailing_zeros() as usize;
            let mut g = Group { mask, pc: self.pc[lane], frame: self.frame[lane], stop };
            let outcome = self.run_group(&mut g, env, budget);
            if let Err(mut fault) = outcome {
                fault.line = env.program.code.get(g.pc as usize).map_or(0, |i| i.line);
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Picks a group and the lowest instruction at which another group waits to be joined.
    fn select(&mut self) -> (u32, u32) {
        let fair = std::mem::take(&mut self.fair);
        if !self.has_called && self.beside(self.runnable.trailing_zeros() as usize, self.runnable) == self.runnable {
            // Whoever has waited longest, or lies lowest, is all of them.
            self.clock += 1;
            self.together = self.clock;
            return (self.runnable, u32::MAX);
        }
        for stamp in &mut self.stamp {
            *stamp = self.together.max(*stamp);
        }
        let mut best = None;
        for l in lanes(self.runnable) {
            let key = if fair { (self.stamp[l], 0, 0) } else { (0, usize::MAX - self.stack[l].len(), self.pc[l]) };
            if best.is_none_or(|(k, _)| key < k) {
                best = Some((key, l));
            }
        }
        let (_, leader) = best.expect("called with runnable lanes");
        let (pc, frame, depth) = (self.pc[leader], self.frame[leader], self.stack[leader].len());
        let (mut mask, mut stop) = (0, u32::MAX);
        for l in lanes(self.runnable) {
            if self.pc[l] == pc && self.frame[l] == frame {
                mask |= 1 << l;
            } else if !fair && self.stack[l].len() == depth && self.pc[l] > pc {
                stop = stop.min(self.pc[l]);
            }
        }
        self.clock += 1;
        for l in lanes(mask) {
            self.stamp[l] = self.clock;
        }
        (mask, stop)
    }

    /// The lanes of a mask that are at the same instruction as one of them, in the same frame.
    fn beside(&self, lane: usize, mask: u32) -> u32 {
        let here = alike(&self.pc, lane) & mask;
        if !self.has_called {
            return here;
        }
        lanes(here).filter(|&l| self.frame[l] == self.frame[lane]).fold(0, |s, l| s | (1 << l))
    }

    pub fn save(&mut self, mask: u32, pc: u32, frame: Frame) {
        for l in 0..32 {
            self.pc[l] = if mask >> l & 1 != 0 { pc } else { self.pc[l] };
        }
        // Until a call all have the kernel's.
        if self.has_called {
            lanes(mask).for_each(|l| self.frame[l] = frame);
        }
    }

    fn run_group(&mut self, g: &mut Group, env: &mut Env, budget: &mut i64) -> Result<(), Fault> {
        let program = env.program;
        let code = program.code.as_slice();
        let steps = env.launch.table.steps.as_slice();
        let mut rows = Rows::new(self, &g.frame, &env.launch.table);
        let mut slice = FAIR_SLICE;
        loop {
            if g.pc >= g.stop {
                self.save(g.mask, g.pc, g.frame);
                return Ok(());
            }
            *budget -= 1;
            slice -= 1;
            if *budget <= 0 || slice == 0 {
                slice = FAIR_SLICE;
                if *budget <= 0 || g.mask != self.runnable {
                    self.give_way(g.mask);
                    self.save(g.mask, g.pc, g.frame);
                    return Ok(());
                }
            }
            let step = &steps[g.pc as usize];
            if step.straight > 1 {
                let count = i64::from(step.straight.min(g.stop - g.pc).min(slice)).min(*budget);
                self.straight(g, count as usize, &rows, env)?;
                // One of them has been counted.
                *budget -= count - 1;
                slice -= count as u32 - 1;
                continue;
            }
            let mut m = g.mask;
            if step.guard != u32::MAX {
                let p = self.preds[(g.frame.preds + step.guard) as usize];
                m &= if step.guard_negated { !p } else { p };
                if m == 0 {
                    g.pc += 1;
                    continue;
                }
            }
            // Most are, and a test is foreseen where a table of places to jump to is not.
            if step.kind == Kind::Fast {
                // SAFETY: the rows are those of the frame, whose function the instruction is of.
                if !unsafe { step.run(&rows, self, env, m) } {
                    self.data(&code[g.pc as usize], m, &g.frame, env)?;
                }
                g.pc += 1;
                continue;
            }
            match step.kind {
                Kind::Fast | Kind::Data => {
                    self.data(&code[g.pc as usize], m, &g.frame, env)?;
                    g.pc += 1;
                }
                Kind::Bra => {
                    let target = step.extra as u32;
                    if m == g.mask {
                        g.pc = target;
                    } else if target > g.pc && !self.has_called && (g.stop != u32::MAX || g.mask == self.runnable) {
                        // Those that stay are the lowest in the code: whom `select` would choose.
                        self.save(m, target, g.frame);
                        (g.mask, g.pc, g.stop) = (g.mask & !m, g.pc + 1, g.stop.min(target));
                    } else {
                        self.save(g.mask & !m, g.pc + 1, g.frame);
                        self.save(m, target, g.frame);
                        return Ok(());
                    }
                }
                Kind::Together | Kind::Control => {
                    // SAFETY: as above.
                    if step.kind == Kind::Together && m == u32::MAX && unsafe { step.run(&rows, self, env, m) } {
                        g.pc += 1;
                        continue;
                    }
                    if m != g.mask {
                        self.save(g.mask & !m, g.pc + 1, g.frame);
                        g.mask = m;
                        g.stop = g.stop.min(g.pc + 1);
                    }
                    if !self.control(g, &code[g.pc as usize], env, budget)? {
                        return Ok(());
                    }
                    // A call has another frame, and may have moved the rows.
                    rows = Rows::new(self, &g.frame, &env.launch.table);
                }
            }
        }
    }

    /// Runs so many instructions that functions of `fast` run, one after the other.
    #[inline(always)]
    fn straight(&mut self, g: &mut Group, count: usize, rows: &Rows, env: &mut Env) -> Result<(), Fault> {
        let program = env.program;
        let first = g.pc as usize;
        for step in &env.launch.table.steps[first..first + count] {
            // SAFETY: the rows are those of the frame, whose function the instructions are of.
            if !unsafe { step.run(rows, self, env, g.mask) } {
                self.data(&program.code[g.pc as usize], g.mask, &g.frame, env)?;
            }
            g.pc += 1;
        }
        Ok(())
    }

    /// Runs an instruction that may change which lanes go on. True when the group continues at its new `pc`.
    fn control(&mut self, g: &mut Group, ins: &Instr, env: &mut Env, budget: &mut i64) -> Result<bool, Fault> {
        match &ins.op {
            Op::BrxIdx(targets) => {
                let index = self.read::<u32>(ins.a, &g.frame, env);
                for l in lanes(g.mask) {
                    let Some(&t) = targets.get(index[l] as usize) else {
                        return Err(Fault::new(FaultKind::Trap, "branch table index out of range"));
                    };
                    self.save(1 << l, t, g.frame);
                }
                Ok(false)
            }
            Op::Call(call) => self.call(g, ins, call, env),
            Op::Ret => self.ret(g, env),
            Op::Exit => {
                self.exit(g.mask, env)?;
                Ok(false)
            }
            Op::Trap => Err(Fault::new(FaultKind::Trap, "trap instruction")),
            Op::Nanosleep => {
                self.sleep(g, budget);
                Ok(false)
            }
            Op::MbarrierTest { parity, space, offset } => {
                let done = self.mbarrier_test(ins, *parity, *space, *offset, g.mask, &g.frame, env)?;
                if done {
                    g.pc += 1;
                } else {
                    // What completes the phase is another warp's or block's to do.
                    self.sleep(g, budget);
                }
                Ok(done)
            }
            Op::Warp(op) => self.warp_op(g, ins, *op, env),
            Op::Matrix(op) if g.mask == u32::MAX => {
                self.matrix(op, ins, &g.frame, env)?;
                g.pc += 1;
                Ok(true)
            }
            // The other lanes may be on their way: what is to come together here may have run apart before.
            Op::Matrix(_) => self.wait_for_members(g, [u32::MAX; 32], env),
            Op::Bar(op) => self.barrier(g, ins, *op, env),
            _ => Ok(true),
        }
    }

    /// Gives the rest of the slice to other warps and blocks.
    fn sleep(&mut self, g: &mut Group, budget: &mut i64) {
        g.pc += 1;
        self.save(g.mask, g.pc, g.frame);
        self.give_way(g.mask);
        *budget = (*budget).min(1) - 1;
    }

    /// The other lanes, if there are any, go on before these.
    fn give_way(&mut self, mask: u32) {
        self.fair = mask != self.runnable;
        if self.fair {
            // These may be fewer than were selected.
            self.clock += 1;
            for l in lanes(mask) {
                self.stamp[l] = self.clock;
            }
        }
    }

    fn call(&mut self, g: &mut Group, ins: &Instr, call: &Call, env: &mut Env) -> Result<bool, Fault> {
        let program = env.program;
        let index = match &call.target {
            Target::Builtin(b) => {
                self.builtin(*b, call, g.mask, &g.frame, env)?;
                g.pc += 1;
                return Ok(true);
            }
            Target::Function(i) => *i,
            Target::Register(r) => {
                let at = self.read::<u64>(*r, &g.frame, env);
                let first = at[g.mask.trailing_zeros() as usize];
                let same = lanes(g.mask).filter(|&l| at[l] == first).fold(0, |m, l| m | (1 << l));
                if same != g.mask {
                    // Lanes that call something else stay at this call and are selected later.
                    self.save(g.mask & !same, g.pc, g.frame);
                    g.mask = same;
                }
                function_index(first, program.funcs.len())
                    .ok_or_else(|| Fault::new(FaultKind::IllegalAddress, "call through an invalid function pointer"))?
            }
        };
        self.has_called = true;
        let f = &program.funcs[index as usize];
        if let Some(why) = &f.unsupported {
            return Err(Fault { kind: FaultKind::Unsupported, what: why.clone(), line: ins.line });
        }
        if f.params.len() != call.args.len() || f.returns.len() != call.returns.len() {
            return Err(Fault::new(FaultKind::Trap, "call does not match the function's signature"));
        }
        let caller = &program.funcs[g.frame.func as usize];
        let callee = Frame {
            func: index,
            r32: g.frame.r32 + caller.rows32,
            r64: g.frame.r64 + caller.rows64,
            preds: g.frame.preds + caller.preds,
            sp: g.frame.sp + caller.frame_bytes,
        };
        let local = (callee.sp + f.frame_bytes) as usize;
        if local > LOCAL_BYTES_MAX {
            return Err(Fault::new(FaultKind::IllegalAddress, "stack overflow"));
        }
        grow(&mut self.r32, (callee.r32 + f.rows32) as usize, Lanes::default());
        grow(&mut self.r64, (callee.r64 + f.rows64) as usize, Lanes::default());
        grow(&mut self.preds, (callee.preds + f.preds) as usize, 0);
        for l in lanes(g.mask) {
            if self.stack[l].len() >= CALL_DEPTH_MAX {
                return Err(Fault::new(FaultKind::IllegalAddress, "stack overflow"));
            }
            let memory = &mut self.local[l];
            grow(memory, local, 0);
            for (a, p) in call.args.iter().zip(&f.params) {
                let from = (g.frame.sp + a.offset) as usize;
                let n = a.bytes.min(p.bytes) as usize;
                memory.copy_within(from..from + n, (callee.sp + p.offset) as usize);
            }
            self.stack[l].push(Return { pc: g.pc + 1, frame: g.frame });
        }
        let whole = g.mask == self.runnable;
        g.pc = f.entry;
        g.frame = callee;
        if !whole {
            self.save(g.mask, g.pc, g.frame);
        }
        g.stop = u32::MAX;
        Ok(whole)
    }

    fn ret(&mut self, g: &mut Group, env: &mut Env) -> Result<bool, Fault> {
        if !self.has_called {
            self.exit(g.mask, env)?;
            return Ok(false);
        }
        let program = env.program;
        let mut ended = 0;
        let mut first = None;
        let mut uniform = true;
        for l in lanes(g.mask) {
            let Some(r) = self.stack[l].pop() else {
                ended |= 1 << l;
                continue;
            };
            let f = &program.funcs[g.frame.func as usize];
            if let Op::Call(call) = &program.code[(r.pc - 1) as usize].op {
                for (to, from) in call.returns.iter().zip(&f.returns) {
                    let at = (g.frame.sp + from.offset) as usize;
                    let n = to.bytes.min(from.bytes) as usize;
                    self.local[l].copy_within(at..at + n, (r.frame.sp + to.offset) as usize);
                }
            }
            self.pc[l] = r.pc;
            self.frame[l] = r.frame;
            let here = (r.pc, r.frame);
            uniform &= *first.get_or_insert(here) == here;
        }
        if ended != 0 {
            self.exit(ended, env)?;
            return Ok(false);
        }
        if uniform && g.mask == self.runnable {
            let lane = g.mask.trailing_zeros() as usize;
            g.pc = self.pc[lane];
            g.frame = self.frame[lane];
            g.stop = u32::MAX;
            return Ok(true);
        }
        Ok(false)
    }

    fn exit(&mut self, mask: u32, env: &mut Env) -> Result<(), Fault> {
        self.live &= !mask;
        self.runnable &= !mask;
        *env.live_threads -= mask.count_ones();
        // A member that is gone counts as arrived.
        while let Some(l) = lanes(self.waiting).find(|&l| {
            let m = self.members[l];
            let arrived = lanes(self.waiting).filter(|&k| self.members[k] == m).fold(0, |s, k| s | (1 << k));
            m & self.live & !arrived == 0
        }) {
            let m = self.members[l];
            let arrived = lanes(self.waiting).filter(|&k| self.members[k] == m).fold(0, |s, k| s | (1 << k));
            self.complete(arrived, m, env)?;
        }
        Ok(())
    }

    fn warp_op(&mut self, g: &mut Group, ins: &Instr, op: WarpOp, env: &mut Env) -> Result<bool, Fault> {
        if ins.e == Src::None {
            // The forms without a member mask act on the lanes that happen to be together.
            self.finish_warp_op(ins, op, g.mask, g.mask, &g.frame, env);
            g.pc += 1;
            return Ok(true);
        }
        let members = self.read::<u32>(ins.e, &g.frame, env);
        let first = members[g.mask.trailing_zeros() as usize];
        if first & self.live & !g.mask == 0 && g.mask & !alike(&members, g.mask.trailing_zeros() as usize) == 0 {
            self.finish_warp_op(ins, op, g.mask, first, &g.frame, env);
            g.pc += 1;
            return Ok(true);
        }
        self.wait_for_members(g, members, env)
    }

    /// Lanes wait until all that are named have come, who then act together.
    fn wait_for_members(&mut self, g: &Group, members: [u32; 32], env: &mut Env) -> Result<bool, Fault> {
        self.save(g.mask, g.pc, g.frame);
        let mut rest = g.mask;
        while rest != 0 {
            let m = members[rest.trailing_zeros() as usize];
            let part = lanes(rest).filter(|&l| members[l] == m).fold(0, |s, l| s | (1 << l));
            rest &= !part;
            for l in lanes(part) {
                self.members[l] = m;
            }
            self.waiting |= part;
            self.runnable &= !part;
            let arrived = lanes(self.waiting).filter(|&l| self.members[l] == m).fold(0, |s, l| s | (1 << l));
            if m & self.live & !arrived == 0 {
                self.complete(arrived, m, env)?;
            }
        }
        Ok(false)
    }

    /// All members have arrived: run the operation at each place they wait and let them go.
    fn complete(&mut self, arrived: u32, members: u32, env: &mut Env) -> Result<(), Fault> {
        self.waiting &= !arrived;
        self.runnable |= arrived;
        let mut rest = arrived;
        while rest != 0 {
            let leader = rest.trailing_zeros() as usize;
            let (pc, frame) = (self.pc[leader], self.frame[leader]);
            let here = self.beside(leader, rest);
            rest &= !here;
            let program = env.program;
            let ins = &program.code[pc as usize];
            match &ins.op {
                Op::Warp(op) => self.finish_warp_op(ins, *op, here, members, &frame, env),
                Op::Matrix(op) if here == u32::MAX => self.matrix(op, ins, &frame, env)?,
                Op::Matrix(_) => return Err(incomplete(here, ins.line)),
                _ => {}
            }
            self.save(here, pc + 1, frame);
        }
        Ok(())
    }

    pub fn finish_warp_op(&mut self, ins: &Instr, op: WarpOp, mask: u32, members: u32, f: &Frame, env: &Env) {
        match op {
            WarpOp::Sync => {}
            WarpOp::Shfl(mode) => {
                let a = self.read::<u32>(ins.a, f, env);
                let b = self.read::<u32>(ins.b, f, env);
                let c = self.read::<u32>(ins.c, f, env);
                let (from, in_range) = shuffled(mode, &b, &c);
                let d = from.map(|l| a[l as usize & 31]);
                self.write::<u32>(ins.d, mask, &d, f);
                self.write_pred(ins.d2, mask, in_range, f);
            }
            WarpOp::Vote(mode) => {
                let votes = self.read_pred(ins.a, f, env) & mask;
                let v = match mode {
                    VoteMode::Ballot => {
                        self.write::<u32>(ins.d, mask, &[votes; 32], f);
                        return;
                    }
                    VoteMode::All => votes == mask,
                    VoteMode::Any => votes != 0,
                    VoteMode::Uni => votes == mask || votes == 0,
                };
                self.write_pred(ins.d, mask, if v { u32::MAX } else { 0 }, f);
            }
            WarpOp::MatchAny => {
                let a = self.read::<u64>(ins.a, f, env);
                let mut d = [0; 32];
                for l in lanes(mask) {
                    d[l] = lanes(mask).filter(|&k| a[k] == a[l]).fold(0, |s, k| s | (1 << k));
                }
                self.write::<u32>(ins.d, mask, &d, f);
            }
            WarpOp::MatchAll => {
                let a = self.read::<u64>(ins.a, f, env);
                let first = a[mask.trailing_zeros() as usize & 31];
                let same = lanes(mask).all(|l| a[l] == first);
                self.write::<u32>(ins.d, mask, &[if same { mask } else { 0 }; 32], f);
                self.write_pred(ins.d2, mask, if same { u32::MAX } else { 0 }, f);
            }
            WarpOp::Redux(op, signed) => {
                let a = self.read::<u32>(ins.a, f, env);
                let ty = if signed { Ty::S32 } else { Ty::U32 };
                let v = lanes(mask).map(|l| u64::from(a[l])).reduce(|x, y| combine(op, ty, x, y, 0)).unwrap_or(0);
                self.write::<u32>(ins.d, mask, &[v as u32; 32], f);
            }
            WarpOp::ReduxFloat { max, abs, nan } => {
                let a = self.read::<f32>(ins.a, f, env);
                let v = extreme_of(lanes(mask).map(|l| a[l]), max, abs, nan);
                self.write::<f32>(ins.d, mask, &[v; 32], f);
            }
            WarpOp::Elect => {
                let leader = (members & self.live).trailing_zeros().min(31);
                self.write::<u32>(ins.d, mask, &[leader; 32], f);
                self.write_pred(ins.d2, mask, 1 << leader, f);
            }
        }
    }

    fn barrier(&mut self, g: &mut Group, ins: &Instr, op: BarOp, env: &mut Env) -> Result<bool, Fault> {
        if matches!(op, BarOp::ClusterArrive | BarOp::ClusterWait) {
            self.cluster_barrier(g.mask, g.pc, g.frame, op == BarOp::ClusterWait);
            return Ok(false);
        }
        let lane = g.mask.trailing_zeros() as usize;
        let id = self.read::<u32>(ins.a, &g.frame, env);
        let count = if ins.b == Src::None { 0 } else { self.read::<u32>(ins.b, &g.frame, env)[lane] };
        let same = alike(&id, lane) & g.mask;
        let others = g.mask & !same;
        self.save(others, g.pc, g.frame);
        let id = id[lane];
        let Some(bar) = env.bars.get_mut(id as usize) else {
            return Err(Fault::new(FaultKind::Trap, "barrier number out of range"));
        };
        bar.arrived += same.count_ones();
        bar.expected = count;
        if op == BarOp::Arrive {
            self.save(same, g.pc + 1, g.frame);
            *env.bar_arrived = true;
            return Ok(false);
        }
        let pred = if ins.c == Src::None { 0 } else { self.read_pred(ins.c, &g.frame, env) & same };
        let bar = &mut env.bars[id as usize];
        bar.popc += pred.count_ones();
        self.save(same, g.pc, g.frame);
        if same == u32::MAX {
            self.bar = [id as u8; 32];
        } else {
            lanes(same).for_each(|l| self.bar[l] = id as u8);
        }
        self.barred |= same;
        self.runnable &= !same;
        *env.bar_arrived = true;
        Ok(false)
    }

    /// The barrier completed: hand its result to the lanes that wait at it.
    pub fn release_barrier(&mut self, id: u8, arrived: u32, popc: u32, program: &Program) {
        let mut mask = self.barred & (0..32).fold(0, |s, l| s | u32::from(self.bar[l] == id) << l);
        self.barred &= !mask;
        self.runnable |= mask;
        while mask != 0 {
            let leader = mask.trailing_zeros() as usize;
            let (pc, frame) = (self.pc[leader], self.frame[leader]);
            let here = self.beside(leader, mask);
            mask &= !here;
            let ins = &program.code[pc as usize];
            if let Op::Bar(op) = ins.op {
                let all = |v: bool| if v { u32::MAX } else { 0 };
                match op {
                    BarOp::RedPopc => self.write::<u32>(ins.d, here, &[popc; 32], &frame),
                    BarOp::RedAnd => self.write_pred(ins.d, here, all(popc == arrived), &frame),
                    BarOp::RedOr => self.write_pred(ins.d, here, all(popc > 0), &frame),
                    _ => {}
                }
            }
            self.save(here, pc + 1, frame);
        }
    }
}

struct Group {
    mask: u32,
    pc: u32,
    frame: Frame,
    stop: u32,
}

/// The place in its block of each thread of a warp.
fn thread_indices(warp: u32, block: [u32; 3]) -> [[u32; 32]; 3] {
    let first = warp * 32;
    let mut at = [first % block[0], first / block[0] % block[1], first / (block[0] * block[1])];
    let mut tid = [[0; 32]; 3];
    for l in 0..32 {
        for (row, at) in tid.iter_mut().zip(at) {
            row[l] = at;
        }
        at[0] += 1;
        for axis in 0..2 {
            if at[axis] == block[axis] {
                at[axis] = 0;
                at[axis + 1] += 1;
            }
        }
    }
    tid
}

fn begin_rows<T: Copy>(v: &mut Vec<T>, n: u32, zero: T) {
    v.resize(n as usize, zero);
    v.fill(zero);
}

fn grow<T: Clone>(v: &mut Vec<T>, n: usize, fill: T) {
    if v.len() < n {
        v.resize(n, fill);
    }
}
