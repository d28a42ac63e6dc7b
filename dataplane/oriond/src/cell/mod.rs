//! A worker's cell: what is taken from the process that runs a stranger's commands.
//!
//! ```text
//! oriond starts     Plan: which layers this host allows, each tried in a child of its own
//! worker is forked  enter: own user, no capabilities, no new privileges, no descriptors but one      (before exec)
//! driver is warm    seal: what is left to do once nothing needs opening any more     (before a client is known)
//! ```
//! Nothing of a worker ever runs with oriond's rights, not even the driver's own start: NVIDIA's kernel driver keeps
//! the user that opened a GPU with each of its objects, and lets only that user's processes share them.

// UNSAFETY: system calls that the standard library has nothing for, between fork and exec and for whole processes.

mod calls;
mod enter;
mod files;
mod plan;
mod seal;
#[cfg(debug_assertions)]
pub mod takeover;
mod threads;
mod users;

pub use enter::{Entry, enter, kept_environment, separate};
pub use plan::{Layer, Plan, Seal};
pub use seal::seal;
pub use users::{Range, User};

/// The first thing a worker does: nobody but root may look into it, and it leaves no core file.
pub fn hide() -> Result<(), String> {
    // SAFETY: a plain call.
    if unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } != 0 {
        return Err(format!("hiding the process failed: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}
