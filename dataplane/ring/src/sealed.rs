//! Memory that two processes share, whose size neither can change.

// UNSAFETY: makes a memfd, sets its size and seals it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A memfd of so many bytes. Whoever maps it can rely on them: it neither shrinks, which would end him with SIGBUS, nor
/// grows. The name is what `/proc/PID/maps` shows.
///
/// # Errors
///
/// What the system answers.
pub fn sealed(name: &CStr, bytes: u64) -> io::Result<OwnedFd> {
    if !may_have(bytes) {
        let text = format!("files of this process may not have {bytes} bytes; is there a limit (ulimit -f)?");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // By number: the C library has it since 2.27 only, and the shim is loaded beside older ones.
    // SAFETY: the name ends with its NUL.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create returned a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: plain system calls on a descriptor we own.
    let is_sealed = unsafe {
        libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) == 0
            && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
    };
    if is_sealed { Ok(fd) } else { Err(io::Error::last_os_error()) }
}

/// Whether a file of this process may have so many bytes. One that is made larger ends the process by SIGXFSZ.
pub fn may_have(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place of our own.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    told != 0 || limit.rlim_cur == libc::RLIM_INFINITY || bytes <= limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_changes_its_size_or_takes_the_seals_away() {
        let fd = sealed(c"orion-test", 4096).expect("a memfd");
        // SAFETY: plain calls on a descriptor of this test's.
        let results = unsafe {
            [0, 1 << 20].map(|bytes| libc::ftruncate(fd.as_raw_fd(), bytes)).into_iter().chain([libc::fcntl(
                fd.as_raw_fd(),
                libc::F_ADD_SEALS,
                libc::F_SEAL_WRITE,
            )])
        };
        assert_eq!(results.collect::<Vec<_>>(), [-1, -1, -1]);
    }
}
