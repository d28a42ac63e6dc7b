//! Whatever the driver prints.

// UNSAFETY: reads a pipe and flushes the C library's stdout, where the driver prints.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use orion_wire::message::carrier as message;

use crate::lines;
use crate::worker::out::replies::Events;

/// Lines that a session's driver wrote to standard error and that oriond's log gets, too. A failed assertion is one a
/// thread.
const LINES_TOLD_MAX: u64 = 20;

/// The worker's own standard output and standard error: kernel printf and assertion messages of the driver.
pub struct Output {
    pipes: Mutex<[(u64, OwnedFd); 2]>,
    events: Arc<Events>,
    /// Lines of standard error that oriond's log has.
    told: AtomicU64,
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

impl Output {
    /// Redirects descriptors 1 and 2 into pipes and starts the thread that empties them.
    pub fn capture(events: Arc<Events>) -> std::io::Result<Arc<Output>> {
        let pipes = [(1, redirect(1)?), (2, redirect(2)?)];
        let polled = [pipes[0].1.as_raw_fd(), pipes[1].1.as_raw_fd()];
        let output = Arc::new(Output { pipes: Mutex::new(pipes), events, told: AtomicU64::new(0) });
        let reader = output.clone();
        std::thread::Builder::new().name("output".into()).spawn(move || {
            loop {
                let mut fds = polled.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
                // SAFETY: two valid pollfd entries.
                unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
                reader.read();
            }
        })?;
        Ok(output)
    }

    /// Sends everything printed so far.
    pub fn drain(&self) {
        // SAFETY: the C library's own stream; the driver prints through it, and into a pipe it is buffered.
        unsafe { libc::fflush(stdout) };
        self.read();
    }

    fn read(&self) {
        let pipes = self.pipes.lock().expect("no panic happens under this lock");
        let mut buffer = [0u8; 16 << 10];
        for (number, fd) in pipes.iter() {
            loop {
                // SAFETY: reads into a local buffer of the given size; the descriptor does not block.
                let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
                if n <= 0 {
                    break;
                }
                if *number == 2 {
                    self.tell_the_log(&buffer[..n as usize]);
                }
                let mut body = Vec::new();
                message::Output { text: buffer[..n as usize].into() }.encode(&mut body);
                self.events.send(message::Output::OP, (*number, 0), &body);
            }
        }
    }
}

impl Output {
    /// The operator sees why a session's kernels fail, too.
    fn tell_the_log(&self, written: &[u8]) {
        for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // Relaxed: a count.
            if self.told.fetch_add(1, Ordering::Relaxed) < LINES_TOLD_MAX {
                lines::warn(&String::from_utf8_lossy(line));
            }
        }
    }
}

/// Replaces descriptor `target` by the writing end of a new pipe; the reading end does not block.
fn redirect(target: i32) -> std::io::Result<OwnedFd> {
    let mut ends = [0i32; 2];
    // SAFETY: a valid array of two descriptors; the calls work on descriptors we own.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let read = OwnedFd::from_raw_fd(ends[0]);
        let write = OwnedFd::from_raw_fd(ends[1]);
        libc::fcntl(read.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20);
        libc::fcntl(read.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        if libc::dup2(write.as_raw_fd(), target) < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(read)
    }
}
