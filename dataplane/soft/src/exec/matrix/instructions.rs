//! Matrix instructions. A warp's registers are gathered into whole matrices, and those are worked on.
//!
//! Lanes stand in eight groups of four. Of a matrix of eight rows a group has one, in pieces of one register for each
//! of its lanes, so that a register of all lanes is eight rows of four words.

use crate::exec::fault::{Fault, FaultKind, fault};
use crate::exec::matrix::doubles::multiply_doubles;
use crate::exec::matrix::layout::{ALL, Factors, Lanes, Picks, Tile, column_of};
use crate::exec::matrix::products;
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::matrix::{Element, MatrixOp, Multiply, Sparse};
use crate::ptx::isa::operand::{SHARED_WINDOW, Space, Src, Ty, WINDOW_MASK};

static NO_LANES: Lanes = [0; 32];

/// Eight rows of sixteen bytes, as a register of all lanes has them.
type Rows = [[u32; 4]; 8];

#[inline(always)]
fn lanes_of(rows: &Rows) -> Lanes {
    let mut lanes = NO_LANES;
    lanes.copy_from_slice(rows.as_flattened());
    lanes
}

#[inline(always)]
fn rows_of(lanes: &Lanes) -> Rows {
    let mut rows = [[0; 4]; 8];
    rows.as_flattened_mut().copy_from_slice(lanes);
    rows
}

/// The matrix of 8x8 elements of 16 bits, turned over its diagonal.
#[inline(always)]
fn transposed(rows: &Rows) -> Rows {
    let mut turned = [[0; 4]; 8];
    for r in 0..4 {
        for w in 0..4 {
            // Four elements of two rows.
            let (upper, lower) = (rows[2 * w][r], rows[2 * w + 1][r]);
            turned[2 * r][w] = upper & 0xffff | lower << 16;
            turned[2 * r + 1][w] = upper >> 16 | lower & 0xffff_0000;
        }
    }
    turned
}

/// Rows that all lie in the block's shared memory, in one go. Whatever else there is to them is left to loads of one.
#[inline]
fn load_shared_rows(shared: &[u8], space: Space, at: &[u64; 32], rows: &mut [[u32; 4]]) -> Option<()> {
    let window = if space == Space::Generic { SHARED_WINDOW } else { 0 };
    let (mut bits, mut highest) = (0, 0);
    for at in &at[..rows.len()] {
        let offset = at.wrapping_sub(window);
        bits |= offset;
        highest = highest.max(offset);
    }
    if bits % 16 != 0 || !matches!(space, Space::Shared | Space::Generic) {
        return None;
    }
    let shared = &shared[..shared.len() & !15];
    let (places, _) = shared.as_chunks::<16>();
    // Offsets of other windows are far beyond the memory's end.
    if highest / 16 >= places.len() as u64 {
        return None;
    }
    for (at, row) in at.iter().zip(rows) {
        let (words, _) = places[(at.wrapping_sub(window) / 16) as usize].as_chunks::<4>();
        *row = [words[0], words[1], words[2], words[3]].map(u32::from_le_bytes);
    }
    Some(())
}

impl Warp {
    /// All lanes execute this together.
    pub fn matrix(&mut self, op: &MatrixOp, ins: &Instr, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        match op {
            MatrixOp::Load { space, offset, is_transposed, regs } => {
                let at = self.addresses(ins, f, env, *offset);
                // What is loaded may replace addresses, so that all is read before any is written.
                let mut rows = [[0; 4]; 32];
                let rows = &mut rows[..8 * regs.len()];
                if load_shared_rows(env.shared, *space, &at, rows).is_none() {
                    for (lane, row) in rows.iter_mut().enumerate() {
                        *row = self.load_matrix_row(env, lane, *space, at[lane])?;
                    }
                }
                for (d, rows) in regs.iter().zip(rows.as_chunks::<8>().0) {
                    let turned = if *is_transposed { &transposed(rows) } else { rows };
                    self.write::<u32>(*d, ALL, &lanes_of(turned), f);
                }
            }
            MatrixOp::Store { space, offset, is_transposed, values } => {
                let at = self.addresses(ins, f, env, *offset);
                for (n, s) in values.iter().enumerate() {
                    let rows = rows_of(&self.read::<u32>(*s, f, env));
                    let rows = if *is_transposed { transposed(&rows) } else { rows };
                    for (r, row) in rows.iter().enumerate() {
                        self.store_matrix_row(env, 8 * n + r, *space, at[8 * n + r], row)?;
                    }
                }
            }
            MatrixOp::Transpose(d, a) => {
                let rows = rows_of(&self.read::<u32>(*a, f, env));
                self.write::<u32>(*d, ALL, &lanes_of(&transposed(&rows)), f);
            }
            MatrixOp::Multiply(m) if m.a == Element::F64 => self.multiply_doubles(m, f, env),
            MatrixOp::Multiply(m) if m.quads.is_some() => self.multiply_quads(m, f, env),
            MatrixOp::Multiply(m) => self.multiply(m, f, env),
            MatrixOp::LoadFragment(fragment, regs) => self.load_fragment(fragment, regs, ins, f, env)?,
            MatrixOp::StoreFragment(fragment, values) => self.store_fragment(fragment, values, ins, f, env)?,
        }
        Ok(())
    }

    fn load_matrix_row(&mut self, env: &mut Env, lane: usize, space: Space, at: u64) -> Result<[u32; 4], Fault> {
        check_matrix_row(space, at, "load")?;
        let [low, high, ..] = self.load_vector(env, lane, space, at, 16)?;
        Ok([low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32])
    }

    fn store_matrix_row(
        &mut self,
        env: &mut Env,
        lane: usize,
        space: Space,
        at: u64,
        row: &[u32; 4],
    ) -> Result<(), Fault> {
        check_matrix_row(space, at, "store")?;
        let pair = |n: usize| u64::from(row[n]) | u64::from(row[n + 1]) << 32;
        self.store_vector(env, lane, space, at, 16, [pair(0), pair(2), 0, 0])
    }

    fn multiply(&mut self, m: &Multiply, f: &Frame, env: &Env) {
        let (blocks, tiles) = (m.shape.m / 8, m.shape.n / 8);
        let mut factors = Factors { a: [[&NO_LANES; 2]; 4], b: [[&NO_LANES; 4]; 4], picks: None };
        for (block, registers) in factors.a.iter_mut().enumerate().take(blocks) {
            for (to, s) in registers.iter_mut().zip(block_registers(&m.a_regs, m.shape.m, block)) {
                *to = self.row(s, f);
            }
        }
        for (registers, regs) in factors.b.iter_mut().zip(m.b_regs.chunks_exact(m.b_regs.len() / tiles)) {
            for (to, s) in registers.iter_mut().zip(regs) {
                *to = self.row(*s, f);
            }
        }
        if let Some(sparse) = m.sparse {
            factors.picks = Some(self.picks(m, sparse, f, env));
        }
        let mut sums = [[0; 64]; 4];
        let sums = &mut sums[..blocks * tiles];
        for (p, tile) in sums.iter_mut().enumerate() {
            self.read_sums(m, p, tile, f);
        }
        products::multiply(m, &factors, sums);
        for (p, tile) in sums.iter().enumerate() {
            self.write_sums(m, p, tile, f);
        }
    }

    /// A factor's or a sum's register; the decoder has put everything into some.
    fn row(&self, s: Src, f: &Frame) -> &Lanes {
        match s {
            Src::R32(i) => &self.r32[(f.r32 + i) as usize],
            _ => &NO_LANES,
        }
    }

    /// Sums of eight rows and columns, of which a lane has pairs that lie side by side.
    fn read_sums(&self, m: &Multiply, p: usize, tile: &mut Tile, f: &Frame) {
        let (rows, _) = tile.as_chunks_mut::<4>();
        let fours = |s: Src| self.row(s, f).as_chunks::<4>().0;
        if m.c == Ty::F16 {
            for (g, pairs) in fours(m.c_regs[p]).iter().enumerate() {
                (rows[2 * g], rows[2 * g + 1]) = (pairs.map(|v| v & 0xffff), pairs.map(|v| v >> 16));
            }
        } else {
            let (left, right) = (fours(m.c_regs[2 * p]), fours(m.c_regs[2 * p + 1]));
            for g in 0..8 {
                (rows[2 * g], rows[2 * g + 1]) = (left[g], right[g]);
            }
        }
    }

    fn write_sums(&mut self, m: &Multiply, p: usize, tile: &Tile, f: &Frame) {
        let (rows, _) = tile.as_chunks::<4>();
        let (mut left, mut right): (Lanes, Lanes) = ([0; 32], [0; 32]);
        let fours = left.as_chunks_mut::<4>().0.iter_mut().zip(right.as_chunks_mut::<4>().0);
        for (g, (left, right)) in fours.enumerate() {
            (*left, *right) = (rows[2 * g], rows[2 * g + 1]);
        }
        if m.d == Ty::F16 {
            for l in 0..32 {
                left[l] |= right[l] << 16;
            }
            self.write(m.d_regs[p], ALL, &left, f);
        } else {
            self.write(m.d_regs[2 * p], ALL, &left, f);
            self.write(m.d_regs[2 * p + 1], ALL, &right, f);
        }
    }

    /// Which rows of the second factor each row of the sparse first one multiplies.
    fn picks(&self, m: &Multiply, sparse: Sparse, f: &Frame, env: &Env) -> Picks {
        let words = self.read::<u32>(sparse.metadata, f, env);
        let word = |g: usize, t: usize| u64::from(words[4 * g + t]);
        let half = |g: usize, t: usize, h: usize| word(g, t) >> (16 * h) & 0xffff;
        let (selector, first) = (sparse.selector, 2 * (sparse.selector & 1));
        // Elements of 16 bits and more have their two blocks of rows in the halves of a word, others in two words.
        let registers = m.a_regs.len();
        let row = |block: usize, g: usize| match (m.a.bits() >= 16, registers) {
            (true, 2) => half(g, selector, block),
            (true, _) => half(g, first, block) | half(g, first + 1, block) << 16,
            (false, 2) => word(g, first + block),
            (false, _) => word(g, block) | word(g, 2 + block) << 32,
        };
        let pick = |code: u64, j: usize| match m.a.bits() {
            // One of two, which are named by their halves.
            32 => 2 * j + (code >> (4 * j + 1) & 1) as usize,
            // Two of four, each of two elements side by side.
            4 => 8 * (j / 4) + 2 * (code >> (2 * (j / 2)) & 3) as usize + j % 2,
            _ => 4 * (j / 2) + (code >> (2 * j) & 3) as usize,
        };
        let mut picks = [[[0; 64]; 8]; 2];
        for (block, rows) in picks.iter_mut().enumerate() {
            for (g, of_row) in rows.iter_mut().enumerate() {
                let code = row(block, g);
                for (j, to) in of_row.iter_mut().enumerate().take(m.shape.k / 2) {
                    *to = pick(code, j) as u8;
                }
            }
        }
        picks
    }

    /// Four products of 8x8x4, each of the lanes 4q to 4q + 3 and 16 + 4q to 16 + 4q + 3.
    fn multiply_quads(&mut self, m: &Multiply, f: &Frame, env: &Env) {
        let [a_rows, b_rows] = m.quads.unwrap_or_default();
        let read = |s: Src| self.read::<u32>(s, f, env);
        let (a, b) = ([read(m.a_regs[0]), read(m.a_regs[1])], [read(m.b_regs[0]), read(m.b_regs[1])]);
        let c: Vec<[u32; 32]> = m.c_regs.iter().map(|s| read(*s)).collect();
        let mut d = vec![[0u32; 32]; m.d_regs.len()];
        for q in 0..4 {
            let lane = |r: usize| if r < 4 { 4 * q + r } else { 12 + 4 * q + r };
            // As rows and columns of eight words, of which two are not zero.
            let (mut left, mut right) = (NO_LANES, NO_LANES);
            for r in 0..8 {
                let at = 4 * r..4 * r + 2;
                left[at.clone()].copy_from_slice(&quad_row(&a, a_rows, r, lane));
                // The second factor's columns lie as the first one's rows do, in the other order.
                right[at].copy_from_slice(&quad_row(&b, !b_rows, r, lane));
            }
            let none = &NO_LANES;
            let factors = Factors { a: [[&left, none]; 4], b: [[&right, none, none, none]; 4], picks: None };
            let mut sums = [[0; 64]];
            for (i, sum) in sums[0].iter_mut().enumerate() {
                let (r, lane, shift) = quad_place(m.c, i / 8, column_of(i % 8), lane);
                *sum = c[r][lane] >> shift;
                if m.c == Ty::F16 {
                    *sum &= 0xffff;
                }
            }
            products::multiply(m, &factors, &mut sums);
            for (i, sum) in sums[0].iter().enumerate() {
                let (r, lane, shift) = quad_place(m.d, i / 8, column_of(i % 8), lane);
                d[r][lane] |= sum << shift;
            }
        }
        for (to, row) in m.d_regs.iter().zip(&d) {
            self.write::<u32>(*to, ALL, row, f);
        }
    }

    fn multiply_doubles(&mut self, m: &Multiply, f: &Frame, env: &Env) {
        let read = |s: Src| self.read::<f64>(s, f, env);
        let mut b = [[0.0; 8]; 16];
        for (w, s) in m.b_regs.iter().enumerate() {
            for (l, v) in read(*s).into_iter().enumerate() {
                b[4 * w + l % 4][l / 4] = v;
            }
        }
        let b = &b[..m.shape.k];
        let mut sums = [[0.0; 64]; 2];
        for (block, sums) in sums.iter_mut().enumerate().take(m.shape.m / 8) {
            let mut a = [[0.0; 16]; 8];
            for (w, s) in block_registers(&m.a_regs, m.shape.m, block).enumerate() {
                for (l, v) in read(s).into_iter().enumerate() {
                    a[l / 4][4 * w + l % 4] = v;
                }
            }
            let c = [read(m.c_regs[2 * block]), read(m.c_regs[2 * block + 1])];
            *sums = std::array::from_fn(|i| c[i % 2][i / 2]);
            multiply_doubles(m.round, &a, b, sums);
        }
        for (sums, d) in sums.iter().zip(m.d_regs.chunks_exact(2)) {
            self.write::<f64>(d[0], ALL, &std::array::from_fn(|l| sums[2 * l]), f);
            self.write::<f64>(d[1], ALL, &std::array::from_fn(|l| sums[2 * l + 1]), f);
        }
    }
}

/// The registers of the first factor that hold its rows `8 * block` to `8 * block + 7`.
fn block_registers(regs: &[Src], m: usize, block: usize) -> impl Iterator<Item = Src> {
    let of_sixteen = regs.len() * 16 / m.max(16);
    let (skip, step) = if m == 8 { (0, 1) } else { (of_sixteen * (block / 2) + block % 2, 2) };
    regs[..if m == 8 { regs.len() } else { of_sixteen * (block / 2 + 1) }].iter().skip(skip).step_by(step).copied()
}

/// Four elements of row `r` of the first factor, which lane `r` has or, in column order, four lanes have.
fn quad_row(regs: &[[u32; 32]; 2], is_row_major: bool, r: usize, lane: impl Fn(usize) -> usize) -> [u32; 2] {
    if is_row_major {
        return [regs[0][lane(r)], regs[1][lane(r)]];
    }
    let at = |k: usize| regs[r % 4 / 2][lane(k + r / 4 * 4)] >> (16 * (r % 2)) & 0xffff;
    [at(0) | at(1) << 16, at(2) | at(3) << 16]
}

/// The register, lane and shift of a sum of an 8x8x4 product.
fn quad_place(ty: Ty, row: usize, column: usize, lane: impl Fn(usize) -> usize) -> (usize, usize, usize) {
    if ty == Ty::F16 {
        return (column / 2, lane(row), 16 * (column % 2));
    }
    let register = (column & 4) | (row & 2) | (column & 1);
    (register, lane((row & 4) | (column & 2) | (row & 1)), 0)
}

fn check_matrix_row(space: Space, at: u64, what: &str) -> Result<(), Fault> {
    if !at.is_multiple_of(16) {
        return Err(fault(FaultKind::Misaligned, &format!("misaligned {what} of a matrix row"), at, 16));
    }
    if space != Space::Shared && (space != Space::Generic || at & WINDOW_MASK != SHARED_WINDOW) {
        return Err(fault(FaultKind::IllegalAddress, &format!("{what} of a matrix row outside shared memory"), at, 16));
    }
    Ok(())
}
