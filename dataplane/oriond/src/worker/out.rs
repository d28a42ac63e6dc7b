//! What goes back to the client: replies, events, and whatever the driver prints.

// UNSAFETY: reads a pipe and flushes the C library's stdout, where the driver prints.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orion_cuda::sys::CUresult;
use orion_ring::{Corrupt, Producer, Spin};
use orion_wire::record::{HEADER_BYTES, Header, RECORD_BYTES_MAX, op};
use orion_wire::{Fault, Writer};

use super::arrivals::{self, Shared};

/// Lines that a session's driver wrote to standard error and that oriond's log gets, too. A failed assertion is one a
/// thread.
const LINES_TOLD_MAX: u64 = 20;

/// Pushes a record, waiting for room as long as it takes: the watcher of the client's socket ends this process
/// if the client is gone.
fn push(producer: &mut Producer, header: &Header, body: &[u8]) -> Result<(), Fault> {
    append(producer, header, body)?;
    producer.publish();
    Ok(())
}

/// As [`push`], but seen by the client only with the next record.
pub fn append(producer: &mut Producer, header: &Header, body: &[u8]) -> Result<(), Fault> {
    let parts: [&[u8]; 2] = [&header.encode(), body];
    let spin = Spin::adaptive(Duration::from_micros(100));
    loop {
        match producer.append(&parts) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                producer
                    .wait_room(header.size as usize, spin, Duration::from_millis(100))
                    .map_err(|Corrupt| Fault("ring positions are impossible"))?;
            }
            Err(Corrupt) => return Err(Fault("ring positions are impossible")),
        }
    }
}

/// The reply ring. Only the executor writes replies to it; for a client that has a copy of its own of the heap, others
/// write ahead of them what has come there.
pub enum Replies {
    Own(Producer),
    Carried(Shared),
}

impl Replies {
    fn with<T>(&mut self, write: impl FnOnce(&mut Producer) -> T) -> T {
        match self {
            Replies::Own(producer) => write(producer),
            Replies::Carried(arrivals) => write(arrivals::lock(arrivals).replies()),
        }
    }

    /// `events` is how many were sent before, if the result is an error.
    pub fn send(&mut self, command: &Header, result: CUresult, events: u64, body: &[u8]) -> Result<(), Fault> {
        let size = HEADER_BYTES + body.len();
        assert!(size <= RECORD_BYTES_MAX && size.is_multiple_of(8), "reply of {size} bytes to {:#x}", command.op);
        let header = Header { size: size as u32, context: result as u64 | events << 32, ..*command };
        self.with(|producer| push(producer, &header, body))
    }

    /// Tells the thread whose reply comes next what the driver logged.
    pub fn log(&mut self, command: &Header, level: u64, text: &[u8]) -> Result<(), Fault> {
        let mut body = Vec::new();
        body.bytes(text);
        let size = (HEADER_BYTES + body.len()) as u32;
        let header = Header { size, op: op::LOG, thread: command.thread, context: level, sequence: 0 };
        self.with(|producer| push(producer, &header, &body))
    }

    /// Announcements whose reply did not follow at once. They wait for it: one message takes half as long as two.
    pub fn publish(&mut self) {
        self.with(Producer::publish);
    }
}

/// The event ring, shared by the executor, the driver's callback threads and the output reader.
pub struct Events {
    producer: Mutex<Producer>,
    sent: AtomicU64,
}

impl Events {
    pub fn new(producer: Producer) -> Arc<Events> {
        Arc::new(Events { producer: Mutex::new(producer), sent: AtomicU64::new(0) })
    }

    pub fn send(&self, op: u16, arguments: (u64, u64), body: &[u8]) {
        let size = (HEADER_BYTES + body.len()) as u32;
        let header = Header { size, op, thread: 0, context: arguments.0, sequence: arguments.1 };
        let mut producer = self.producer.lock().expect("no panic happens under this lock");
        if let Err(fault) = push(&mut producer, &header, body) {
            super::session::log::warn(&format!("event lost: {fault}"));
            return;
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

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
                body.bytes(&buffer[..n as usize]);
                self.events.send(op::OUTPUT, (*number, 0), &body);
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
                super::session::log::warn(&String::from_utf8_lossy(line));
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
