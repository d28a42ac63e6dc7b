//! A process that outlives a killed orion-run for a moment, to end what it started and remove what it made.

// UNSAFETY: forks before there is a second thread, and speaks to the kernel about processes by descriptor.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// A stopping oriond has ended its workers after two seconds.
const ORIOND_SECONDS_MAX: i32 = 10;

/// When this is dropped, or orion-run is killed, the folder goes.
pub struct Cleaner {
    /// The cleaner sees its end, whatever becomes of orion-run.
    alive: Option<File>,
    process: i32,
}

impl Cleaner {
    pub fn start(folder: &Path) -> Result<Cleaner, String> {
        let failed = |doing: &str| format!("{doing} failed: {}", std::io::Error::last_os_error());
        let (theirs, ours) = pipe().map_err(|e| format!("creating a pipe failed: {e}"))?;
        // SAFETY: there is one thread, so the child may go on as if nothing had happened.
        match unsafe { libc::fork() } {
            -1 => Err(failed("forking")),
            0 => {
                drop(ours);
                stand_aside(&theirs);
                clean(File::from(theirs), folder);
                // SAFETY: ends this process alone, without what main would do at its end.
                unsafe { libc::_exit(0) }
            }
            process => Ok(Cleaner { alive: Some(File::from(ours)), process }),
        }
    }

    /// Ends this process too, should orion-run be killed.
    pub fn watch(&self, oriond: u32) -> Result<(), String> {
        let mut alive = self.alive.as_ref().expect("taken when dropped only");
        alive.write_all(&oriond.to_ne_bytes()).map_err(|e| format!("speaking to the cleaning process failed: {e}"))
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop(self.alive.take());
        // SAFETY: our own child, which nobody else waits for; the status does not matter.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
    }
}

/// Nothing that is meant for orion-run reaches this process, and nobody waits for a file that only it has open.
fn stand_aside(keep: &OwnedFd) {
    let keep = keep.as_raw_fd() as u32;
    // SAFETY: plain calls on locals and on descriptors that nothing here uses.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"orion-run-clean".as_ptr());
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
        libc::syscall(libc::SYS_close_range, 3u32, keep - 1, 0u32);
        libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0u32);
        libc::chdir(c"/".as_ptr());
    }
}

fn clean(mut alive: File, folder: &Path) {
    let mut number = [0u8; 4];
    let mut oriond = None;
    while alive.read_exact(&mut number).is_ok() {
        // Its parent has just started it and has not waited for it, so the number is its own.
        // SAFETY: a plain call; the descriptor is new.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, i32::from_ne_bytes(number), 0) };
        // SAFETY: new, and nobody else's.
        oriond = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) });
    }
    if let Some(oriond) = oriond {
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let none = std::ptr::null::<libc::siginfo_t>();
            let mut ended = libc::pollfd { fd: oriond.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: a descriptor of ours and a local. One that has ended takes no signal and is readable at once.
            unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, oriond.as_raw_fd(), signal, none, 0);
                if libc::poll(&mut ended, 1, 1000 * ORIOND_SECONDS_MAX) > 0 {
                    break;
                }
            }
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

pub fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: room for both.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}
