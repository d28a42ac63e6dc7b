//! What is known of functions.

use std::collections::HashMap;
use std::ffi::CString;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_wire::handle::Handle;
use rustc_hash::FxHashSet;

use crate::state::lock::{Guard, Lock, Rank};
use crate::state::table::Table;

/// A `CUfunction` or `CUkernel`.
pub struct Function {
    pub handle: u64,
    pub name: CString,
    /// Module or library it came from.
    pub owner: u64,
    /// The context of a module's function, as [`Context::home`](crate::state::context::Context::home) has it; 0 for a
    /// library's, which is every context's, and where it is not known.
    pub home: u64,
    /// Offset and size of each parameter, in bytes, as the driver laid them out.
    pub layout: Vec<(u32, u32)>,
    /// Bytes up to the end of the last parameter.
    pub parameter_bytes: u32,
    /// `CUfunction_attribute` values by id: see [`Attribute`]. 0 while unknown.
    pub attributes: [AtomicU64; ATTRIBUTES],
    /// Those that every launch is judged by: see [`Limits`]. 0 while unknown.
    pub limits: AtomicU64,
    /// Its launches are refused. Told with the attributes.
    pub is_refused: AtomicBool,
    pub occupancy: Lock<HashMap<Vec<u8>, Result<u64, CUresult>>>,
    /// Block, shared memory and launch attributes that the driver has accepted together: only the first launch
    /// with them waits for its verdict.
    pub accepted: Lock<FxHashSet<Vec<u64>>>,
    /// What `cuLaunch` and its kin launch it with.
    pub prepared: Lock<Prepared>,
    /// Something of that was set, so that other launches change it.
    pub is_prepared: AtomicBool,
}

/// What a function was told by calls that CUDA 4.0 deprecated.
#[derive(Clone)]
pub struct Prepared {
    pub block: [u32; 3],
    pub shared_bytes: u32,
    /// As `cuParamSetSize` has it, which the driver only compares with what the function takes.
    pub parameter_bytes: usize,
    /// Zeros behind its end.
    pub values: Vec<u8>,
}

impl Prepared {
    const fn new() -> Prepared {
        Prepared { block: [1; 3], shared_bytes: 0, parameter_bytes: 0, values: Vec::new() }
    }

    /// Sets some bytes of the arguments.
    pub fn set(&mut self, at: Range<usize>, value: &[u8]) {
        if self.values.len() < at.end {
            self.values.resize(at.end, 0);
        }
        self.values[at].copy_from_slice(value);
    }
}

const ATTRIBUTES: usize = CU_FUNC_ATTRIBUTE_MAX as usize;

pub struct Functions {
    pub table: Table<Function>,
}

impl Functions {
    pub const fn new() -> Functions {
        Functions { table: Table::new() }
    }
}

impl Function {
    /// To set something of what deprecated launches use.
    pub fn prepare(&self) -> Guard<'_, Prepared> {
        self.is_prepared.store(true, Ordering::Relaxed);
        self.prepared.lock()
    }

    pub fn new(handle: Handle, name: CString, (owner, home): (u64, u64), layout: Vec<(u32, u32)>) -> Function {
        let parameter_bytes = layout.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
        Function {
            handle: handle.0,
            name,
            owner,
            home,
            layout,
            parameter_bytes,
            attributes: [const { AtomicU64::new(0) }; ATTRIBUTES],
            limits: AtomicU64::new(0),
            is_refused: AtomicBool::new(false),
            occupancy: Lock::new(Rank::Leaf, HashMap::new()),
            accepted: Lock::new(Rank::Leaf, Default::default()),
            prepared: Lock::new(Rank::Leaf, Prepared::new()),
            is_prepared: AtomicBool::new(false),
        }
    }
}
