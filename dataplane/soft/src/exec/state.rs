//! What a grid, a block and a warp consist of while they run, and the instructions in the form that a warp takes them.
//! These types name each other: an instruction's function takes a warp and what it sees of its block.

// UNSAFETY: calls the functions of `fast` with the rows of the frame.

use std::sync::Arc;

use crate::exec::lanes::Lanes;
use crate::exec::range_cache::RangeCache;
use crate::ptx::isa::program::Program;

pub const BARRIERS: usize = 16;

/// One kernel launch, shared by the threads that run its blocks.
pub struct Launch {
    pub id: u64,
    pub program: Arc<Program>,
    /// The program's code as the loop over a warp's instructions takes it.
    pub table: Arc<Table>,
    pub func: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Blocks of a cluster, which divide the grid.
    pub cluster: [u32; 3],
    pub explicit_cluster: bool,
    pub params: Vec<u8>,
    pub static_shared: u32,
    pub dynamic_shared: u32,
    /// Offset of dynamic shared memory.
    pub dynamic_base: u32,
    pub cooperative: bool,
    /// Address of the grid barrier cooperative groups use; zero for ordinary launches.
    pub workspace: u64,
    pub device: i32,
    pub context: u64,
    pub start: Start,
}

/// Where the threads of a launch begin, and with what: behind what they all compute alike.
#[derive(Default)]
pub struct Start {
    pub pc: u32,
    pub r32: Vec<Lanes<u32>>,
    pub r64: Vec<Lanes<u64>>,
    /// Rows that a thread may read before it writes them, and finds zero.
    pub cleared32: Vec<u32>,
    pub cleared64: Vec<u32>,
    /// Rows that what they all compute alike is in, and what it is.
    pub level32: Vec<(u32, u32)>,
    pub level64: Vec<(u32, u64)>,
}

impl Launch {
    pub fn threads(&self) -> u32 {
        self.block[0] * self.block[1] * self.block[2]
    }
    pub fn blocks(&self) -> u64 {
        u64::from(self.grid[0]) * u64::from(self.grid[1]) * u64::from(self.grid[2])
    }
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster[0] * self.cluster[1] * self.cluster[2]
    }
    pub fn clusters(&self) -> u64 {
        self.blocks() / u64::from(self.cluster_blocks())
    }
}

#[derive(Clone, Copy, Default)]
pub struct Barrier {
    pub arrived: u32,
    /// Threads the barrier waits for; zero for all of the block.
    pub expected: u32,
    pub popc: u32,
}

/// What a warp sees of its block.
pub struct Env<'a> {
    pub launch: &'a Launch,
    pub program: &'a Program,
    pub shared: &'a mut [u8],
    pub ctaid: [u32; 3],
    pub block_index: u64,
    pub bars: &'a mut [Barrier; BARRIERS],
    pub bar_arrived: &'a mut bool,
    pub live_threads: &'a mut u32,
    pub peers: Peers<'a>,
}

pub struct Block {
    pub index: u64,
    pub ctaid: [u32; 3],
    pub shared: Vec<u8>,
    pub warps: Vec<Warp>,
    pub bars: [Barrier; BARRIERS],
    /// Some thread has arrived at a barrier since the block began.
    pub has_arrived: bool,
    pub live_threads: u32,
    /// No warp has run since the block began.
    pub is_fresh: bool,
    pub lines: Box<Lines>,
}

/// The other blocks of a block's cluster.
pub struct Peers<'a> {
    pub below: &'a mut [Block],
    pub above: &'a mut [Block],
}

impl Peers<'_> {
    pub fn none() -> Peers<'static> {
        Peers { below: &mut [], above: &mut [] }
    }

    pub fn reborrow(&mut self) -> Peers<'_> {
        Peers { below: self.below, above: self.above }
    }

    pub fn own_rank(&self) -> u64 {
        self.below.len() as u64
    }

    pub fn is_alone(&self) -> bool {
        self.below.is_empty() && self.above.is_empty()
    }
}

/// Where a function's registers and local memory begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub func: u32,
    pub r32: u32,
    pub r64: u32,
    pub preds: u32,
    pub sp: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Return {
    pub pc: u32,
    pub frame: Frame,
}

pub struct Warp {
    pub index: u32,
    pub live: u32,
    pub runnable: u32,
    /// Lanes at a warp-wide operation, waiting for the other members.
    pub waiting: u32,
    pub barred: u32,
    /// Lanes that have arrived at the cluster's barrier in its current phase.
    pub cluster_arrived: u32,
    pub pc: [u32; 32],
    pub frame: [Frame; 32],
    pub members: [u32; 32],
    pub bar: [u8; 32],
    pub stack: Vec<Vec<Return>>,
    pub r32: Vec<Lanes<u32>>,
    pub r64: Vec<Lanes<u64>>,
    pub preds: Vec<u32>,
    pub carry: u32,
    pub local: Vec<Vec<u8>>,
    pub tid: [[u32; 32]; 3],
    pub cache: RangeCache,
    /// When each lane ran last, by `clock`; or when all did, if that is later.
    pub stamp: [u64; 32],
    pub together: u64,
    pub clock: u64,
    pub fair: bool,
    /// Some lane has called a function since the kernel began: frames and stacks may differ.
    pub has_called: bool,
}

/// Runs for the lanes of a mask of one warp after the other, and answers for how many: the next has to take the long
/// way.
pub type Run = unsafe fn(&[Rows], *mut Warp, &mut Env, &Step, u32) -> usize;

/// The function for any mask, the one for a whole warp, and the one for several.
pub type Runs = [Run; 3];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data that a function of this module handles.
    Fast,
    /// Data for `Warp::data`.
    Data,
    Bra,
    /// As `Control`; of the whole warp a function of this module handles it, when it can.
    Together,
    /// May change which lanes go on.
    Control,
}

/// An instruction as the loop over a group's instructions reads it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub runs: Runs,
    pub kind: Kind,
    pub guard_negated: bool,
    /// Predicate register that must hold; `u32::MAX` for none.
    pub guard: u32,
    /// Instructions from this one on that functions of this module run for whichever lanes are there, one by one.
    pub straight: u32,
    /// Rows: of the frame's registers, or with the highest bit of the program's constants.
    pub d: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// Four rows more, of vectors.
    pub rows: [u32; 4],
    /// An offset, a shift, a table: whatever else the function takes. The target of a branch.
    pub extra: u64,
}

/// What a program has for this module.
#[derive(Debug, Default)]
pub struct Table {
    pub steps: Vec<Step>,
    pub lines: Vec<LineStep>,
    pub constants32: Vec<Lanes<u32>>,
    pub constants64: Vec<Lanes<u64>>,
}

/// What an instruction does if its operands are lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineOp {
    #[default]
    None,
    Position,
    Mov32,
    Add32,
    Sub32,
    Mul32,
    Mad32,
    Shl32,
    Mov64,
    Add64,
    Sub64,
    Mul64,
    Mad64,
    Shl64,
    /// To a plain address.
    Plain,
    Narrow,
    /// These and the next: whether of signed numbers.
    Widen(bool),
    MulWide(bool),
    MadWide(bool),
    Compare(Order, bool),
    Load32,
    Load64,
    LoadVector,
    Store32,
    Store64,
    StoreVector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Less,
    LessOrSame,
    Same,
    Other,
}

/// An instruction as lines see it: which of the first rows it reads and writes, a bit for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineStep {
    pub op: LineOp,
    pub reads32: u64,
    pub reads64: u64,
    pub writes32: u64,
    pub writes64: u64,
}

/// The start, and what each lane has more than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line<T> {
    pub start: T,
    pub step: T,
}

/// What warps that run together know of their first rows: a bit for each that is a line, and one for each that has not
/// been written since it became one.
#[derive(Debug)]
pub struct Lines {
    /// The number of the last lane.
    pub last: i64,
    pub known32: u64,
    pub known64: u64,
    pub stale32: u64,
    pub stale64: u64,
    pub of32: [Line<u32>; 64],
    pub of64: [Line<u64>; 64],
}

impl Default for Lines {
    fn default() -> Self {
        Lines {
            last: 0,
            known32: 0,
            known64: 0,
            stale32: 0,
            stale64: 0,
            of32: [Line::default(); 64],
            of64: [Line::default(); 64],
        }
    }
}

impl Step {
    /// # Safety
    ///
    /// The rows are those of the frame of the function that the instruction is of, and the kind is `Fast`.
    #[inline(always)]
    pub unsafe fn run(&self, rows: &Rows, warp: &mut Warp, env: &mut Env, mask: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.runs[usize::from(mask == u32::MAX)](std::slice::from_ref(rows), warp, env, self, mask) == 1 }
    }

    /// Runs for all lanes of some warps, and answers for how many.
    ///
    /// # Safety
    ///
    /// The rows are those of the warps' frames of the function that the instruction is of, one for each warp, and the
    /// kind is `Fast` or `Together`.
    #[inline(always)]
    pub unsafe fn run_all(&self, rows: &[Rows], warps: &mut [Warp], env: &mut Env) -> usize {
        debug_assert_eq!(rows.len(), warps.len());
        // SAFETY: the caller's promise.
        unsafe { self.runs[2](rows, warps.as_mut_ptr(), env, self, u32::MAX) }
    }
}

/// Which of two places a row is in.
pub const CONSTANT: u32 = 1 << 31;

pub type Row32 = [u32; 32];

pub type Row64 = [u64; 32];

/// Where a group's rows are: until a call, the same.
pub struct Rows {
    pub rows32: [*mut Row32; 2],
    pub rows64: [*mut Row64; 2],
    pub preds: *mut u32,
}

impl Rows {
    pub fn new(warp: &mut Warp, frame: &Frame, table: &Table) -> Rows {
        // Within what the warp has: the frame's registers begin there, or at its end if it has none.
        let at = |base: u32| base as usize;
        Rows {
            rows32: [warp.r32[at(frame.r32)..].as_mut_ptr().cast(), table.constants32.as_ptr().cast_mut().cast()],
            rows64: [warp.r64[at(frame.r64)..].as_mut_ptr().cast(), table.constants64.as_ptr().cast_mut().cast()],
            preds: warp.preds[at(frame.preds)..].as_mut_ptr(),
        }
    }
}
