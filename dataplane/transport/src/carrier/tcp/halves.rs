//! A connection's two directions, each with the thread that moves its bytes: as they are, or in records of TLS.

// UNSAFETY: sends from and receives into ring and heap memory by address.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use orion_ring::{Spin, once};
use orion_tls::handshake::Secured;

use super::patience::Patience;
use crate::kept::{Kept, unless_closed};
use crate::sealed::{Heard, Opening, Sealing};
use crate::standstill::Standstill;

/// For so long after a look a connection is sent to and received from as if it were still there.
const LOOK_HOLDS: Duration = Duration::from_micros(20);
/// Who has time looks again so much sooner, for those who have none.
const LOOK_IS_FRESH: Duration = Duration::from_micros(5);

/// The direction out.
pub struct Sender {
    sealing: Option<Box<Sealing>>,
    standstill: Standstill,
}

/// The direction in.
pub struct Receiver(Option<Box<Opening>>);

/// Of a connection that is encrypted if there are keys. `buffer_bytes` are received at once where they are sealed.
pub fn halves(secured: Option<Box<Secured>>, buffer_bytes: usize) -> (Sender, Receiver) {
    let Some(secured) = secured else { return (Sender::new(None), Receiver(None)) };
    let Secured { sealer, opener, .. } = *secured;
    (Sender::new(Some(Box::new(Sealing::new(sealer)))), Receiver(Some(Box::new(Opening::new(opener, buffer_bytes)))))
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Sender {
    fn new(sealing: Option<Box<Sealing>>) -> Sender {
        Sender { sealing, standstill: Standstill::default() }
    }

    /// Looks whether the other side takes what was sent, where that is due. Called while there is nothing to send.
    pub fn look(&mut self, socket: &Kept) {
        if socket.is_there() {
            self.standstill.look(socket.as_fd());
        }
    }

    /// Sends from the beginning of the parts, and answers how many of their bytes that was.
    ///
    /// # Safety
    /// The parts are readable.
    pub unsafe fn send(&mut self, socket: &Kept, parts: &[libc::iovec]) -> io::Result<usize> {
        // SAFETY: the caller vouches for the parts.
        let Some(sealing) = &mut self.sealing else {
            return unsafe { send_parts(socket, parts, &mut self.standstill) };
        };
        // SAFETY: as above.
        let taken = unsafe { sealing.take(parts) }.map_err(wrong)?;
        while !sealing.is_empty() {
            // SAFETY: these parts are the sealing's own, and stay until it is told that they were sent.
            let sent = unsafe { send_parts(socket, sealing.parts(), &mut self.standstill) }?;
            sealing.advance(sent);
        }
        Ok(taken)
    }
}

impl Receiver {
    /// Receives at least one byte: looks for it as long as `patience` has it, then sleeps.
    ///
    /// # Safety
    /// `to` is valid for `len` bytes.
    pub unsafe fn receive_some(
        &mut self,
        socket: &Kept,
        to: *mut u8,
        len: usize,
        flags: i32,
        patience: &impl Patience,
    ) -> io::Result<usize> {
        // SAFETY: the caller vouches for the range.
        let Some(opening) = &mut self.0 else { return unsafe { receive_some(socket, to, len, flags, patience) } };
        loop {
            match opening.open().map_err(wrong)? {
                Heard::Bytes => break,
                Heard::End => return Err(io::ErrorKind::UnexpectedEof.into()),
                Heard::Nothing => {
                    let (room, room_bytes) = opening.room();
                    // SAFETY: the room is the opening's own.
                    let n = unsafe { receive_some(socket, room, room_bytes, 0, patience) }?;
                    opening.received(n);
                }
            }
        }
        let plain = opening.plain();
        let n = plain.len().min(len);
        // SAFETY: both are valid for `n` bytes; one is the caller's, the other the opening's.
        unsafe { once::copy(plain.as_ptr(), to, n) };
        opening.used(n);
        Ok(n)
    }

    /// # Safety
    /// `to` is valid for `len` bytes.
    pub unsafe fn receive_all(
        &mut self,
        socket: &Kept,
        to: *mut u8,
        len: usize,
        flags: i32,
        spin: Spin,
    ) -> io::Result<()> {
        let mut have = 0;
        while have < len {
            // SAFETY: inside the caller's range.
            have += unsafe { self.receive_some(socket, to.add(have), len - have, flags, &spin)? };
        }
        Ok(())
    }
}

/// # Safety
/// The parts are readable.
unsafe fn send_parts(socket: &Kept, parts: &[libc::iovec], standstill: &mut Standstill) -> io::Result<usize> {
    socket.check_since(LOOK_HOLDS)?;
    standstill.sent();
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = parts.as_ptr().cast_mut();
    msg.msg_iovlen = parts.len();
    loop {
        // SAFETY: the caller vouches for the parts.
        let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &msg, libc::MSG_NOSIGNAL) };
        if n >= 0 {
            return Ok(n as usize);
        }
        let e = io::Error::last_os_error();
        match e.kind() {
            io::ErrorKind::Interrupted => {}
            // Nothing was taken for as long as `send_timeout` has it.
            io::ErrorKind::WouldBlock => _ = standstill.look(socket.as_fd()),
            _ => return Err(unless_closed(e)),
        }
    }
}

/// Receives at least one byte: looks for it as long as `patience` has it, then sleeps.
///
/// # Safety
/// `to` is valid for `len` bytes.
unsafe fn receive_some(
    socket: &Kept,
    to: *mut u8,
    len: usize,
    flags: i32,
    patience: &impl Patience,
) -> io::Result<usize> {
    let mut wait = libc::MSG_DONTWAIT;
    // Most often nothing has come yet, and whoever waits for it has not been held up by a look.
    let mut holds = LOOK_IS_FRESH;
    loop {
        socket.check_since(holds)?;
        holds = LOOK_HOLDS;
        // SAFETY: the caller vouches for the range.
        let n = unsafe { libc::recv(socket.as_raw_fd(), to.cast(), len, wait) };
        if n > 0 {
            return Ok(n as usize);
        }
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let e = io::Error::last_os_error();
        match e.kind() {
            // A connection whose other end says something now and then has a limit for that.
            io::ErrorKind::WouldBlock if wait == flags => return Err(io::ErrorKind::TimedOut.into()),
            io::ErrorKind::WouldBlock if patience.is_readable(socket) => {}
            io::ErrorKind::WouldBlock => wait = flags,
            io::ErrorKind::Interrupted => {}
            _ => return Err(unless_closed(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::socket::receive_timeout;

    #[test]
    fn a_silence_that_is_limited_ends_and_what_comes_in_time_is_received() {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        receive_timeout(here.as_fd(), 1).expect("a limit");
        let (here, mut byte) = (Kept::from(OwnedFd::from(here)), 0u8);
        let (_, mut receiver) = halves(None, 1);
        // SAFETY: one byte of a local.
        let mut receive =
            || unsafe { receiver.receive_some(&here, &raw mut byte, 1, 0, &Spin::adaptive(Duration::ZERO)) };
        io::Write::write_all(&mut there, &[7]).expect("room");
        assert_eq!(receive().expect("it has come"), 1);
        let began = Instant::now();
        assert_eq!(receive().expect_err("nobody says anything").kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    }
}
