//! One worker process, as its parent sees it: its words, its signals, its end.

// UNSAFETY: receives into a boxed object that stays until no request of its is under way; signals and reaps by pidfd.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use orion_transport::fds;
use orion_wire::text::acts;
use tracing::warn;

use super::nursery::Newborn;
use crate::attach::{CONTROL_BYTES_MAX, Control};
use crate::cell::{Group, User, signal_of};
use crate::engine::core::Core;
use crate::engine::io_ring::Did;
use crate::log::OF_A_WORKER;

/// Log lines of one worker, and their length. More are not shown.
const LINES_MAX: u32 = 100;
const LINE_CHARS_MAX: usize = 1000;
/// One that goes on is not ours any more.
const LINES_KILL: u32 = 10_000;

pub struct Process {
    pub pid: i32,
    pidfd: OwnedFd,
    pub control: OwnedFd,
    /// Free for another worker once this one is reaped.
    pub user: Option<Arc<User>>,
    /// What host memory it may have. For the nursery, once it is reaped.
    pub group: Option<Group>,
    /// Bytes of the GPUs that it has found. It said so before it knew of a client, who might have taken it over.
    pub device_bytes: u64,
    /// Why it cannot serve, in its own words. Others fail at the same time, each for a reason of its own.
    pub failure: String,
    /// The signal by which we meant to end it.
    sent: Option<i32>,
    /// Lines that it has logged.
    lines: u32,
    buffer: [u8; CONTROL_BYTES_MAX],
    pub under_way: u32,
    pub exited: bool,
}

impl Process {
    /// Awaits its end and its words.
    pub fn begin(newborn: Newborn, core: &mut Core, slot: u32) -> Box<Process> {
        let Newborn { pid, pidfd, control, user, group } = newborn;
        let mut process = Box::new(Process {
            pid,
            pidfd,
            control,
            user,
            group,
            device_bytes: 0,
            failure: String::new(),
            sent: None,
            lines: 0,
            buffer: [0; CONTROL_BYTES_MAX],
            under_way: 1,
            exited: false,
        });
        core.io.wait_exit(slot, process.pidfd.as_raw_fd());
        process.listen(core, slot);
        process
    }

    pub fn listen(&mut self, core: &mut Core, slot: u32) {
        self.under_way += 1;
        let (to, len) = (self.buffer.as_mut_ptr(), self.buffer.len());
        // SAFETY: the process is boxed and stays while requests are under way.
        unsafe { core.io.receive(slot, Did::Receive, self.control.as_raw_fd(), to, len, 0) };
    }

    /// What the first `bytes` received say; `None` if that is nothing we know.
    pub fn heard(&self, bytes: usize) -> Option<Control> {
        Control::decode(&self.buffer[..bytes]).ok()
    }

    /// It has ended. A request that looked at the socket before its last words were there, and at whether it was
    /// closed after it was, has answered that there is nothing more.
    pub fn hear_the_rest(&mut self, is_starting: bool, session: u64) {
        while let Ok((n, _)) = fds::recv_some(self.control.as_fd(), &mut self.buffer, libc::MSG_DONTWAIT)
            && n > 0
        {
            match Control::decode(&self.buffer[..n]) {
                Ok(Control::Failed { reason }) if is_starting => self.failure = reason,
                Ok(Control::Failed { reason: text } | Control::Log { text }) => self.log(session, &text),
                // Too late for anything else.
                _ => {}
            }
        }
    }

    /// A line that the worker wants in the log. Who has taken a worker over can send what he likes, so it is one line,
    /// printable and short, and there are not many.
    pub fn log(&mut self, session: u64, text: &str) {
        self.lines = self.lines.saturating_add(1);
        match self.lines {
            ..=LINES_MAX => {
                let text: String = text.chars().filter(|c| !acts(*c)).take(LINE_CHARS_MAX).collect();
                warn!(target: OF_A_WORKER, worker = self.pid, session, text, "worker says");
            }
            n if n == LINES_MAX + 1 => {
                let what = format!("worker says more than {LINES_MAX} lines; no more are shown");
                warn!(target: OF_A_WORKER, worker = self.pid, session, "{what}");
            }
            LINES_KILL => {
                warn!(worker = self.pid, session, "worker does not stop logging, killing it");
                self.end(libc::SIGKILL);
            }
            _ => {}
        }
    }

    /// A signal that is to end it. What ends it otherwise is worth a line in the log.
    pub fn end(&mut self, number: i32) {
        self.sent = Some(number);
        // SAFETY: a plain system call; a process that has ended already is no error to us.
        unsafe {
            let no_info = std::ptr::null::<libc::siginfo_t>();
            libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), number, no_info, 0)
        };
    }

    /// How it ended, and whether by a signal of ours.
    pub fn reap(&self) -> (End, bool) {
        let end = reap(&self.pidfd);
        (end, matches!(end, End::Signal(number) if self.sent == Some(number)))
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
    Unknown,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Exit(status) => write!(f, "exit {status}"),
            End::Signal(number) => write!(f, "signal {number}"),
            End::Unknown => f.write_str("unknown"),
        }
    }
}

fn reap(pidfd: &OwnedFd) -> End {
    // SAFETY: all-zero is a valid siginfo_t to overwrite.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for writes.
    let rc = unsafe { libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd() as u32, &mut info, libc::WEXITED | libc::WNOHANG) };
    if rc != 0 {
        return End::Unknown;
    }
    // SAFETY: waitid filled in the fields of a SIGCHLD.
    let status = unsafe { info.si_status() };
    match info.si_code {
        libc::CLD_EXITED => signal_of(status).map_or(End::Exit(status), End::Signal),
        _ => End::Signal(status),
    }
}
