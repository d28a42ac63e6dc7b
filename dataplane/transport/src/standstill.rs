//! A connection whose other side does not read.
//!
//! A program that is stopped (Ctrl-Z, a debugger) takes nothing out of its connections. Its system goes on saying that
//! it has no room, and TCP would wait for ever (RFC 9293, 3.8.6.1). But Linux counts the time in which nothing is taken
//! towards `TCP_USER_TIMEOUT`, as if the other side had vanished (`tcp_probe_timer` in `net/ipv4/tcp_timer.c`). So who
//! has something to send looks from time to time, and gives the connection more time while the other system answers.

// UNSAFETY: getsockopt.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::socket::{SILENCE_SECONDS_MAX, wait_unheard};

/// How often to look: several times in [`SILENCE_SECONDS_MAX`].
pub const LOOK_SECONDS: u64 = 2;
/// A question or its answer may be lost, and Linux answers them no more often than twice a second. They are asked at
/// least as often as [`SILENCE_SECONDS_MAX`], so whose system ends during a standstill is noticed within a minute.
const UNANSWERED_PROBES_MAX: u8 = 3;

/// What is known of one connection.
#[derive(Default)]
pub struct Standstill {
    /// There may be bytes that the other side's system has not taken.
    is_due: bool,
    looked_at: Option<Instant>,
    since: Option<Since>,
}

/// When it was first seen, and how many bytes had been taken by then.
struct Since {
    at: Instant,
    taken: u64,
}

impl Standstill {
    /// Something was given to the system to be sent.
    pub fn sent(&mut self) {
        self.is_due = true;
    }

    /// To be called at least every [`LOOK_SECONDS`] while there may be something to be sent. Looks if that is due, and
    /// answers whether it will be again.
    pub fn look(&mut self, socket: BorrowedFd<'_>) -> bool {
        let every = Duration::from_secs(LOOK_SECONDS);
        // Timers and naps end a little sooner or later.
        if self.is_due && self.looked_at.is_none_or(|at| at.elapsed() > every / 2) {
            self.looked_at = Some(Instant::now());
            self.is_due = self.look_with(socket, Duration::from_secs(SILENCE_SECONDS_MAX as u64), every);
        }
        self.is_due
    }

    /// The same with other times: how long a silence is the other side's end, and how often it is looked.
    fn look_with(&mut self, socket: BorrowedFd<'_>, silence: Duration, every: Duration) -> bool {
        // Not of TCP, or ended: whoever waits on it hears of that.
        let Ok(Outgoing { unacked, unsent_bytes, unanswered_probes, taken }) = outgoing(socket) else { return false };
        if unacked > 0 || unsent_bytes == 0 {
            if self.since.take().is_some() {
                let _ = wait_unheard(socket, silence);
            }
            return unacked > 0;
        }
        // Else the time that it was given passes.
        if unanswered_probes < UNANSWERED_PROBES_MAX {
            let since = match self.since.take() {
                Some(since) if since.taken == taken => since,
                _ => Since { at: Instant::now(), taken },
            };
            // It may have begun right after the last look.
            let _ = wait_unheard(socket, since.at.elapsed() + every + silence);
            self.since = Some(since);
        }
        true
    }
}

/// Of `include/net/tcp_states.h`.
const TCP_CLOSE: u8 = 7;

struct Outgoing {
    /// Segments that were sent and not acknowledged.
    unacked: u32,
    unsent_bytes: u32,
    /// Questions whether there is room by now.
    unanswered_probes: u8,
    /// Bytes that were acknowledged so far.
    taken: u64,
}

fn outgoing(socket: BorrowedFd<'_>) -> io::Result<Outgoing> {
    // SAFETY: all-zero is valid for plain numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed; an older kernel fills less of it.
    let rc = unsafe {
        let to = (&raw mut info).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut bytes)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    if info.tcpi_state == TCP_CLOSE {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(Outgoing {
        unacked: info.tcpi_unacked,
        unsent_bytes: info.tcpi_notsent_bytes,
        unanswered_probes: info.tcpi_probes,
        taken: info.tcpi_bytes_acked,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    const SILENCE: Duration = Duration::from_secs(1);
    const EVERY: Duration = Duration::from_millis(100);

    /// A connection that has more to send than the other side has room for, and that side.
    fn full() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("any port");
        let mut sender = TcpStream::connect(listener.local_addr().expect("its address")).expect("connecting");
        let (receiver, _) = listener.accept().expect("accepting");
        wait_unheard(sender.as_fd(), SILENCE).expect("setting it");
        sender.set_nonblocking(true).expect("setting it");
        // What was sent takes a moment to come out of the way.
        let mut full = 0;
        while full < 20 {
            match sender.write(&[7; 64 << 10]) {
                Ok(bytes) => {
                    assert!(bytes > 0);
                    full = 0;
                }
                Err(e) => {
                    assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
                    full += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        (sender, receiver)
    }

    #[test]
    fn a_connection_whose_other_side_does_not_read_lasts_as_long_as_its_system_answers() {
        let (mut sender, mut receiver) = full();
        let mut standstill = Standstill::default();
        let began = Instant::now();
        while began.elapsed() < 4 * SILENCE {
            assert!(standstill.look_with(sender.as_fd(), SILENCE, EVERY), "{:?}", sender.take_error());
            std::thread::sleep(EVERY);
        }
        assert!(sender.take_error().expect("asking").is_none());
        // It goes on as if nothing had been.
        receiver.set_nonblocking(true).expect("setting it");
        let mut room = vec![0; 1 << 20];
        while standstill.look_with(sender.as_fd(), SILENCE, EVERY) {
            while receiver.read(&mut room).is_ok_and(|n| n > 0) {}
        }
        assert!(standstill.since.is_none());
        sender.write_all(b"and more").expect("there is room");
    }

    /// What looking is good for, and that a system which does not answer is given no more time.
    #[test]
    fn who_is_not_looked_at_is_given_up() {
        let (sender, _receiver) = full();
        let began = Instant::now();
        while sender.take_error().expect("asking").is_none() {
            assert!(began.elapsed() < 30 * SILENCE, "Linux does not count it any more: nothing need be looked at");
            std::thread::sleep(EVERY);
        }
        assert!(!Standstill::default().look_with(sender.as_fd(), SILENCE, EVERY));
    }

    #[test]
    fn nothing_is_due_where_nothing_was_sent_nor_where_all_was_taken() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let mut standstill = Standstill::default();
        assert!(!standstill.look(one.as_fd()));
        standstill.sent();
        // It is none of TCP.
        assert!(!standstill.look(one.as_fd()));
    }
}
