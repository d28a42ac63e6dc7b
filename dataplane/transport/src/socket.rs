//! Socket options that both ends of a session set, and who is at the other end of a local one.

// UNSAFETY: setsockopt and getsockopt.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Small frames leave at once, and a peer that vanished without a word (power, cable, a frozen VM) is noticed
/// within about 11 seconds, whether or not anything is being sent to it.
pub fn tune_tcp(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 5)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 2)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 11_000)
}

/// A time limit on blocking receives, for the handshake; 0 lifts it.
pub fn receive_timeout(socket: BorrowedFd<'_>, seconds: i64) -> io::Result<()> {
    let limit = libc::timeval { tv_sec: seconds, tv_usec: 0 };
    set(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, limit)
}

/// Who connected a local socket, or listens on it, as the namespaces of this process name him.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut len,
        )
    };
    if rc == 0 { Ok(credentials) } else { Err(io::Error::last_os_error()) }
}

fn set<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: `value` is valid for its own size.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
