//! The one io_uring of an engine thread.

// UNSAFETY: submits requests whose buffers are addressed by raw pointers. Whoever submits keeps the buffer alive
// and in place until the completion has been seen; in the engine that is the object in the slot whose count of
// requests under way keeps it from being freed.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub use io_uring::types::Timespec;
use io_uring::types::{Fd, SubmitArgs};
use io_uring::{IoUring, Probe, opcode, squeue};

const ENTRIES: u32 = 512;
const ENTER_GETEVENTS: u32 = 1;
const FUTEX2_SIZE_U32: u32 = 2;

/// What a request was for; the low byte of its user data. The rest is the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Did {
    Accept = 1,
    Receive = 2,
    Send = 3,
    ReceiveAttach = 4,
    SendAttach = 5,
    Exit = 6,
    Mail = 7,
    /// A futex word: reply ring, event ring, room in the command ring.
    FutexReply = 8,
    FutexEvent = 9,
    FutexRoom = 10,
    Hangup = 11,
    /// A descriptor that is readable once there is news.
    Bell = 12,
    /// Another request was to end.
    Cancel = 13,
    /// Some time has passed.
    Time = 14,
}

impl Did {
    fn decode(byte: u8) -> Did {
        use Did::*;
        [
            Accept,
            Receive,
            Send,
            ReceiveAttach,
            SendAttach,
            Exit,
            Mail,
            FutexReply,
            FutexEvent,
            FutexRoom,
            Hangup,
            Bell,
            Cancel,
            Time,
        ][byte as usize - 1]
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub slot: u32,
    pub did: Did,
    /// As the system call would return it: negative is an errno.
    pub result: i32,
    /// The request goes on (multishot).
    pub more: bool,
}

pub struct Io {
    ring: IoUring,
    has_taskrun_flag: bool,
    has_futex: bool,
}

impl Io {
    /// Has to be called by the thread that uses it.
    pub fn new() -> io::Result<Io> {
        let built = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_clamp()
            .build(ENTRIES);
        let (ring, has_taskrun_flag) = match built {
            Ok(ring) => (ring, true),
            // Before Linux 6.1.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (IoUring::new(ENTRIES)?, false),
            Err(e) => return Err(e),
        };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        // Since Linux 6.7. Without it a sleeping engine looks at its rings every millisecond.
        let has_futex = probe.is_supported(opcode::FutexWait::CODE);
        Ok(Io { ring, has_taskrun_flag, has_futex })
    }

    pub fn has_futex(&self) -> bool {
        self.has_futex
    }

    fn push(&mut self, slot: u32, did: Did, entry: squeue::Entry) {
        let entry = entry.user_data(user_data(slot, did));
        // SAFETY: the submitter keeps the request's memory alive (see the top of the file).
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // The queue is full: hand what is there to the kernel, which empties it.
            if let Err(e) = self.ring.submit() {
                assert!(is_transient(&e), "io_uring does not take requests any more: {e}");
            }
        }
    }

    pub fn accept(&mut self, slot: u32, fd: RawFd) {
        let entry = opcode::AcceptMulti::new(Fd(fd)).flags(libc::SOCK_CLOEXEC).build();
        self.push(slot, Did::Accept, entry);
    }

    /// # Safety
    /// `to` stays valid for `len` bytes until the completion.
    pub unsafe fn receive(&mut self, slot: u32, did: Did, fd: RawFd, to: *mut u8, len: usize, flags: i32) {
        self.push(slot, did, opcode::Recv::new(Fd(fd), to, len as u32).flags(flags).build());
    }

    /// # Safety
    /// `msg` and everything it points to stay valid until the completion.
    pub unsafe fn receive_message(&mut self, slot: u32, did: Did, fd: RawFd, msg: *mut libc::msghdr) {
        let flags = libc::MSG_CMSG_CLOEXEC as u32;
        self.push(slot, did, opcode::RecvMsg::new(Fd(fd), msg).flags(flags).build());
    }

    /// # Safety
    /// As for [`Self::receive`].
    pub unsafe fn send(&mut self, slot: u32, did: Did, fd: RawFd, from: *const u8, len: usize) {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        self.push(slot, did, opcode::Send::new(Fd(fd), from, len as u32).flags(flags).build());
    }

    /// # Safety
    /// As for [`Self::receive_message`].
    pub unsafe fn send_message(&mut self, slot: u32, did: Did, fd: RawFd, msg: *const libc::msghdr) {
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        self.push(slot, did, opcode::SendMsg::new(Fd(fd), msg).flags(flags).build());
    }

    /// Completes when the process behind a pidfd has ended.
    pub fn wait_exit(&mut self, slot: u32, pidfd: RawFd) {
        self.push(slot, Did::Exit, opcode::PollAdd::new(Fd(pidfd), libc::POLLIN as u32).build());
    }

    /// Completes when the peer of a stream has closed its end, whether or not what it sent before has been read.
    pub fn wait_hangup(&mut self, slot: u32, fd: RawFd) {
        self.push(slot, Did::Hangup, opcode::PollAdd::new(Fd(fd), libc::POLLRDHUP as u32).build());
    }

    /// Completes when there is something to read.
    pub fn wait_readable(&mut self, slot: u32, did: Did, fd: RawFd) {
        self.push(slot, did, opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).build());
    }

    /// Ends a request of this slot's, which completes then, as this does.
    pub fn cancel(&mut self, slot: u32, what: Did, did: Did) {
        self.push(slot, did, opcode::AsyncCancel::new(user_data(slot, what)).build());
    }

    /// # Safety
    /// `to` stays valid until the completion.
    pub unsafe fn read_eventfd(&mut self, slot: u32, fd: RawFd, to: *mut u64) {
        self.push(slot, Did::Mail, opcode::Read::new(Fd(fd), to.cast(), 8).build());
    }

    /// Completes once `word` is woken, or at once if it is not 1.
    pub fn wait_futex(&mut self, slot: u32, did: Did, word: &'static AtomicU32) {
        let entry = opcode::FutexWait::new(word.as_ptr(), 1, u32::MAX as u64, FUTEX2_SIZE_U32).build();
        self.push(slot, did, entry);
    }

    /// Completes when so much time has passed.
    pub fn wait_time(&mut self, slot: u32, time: &'static Timespec) {
        self.push(slot, Did::Time, opcode::Timeout::new(time).build());
    }

    /// Submits what is queued and lets completions in, without waiting. Costs no system call when there is nothing
    /// to do, so an engine may spin on it.
    pub fn turn(&mut self) {
        let queue = self.ring.submission();
        let queued = queue.len();
        let pending = queued > 0 || !self.has_taskrun_flag || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if pending {
            // SAFETY: no argument beyond the counts.
            let entered =
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued as u32, 0, ENTER_GETEVENTS, None) };
            if let Err(e) = entered {
                assert!(is_transient(&e), "io_uring does not take requests any more: {e}");
            }
        }
    }

    /// Submits what is queued and sleeps until something completes or `timeout` passes.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        let result = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(t) => {
                let ts = Timespec::new().sec(t.as_secs()).nsec(t.subsec_nanos());
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&ts))
            }
        };
        if let Err(e) = result {
            assert!(
                is_transient(&e) || e.raw_os_error() == Some(libc::ETIME),
                "io_uring does not take requests any more: {e}"
            );
        }
    }

    /// Completions that have come in.
    pub fn drain(&mut self, into: &mut Vec<Done>) {
        into.extend(self.ring.completion().map(|c| Done {
            slot: (c.user_data() >> 8) as u32,
            did: Did::decode(c.user_data() as u8),
            result: c.result(),
            more: io_uring::cqueue::more(c.flags()),
        }));
    }
}

fn user_data(slot: u32, did: Did) -> u64 {
    (slot as u64) << 8 | did as u64
}

/// Whether a request that ended like this is to be made again.
pub fn is_again(result: i32) -> bool {
    matches!(-result, libc::EAGAIN | libc::EINTR)
}

/// Whether it was ended by [`Io::cancel`] before anything had come of it.
pub fn is_cancelled(result: i32) -> bool {
    -result == libc::ECANCELED
}

fn is_transient(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
