//! The file system in which the kernel lists its tracepoints. io_uring's and the system calls' are found through it.

// UNSAFETY: plain system calls that mount a file system.

use std::ffi::CStr;
use std::io;
use std::path::Path;

/// Where libbpf looks for it.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Whether this process sees the tracepoint, such as `io_uring/io_uring_complete`.
#[must_use]
pub fn has(tracepoint: &str) -> bool {
    PLACES.iter().any(|place| std::fs::read(Path::new(place).join("events").join(tracepoint).join("id")).is_ok())
}

/// Whether it is mounted, and this process may look into it.
#[must_use]
pub fn is_there() -> bool {
    PLACES.iter().any(|place| Path::new(place).join("events").is_dir())
}

/// Mounts it for this process alone, where it is not mounted: in a mount namespace of its own, so that nothing is left
/// behind. To be called while this process has one thread.
///
/// # Errors
///
/// What the system answers: this needs `CAP_SYS_ADMIN`.
pub fn mount_here() -> io::Result<()> {
    if is_there() {
        return Ok(());
    }
    // SAFETY: no pointers. Threads that there were would stay behind.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"tracefs", c"/sys/kernel/tracing", c"tracefs", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

fn mount(what: &CStr, to: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the strings end with a zero byte; none of these kinds takes options.
    checked(unsafe { libc::mount(what.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) })
}

fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
