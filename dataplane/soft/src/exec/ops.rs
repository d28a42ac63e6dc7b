//! Data instructions, each by the file that has its kind.

use crate::exec::fault::{Fault, out_of_place};
use crate::exec::registers::{bits, map1};
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::*;

impl Warp {
    pub fn data(&mut self, ins: &Instr, m: u32, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        match &ins.op {
            Op::Nop => {}
            Op::Texture(op) => self.texture(op, ins, m, f, env)?,
            Op::Narrow(op) => self.narrow(*op, ins, m, f, env),
            Op::Video(op) => self.video(op, ins, m, f, env),
            Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Op::Activemask => self.write::<u32>(ins.d, m, &[m; 32], f),
            Op::Cvta { window } => {
                // A generic null stays null only for plain memory; windows start above zero on purpose.
                let a = self.read::<u64>(ins.a, f, env);
                let generic = |v| if *window == SHARED_WINDOW { env.generic_shared(v) } else { v | window };
                self.write(ins.d, m, &map1(&a, generic), f);
            }
            Op::Mov => {
                let v = self.read::<u64>(ins.a, f, env);
                self.write(ins.d, m, &v, f);
            }
            Op::Ld { .. }
            | Op::LdVec { .. }
            | Op::St { .. }
            | Op::StVec { .. }
            | Op::ExchangePair { .. }
            | Op::Atom { .. }
            | Op::CpAsync { .. } => self.accesses(ins, m, f, env)?,
            Op::Setp { .. }
            | Op::Set { .. }
            | Op::PredBin(..)
            | Op::PredNot
            | Op::PredMov
            | Op::Selp(..)
            | Op::Slct(..)
            | Op::Testp(..) => self.predicate_op(ins, m, f, env)?,
            Op::Pack(..)
            | Op::Unpack(..)
            | Op::Bfe(..)
            | Op::Bfi(..)
            | Op::Bmsk
            | Op::Szext(..)
            | Op::Fns
            | Op::Shf { .. }
            | Op::Prmt(..)
            | Op::Lop3(..) => self.bits_op(ins, m, f, env)?,
            Op::IntBin(..)
            | Op::IntUn(..)
            | Op::MulWide(..)
            | Op::MadWide(..)
            | Op::MadLo(..)
            | Op::MadHi(..)
            | Op::Mad24(..)
            | Op::Sad(..)
            | Op::Carry { .. }
            | Op::MadCarry { .. }
            | Op::Dp4a(..)
            | Op::Dp2a(..) => self.integer_op(ins, m, f, env)?,
            Op::FloatBin(..) | Op::FloatUn(..) | Op::Fma(..) => self.floating_op(ins, m, f, env)?,
            Op::Cvt { .. } | Op::CvtPair { .. } | Op::CvtPack { .. } => self.convert_op(ins, m, f, env)?,
            Op::CvtaTo { .. } => {
                let a = self.read::<u64>(ins.a, f, env);
                let v = map1(&a, |v| if v & WINDOW_MASK == 0 { v } else { v & !WINDOW_MASK });
                self.write(ins.d, m, &v, f);
            }
            Op::IsSpace(space) => {
                let a = self.read::<u64>(ins.a, f, env);
                let window = match space {
                    Space::Local => LOCAL_WINDOW,
                    Space::Param => PARAM_WINDOW,
                    _ => 0,
                };
                let is_const = *space == Space::Const;
                let p = match space {
                    Space::Shared => bits(&a, |v| env.is_own_shared(v)),
                    _ => bits(&a, |v| v & WINDOW_MASK == window && !is_const),
                };
                self.write_pred(ins.d, m, p, f);
            }
            Op::Cluster(op) => self.cluster_op(ins, *op, m, f, env)?,
            Op::Mbarrier { op, space, offset } => self.mbarrier(ins, *op, *space, *offset, m, f, env)?,
            Op::BulkCopy { to, from } => self.bulk_copy(ins, *to, *from, m, f, env)?,
            _ => return Err(out_of_place()),
        }
        Ok(())
    }
}
