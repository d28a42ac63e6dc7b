//! What becomes of a command, and why a handler stops.

use orion_cuda::sys::*;
use orion_wire::Fault;

/// What became of a command.
pub enum Outcome {
    /// The result, to be sent if the command asked for one.
    Done(CUresult),
    /// The reply comes later; the executor goes on with other commands.
    Parked,
}

/// Why a handler stops.
pub enum Stop {
    Fault(Fault),
    Code(CUresult),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<CUresult> for Stop {
    fn from(code: CUresult) -> Stop {
        Stop::Code(code)
    }
}

/// What a handler answers: it may stop with `?` at whatever answers a code or a fault.
pub type Handled = Result<Outcome, Stop>;

/// As [`Handled`], of what never parks.
pub type Answer = Result<CUresult, Stop>;

pub fn finish(handler: impl FnOnce() -> Answer) -> Handled {
    handler().map(Outcome::Done)
}
