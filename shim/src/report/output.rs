//! Kernel printf goes through the C library's stdout, so that it stays in order with the program's own printf.
//!
//! A call that waits for the device prints what is left itself, as natively. The service thread must not wait for
//! stdout's lock: the program may hold it while it waits for the device.

// UNSAFETY: writes to the C library's stdout.

use orion_transport::thread::Uncancelled;

use crate::state::process::state;

pub fn keep(bytes: &[u8]) {
    state().output.kept.lock().extend_from_slice(bytes);
}

/// Unless another thread holds stdout's lock. True if nothing is left.
pub fn print_some() -> bool {
    if state().output.kept.lock().is_empty() {
        return true;
    }
    // SAFETY: `stdout` is the C library's stream; what is locked here is unlocked here.
    unsafe {
        if ftrylockfile(stdout) != 0 {
            return false;
        }
        print_locked();
        funlockfile(stdout);
    }
    true
}

pub fn print_all() {
    // Whoever ended while he writes would leave both locks to nobody.
    let _whole = Uncancelled::hold();
    // Whoever is printing holds this lock until all is out.
    if state().output.kept.lock().is_empty() {
        return;
    }
    // SAFETY: as in `print_some`. The lock is recursive, so the program may hold it in this thread.
    unsafe {
        flockfile(stdout);
        print_locked();
        funlockfile(stdout);
    }
}

/// # Safety
/// This thread holds stdout's lock, which comes before ours.
unsafe fn print_locked() {
    let mut bytes = state().output.kept.lock();
    // SAFETY: `stdout` is the C library's stream; fwrite reads exactly the bytes given.
    unsafe {
        libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stdout);
        libc::fflush(stdout);
    }
    bytes.clear();
}

/// Prints in the calling thread, as a thread that waits does.
pub fn print(bytes: &[u8]) {
    keep(bytes);
    print_all();
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    fn flockfile(stream: *mut libc::FILE);
    fn ftrylockfile(stream: *mut libc::FILE) -> libc::c_int;
    fn funlockfile(stream: *mut libc::FILE);
}
