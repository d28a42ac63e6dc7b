//! Fragments of `wmma`: a lane's elements lie in its registers as `mma` has them, whatever their order in memory.

use crate::exec::fault::{Fault, FaultKind};
use crate::exec::lanes::lanes;
use crate::exec::matrix::layout::{ALL, place};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::matrix::{Fragment, Part, Shape};
use crate::ptx::isa::operand::{Reg, Space, Src};

impl Fragment {
    /// Elements of a register.
    fn packed(&self) -> usize {
        (32 / self.bits).max(1)
    }

    /// Registers that hold different elements.
    fn registers(&self) -> usize {
        let Shape { m, n, k } = self.shape;
        let elements = match self.part {
            Part::A => m * k,
            Part::B => k * n,
            Part::Sum => m * n,
        };
        elements / 32 / self.packed()
    }

    /// Row and column of element `e` of register `r` of a lane.
    fn element(&self, r: usize, lane: usize, e: usize) -> (usize, usize) {
        let (g, t) = (lane / 4, lane % 4);
        let step = 4 * self.packed();
        let inner = |w: usize| w * step + t * self.packed() + e;
        match self.part {
            Part::A if self.shape.m == 8 => (g, inner(r)),
            Part::A => {
                // Sixteen rows after sixteen.
                let of_sixteen = self.registers() * 16 / self.shape.m;
                let in_sixteen = r % of_sixteen;
                (16 * (r / of_sixteen) + 8 * (in_sixteen % 2) + g, inner(in_sixteen / 2))
            }
            Part::B => {
                let of_eight = self.registers() * 8 / self.shape.n;
                (inner(r % of_eight), 8 * (r / of_eight) + g)
            }
            Part::Sum => {
                let pair = r * self.packed() / 2;
                let (block, tile) = place(self.shape.m, pair);
                (8 * block + g, 8 * tile + 2 * t + if self.packed() == 2 { e } else { r % 2 })
            }
        }
    }

    /// Whether the elements of a register follow each other in memory.
    fn is_packed_in_memory(&self) -> bool {
        match self.part {
            Part::A | Part::Sum => self.is_row_major,
            Part::B => !self.is_row_major,
        }
    }

    /// Bits from the matrix to element `e` of register `r` of each lane.
    fn distances(&self, r: usize, e: usize, stride: u64) -> [u64; 32] {
        std::array::from_fn(|l| {
            let (row, column) = self.element(r, l, e);
            let (major, minor) = if self.is_row_major { (row, column) } else { (column, row) };
            (major as u64).wrapping_mul(stride).wrapping_add(minor as u64).wrapping_mul(self.bits as u64)
        })
    }
}

impl Warp {
    pub(super) fn load_fragment(
        &mut self,
        fragment: &Fragment,
        regs: &[Reg],
        ins: &Instr,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let (base, stride) = self.matrix_in_memory(fragment, ins, f, env)?;
        let distinct = fragment.registers();
        for r in 0..distinct {
            let whole = fragment.is_packed_in_memory() || fragment.bits >= 32;
            let pieces = if whole { 1 } else { fragment.packed() };
            let bits = if whole { fragment.bits.max(32) } else { fragment.bits };
            let mut row = [0; 32];
            for e in 0..pieces {
                let at = fragment.distances(r, e, stride).map(|d| base.wrapping_add(d / 8));
                let loaded = self.load_lanes(env, fragment.space, &at, bits as u32 / 8)?;
                for (to, v) in row.iter_mut().zip(loaded) {
                    *to |= v << (bits * e);
                }
            }
            // Half precision has more registers than elements in some shapes, which repeat them.
            for d in regs.iter().skip(r).step_by(distinct) {
                self.write::<u64>(*d, ALL, &row, f);
            }
        }
        Ok(())
    }

    pub(super) fn store_fragment(
        &mut self,
        fragment: &Fragment,
        values: &[Src],
        ins: &Instr,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let (base, stride) = self.matrix_in_memory(fragment, ins, f, env)?;
        for (r, s) in values.iter().enumerate() {
            let whole = fragment.is_packed_in_memory() || fragment.bits >= 32;
            let pieces = if whole { 1 } else { fragment.packed() };
            let bits = if whole { fragment.bits.max(32) } else { fragment.bits };
            let row = self.read::<u64>(*s, f, env);
            for e in 0..pieces {
                let at = fragment.distances(r, e, stride).map(|d| base.wrapping_add(d / 8));
                self.store_lanes(env, fragment.space, &at, bits as u32 / 8, &row.map(|v| v >> (bits * e)))?;
            }
        }
        Ok(())
    }

    /// Where a fragment's matrix begins, and its elements from one row or column to the next.
    fn matrix_in_memory(&self, fragment: &Fragment, ins: &Instr, f: &Frame, env: &Env) -> Result<(u64, u64), Fault> {
        let at = self.addresses(ins, f, env, fragment.offset);
        let stride = self.read::<u32>(fragment.stride, f, env);
        if at.iter().any(|a| *a != at[0]) || stride.iter().any(|s| *s != stride[0]) {
            let what = "the threads of a warp name different matrices in memory, or strides of them";
            return Err(Fault::new(FaultKind::Trap, what));
        }
        Ok((at[0], u64::from(stride[0])))
    }

    fn load_lanes(&mut self, env: &mut Env, space: Space, at: &[u64; 32], bytes: u32) -> Result<[u64; 32], Fault> {
        if let Some(row) = self.load_row(env, ALL, space, at, bytes) {
            return Ok(row);
        }
        let mut row = [0; 32];
        for l in lanes(ALL) {
            row[l] = self.load(env, l, space, at[l], bytes)?;
        }
        Ok(row)
    }

    fn store_lanes(
        &mut self,
        env: &mut Env,
        space: Space,
        at: &[u64; 32],
        bytes: u32,
        row: &[u64; 32],
    ) -> Result<(), Fault> {
        if self.store_row(env, ALL, space, at, bytes, row).is_some() {
            return Ok(());
        }
        for l in lanes(ALL) {
            self.store(env, l, space, at[l], bytes, row[l])?;
        }
        Ok(())
    }
}
