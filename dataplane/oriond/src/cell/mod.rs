//! A worker's cell: what is taken from the process that runs a stranger's commands.
//!
//! ```text
//! oriond starts     Plan: which layers this host allows, each tried in a child of its own
//! worker is forked  enter: own user, no capabilities, no new privileges, no descriptors but one      (before exec)
//! worker starts     gpus: the files of GPUs that its session is not for              (before the driver is loaded)
//! driver is warm    seal: what is left to do once nothing needs opening any more     (before a client is known)
//! ```
//! Nothing of a worker ever runs with oriond's rights, not even the driver's own start: NVIDIA's kernel driver keeps
//! the user that opened a GPU with each of its objects, and lets only that user's processes share them.

mod calls;
mod enter;
mod files;
mod first;
pub mod gpus;
mod holder;
mod memory;
mod namespaces;
mod plan;
mod seal;
mod separate;
#[cfg(debug_assertions)]
pub mod takeover;
mod threads;
mod users;

pub use enter::{Entry, enter, kept_environment};
pub use first::{end_by_signals, hide, signal_of};
pub use holder::hold;
pub use memory::{Allowance, Ending, Group};
pub use namespaces::Namespaces;
pub use plan::{Layer, Plan, Seal};
pub use seal::seal;
pub use users::{Range, User};
