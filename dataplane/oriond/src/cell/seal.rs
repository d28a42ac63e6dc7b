//! What a worker gives up once its driver is warm.

// UNSAFETY: descriptors by number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use super::enter::lower;
use super::plan::Seal;
use super::{calls, files};
use crate::{fallen, lines};

/// The driver opens a few for each GPU, the session a dozen; memory that is shared between processes one each.
const DESCRIPTORS_MAX: u64 = 8192;

/// Closes the cell. From here on lines for the log go through `control`, and no file is opened but the GPU's, a few of
/// the kernel's and `also`.
pub fn seal(seal: Seal, control: BorrowedFd<'_>, also: &[PathBuf]) -> Result<(), String> {
    lines::through(control).map_err(|e| format!("copying the control socket failed: {e}"))?;
    // A sanitizer reports to stderr or into a file.
    #[cfg(debug_assertions)]
    if std::env::var_os("ASAN_OPTIONS").is_some() {
        return Ok(());
    }
    std::panic::set_hook(Box::new(|panic| lines::warn(&panic.to_string())));
    fallen::watch().map_err(|e| format!("installing handlers of signals failed: {e}"))?;
    drop_standard_streams().map_err(|e| format!("letting go of the log failed: {e}"))?;
    lower(libc::RLIMIT_NOFILE, DESCRIPTORS_MAX).map_err(|e| format!("limiting descriptors failed: {e}"))?;
    if seal.landlock {
        files::restrict(also, seal.one_tenant)?;
    }
    if seal.seccomp {
        calls::restrict()?;
    }
    Ok(())
}

/// oriond's log, most likely a file, is not for a tenant to write to, nor to cut short.
fn drop_standard_streams() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for fd in 0..3 {
        // SAFETY: replaces a standard stream, of which no Rust object is the owner.
        if unsafe { libc::dup2(null.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
