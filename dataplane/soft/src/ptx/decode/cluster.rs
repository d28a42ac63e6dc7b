//! Barrier objects in shared memory, and the asynchronous copies and stores that complete on them.
//!
//! A copy is done when its instruction is, so that what waits for copies finds them complete.

use crate::ptx::decode::decoder::{Decoder, Mods, Result, unsupported};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::{MbarrierOp, Reg, Space, Src, Ty};
use crate::ptx::syntax::Operand;

impl Decoder<'_> {
    pub(super) fn mbarrier(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let Some(&kind) = mods.0.first() else { return unsupported("mbarrier operation") };
        let (op, at) = match kind {
            "init" => (MbarrierOp::Init, 0),
            "inval" => (MbarrierOp::Inval, 0),
            "expect_tx" => (MbarrierOp::ExpectTx, 0),
            "complete_tx" => (MbarrierOp::CompleteTx, 0),
            "arrive" | "arrive_drop" => {
                (MbarrierOp::Arrive { drop: kind == "arrive_drop", expect_tx: mods.has("expect_tx") }, 1)
            }
            "test_wait" | "try_wait" => return self.mbarrier_test(mods, ops),
            "pending_count" => {
                let (d, a) = (self.dst(get(0)?)?, self.src(get(1)?, Ty::B64)?);
                // A state is the object as it was, with the pending count in these bits.
                let i = self.emit(Op::Bfe(Ty::U64));
                (i.d, i.a, i.b, i.c) = (d, a, Src::Imm(20), Src::Imm(20));
                return Ok(());
            }
            _ => return unsupported("mbarrier operation"),
        };
        let d = if at == 1 { self.dst(get(0)?)? } else { Reg::None };
        let n = match (op, ops.get(at + 1)) {
            (_, Some(o)) => self.src(o, Ty::U32)?,
            (MbarrierOp::Arrive { expect_tx: false, .. }, None) => Src::Imm(1),
            (MbarrierOp::Inval, None) => Src::None,
            _ => return unsupported("too few operands"),
        };
        self.on_mbarrier(op, mods, get(at)?, n)?.d = d;
        Ok(())
    }

    fn on_mbarrier(&mut self, op: MbarrierOp, mods: &Mods, object: &Operand, n: Src) -> Result<&mut Instr> {
        let (a, offset, space) = self.access(mods, object)?;
        let i = self.emit(Op::Mbarrier { op, space, offset });
        (i.a, i.b) = (a, n);
        Ok(i)
    }

    fn mbarrier_test(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let [d, object, phase, ..] = ops else { return unsupported("too few operands") };
        let parity = mods.has("parity");
        let d = self.dst(d)?;
        let b = self.src(phase, if parity { Ty::U32 } else { Ty::B64 })?;
        let (a, offset, space) = self.access(mods, object)?;
        let i = self.emit(Op::MbarrierTest { parity, space, offset });
        (i.d, i.a, i.b) = (d, a, b);
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`: the thread's copies are complete. Without `.noinc` the count that the arrival takes
    /// was added for it, which leaves the object as it is.
    pub(super) fn arrive_after_copies(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let object = ops.first().ok_or("too few operands")?;
        if mods.has("noinc") {
            self.on_mbarrier(MbarrierOp::Arrive { drop: false, expect_tx: false }, mods, object, Src::Imm(1))?;
        } else {
            self.on_mbarrier(MbarrierOp::CompleteTx, mods, object, Src::Imm(0))?;
        }
        Ok(())
    }

    /// `st.async` and `red.async` name the space of both addresses.
    fn complete_tx(&mut self, mods: &Mods, ops: &[Operand], bytes: u32) -> Result<()> {
        let object = ops.get(2).ok_or("too few operands")?;
        self.on_mbarrier(MbarrierOp::CompleteTx, mods, object, Src::Imm(u64::from(bytes))).map(drop)
    }

    pub(super) fn store_async(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if !mods.has("mbarrier::complete_tx::bytes") {
            return unsupported("bulk or asynchronous store without an mbarrier");
        }
        let elements = if let Some(Operand::Vec(v)) = ops.get(1) { v.len() } else { 1 };
        self.store(&mods.without("async"), ops)?;
        self.complete_tx(mods, ops, mods.ty()?.bytes() * elements as u32)
    }

    pub(super) fn reduce_async(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if !mods.has("mbarrier::complete_tx::bytes") {
            return unsupported("asynchronous atomic without an mbarrier");
        }
        self.atomic(true, &mods.without("async"), ops)?;
        self.complete_tx(mods, ops, mods.ty()?.bytes())
    }

    pub(super) fn bulk_copy(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("commit_group") || mods.has("wait_group") || mods.has("prefetch") {
            self.emit(Op::Nop);
            return Ok(());
        }
        let spaces: Vec<Space> = mods
            .0
            .iter()
            .filter_map(|m| match *m {
                "shared::cluster" | "shared::cta" => Some(Space::Shared),
                "global" => Some(Space::Global),
                _ => None,
            })
            .collect();
        let (&[to, from], false) = (spaces.as_slice(), mods.has("cp_mask") || mods.has("reduce")) else {
            return unsupported("form of bulk copy");
        };
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let ((a, to_offset), (b, from_offset)) = (self.addr(get(0)?)?, self.addr(get(1)?)?);
        let c = self.src(get(2)?, Ty::U32)?;
        let completes = mods.has("mbarrier::complete_tx::bytes");
        if !completes && !mods.has("bulk_group") {
            return unsupported("completion of a bulk copy");
        }
        let e = if mods.has("multicast::cluster") { self.src(get(4)?, Ty::U16)? } else { Src::None };
        let i = self.emit(Op::BulkCopy { to: (to, to_offset), from: (from, from_offset) });
        (i.a, i.b, i.c, i.e) = (a, b, c, e);
        if completes {
            let shared = Mods(vec!["shared::cluster"]);
            self.on_mbarrier(MbarrierOp::CompleteTx, &shared, get(3)?, c)?.e = e;
        }
        Ok(())
    }
}
