//! Barrier objects in shared memory, and the bulk copies that complete on them.

use crate::exec::fault::{Fault, FaultKind};
use crate::exec::lanes::lanes;
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::operand::{MbarrierOp, SHARED_WINDOW, Space, Src, WINDOW_MASK};

const COUNT_BITS: u32 = 20;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
const TX_BIAS: i32 = 1 << COUNT_BITS;

/// What the 64 bits of a barrier object mean here; to programs they are opaque. From the lowest bit: the arrivals each
/// phase expects, those the current phase still waits for, the bytes it still waits for, its parity, and a bit that is
/// set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mbarrier {
    expected: u32,
    pending: u32,
    tx: i32,
    odd: bool,
}

impl Mbarrier {
    fn new(count: u32) -> Option<Self> {
        (1..=COUNT_MAX).contains(&count).then_some(Self { expected: count, pending: count, tx: 0, odd: false })
    }

    fn from_bits(v: u64) -> Option<Self> {
        let field = |at: u32, bits: u32| (v >> at) as u32 & ((1 << bits) - 1);
        (v >> 63 != 0).then(|| Self {
            expected: field(0, COUNT_BITS),
            pending: field(COUNT_BITS, COUNT_BITS),
            tx: field(2 * COUNT_BITS, COUNT_BITS + 1) as i32 - TX_BIAS,
            odd: v >> 62 & 1 != 0,
        })
    }

    fn bits(self) -> u64 {
        let tx = (self.tx + TX_BIAS) as u64;
        let counts = u64::from(self.expected) | u64::from(self.pending) << COUNT_BITS;
        1 << 63 | u64::from(self.odd) << 62 | tx << (2 * COUNT_BITS) | counts
    }

    fn arrive(&mut self, count: u32, drop: bool) -> Option<()> {
        self.pending = self.pending.checked_sub(count)?;
        if drop {
            self.expected = self.expected.checked_sub(count)?;
        }
        Some(())
    }

    /// Bytes that are expected, or that have come when negative.
    fn transfer(&mut self, bytes: i64) -> Option<()> {
        let tx = i64::from(self.tx) + bytes;
        self.tx = i32::try_from(tx).ok().filter(|t| t.unsigned_abs() <= COUNT_MAX)?;
        Some(())
    }

    fn complete(&mut self) {
        if self.pending == 0 && self.tx == 0 {
            self.odd = !self.odd;
            self.pending = self.expected;
        }
    }
}

fn misuse(what: &str, at: u64) -> Fault {
    Fault::new(FaultKind::Trap, &format!("mbarrier at {at:#x}: {what}"))
}

impl Warp {
    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    pub fn mbarrier(
        &mut self,
        ins: &Instr,
        op: MbarrierOp,
        space: Space,
        offset: i64,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let at = self.addresses(ins, f, env, offset);
        let n = self.read::<u32>(ins.b, f, env);
        let ranks = self.read::<u16>(ins.e, f, env);
        let mut states = [0; 32];
        for l in lanes(m) {
            if ins.e == Src::None {
                states[l] = self.update_mbarrier(env, l, op, space, at[l], n[l])?;
            } else {
                for at in env.in_each(at[l], u32::from(ranks[l])) {
                    self.update_mbarrier(env, l, op, space, at, n[l])?;
                }
            }
        }
        self.write(ins.d, m, &states, f);
        Ok(())
    }

    /// Carries out one operation; answers the object's bits before it, which are the state an arrival gives back.
    fn update_mbarrier(
        &mut self,
        env: &mut Env,
        lane: usize,
        op: MbarrierOp,
        space: Space,
        at: u64,
        n: u32,
    ) -> Result<u64, Fault> {
        let remote = !matches!(op, MbarrierOp::Init | MbarrierOp::Inval);
        check_place(env, space, at, remote)?;
        if op == MbarrierOp::Init {
            let b = Mbarrier::new(n).ok_or_else(|| misuse(&format!("{n} arrivals expected"), at))?;
            self.store(env, lane, space, at, 8, b.bits())?;
            return Ok(0);
        }
        let (before, mut b) = self.load_mbarrier(env, lane, space, at)?;
        match op {
            MbarrierOp::Init => None,
            MbarrierOp::Inval => Some(()),
            MbarrierOp::ExpectTx => b.transfer(i64::from(n)),
            MbarrierOp::CompleteTx => b.transfer(-i64::from(n)),
            MbarrierOp::Arrive { drop, expect_tx: true } => b.transfer(i64::from(n)).and_then(|()| b.arrive(1, drop)),
            MbarrierOp::Arrive { drop, expect_tx: false } => b.arrive(n, drop),
        }
        .ok_or_else(|| misuse(&format!("count out of range: {op:?} {n} with {b:?}"), at))?;
        b.complete();
        let after = if op == MbarrierOp::Inval { 0 } else { b.bits() };
        self.store(env, lane, space, at, 8, after)?;
        Ok(before)
    }

    fn load_mbarrier(&mut self, env: &mut Env, lane: usize, space: Space, at: u64) -> Result<(u64, Mbarrier), Fault> {
        let bits = self.load(env, lane, space, at, 8)?;
        let b = Mbarrier::from_bits(bits).ok_or_else(|| misuse("not initialised", at))?;
        Ok((bits, b))
    }

    /// True when every lane's phase has completed.
    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    pub fn mbarrier_test(
        &mut self,
        ins: &Instr,
        parity: bool,
        space: Space,
        offset: i64,
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<bool, Fault> {
        let at = self.addresses(ins, f, env, offset);
        let phase = self.read::<u64>(ins.b, f, env);
        let mut done = 0;
        for l in lanes(m) {
            check_place(env, space, at[l], false)?;
            let (_, b) = self.load_mbarrier(env, l, space, at[l])?;
            let odd = if parity {
                phase[l] & 1 != 0
            } else {
                Mbarrier::from_bits(phase[l]).ok_or_else(|| misuse("wait for a state of no arrival", at[l]))?.odd
            };
            done |= u32::from(b.odd != odd) << l;
        }
        self.write_pred(ins.d, m, done, f);
        Ok(done == m)
    }

    pub fn bulk_copy(
        &mut self,
        ins: &Instr,
        (to, to_offset): (Space, i64),
        (from, from_offset): (Space, i64),
        m: u32,
        f: &Frame,
        env: &mut Env,
    ) -> Result<(), Fault> {
        let to_at = self.addresses(ins, f, env, to_offset);
        let from_at = self.read::<u64>(ins.b, f, env);
        let sizes = self.read::<u32>(ins.c, f, env);
        let ranks = self.read::<u16>(ins.e, f, env);
        for l in lanes(m) {
            let (to_at, from_at, size) = (to_at[l], from_at[l].wrapping_add(from_offset as u64), u64::from(sizes[l]));
            if (to_at | from_at | size) & 15 != 0 {
                let what = format!("bulk copy of {size} bytes from {from_at:#x} to {to_at:#x}");
                return Err(Fault::new(FaultKind::Misaligned, &what));
            }
            let copies = if ins.e == Src::None { vec![to_at] } else { env.in_each(to_at, u32::from(ranks[l])) };
            for to_at in copies {
                for k in (0..size).step_by(8) {
                    let v = self.load(env, l, from, from_at.wrapping_add(k), 8)?;
                    self.store(env, l, to, to_at.wrapping_add(k), 8, v)?;
                }
            }
        }
        Ok(())
    }
}

/// Barrier objects lie in shared memory; only some operations reach those of another block.
fn check_place(env: &Env, space: Space, at: u64, remote: bool) -> Result<(), Fault> {
    let generic = if space == Space::Generic { at } else { at | SHARED_WINDOW };
    if generic & WINDOW_MASK != SHARED_WINDOW {
        return Err(Fault::new(FaultKind::IllegalAddress, &format!("mbarrier at {at:#x}, outside shared memory")));
    }
    if !remote && !env.is_own_shared(generic) {
        return Err(misuse("operation on the object of another block", at));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Mbarrier;

    #[test]
    fn bits_hold_every_field() {
        for b in [
            Mbarrier { expected: 1, pending: 1, tx: 0, odd: false },
            Mbarrier { expected: 0xf_ffff, pending: 0, tx: -0xf_ffff, odd: true },
            Mbarrier { expected: 7, pending: 0xf_ffff, tx: 0xf_ffff, odd: false },
        ] {
            assert_eq!(Mbarrier::from_bits(b.bits()), Some(b));
        }
        assert_eq!(Mbarrier::from_bits(0), None);
    }

    #[test]
    fn a_phase_needs_all_arrivals_and_all_bytes() {
        let mut b = Mbarrier::new(2).unwrap();
        b.transfer(-32).unwrap();
        b.arrive(1, false).unwrap();
        b.complete();
        b.arrive(1, true).unwrap();
        b.complete();
        assert!(!b.odd, "bytes came that were not expected");
        b.transfer(32).unwrap();
        b.complete();
        assert_eq!(b, Mbarrier { expected: 1, pending: 1, tx: 0, odd: true });
        assert_eq!(b.arrive(2, false), None);
        assert_eq!(b.transfer(1 << 20), None);
        assert_eq!((Mbarrier::new(0), Mbarrier::new(1 << 20)), (None, None));
    }
}
