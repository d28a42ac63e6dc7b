//! Lines of Orion's own on the application's standard error.
//!
//! That descriptor is the application's: it may be closed, full, or a pipe that nobody reads, and none of this may
//! harm the application. The standard library's macros panic where a line cannot be written.

// UNSAFETY: asks a descriptor whether it takes a line, and writes to it.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::thread::Uncancelled;
use orion_ring::may_have;

/// What a pipe takes whole once it says that there is room. The rest of a longer line is left out.
const LINE_BYTES_MAX: usize = 4096;
/// Different lines that are remembered.
const LINES_MAX: usize = 256;
/// A reader that takes longer loses the line.
pub const PATIENCE_MS: i32 = 100;

/// Where what is said is kept too, once there is such a place.
static KEEP: OnceLock<fn(&str)> = OnceLock::new();
/// Whether client.conf wants nothing on standard error. Relaxed: set once, before what it is about.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

static SAID: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// One line, once in a process: a program that meets a limit meets it in a loop. It is in the program's log too.
pub fn say(text: Arguments) {
    if let (Some(text), Some(keep)) = (shown(text), KEEP.get()) {
        keep(&text);
    }
}

/// What is said from now on is given to `keep` too, and not shown where it `is_silent`.
pub fn keep_by(keep: fn(&str), is_silent: bool) {
    let _ = KEEP.set(keep);
    IS_SILENT.store(is_silent, Ordering::Relaxed);
}

/// As [`say`], and not in the log.
pub fn show(text: &str) {
    shown(format_args!("{text}"));
}

/// What is said for the first time. Not shown with `ORION_QUIET=1`, which says that standard error is somebody's
/// interface, nor where client.conf wants nothing there.
fn shown(text: Arguments) -> Option<String> {
    let _whole = Uncancelled::hold();
    let mut line = format!("orion: {text}\n");
    if !is_new(&line) {
        return None;
    }
    if !quiet() && !IS_SILENT.load(Ordering::Relaxed) {
        put(line.as_bytes());
    }
    line.pop();
    Some(line.split_off("orion: ".len()))
}

/// `ORION_QUIET=1`.
pub fn quiet() -> bool {
    static QUIET: OnceLock<bool> = OnceLock::new();
    *QUIET.get_or_init(|| crate::environment::var_os("ORION_QUIET").is_some_and(|v| !v.is_empty() && v != "0"))
}

/// How many lines were not printed because they had been printed before.
pub fn repeated() -> u64 {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
}

/// Whether the line is said for the first time.
pub fn is_new(line: &str) -> bool {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    match said.get_mut(line) {
        Some(count) => {
            *count += 1;
            false
        }
        None => {
            if said.len() < LINES_MAX {
                said.insert(line.to_owned(), 0);
            }
            true
        }
    }
}

/// To standard error if that takes it. Nothing to do where it does not.
pub fn put(bytes: &[u8]) {
    offer(bytes, PATIENCE_MS);
}

/// As much to standard error as it takes, and waits so long for room for each piece. Answers how many bytes that was;
/// what it will never take counts.
pub fn offer(bytes: &[u8], patience_ms: i32) -> usize {
    let mut taken = 0;
    for piece in bytes.chunks(LINE_BYTES_MAX) {
        let mut room = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one valid entry; reads the bytes of a slice.
        unsafe {
            // Writing where nobody reads any more would be SIGPIPE, which ends a C program.
            if libc::poll(&raw mut room, 1, patience_ms) != 1 {
                return taken;
            }
            if room.revents == libc::POLLOUT && may_take(2, piece.len()) {
                libc::write(2, piece.as_ptr().cast(), piece.len());
            }
        }
        taken += piece.len();
    }
    taken
}

/// Not where it is a file that would grow beyond what files may have (`ulimit -f`): that is SIGXFSZ, which ends a
/// program.
fn may_take(descriptor: libc::c_int, bytes: usize) -> bool {
    // SAFETY: an all-zero stat is a valid value for fstat to overwrite.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a place of our own.
    let is_file = unsafe { libc::fstat(descriptor, &mut stat) } == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    !is_file || may_have(stat.st_size as u64 + bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_error_that_may_not_grow_ends_no_program() {
        let file = std::env::temp_dir().join(format!("orion-say-{}", std::process::id()));
        let file = std::ffi::CString::new(file.into_os_string().into_encoded_bytes()).expect("no NUL");
        // SAFETY: the child makes plain calls and leaves.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::dup2(libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CREAT, 0o600), 2);
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                libc::setrlimit(libc::RLIMIT_FSIZE, &none);
                put(b"a line\n");
                libc::_exit(7);
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            libc::unlink(file.as_ptr());
            status
        };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }

    #[test]
    fn a_line_is_new_once() {
        assert!(is_new("orion: one\n") && is_new("orion: other\n"));
        assert!(!is_new("orion: one\n") && !is_new("orion: one\n"));
        assert!(repeated() >= 2);
    }
}
