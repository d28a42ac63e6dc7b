//! Functions that kernels call without having them.

use crate::exec::fault::{Fault, FaultKind};
use crate::exec::heap;
use crate::exec::lanes::lanes;
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Call;
use crate::ptx::isa::operand::*;
use crate::{condition, printf, say};

impl Warp {
    pub fn builtin(&mut self, b: Builtin, call: &Call, mask: u32, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        for l in lanes(mask) {
            let mut args = [0u64; 8];
            for (a, slot) in args.iter_mut().zip(&call.args) {
                *a = self.load(env, l, Space::Local, u64::from(f.sp + slot.offset), slot.bytes.clamp(1, 8))?;
            }
            let result = match b {
                Builtin::Vprintf => {
                    let mut reader = LaneReader { warp: self, env, lane: l };
                    match printf::format(&mut reader, args[0], args[1]) {
                        Some((text, count)) => {
                            printf::emit(&text);
                            u64::from(count)
                        }
                        None => return Err(Fault::new(FaultKind::IllegalAddress, "printf argument")),
                    }
                }
                Builtin::AssertFail => {
                    let mut reader = LaneReader { warp: self, env, lane: l };
                    let mut text = |at| {
                        printf::c_string(&mut reader, at)
                            .map_or("?".into(), |s| String::from_utf8_lossy(&s).into_owned())
                    };
                    let (message, file, function) = (text(args[0]), text(args[1]), text(args[3]));
                    let [x, y, z] = env.ctaid;
                    say::put(&format!(
                        "{file}:{}: {function}: block: [{x},{y},{z}], thread: [{},{},{}] \
                         Assertion `{message}` failed.\n",
                        args[2], self.tid[0][l], self.tid[1][l], self.tid[2][l]
                    ));
                    return Err(Fault::new(FaultKind::Assert, "device-side assert"));
                }
                Builtin::Malloc => heap::heap_allocate(env.launch, args[0]),
                Builtin::Free => {
                    heap::heap_free(env.launch, args[0]);
                    0
                }
                Builtin::SetConditional => {
                    if !condition::set(env.launch.context, args[0], args[1] as u32) {
                        let what = "cudaGraphSetConditional of a handle that its context does not have";
                        return Err(Fault::new(FaultKind::IllegalAddress, what));
                    }
                    0
                }
            };
            if let Some(slot) = call.returns.first() {
                self.store(env, l, Space::Local, u64::from(f.sp + slot.offset), slot.bytes.clamp(1, 8), result)?;
            }
        }
        Ok(())
    }
}

struct LaneReader<'a, 'b> {
    warp: &'a mut Warp,
    env: &'a mut Env<'b>,
    lane: usize,
}

impl printf::Reader for LaneReader<'_, '_> {
    fn bytes(&mut self, at: u64, n: usize) -> Option<u64> {
        self.warp.load(self.env, self.lane, Space::Generic, at, n as u32).ok()
    }
}
