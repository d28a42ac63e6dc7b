//! The pool of vGPUs as a state machine: which nodes and GPUs there are, who has what of them, who waits.
//!
//! Nothing here does I/O or looks at a clock: each operation is told the time, and leaves behind what has to be stored
//! and what has happened. So a test can let years pass, lose messages and stop the controller between any two steps.
//!
//! A node's own reserve is a pool too, of one node, in the agent beside it: [`Lender`] says which part of a node is
//! whose.

#![forbid(unsafe_code)]

pub mod allocation;
pub mod ask;
pub mod explain;
pub mod node;
pub mod nodes;
pub mod placement;
pub mod pool;
pub mod quote;
pub mod units;

pub use allocation::{Allocation, AllocationId, Lease, Place};
pub use ask::{Ask, Gpus, Invalid};
pub use node::{Gpu, Lender, Node, NodeReport, Standing};
pub use placement::Policy;
pub use pool::{Answer, Change, Event, Pool, Quota, Refused, Settings, Why};
pub use units::{MIB, Time};
