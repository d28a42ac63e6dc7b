//! A file that the client has handed over, to be mapped: what of it is believed, and what happens when it is cut short.

// UNSAFETY: asks the system about a descriptor, and installs a signal handler, which does only what a handler may.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::last_words::LastWords;

/// A file in memory, open for reading and writing.
#[derive(Debug)]
pub struct SharedFile {
    pub fd: OwnedFd,
    /// Now: whoever has it open may cut it short.
    pub bytes: u64,
}

impl SharedFile {
    /// Of a descriptor of which nothing is known. The error says what is wrong with it.
    pub fn new(fd: OwnedFd) -> Result<SharedFile, String> {
        let failed = |what: &str| format!("{what} failed: {}", io::Error::last_os_error());
        // SAFETY: all-zero structures are valid, and valid for writes; the descriptor is open.
        let (stat, system, flags) = unsafe {
            let (mut stat, mut system): (libc::stat, libc::statfs) = std::mem::zeroed();
            if libc::fstat(fd.as_raw_fd(), &mut stat) != 0 {
                return Err(failed("fstat"));
            }
            if libc::fstatfs(fd.as_raw_fd(), &mut system) != 0 {
                return Err(failed("fstatfs"));
            }
            (stat, system, libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))
        };
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(format!("its descriptor is no file's but one of mode {:o}", stat.st_mode));
        }
        if ![libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC].contains(&system.f_type) {
            return Err(format!("it lies in no memory (tmpfs, hugetlbfs) but in a file system {:#x}", system.f_type));
        }
        if flags < 0 || flags & libc::O_ACCMODE != libc::O_RDWR || flags & libc::O_PATH != 0 {
            return Err(format!("it is not open for reading and writing (flags {flags:#o})"));
        }
        Ok(SharedFile { fd, bytes: stat.st_size as u64 })
    }
}

/// What a worker exits with whose client broke a rule.
const EXIT_STATUS: i32 = 1;
/// `BUS_ADRERR`: there is a mapping, and nothing behind it.
const NOTHING_BEHIND: i32 = 2;

/// The GPU has its pages pinned. Whatever reads them by CPU, as the software GPU does, finds nothing where the file was
/// cut short: that ends the session, in words.
pub fn survive_truncation() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let install = || {
        // SAFETY: a valid action, whose handler does only what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = cut_short as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            match libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(format!("installing the handler of SIGBUS failed: {}", io::Error::last_os_error())),
            }
        }
    };
    DONE.get_or_init(install).clone()
}

/// Nothing else that a worker maps can become shorter: its session's memory is sealed.
extern "C" fn cut_short(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's structure; the default action is what there was before, and is met when this returns.
    unsafe {
        if (*info).si_code != NOTHING_BEHIND {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
            return;
        }
    }
    let mut words = LastWords::new();
    words
        .text(b"the session ends: a file whose memory the program has registered was cut short, and the pages behind ");
    words.text(b"its end were used");
    words.end(EXIT_STATUS)
}
