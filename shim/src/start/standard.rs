//! Standard input, output and error that the application has closed, as some daemons do.

// UNSAFETY: makes descriptors.

use std::os::fd::{FromRawFd, OwnedFd};

const ERROR: i32 = 2;

/// Holds the places of those that are closed: a session's socket there would hear what the application prints, and
/// its memory be written over.
pub struct Places {
    _held: Vec<OwnedFd>,
}

impl Places {
    /// Until it is dropped, no descriptor that is made is one of the three.
    pub fn hold() -> Places {
        let mut held = Vec::new();
        loop {
            // Takes what is written, needs no path, and never waits.
            // SAFETY: a plain call.
            let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if number < 0 {
                // Who has no descriptor left gets no session either.
                return Places { _held: held };
            }
            // SAFETY: a new descriptor that nobody else owns.
            let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
            // The system gives the lowest one that is free.
            if number > ERROR {
                return Places { _held: held };
            }
            held.push(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_meanwhile_is_not_standard_output() {
        // SAFETY: the child makes plain calls and leaves.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                (0..=ERROR).for_each(|number| _ = libc::close(number));
                let places = Places::hold();
                let meanwhile = libc::dup(libc::eventfd(0, 0));
                drop(places);
                libc::_exit(i32::from(meanwhile > ERROR && libc::eventfd(0, 0) == 0));
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            status
        };
        assert_eq!(libc::WEXITSTATUS(status), 1);
    }
}
