//! Why a kernel stops.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    IllegalAddress,
    Misaligned,
    Trap,
    Assert,
    Unsupported,
    Deadlock,
}

/// Why a kernel stopped. Becomes the context's sticky error.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub what: String,
    pub line: u32,
}

impl Fault {
    pub fn new(kind: FaultKind, what: &str) -> Self {
        Self { kind, what: what.to_string(), line: 0 }
    }
}

pub fn fault(kind: FaultKind, what: &str, at: u64, bytes: u32) -> Fault {
    Fault { kind, what: format!("{what} of {bytes} bytes at {at:#x}"), line: 0 }
}

/// A matrix instruction that some threads of a warp have come by without the others.
pub fn incomplete(here: u32, line: u32) -> Fault {
    let what = format!(
        "the matrix instruction at PTX line {line} was executed by {} of the 32 threads of a warp, and needs all",
        here.count_ones()
    );
    Fault::new(FaultKind::Trap, &what)
}

pub fn out_of_place() -> Fault {
    Fault::new(FaultKind::Unsupported, "instruction out of place")
}
