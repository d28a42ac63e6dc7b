//! Bulk data over one TCP connection: sent as Orion sends it, copied into the kernel, and without that copy.
//!
//! `MSG_ZEROCOPY` leaves the pages with the sender until the kernel says on the socket's error queue that it is done
//! with them, so whoever sends so has to read that and to keep the bytes as they are. Over loopback the kernel copies
//! after all, and says so.

// UNSAFETY: sends and receives through plain system calls, and reads the kernel's notes from a socket's error queue.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::report::{Better, Sample};

const CHUNKS: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// As the kernel says it in `ee_code`: the bytes were copied after all.
const COPIED: u8 = 1;

pub fn measure(quick: bool) -> Result<Vec<Sample>, String> {
    let total = if quick { 64 << 20 } else { 2 << 30 };
    let mut samples = Vec::new();
    for chunk in CHUNKS {
        for (how, zero_copy) in [("copied", false), ("without a copy", true)] {
            let case = format!("{how}, {} KiB at a time", chunk >> 10);
            let sent = send_all(chunk, total, zero_copy).map_err(|e| format!("sending {case} failed: {e}"))?;
            let rate = total as f64 / sent.seconds / 1e9;
            let cpu = sent.cpu_s * 1e3 / (total as f64 / 1e9);
            let sample = Sample::new(case, "GB/s", Better::Higher, rate).detail("sender, CPU ms per GB", cpu);
            samples.push(if zero_copy { sample.detail("copied after all, %", sent.copied_percent) } else { sample });
        }
    }
    Ok(samples)
}

struct Sent {
    seconds: f64,
    /// The sending thread's.
    cpu_s: f64,
    copied_percent: f64,
}

fn send_all(chunk: usize, total: usize, zero_copy: bool) -> io::Result<Sent> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    let taking = thread::spawn(move || receive_all(&receiver, total));
    if zero_copy {
        let one: libc::c_int = 1;
        // SAFETY: an option of the given size on a socket that is open.
        let code = unsafe {
            libc::setsockopt(
                sender.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ZEROCOPY,
                (&raw const one).cast(),
                size_of_val(&one) as u32,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let bytes = vec![7u8; chunk];
    let mut notes = Notes::default();
    let (begin, cpu) = (Instant::now(), thread_cpu());
    let mut left = total;
    while left > 0 {
        let mut part = &bytes[..chunk.min(left)];
        left -= part.len();
        while !part.is_empty() {
            let flags = libc::MSG_NOSIGNAL | if zero_copy { libc::MSG_ZEROCOPY } else { 0 };
            // SAFETY: the bytes are ours, and stay until the kernel has said that it is done with them.
            let n = unsafe { libc::send(sender.as_raw_fd(), part.as_ptr().cast(), part.len(), flags) };
            match n {
                n if n >= 0 => {
                    part = &part[n as usize..];
                    notes.sent += u32::from(zero_copy);
                }
                _ => match io::Error::last_os_error() {
                    // Too many pages are on their way: what has arrived has to be taken note of first.
                    e if e.raw_os_error() == Some(libc::ENOBUFS) && notes.done < notes.sent => notes.wait(&sender)?,
                    e if e.raw_os_error() == Some(libc::ENOBUFS) => {
                        let why = "the kernel may not keep so many pages of this process (ulimit -l)";
                        return Err(io::Error::new(e.kind(), format!("{e}: {why}")));
                    }
                    e => return Err(e),
                },
            }
        }
        notes.read(&sender)?;
    }
    while notes.done < notes.sent {
        notes.wait(&sender)?;
    }
    taking.join().expect("a panic ends the process")?;
    let copied_percent = f64::from(notes.copied) * 100.0 / f64::from(notes.sent.max(1));
    Ok(Sent { seconds: begin.elapsed().as_secs_f64(), cpu_s: (thread_cpu() - cpu).as_secs_f64(), copied_percent })
}

fn receive_all(from: &TcpStream, total: usize) -> io::Result<()> {
    let (mut buffer, mut have) = (vec![0u8; 1 << 20], 0);
    while have < total {
        match io::Read::read(&mut &*from, &mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => have += n,
        }
    }
    Ok(())
}

/// What the kernel has said of the sends so far.
#[derive(Default)]
struct Notes {
    sent: u32,
    done: u32,
    copied: u32,
}

impl Notes {
    fn wait(&mut self, socket: &TcpStream) -> io::Result<()> {
        // An error queue that is not empty is always reported.
        let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut entry, 1, 1000) };
        self.read(socket)
    }

    fn read(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.done < self.sent {
            let mut control = [0u64; 16];
            // SAFETY: an all-zero msghdr is valid.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            // SAFETY: the message leads to `control`, which is as large as it says.
            let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE) };
            if n < 0 {
                let e = io::Error::last_os_error();
                return if e.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(e) };
            }
            // SAFETY: the kernel has filled in `control`; the pointer is null or leads to a whole entry there.
            let note = unsafe {
                let entry = libc::CMSG_FIRSTHDR(&raw const message);
                if entry.is_null() {
                    return Err(io::Error::other("the kernel's error queue holds a note without its data"));
                }
                libc::CMSG_DATA(entry).cast::<libc::sock_extended_err>().read_unaligned()
            };
            // A range of sends, both ends included.
            let count = note.ee_data - note.ee_info + 1;
            self.done += count;
            if note.ee_code == COPIED {
                self.copied += count;
            }
        }
        Ok(())
    }
}

fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a clock of this thread and a valid out pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
