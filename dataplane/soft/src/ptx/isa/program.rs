//! Functions, and the programs that they make up.

use std::sync::OnceLock;

use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::operand::FUNCTION_WINDOW;

#[derive(Clone, Debug)]
pub struct Param {
    pub offset: u32,
    pub bytes: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Func {
    pub name: String,
    pub is_entry: bool,
    pub entry: u32,
    pub rows32: u32,
    pub rows64: u32,
    pub preds: u32,
    /// Instructions at the entry of a kernel whose results are the same for every thread of a launch.
    pub prologue: u32,
    pub frame_bytes: u32,
    /// Kernel parameters, or a device function's formals inside its frame.
    pub params: Vec<Param>,
    pub returns: Vec<Param>,
    pub param_bytes: u32,
    pub static_shared: u32,
    pub const_bytes: u32,
    pub max_threads: u32,
    pub req_ntid: Option<[u32; 3]>,
    pub req_cluster: Option<[u32; 3]>,
    pub explicit_cluster: bool,
    /// Blocks that a cluster of this kernel may have, when it says so.
    pub max_cluster: Option<u32>,
    /// Why this function cannot run, when it uses an instruction the software GPU does not know.
    pub unsupported: Option<String>,
    /// Rows of 32 and of 64 bits that may be read before they are written, as soon as someone asks.
    pub read_first: OnceLock<(Vec<u32>, Vec<u32>)>,
}

#[derive(Debug, Default)]
pub struct Program {
    pub code: Vec<Instr>,
    pub funcs: Vec<Func>,
    pub target: u32,
    pub version: (u32, u32),
}

pub fn function_address(index: usize) -> u64 {
    FUNCTION_WINDOW + 16 * (index as u64 + 1)
}

pub fn function_index(address: u64, count: usize) -> Option<u32> {
    let index = address.checked_sub(FUNCTION_WINDOW)? / 16;
    (index >= 1 && index <= count as u64 && address.is_multiple_of(16)).then(|| index as u32 - 1)
}
