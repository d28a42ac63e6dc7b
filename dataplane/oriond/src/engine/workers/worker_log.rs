//! What workers write to their standard error until they are sealed, and what becomes of it in oriond's log.
//!
//! It is the driver that writes there, or what it loads. A pipe is read at a limited pace, so that one which writes
//! without end waits for itself; a few of its lines are logged, with its pid and quoted, so that none can be taken for
//! a line of oriond's; the others are counted.

// UNSAFETY: polls descriptors and reads from them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::engine::mail::Mailbox;
use crate::log::OF_A_WORKER;

/// Lines of one worker at once, and after how long it has earned one more.
const LINES_MAX: u32 = 100;
const LINE_EARNED: Duration = Duration::from_secs(10);
/// Longer ones are several.
const LINE_BYTES_MAX: usize = 1024;
/// Read of one worker's pipe within [`PACE`].
const BYTES_MAX: usize = 256 << 10;
const PACE: Duration = Duration::from_secs(1);
/// How often left-out lines are summed up.
const SUM_INTERVAL: Duration = Duration::from_secs(10);

/// Takes the reading ends of workers' pipes.
pub struct WorkerLog(Arc<Mailbox<(i32, OwnedFd)>>);

impl WorkerLog {
    pub fn start() -> io::Result<WorkerLog> {
        let mail = Arc::new(Mailbox::new()?);
        let theirs = mail.clone();
        std::thread::Builder::new().name("worker-log".into()).spawn(move || read_all(&theirs))?;
        Ok(WorkerLog(mail))
    }

    pub fn add(&self, pid: i32, pipe: OwnedFd) {
        self.0.post((pid, pipe));
    }
}

struct Source {
    pid: i32,
    pipe: OwnedFd,
    /// The line that is not over yet, at most [`LINE_BYTES_MAX`].
    line: Vec<u8>,
    may_say: u32,
    earned: Instant,
    left_out: u64,
    summed: Instant,
    read: usize,
    paced: Instant,
}

fn read_all(mail: &Mailbox<(i32, OwnedFd)>) {
    let (mut sources, mut new) = (Vec::<Source>::new(), Vec::new());
    loop {
        mail.take(&mut new);
        sources.extend(new.drain(..).map(|(pid, pipe)| Source::new(pid, pipe)));
        let now = Instant::now();
        sources.iter_mut().for_each(|source| source.look(now));
        if !mail.may_sleep() {
            mail.awake();
            continue;
        }
        let may_wait = sources.iter().any(|s| s.left_out > 0 || s.read >= BYTES_MAX);
        let mail_fd = libc::pollfd { fd: mail.eventfd(), events: libc::POLLIN, revents: 0 };
        // A negative descriptor is passed over.
        let fd_of = |s: &Source| if s.read >= BYTES_MAX { -1 } else { s.pipe.as_raw_fd() };
        let mut fds: Vec<libc::pollfd> = std::iter::once(mail_fd)
            .chain(sources.iter().map(|s| libc::pollfd { fd: fd_of(s), events: libc::POLLIN, revents: 0 }))
            .collect();
        // SAFETY: as many valid entries as it is told.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, if may_wait { 100 } else { -1 }) };
        mail.awake();
        if fds[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes into a local, from an eventfd that says it has them.
            unsafe { libc::read(mail.eventfd(), (&raw mut count).cast(), 8) };
        }
        let mut ready = fds[1..].iter().map(|fd| fd.revents != 0);
        sources.retain_mut(|source| !ready.next().expect("one each") || source.take_some());
    }
}

impl Source {
    fn new(pid: i32, pipe: OwnedFd) -> Source {
        let now = Instant::now();
        Source {
            pid,
            pipe,
            line: Vec::new(),
            may_say: LINES_MAX,
            earned: now,
            left_out: 0,
            summed: now,
            read: 0,
            paced: now,
        }
    }

    fn look(&mut self, now: Instant) {
        if now.duration_since(self.paced) >= PACE {
            (self.read, self.paced) = (0, now);
        }
        if self.left_out > 0 && now.duration_since(self.summed) >= SUM_INTERVAL {
            self.sum_up();
            self.summed = now;
        }
        while now.duration_since(self.earned) >= LINE_EARNED {
            self.earned += LINE_EARNED;
            self.may_say = (self.may_say + 1).min(LINES_MAX);
            if self.may_say == LINES_MAX {
                self.earned = now;
            }
        }
    }

    /// False once the worker, and whoever else had its end of the pipe, is gone.
    fn take_some(&mut self) -> bool {
        let mut buffer = [0u8; 16 << 10];
        // SAFETY: reads into a local buffer of the given size; there is something to read, so it does not wait.
        let n = unsafe { libc::read(self.pipe.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        if n <= 0 {
            let again = n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if !again {
                self.end_line();
                self.sum_up();
            }
            return again;
        }
        self.read += n as usize;
        for byte in &buffer[..n as usize] {
            if *byte == b'\n' || self.line.len() == LINE_BYTES_MAX {
                self.end_line();
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
        true
    }

    fn end_line(&mut self) {
        if self.line.is_empty() {
            return;
        }
        if self.may_say > 0 {
            self.may_say -= 1;
            let text = String::from_utf8_lossy(&self.line);
            warn!(target: OF_A_WORKER, worker = self.pid, says = &*text);
        } else {
            if self.left_out == 0 {
                self.summed = Instant::now();
            }
            self.left_out += 1;
        }
        self.line.clear();
    }

    fn sum_up(&mut self) {
        if self.left_out > 0 {
            let more = self.left_out;
            warn!(target: OF_A_WORKER, worker = self.pid, more, "more lines of this worker are left out");
            self.left_out = 0;
        }
    }
}
